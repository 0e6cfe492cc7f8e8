#!/usr/bin/env python3
"""Runs all benches that need no GPU and no hour, one after the other: `make bench`.

    bench/run_all.py [--write] [--plots]

A bench that misses a promise does not stop the others; the names of those that failed come at the end, with exit 1.
--plots runs none, and only draws the plots of docs/pictures again, from the tables that are recorded.
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "support"))
from report import PICTURES, section  # noqa: E402

BENCHES = ["launch", "launch/scale", "allreduce", "parameter_check", "watch", "hybrid", "hybrid/bubble", "step", "step --ablation", "scaling",
           "inference", "image", "loader", "speedup"]
BY_HAND = ["training", "gpu", "gpu/gpu_step"]  # an hour, or a GPU
PLOTS = {"allreduce": "allreduce", "step": "step", "gpu_step": "gpu/gpu_step"}  # mark and script


def script_of(name):
    """`step` is bench/step/step_bench.py."""
    folder, _, last = name.rpartition("/")
    return HERE / (folder or last) / f"{last}_bench.py"


def run_all(commands):
    """Every command; those that failed, with how they ended."""
    failed = []
    for command in commands:
        print(f"== {' '.join(map(str, command))}", file=sys.stderr, flush=True)
        code = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL).returncode
        if code:
            failed.append(f"{' '.join(map(str, command))}: exit {code}")
    return failed


def plots():
    """{file: text} of all plots, from the recorded tables."""
    drawn = {}
    for mark, script in PLOTS.items():
        spec = importlib.util.spec_from_file_location(mark, script_of(script))
        bench = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bench)
        drawn[PICTURES / f"{mark}.svg"] = bench.plot(section(mark))
    return drawn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md and README.md")
    parser.add_argument("--plots", action="store_true", help="only draw the recorded tables again")
    options = parser.parse_args()
    if options.plots:
        for path, text in plots().items():
            path.write_text(text)
        return
    words = ["--write"] if options.write else []
    failed = run_all([script_of(name.split()[0]), *name.split()[1:], *words] for name in BENCHES)
    if failed:
        sys.exit("\n".join([f"{len(failed)} of {len(BENCHES)} benches failed:", *failed]))


if __name__ == "__main__":
    main()
