#!/usr/bin/env python3
"""How long two processes take from command to exit, by Trireme, torchrun and Paddle: doing nothing, and training a tiny
model (two linear layers, ten steps, gradients averaged).

    bench/launch/launch_bench.py [--runs 30] [--peer-runs 7] [--write]

All launchers take turns on the same machine in the same run. Prints Markdown tables; --write also puts them between the
marks <!-- bench:launch --> and <!-- /bench:launch --> of docs/benchmarks.md, and the medians into README.md. Exit 1
when a promise is not kept.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import ROOT, built, cells, peers, publish, replace, run, signed, trireme  # noqa: E402

PROMISES_MS = {"nothing": 100, "training": 600}
TITLES = {"nothing": "two processes that do nothing, start to end", "training": "a tiny model, ten steps, start to end"}


def launchers():
    """{what: [(name, command, is a peer)]}; the commands run in a folder that holds nothing.sh."""
    python, torchrun = peers() / "bin/python", peers() / "bin/torchrun"
    paddle = [python, "-m", "paddle.distributed.launch", "--nproc_per_node", 2]
    return {
        "nothing": [
            ("`trireme launch -n 2 true`", [trireme(), "launch", "-n", 2, "true"], False),
            (
                "`torchrun --nproc-per-node 2 --no-python true`",
                [torchrun, "--nproc-per-node", 2, "--no-python", "true"],
                True,
            ),
            ("`python -m paddle.distributed.launch --nproc_per_node 2 nothing.sh`", [*paddle, "./nothing.sh"], True),
        ],
        "training": [
            ("`trireme launch -n 2 tiny_job`", [trireme(), "launch", "-n", 2, built("tiny_job")], False),
            (
                "`torchrun --nproc-per-node 2 tiny_torch.py`",
                [torchrun, "--nproc-per-node", 2, HERE / "tiny_torch.py"],
                True,
            ),
            (
                "`python -m paddle.distributed.launch --nproc_per_node 2 tiny_paddle.py`",
                [*paddle, HERE / "tiny_paddle.py"],
                True,
            ),
        ],
    }


def milliseconds(command, folder):
    before = time.perf_counter()
    run(command, folder)
    return (time.perf_counter() - before) * 1000


def measure(candidates, runs, peer_runs, folder):
    """{name: [milliseconds]}, the launchers taking turns; one run of each before, to fill the caches."""
    times = {name: [] for name, _, _ in candidates}
    for name, command, _ in candidates:
        run(command, folder)
    for turn in range(max(runs, peer_runs)):
        for name, command, is_peer in candidates:
            if turn < (peer_runs if is_peer else runs):
                times[name].append(milliseconds(command, folder))
    return times


def table(title, times):
    own = statistics.median(next(iter(times.values())))
    lines = [f"| {title} | median ms | fastest ms | runs | times Trireme |", "|---|---:|---:|---:|---:|"]
    for name, values in times.items():
        median = statistics.median(values)
        lines.append(f"| {name} | {median:.1f} | {min(values):.1f} | {len(values)} | {median / own:.1f} |")
    return "\n".join(lines)


def broken_promises(text):
    for (command, median, *_), most in zip((row for row in cells(text) if row[0].startswith("`trireme")), PROMISES_MS.values(), strict=True):
        if float(median) > most:
            yield f"{command} takes {median} ms, promised {most}"


def write_medians(results):
    for what, row in (("nothing", "that do nothing"), ("training", "that train a tiny model for ten steps")):
        own, torchrun, paddle = (statistics.median(values) / 1000 for values in results[what].values())
        mine = f"{own * 1000:.0f} ms" if own < 0.1 else f"{own:.2f} s"
        text = f"| {row} | {mine} | {torchrun:.1f} s | {paddle:.1f} s |\n"
        replace(ROOT / "README.md", rf"\| {row} \|[^\n]*\n", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--peer-runs", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md and README.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        (Path(scratch) / "nothing.sh").write_text("#!/bin/sh\n")
        (Path(scratch) / "nothing.sh").chmod(0o755)
        results = {what: measure(candidates, options.runs, options.peer_runs, scratch)
                   for what, candidates in launchers().items()}
    tables = "\n\n".join(table(TITLES[what], times) for what, times in results.items())
    missed = list(broken_promises(tables))
    if options.write:
        write_medians(results)
    publish("launch", signed(tables, "bench/launch/launch_bench.py", missed), options.write, missed)


if __name__ == "__main__":
    main()
