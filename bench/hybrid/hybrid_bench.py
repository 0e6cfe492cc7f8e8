#!/usr/bin/env python3
"""Steps of a language model split over the processes of this machine: our stages, our DataParallel, PyTorch's FSDP2.

    bench/hybrid/hybrid_bench.py [--write] [--rounds N] [key=value ...]

The same weights and tokens for all; the losses after the last step must agree. Everybody runs in turn, several times, and
the best median counts. Prints a Markdown table; --write also puts it between the marks <!-- bench:hybrid --> and
<!-- /bench:hybrid --> of docs/benchmarks.md. Exit 1 when a promise is not kept.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from report import ROOT, built, cells, peers, publish, run, signed, trireme  # noqa: E402

FSDP = ROOT / "tests/interop/fsdp_gpt.py"
SETTINGS = ["width=512", "layers=4", "words=512", "length=64", "batch=4", "steps=10"]
UNIT = "unit=13"  # MB: one layer of this width, which is what FSDP2 shards by here
ALL = [
    ("data_parallel", "DataParallel", False),
    ("optimizer", "`Shard::optimizer`", False),
    ("gradients", "`Shard::gradients`", False),
    ("parameters", "`Shard::parameters`", False),
    ("gradients", "FSDP2, parameters kept", True),
    ("parameters", "FSDP2", True),
]
MOST = {"optimizer": 1.05, "parameters": 1.3}  # times DataParallel
NEAR = 1e-3  # of the losses
HEAD = """| ranks | who | step, ms | of DataParallel | tensors at the peak, MB | resident memory grew by, MB |
|---:|---|---:|---:|---:|---:|"""


def measure(ranks, mode, theirs, settings, folder):
    """The words of one run."""
    program = [FSDP, mode] if theirs else [built("hybrid_bench"), mode, UNIT]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{peers()}/bin:{os.environ['PATH']}"}
    text = run([trireme(), "launch", "-n", ranks, *program, *settings], folder, timeout=600, env=env)
    found = dict(re.findall(r"(\w+)=(\S+)", next(line for line in text.splitlines() if line.startswith("mode="))))
    return {key: value if key == "mode" else float(value) for key, value in found.items()}


def best_of(rounds, ranks, settings, folder):
    """The fastest run of each."""
    best = {}
    for _ in range(rounds):
        for mode, name, theirs in ALL:
            found = measure(ranks, mode, theirs, settings, folder)
            if name not in best or found["step_ms"] < best[name]["step_ms"]:
                best[name] = found
            print(f"{ranks} ranks, {name}: {found['step_ms']:.0f} ms", file=sys.stderr, flush=True)
    return best


def row(ranks, name, found, beside):
    peak = f"{found['peak'] / 1e6:.0f}" if "peak" in found else ""
    share = found["step_ms"] / beside["step_ms"]
    return f"| {ranks} | {name} | {found['step_ms']:.1f} | {share:.2f} | {peak} | {found['resident'] / 1e6:.0f} |"


def differences(ranks, best):
    beside = best["DataParallel"]
    for name, found in best.items():
        if abs(found["loss"] - beside["loss"]) > NEAR * abs(beside["loss"]):
            yield f"{ranks} ranks, {name}: a loss of {found['loss']}, DataParallel has {beside['loss']}"


def broken_promises(text):
    steps = {(row[0], row[1]): float(row[2]) for row in cells(text)}
    for ranks in dict.fromkeys(ranks for ranks, _ in steps):
        for mode, most in MOST.items():
            share = steps[ranks, f"`Shard::{mode}`"] / steps[ranks, "DataParallel"]
            if share > most:
                yield f"{ranks} ranks, `Shard::{mode}`: {share:.2f} times DataParallel's step, promised {most}"
        for ours, theirs in (("`Shard::gradients`", "FSDP2, parameters kept"), ("`Shard::parameters`", "FSDP2")):
            if steps[ranks, ours] >= steps[ranks, theirs]:
                yield f"{ranks} ranks: {ours} is slower than {theirs}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("settings", nargs="*")
    arguments = parser.parse_args()
    settings = SETTINGS + arguments.settings
    lines, wrong = [HEAD], []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        for ranks in (2, 4):
            best = best_of(arguments.rounds, ranks, settings, scratch)
            lines += [row(ranks, name, found, best["DataParallel"]) for name, found in best.items()]
            wrong += differences(ranks, best)
    parameters = best["DataParallel"]["parameters"] / 1e6
    what = f"A language model of {parameters:.1f} million parameters, Adam; {', '.join(settings)} on each rank, {UNIT}."
    table = "\n".join(lines)
    missed = list(broken_promises(table))
    text = signed(f"{table}\n\n{what}", "bench/hybrid/hybrid_bench.py", missed)
    publish("hybrid", text, arguments.write, wrong + missed)


if __name__ == "__main__":
    main()
