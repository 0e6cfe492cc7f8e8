#!/usr/bin/env python3
"""Training steps on the CPU of this machine: ours, PyTorch eager and compiled, Paddle.

    bench/step/step_bench.py [--write] [--rounds N] [--only NETWORK]
    bench/step/step_bench.py --ablation [--write] …        # ours alone: each lever switched off, one at a time

All run in turn, several times, on the same pictures; the fastest median of each counts. Ours and PyTorch begin with the
same weights, and their first losses must agree. Prints a Markdown table; --write also puts it between the marks
<!-- bench:step --> and <!-- /bench:step --> (of the levers: bench:ablation) of docs/benchmarks.md. Exit 1 when results
differ or a promise is not kept.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import plots  # noqa: E402
from report import built, cells, peers, publish, run, signed  # noqa: E402

NETWORKS = {"mobilenet_v3_small": (64, 16), "resnet50": (16, 8)}  # batch, steps
PEERS = {"eager": "PyTorch eager, channels last", "compile": "torch.compile", "paddle": "Paddle"}
# What ours goes without: what it is called, the variables, and what else step_bench is told.
ALL_LEVERS = "Trireme"
PLAIN = "Trireme, layer by layer (TRIREME_FUSED=0)"
OURS = {PLAIN: ({"TRIREME_FUSED": "0"}, []), ALL_LEVERS: ({}, [])}
LEVERS = {
    "nothing": ({}, []),
    "blocks as one (`TRIREME_WITHOUT=blocks`)": ({"TRIREME_WITHOUT": "blocks"}, []),
    "fused layers (`TRIREME_FUSED=0`)": ({"TRIREME_FUSED": "0"}, []),
    "fused optimizer (`TRIREME_WITHOUT=fused_optimizers`)": ({"TRIREME_WITHOUT": "fused_optimizers"}, []),
    "streaming stores (`TRIREME_WITHOUT=streaming_stores`)": ({"TRIREME_WITHOUT": "streaming_stores"}, []),
    "memory that is kept (`TRIREME_SHARED_TENSORS=0`)": ({"TRIREME_SHARED_TENSORS": "0"}, []),
    "channels last (`TRIREME_CHANNELS_LAST=0`)": ({"TRIREME_CHANNELS_LAST": "0"}, ["channels_first"]),
    "AVX-512 (`TRIREME_SIMD=avx2`)": ({"TRIREME_SIMD": "avx2"}, []),
    "vectors (`TRIREME_SIMD=portable`)": ({"TRIREME_SIMD": "portable"}, []),
}
# Times as fast as the peer.
PROMISES = {"mobilenet_v3_small": {"eager": 2.3, "compile": 2.0, "paddle": 8.0}, "resnet50": {"eager": 1.25, "paddle": 2.5}}
NEAR = {"loss0": 1e-4, "loss4": 2e-2}  # the first loss, and that after four steps of a large network, where roundings grow
HEAD = "| network, batch | who | images/s | step, ms | first step after, s | ours is |\n|---|---|---:|---:|---:|---:|"
ABLATION_HEAD = "| network, batch | without | images/s | step, ms | of the speed with all |\n|---|---|---:|---:|---:|"


def measure(command, folder, variables=None):
    """The words of one run."""
    env = {**os.environ, "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), **(variables or {})}
    text = run(command, folder, timeout=1200, env=env)
    line = next(line for line in text.splitlines() if line.startswith("step_ms="))
    return {key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", line)}


def measure_peer(who, network, weights, folder):
    batch, steps = NETWORKS[network]
    return measure([peers() / "bin/python", HERE / "step_peers.py", who, network, batch, 6 if who == "paddle" else steps, weights], folder)


def measure_ours(how, network, weights, folder):
    batch, steps = NETWORKS[network]
    variables, words = how
    return measure([built("step_bench"), network, batch, steps, weights, *words], folder, variables)


def best_of(rounds, network, runs):
    """The fastest run of each. `runs`: {name: a function that runs it once}"""
    best = {}
    for _ in range(rounds):
        for name, once in runs.items():
            found = once()
            print(f"{network}, {name}: {found['images']:.1f} images/s", file=sys.stderr, flush=True)
            if name not in best or found["images"] > best[name]["images"]:
                best[name] = found
    return best


def beside_peers(rounds, network, folder):
    weights = Path(folder) / f"{network}.safetensors"
    run([peers() / "bin/python", HERE / "step_peers.py", "weights", network, weights], folder, timeout=300)
    runs = {name: (lambda who=who: measure_peer(who, network, weights, folder)) for who, name in PEERS.items()}
    runs |= {name: (lambda how=how: measure_ours(how, network, weights, folder)) for name, how in OURS.items()}
    return best_of(rounds, network, runs)


def without_levers(rounds, network, folder):
    return best_of(rounds, network, {name: (lambda how=how: measure_ours(how, network, "-", folder)) for name, how in LEVERS.items()})


def rows(network, best):
    ours = best[ALL_LEVERS]["images"]
    for who, found in best.items():
        times = "" if who == ALL_LEVERS else f"{ours / found['images']:.2f} x"
        yield (f"| {network}, {NETWORKS[network][0]} | {who} | {found['images']:.1f} | {found['step_ms']:.0f} "
               f"| {found['first_ms'] / 1000:.1f} | {times} |")


def ablation_rows(network, best):
    for name, found in best.items():
        share = found["images"] / best["nothing"]["images"]
        yield f"| {network}, {NETWORKS[network][0]} | {name} | {found['images']:.1f} | {found['step_ms']:.0f} | {share:.2f} |"


def differences(network, best, names, beside):
    for name in names:
        for key, near in NEAR.items():
            expected = best[beside][key]
            if abs(best[name][key] - expected) > near * abs(expected):
                yield f"{network}, {name}: {key} is {best[name][key]}, but {expected} of {beside}"


def figures(text):
    """{network: {who: images a second}}"""
    found = {}
    for place, who, images, *_ in cells(text):
        found.setdefault(place.split(",")[0], {})[who] = float(images)
    return found


def broken_promises(text):
    for place, who, *_, times in cells(text):
        least = PROMISES[place.split(",")[0]].get(next((short for short, name in PEERS.items() if name == who), None))
        if least and float(times.removesuffix("x")) < least:
            yield f"{place}: {times} {who}, promised {least}"


def plot(text):
    return plots.bars("Training on a CPU: images a second",
                      {network: [(who, images, who.startswith("Trireme")) for who, images in found.items()]
                       for network, found in figures(text).items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(NETWORKS))
    options = parser.parse_args()
    lines, wrong = [ABLATION_HEAD if options.ablation else HEAD], []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        for network in [options.only] if options.only else NETWORKS:
            if options.ablation:
                best = without_levers(options.rounds, network, scratch)
                lines += ablation_rows(network, best)
                wrong += differences(network, best, LEVERS, "nothing")
            else:
                best = beside_peers(options.rounds, network, scratch)
                lines += rows(network, best)
                wrong += differences(network, best, OURS, PEERS["eager"])
    table = "\n".join(lines)
    if options.ablation:
        return publish("ablation", signed(table, "bench/step/step_bench.py --ablation"), options.write, wrong)
    missed = list(broken_promises(table))
    publish("step", signed(table, "bench/step/step_bench.py", missed), options.write, wrong + missed, plot)


if __name__ == "__main__":
    main()
