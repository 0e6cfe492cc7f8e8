#!/usr/bin/env python3
"""How long a launcher takes to start two processes that do nothing and to end: Trireme beside torchrun and Paddle.

    bench/launch/launch_bench.py [--runs 30] [--peer-runs 7] [--write]

All launchers take turns on the same machine in the same run. Prints a Markdown table; --write also puts it between the
marks <!-- bench:launch --> and <!-- /bench:launch --> of docs/benchmarks.md, and the medians into README.md.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- bench:launch -->", "<!-- /bench:launch -->"
LIMIT_MS = 100  # what the launcher promises


def peers():
    asked = subprocess.run(
        ["bash", ROOT / "setup/setup.sh", "where", "peers"], stdout=subprocess.PIPE, text=True, check=True
    )
    folder = Path(asked.stdout.strip())
    if not (folder / "bin/python").exists():
        sys.exit(f"no Python peers in {folder}; run setup/setup.sh interop")
    return folder


def launchers(folder, trireme):
    """[(name, command, is a peer)]; the commands run in a folder that holds nothing.sh."""
    python = peers() / "bin/python"
    return [
        ("`trireme launch -n 2 true`", [trireme, "launch", "-n", "2", "true"], False),
        (
            "`torchrun --nproc-per-node 2 --no-python true`",
            [peers() / "bin/torchrun", "--nproc-per-node", "2", "--no-python", "true"],
            True,
        ),
        (
            "`python -m paddle.distributed.launch --nproc_per_node 2 nothing.sh`",
            [python, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", folder / "nothing.sh"],
            True,
        ),
    ]


def run_once(command, folder):
    """Milliseconds from start to end; a launcher that fails ends the benchmark."""
    before = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    elapsed = (time.perf_counter() - before) * 1000
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
    return elapsed


def measure(candidates, runs, peer_runs, folder):
    """{name: [milliseconds]}, the launchers taking turns; one run of each before, to fill the caches."""
    times = {name: [] for name, _, _ in candidates}
    for name, command, _ in candidates:
        run_once(command, folder)
    for turn in range(max(runs, peer_runs)):
        for name, command, is_peer in candidates:
            if turn < (peer_runs if is_peer else runs):
                times[name].append(run_once(command, folder))
    return times


def machine_facts():
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    kernel = os.uname().release.split("-")[0]
    return f"{len(os.sched_getaffinity(0))} cores, {model[1] if model else 'unknown CPU'}, Linux {kernel}"


def table(times):
    own = statistics.median(next(iter(times.values())))
    lines = [
        "| two processes that do nothing, start to end | median ms | fastest ms | runs | times Trireme |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, values in times.items():
        median = statistics.median(values)
        lines.append(f"| {name} | {median:.1f} | {min(values):.1f} | {len(values)} | {median / own:.1f} |")
    return "\n".join(lines)


def replace(path, pattern, text):
    page, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.S)
    if count != 1:
        sys.exit(f"{path}: the place for the table is not there ({pattern})")
    path.write_text(page)


def write_pages(times, text):
    replace(ROOT / "docs/benchmarks.md", f"{BEGIN}.*?{END}", f"{BEGIN}\n{text}\n{END}")
    own, torchrun, paddle = (statistics.median(values) for values in times.values())
    row = f"how it is measured](docs/benchmarks.md)) | {own:.0f} ms | {torchrun / 1000:.1f} s | {paddle / 1000:.1f} s |"
    replace(ROOT / "README.md", r"how it is measured\]\(docs/benchmarks.md\)\) \|[^\n]*\|", row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=os.environ.get("TRIREME", ROOT / "build/bin/trireme"))
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--peer-runs", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md and README.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        folder = Path(scratch)
        (folder / "nothing.sh").write_text("#!/bin/sh\n")
        (folder / "nothing.sh").chmod(0o755)
        times = measure(launchers(folder, options.trireme), options.runs, options.peer_runs, folder)
    text = f"{table(times)}\n\nMachine: {machine_facts()}. Made by `bench/launch/launch_bench.py`."
    print(text)
    if options.write:
        write_pages(times, text)
    own = statistics.median(next(iter(times.values())))
    if own >= LIMIT_MS:
        sys.exit(f"`trireme launch -n 2 true` takes {own:.1f} ms; the limit is {LIMIT_MS} ms")


if __name__ == "__main__":
    main()
