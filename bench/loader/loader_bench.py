#!/usr/bin/env python3
"""Images a second of data::Loader over the number of its workers, and what one of them does with its time.

    bench/loader/loader_bench.py [--write] [--seconds 5] [--rounds 3] [--pictures 512]

From JPEGs of 500 x 375 (about 65 KB), and from packed files of the same list: the JPEGs as they are, and pixels with a
short side of 256. All take turns. Prints two Markdown tables and how many cores a GPU of 8,000 images/s needs; --write
also puts them between the marks <!-- bench:loader --> and <!-- /bench:loader --> of docs/benchmarks.md. Exit 1 when the
aim is missed.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import built, cells, peers, publish, run, signed, trireme  # noqa: E402

LEAST_OF_A_WORKER = 1000  # images a second: 16,000 on 16 cores
GPU = 8000  # images a second that one trains
DISTINCT = 64  # pictures that are made; the list repeats them
FILES, PACK, PIXELS = "JPEG files", "packed JPEGs", "packed pixels, short side 256"
HEAD = "| pictures from | MB | workers | images/s | of a worker |\n|---|---:|---:|---:|---:|"
STAGES_HEAD = "| one worker, one image | us |\n|---|---:|"


def make(count, folder):
    """The pictures, their list, and the packed files: {where from: (words for loader_bench, megabytes)}"""
    pictures = folder / "pictures"
    pictures.mkdir()
    subprocess.run([peers() / "bin/python", HERE.parent / "image/image_peers.py", "make", str(DISTINCT), pictures], check=True)
    names = sorted(path.name for path in pictures.glob("*.jpg"))
    listed = [names[i % len(names)] for i in range(count)]
    (folder / "list.txt").write_text("".join(f"{name} {i % 10}\n" for i, name in enumerate(listed)))
    sources = {FILES: ([], sum((pictures / name).stat().st_size for name in listed) / 1e6)}
    for name, words in ((PACK, []), (PIXELS, ["--short-side", 256])):
        packed = folder / f"{len(sources)}.pack"
        run([trireme(), "pack", "--list", "list.txt", "--root", pictures, "--output", packed, *words], folder, timeout=600)
        sources[name] = ([packed], packed.stat().st_size / 1e6)
    return sources


def bench(what, packed, options, folder):
    return run([built("loader_bench"), options.seconds, what, "list.txt", folder / "pictures", *packed], folder, timeout=600)


def measure(sources, workers, options, folder):
    """{(where from, workers): images a second}: medians over rounds in which all take turns."""
    found = {(name, count): [] for name in sources for count in workers}
    for _ in range(options.rounds):
        for (name, count), values in found.items():
            values.append(float(bench(count, sources[name][0], options, folder)))
            print(f"{name}, {count} workers: {values[-1]:.0f} images/s", file=sys.stderr, flush=True)
    return {key: statistics.median(values) for key, values in found.items()}


def table(found, sources):
    return "\n".join([HEAD, *(f"| {name} | {sources[name][1]:.0f} | {count} | {rate:.0f} | {rate / count:.0f} |"
                              for (name, count), rate in found.items())])


def stages(sources, options, folder):
    lines = [STAGES_HEAD]
    for name, (packed, _) in sources.items():
        for line in bench("stages", packed, options, folder).splitlines():
            stage, _, microseconds = line.rpartition(" ")
            lines.append(f"| {name}: {stage} | {microseconds} |")
    return "\n".join(lines)


def rates(text):
    """{(where from, workers): images a second of a worker}"""
    return {(row[0], int(row[2])): float(row[4]) for row in cells(text) if len(row) == 5}


def broken_promises(text):
    most = max(workers for _, workers in rates(text))
    rate = rates(text)[FILES, most]
    if rate < LEAST_OF_A_WORKER:
        yield f"{FILES}, {most} workers: {rate:.0f} images/s of a worker, promised {LEAST_OF_A_WORKER}"


def cores(text):
    """How many cores a GPU needs."""
    most = max(workers for _, workers in rates(text))
    return [f"A GPU that trains {GPU:,} images/s needs {math.ceil(GPU / rate)} cores of this machine for {name}."
            for (name, workers), rate in rates(text).items() if workers == most]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=512)
    options = parser.parse_args()
    limit = len(os.sched_getaffinity(0))
    workers = sorted({min(2**power, limit) for power in range(limit.bit_length() + 1)})
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        folder = Path(scratch)
        sources = make(options.pictures, folder)
        text = table(measure(sources, workers, options, folder), sources)
        profile = stages(sources, options, folder)
    missed = list(broken_promises(text))
    whole = "\n\n".join([text, " ".join(cores(text)), profile])
    publish("loader", signed(whole, "bench/loader/loader_bench.py", missed), options.write, missed)


if __name__ == "__main__":
    main()
