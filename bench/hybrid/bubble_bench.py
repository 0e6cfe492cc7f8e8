#!/usr/bin/env python3
"""The share of the time in which the ranks of a pipeline wait, by schedule, beside the formula.

    bench/hybrid/bubble_bench.py [--write] [--ranks N] [key=value ...]

The layers take a set time by waiting, so that the ranks need no core each. Prints a Markdown table; --write also puts it
between the marks <!-- bench:bubble --> and <!-- /bench:bubble --> of docs/benchmarks.md. Exit 1 when a bubble is not
within 15 % of its formula.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from report import built, publish, run, signed, trireme  # noqa: E402

SCHEDULES = ("fill_drain", "one_f_one_b", "interleaved", "zero_bubble")
SETTINGS = ["ms=60", "steps=10"]
NEAR = 0.15  # of the formula
HEAD = """| schedule | ranks | stages of a rank | micro-batches | step, ms | bubble, % | formula, % |
|---|---:|---:|---:|---:|---:|---:|"""


def measure(ranks, schedule, batches, settings, folder):
    """The words of one run."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [trireme(), "launch", "-n", ranks, built("bubble_bench"), schedule, f"micro_batches={batches}", *settings]
    text = run(words, folder, timeout=600, env=env)
    return dict(re.findall(r"(\w+)=(\S+)", next(line for line in text.splitlines() if line.startswith("schedule="))))


def row(ranks, found):
    shares = [f"{100 * float(found[key]):.1f}" for key in ("bubble", "formula")]
    return f"| `{found['schedule']}` | {ranks} | {found['chunks']} | {found['micro_batches']} | {found['step_ms']} | " + (
        " | ".join(shares) + " |"
    )


def broken_promises(table):
    """Of the rows of a table."""
    for line in table.splitlines():
        found = re.match(r"\| `(\w+)` \| \d+ \| \d+ \| (\d+) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|", line)
        if found and abs(float(found[3]) - float(found[4])) > NEAR * float(found[4]):
            yield f"{found[1]}, {found[2]} micro-batches: a bubble of {found[3]} %; the formula says {found[4]} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("settings", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        all_found = [
            measure(arguments.ranks, schedule, batches, SETTINGS + arguments.settings, scratch)
            for batches in (8, 16)
            for schedule in SCHEDULES
        ]
    text = "\n".join([HEAD] + [row(arguments.ranks, found) for found in all_found])
    missed = list(broken_promises(text))
    publish("bubble", signed(text, "bench/hybrid/bubble_bench.py", missed), arguments.write, missed)


if __name__ == "__main__":
    main()
