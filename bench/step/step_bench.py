#!/usr/bin/env python3
"""Training steps on the CPU of this machine: ours, PyTorch eager and compiled, Paddle.

    bench/step/step_bench.py [--write] [--rounds N] [--only NETWORK]

All run in turn, several times, on the same pictures; the fastest median of each counts. Ours and PyTorch begin with the
same weights, and their first losses must agree. Prints a Markdown table; --write also puts it between the marks
<!-- bench:step --> and <!-- /bench:step --> of docs/benchmarks.md. Exit 1 when results differ or a promise is not kept.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import built, peers, run, signed, write_table  # noqa: E402

NETWORKS = {"mobilenet_v3_small": (64, 16), "resnet50": (16, 8)}  # batch, steps
WHO = {"eager": "PyTorch eager, channels last", "compile": "torch.compile", "paddle": "Paddle",
       "plain": "Trireme, layer by layer (TRIREME_FUSED=0)", "ours": "Trireme"}
# Times as fast as the peer.
PROMISES = {"mobilenet_v3_small": {"eager": 2.3, "compile": 2.0, "paddle": 8.0}, "resnet50": {"eager": 1.25, "paddle": 2.5}}
NEAR = {"loss0": 1e-4, "loss4": 2e-2}  # the first loss, and that after four steps of a large network, where roundings grow
HEAD = "| network, batch | who | images/s | step, ms | first step after, s | ours is |\n|---|---|---:|---:|---:|---:|"


def measure(who, network, weights, folder):
    """The words of one run."""
    batch, steps = NETWORKS[network]
    env = {**os.environ, "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    if who in ("ours", "plain"):
        command = [built("step_bench"), network, batch, steps, weights]
        env["TRIREME_FUSED"] = "0" if who == "plain" else "1"
    else:
        command = [peers() / "bin/python", HERE / "step_peers.py", who, network, batch, 6 if who == "paddle" else steps, weights]
    text = run(command, folder, timeout=1200, env=env)
    line = next(line for line in text.splitlines() if line.startswith("step_ms="))
    return {key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", line)}


def best_of(rounds, network, folder):
    """The fastest run of each."""
    weights = Path(folder) / f"{network}.safetensors"
    run([peers() / "bin/python", HERE / "step_peers.py", "weights", network, weights], folder, timeout=300)
    best = {}
    for _ in range(rounds):
        for who in WHO:
            found = measure(who, network, weights, folder)
            print(f"{network}, {WHO[who]}: {found['images']:.1f} images/s", file=sys.stderr, flush=True)
            if who not in best or found["images"] > best[who]["images"]:
                best[who] = found
    return best


def rows(network, best):
    ours = best["ours"]["images"]
    for who, found in best.items():
        times = "" if who == "ours" else f"{ours / found['images']:.2f} x"
        yield (f"| {network}, {NETWORKS[network][0]} | {WHO[who]} | {found['images']:.1f} | {found['step_ms']:.0f} "
               f"| {found['first_ms'] / 1000:.1f} | {times} |")


def problems(network, best):
    for who in ("plain", "ours"):
        for key, near in NEAR.items():
            if abs(best[who][key] - best["eager"][key]) > near * abs(best["eager"][key]):
                yield f"{network}, {WHO[who]}: {key} is {best[who][key]}, PyTorch's {best['eager'][key]}"
    for who, least in PROMISES[network].items():
        times = best["ours"]["images"] / best[who]["images"]
        if times < least:
            yield f"{network}: {times:.2f} times {WHO[who]}; the promise is {least}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(NETWORKS))
    options = parser.parse_args()
    lines, wrong = [HEAD], []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        for network in [options.only] if options.only else NETWORKS:
            best = best_of(options.rounds, network, scratch)
            lines += rows(network, best)
            wrong += problems(network, best)
    text = signed("\n".join(lines), "bench/step/step_bench.py")
    print(text)
    if options.write:
        write_table("step", text)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
