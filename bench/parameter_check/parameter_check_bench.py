#!/usr/bin/env python3
"""What DataParallel's checks cost beside a training step, on two processes of this machine.

    bench/parameter_check/parameter_check_bench.py [--write]

Prints a Markdown table; --write also puts it between the marks <!-- bench:parameter_check --> and
<!-- /bench:parameter_check --> of docs/benchmarks.md. Exit 1 when a promise is not kept.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from report import built, publish, run, signed, trireme  # noqa: E402

INTERVAL, MOST_SHARE = 200, 0.1  # percent of the time of so many steps
MEASURED = re.compile(r"^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.M)
HEAD = f"""| network | parameters, MB | step, ms | comparison, ms | every {INTERVAL} steps, % | look at the model, us |
|---|---:|---:|---:|---:|---:|"""
ROW = re.compile(r"^\| ([^|]+) \| [\d.]+ \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|$", re.M)


def table(text):
    lines = [HEAD]
    for name, size, step, check, look in MEASURED.findall(text):
        share = 100 * float(check) / (INTERVAL * float(step))
        lines.append(f"| {name} | {size} | {step} | {check} | {share:.3f} | {look} |")
    return "\n".join(lines)


def broken_promises(text):
    rows = ROW.findall(text)
    if not rows:
        yield "no row was measured"
    for name, _, share, _ in rows:
        if float(share) >= MOST_SHARE:
            yield f"{name}: the comparison takes {share} %, promised {MOST_SHARE} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        measured = run([trireme(), "launch", "-n", 2, built("parameter_check_bench")], scratch, timeout=600)
    broken = list(broken_promises(table(measured)))
    text = signed(table(measured), "bench/parameter_check/parameter_check_bench.py", broken)
    publish("parameter_check", text, arguments.write, broken)


if __name__ == "__main__":
    main()
