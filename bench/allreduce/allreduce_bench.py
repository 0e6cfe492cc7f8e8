#!/usr/bin/env python3
"""all_reduce between two processes of this machine: Trireme beside libtorch's Gloo.

    bench/allreduce/allreduce_bench.py [--rounds 5] [--write]

Runs `trireme launch -n 2 allreduce_bench` several times, because where a process's memory lies changes from start to
start and matters, and prints a Markdown table of the medians over the rounds; --write also puts it between the marks
<!-- bench:allreduce --> and <!-- /bench:allreduce --> of docs/benchmarks.md, and the gain at 25 MB into README.md.
Exit 1 when a result was wrong or a promise is not kept.
"""

import argparse
import re
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import plots  # noqa: E402
from report import ROOT, built, publish, replace, run, signed, trireme  # noqa: E402

BIG, LEAST_GAIN = 25 << 20, 5.0  # at 25 MB at least five times as fast as Gloo
SMALL, MOST_MICROSECONDS = 1 << 10, 20.0
ROW = re.compile(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| [\d.]+ \| (\d+)(?:, (\d+))? \|$", re.M)


def rows(text):
    """{bytes: (Gloo's microseconds, ours, wrong elements of both)}"""
    return {int(size): (float(gloo), float(ours), int(a) + int(b or 0)) for size, gloo, ours, a, b in ROW.findall(text)}


def medians(rounds):
    """One table of several: the median of each time, the sum of the wrong elements."""
    return {
        size: tuple(statistics.median(found[size][i] for found in rounds) for i in (0, 1))
        + (sum(found[size][2] for found in rounds),)
        for size in rounds[0]
    }


def table(found):
    lines = [
        "| bytes | Gloo, us | Trireme (shm), us | times faster | Trireme GB/s | wrong |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for size, (gloo, ours, wrong) in found.items():
        lines.append(f"| {size} | {gloo:.1f} | {ours:.1f} | {gloo / ours:.1f} | {size / ours / 1000:.2f} | {wrong} |")
    return "\n".join(lines)


def broken_promises(found):
    for size, (gloo, ours, wrong) in found.items():
        if wrong:
            yield f"{size} bytes: {wrong} wrong elements"
        if ours > gloo:
            yield f"{size} bytes: {ours} us, slower than Gloo's {gloo} us"
    gloo, ours, _ = found[BIG]
    if gloo / ours < LEAST_GAIN:
        yield f"{BIG} bytes: {gloo / ours:.1f} times as fast as Gloo, promised {LEAST_GAIN:.0f}"
    if found[SMALL][1] > MOST_MICROSECONDS:
        yield f"{SMALL} bytes: {found[SMALL][1]} us, promised {MOST_MICROSECONDS:.0f} us"


def plot(text):
    found = rows(text)
    return plots.lines("all_reduce of two processes: time by size", plots.bytes_text, plots.microseconds_text,
                       {"Trireme": [(size, ours) for size, (_, ours, _) in found.items()],
                        "Gloo": [(size, gloo) for size, (gloo, _, _) in found.items()]})


def write_gain(found):
    gloo, ours, _ = found[BIG]
    place = "[beside Gloo](docs/benchmarks.md#all_reduce): "
    replace(ROOT / "README.md", re.escape(place) + r"[^)]*\)", f"{place}{gloo / ours:.1f} times as fast)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md and README.md")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        command = [trireme(), "launch", "-n", 2, built("allreduce_bench")]
        found = medians([rows(run(command, scratch, timeout=600)) for _ in range(options.rounds)])
    if BIG not in found or SMALL not in found:
        sys.exit(f"no rows of {BIG} and {SMALL} bytes in {table(found)}")
    broken = list(broken_promises(found))
    if options.write:
        write_gain(found)
    publish("allreduce", signed(table(found), "bench/allreduce/allreduce_bench.py", broken), options.write, broken, plot)


if __name__ == "__main__":
    main()
