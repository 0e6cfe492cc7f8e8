#!/usr/bin/env python3
"""How many pictures a second one thread turns from JPEG into the tensor a network reads: Trireme, OpenCV with numpy as in
PaddleClas, and torchvision with Pillow.

    bench/image/image_bench.py [--seconds 3] [--rounds 3] [--write]

All take turns on the same generated JPEGs (500x375, about 65 KB) in the same run. Prints a Markdown table; --write also
puts it between the marks <!-- bench:image --> and <!-- /bench:image --> of docs/benchmarks.md. Exit 1 when a result was
wrong or a promise is not kept.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import built, cells, peers, publish, run, signed  # noqa: E402

LEAST_GAIN = 3.0  # times torchvision, in training
PICTURES = 16
TITLES = {
    "train": "random crop 224, flip, normalise",
    "eval": "short side 256, middle 224, normalise",
    "pphgnet": "PPHGNet: bicubic crop, RandAugment, erasing",
}
NAMES = {"ours": "Trireme", "full": "Trireme, whole pictures decoded", "cv2": "OpenCV and numpy", "torchvision": "torchvision and Pillow"}
CASES = {"train": ["ours", "full", "cv2", "torchvision"], "eval": ["ours", "cv2", "torchvision"],
         "pphgnet": ["ours", "torchvision"]}


def rate(what, who, seconds, folder):
    """Pictures a second, in a process of its own."""
    files = sorted(Path(folder).glob("*.jpg"))
    if who in ("ours", "full"):
        words = [built("image_bench"), seconds, "train-full" if who == "full" else what, f"{folder}/ours.raw", *files]
    else:
        words = [peers() / "bin/python", HERE / "image_peers.py", seconds, f"{who}-{what}", f"{folder}/cv2.raw", *files]
    pictures, taken = run(words, folder, timeout=300).split()
    return int(pictures) / float(taken)


def measure(options, folder):
    """{what: {who: pictures a second}}: the medians over rounds in which all take turns."""
    rates = {what: {who: [] for who in who_all} for what, who_all in CASES.items()}
    for _ in range(options.rounds):
        for what, found in rates.items():
            for who, values in found.items():
                values.append(rate(what, who, options.seconds, folder))
    return {what: {who: statistics.median(values) for who, values in found.items()} for what, found in rates.items()}


def table(found):
    lines = ["| one thread, JPEG 500x375 to 3x224x224 floats | pictures/s | times torchvision |", "|---|---:|---:|"]
    for what, rates in found.items():
        for who, value in rates.items():
            lines.append(f"| {TITLES[what]}: {NAMES[who]} | {value:.0f} | {value / rates['torchvision']:.1f} |")
    return "\n".join(lines)


def differences(folder):
    if (Path(folder) / "ours.raw").read_bytes() != (Path(folder) / "cv2.raw").read_bytes():
        yield "the evaluated tensor of the first picture differs from that of OpenCV"


def broken_promises(text):
    rates = {case: float(rate) for case, rate, _ in cells(text)}
    for what in ("train", "eval"):
        gain = rates[f"{TITLES[what]}: {NAMES['ours']}"] / rates[f"{TITLES[what]}: {NAMES['torchvision']}"]
        if gain < LEAST_GAIN:
            yield f"{TITLES[what]}: {gain:.1f} times torchvision, promised {LEAST_GAIN:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        subprocess.run([peers() / "bin/python", HERE / "image_peers.py", "make", str(PICTURES), scratch], check=True)
        found = measure(options, scratch)
        wrong = list(differences(scratch))
    missed = list(broken_promises(table(found)))
    publish("image", signed(table(found), "bench/image/image_bench.py", missed), options.write, wrong + missed)


if __name__ == "__main__":
    main()
