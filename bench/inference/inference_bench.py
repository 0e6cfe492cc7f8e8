#!/usr/bin/env python3
"""How long a batch takes on the CPU: Trireme with OpenVINO, OpenVINO's own Python, and ONNX Runtime.

    bench/inference/inference_bench.py [--seconds 3] [--rounds 5] [--write]

`trireme export` writes the models with random weights; all take turns on the same files and the same numbers in the same
run, and their scores are compared. Prints a Markdown table; --write also puts it between the marks <!-- bench:inference -->
and <!-- /bench:inference --> of docs/benchmarks.md. Exit 1 when a result was wrong or a promise is not kept.
"""

import argparse
import random
import sys
import tempfile
from array import array
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import built, peers, publish, run, signed, trireme  # noqa: E402

MOST = 1.05       # times OpenVINO's own Python
TOLERANCE = {"fp32": 1e-4, "bf16": 0.05}
MODELS = {"MobileNetV3-small": "MobileNetV3_small_x1_0", "ResNet50": "ResNet50"}
BATCHES = (1, 8)
NAMES = {"ours": "Trireme, engine openvino", "openvino": "OpenVINO, Python", "onnxruntime": "ONNX Runtime, Python"}
CASES = [(precision, who) for precision, whos in (("fp32", NAMES), ("bf16", ("ours", "openvino"))) for who in whos]
CONFIG = """\
Global: {{output_dir: out, device: cpu, epochs: 1, image_shape: [3, 224, 224], save_inference_dir: {folder}, seed: 1}}
Arch: {{name: {arch}, class_num: 1000, pretrained: False}}
Loss: {{Eval: [CELoss: {{weight: 1.0}}]}}
DataLoader:
  Eval:
    dataset: {{name: Synthetic}}
    sampler: {{name: DistributedBatchSampler, batch_size: 1, drop_last: False, shuffle: False}}
"""


def make_model(title, folder):
    (folder / "config.yaml").write_text(CONFIG.format(folder=title, arch=MODELS[title]))
    run([trireme(), "export", "-c", "config.yaml"], folder, timeout=300)


def make_batch(batch, folder):
    generator = random.Random(batch)
    numbers = array("f", (generator.gauss(0, 1) for _ in range(batch * 3 * 224 * 224)))
    (folder / f"{batch}.raw").write_bytes(numbers.tobytes())


def median_ms(title, batch, precision, who, options, folder):
    """Of one process's batches."""
    files = [precision, batch, f"{batch}.raw", f"{title}-{batch}-{precision}-{who}.raw"]
    if who == "ours":
        words = [built("inference_bench"), options.seconds, title, "openvino", *files]
    else:
        words = [peers() / "bin/python", HERE / "inference_peers.py", who, options.seconds, f"{title}/inference.onnx", *files]
    return float(run(words, folder, timeout=300).split()[0])


def measure(options, folder):
    """{(title, batch): {(precision, who): ms}}: the best of several rounds in which all take turns, each a median."""
    times = {(title, batch): {case: [] for case in CASES} for title in MODELS for batch in BATCHES}
    for _ in range(options.rounds):
        for (title, batch), found in times.items():
            for (precision, who), values in found.items():
                values.append(median_ms(title, batch, precision, who, options, folder))
    return {key: {case: min(values) for case, values in found.items()} for key, found in times.items()}


def table(found):
    lines = ["| one batch, 3x224x224 | batch | precision | ms | times OpenVINO's Python |", "|---|---:|---|---:|---:|"]
    for (title, batch), times in found.items():
        for (precision, who), ms in times.items():
            against = ms / times[precision, "openvino"]
            lines.append(f"| {title}: {NAMES[who]} | {batch} | {precision} | {ms:.2f} | {against:.2f} |")
    return "\n".join(lines)


def difference(left, right):
    pairs = zip(*(memoryview(path.read_bytes()).cast("f") for path in (left, right)), strict=True)
    return max(abs(a - b) for a, b in pairs)


def broken_promises(found, folder):
    for (title, batch), times in found.items():
        for precision, who in times:
            reference = folder / f"{title}-{batch}-{precision}-openvino.raw"
            apart = difference(folder / f"{title}-{batch}-{precision}-{who}.raw", reference)
            if apart > TOLERANCE[precision]:
                yield f"{title}, batch {batch}, {precision}: the scores of {who} and OpenVINO differ by {apart:.1g}"
        for precision in ("fp32", "bf16"):
            against = times[precision, "ours"] / times[precision, "openvino"]
            if against > MOST:
                yield f"{title}, batch {batch}, {precision}: {against:.2f} times OpenVINO's Python, promised {MOST}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        folder = Path(scratch)
        for title in MODELS:
            make_model(title, folder)
        for batch in BATCHES:
            make_batch(batch, folder)
        found = measure(options, folder)
        broken = list(broken_promises(found, folder))
    text = signed(table(found), "bench/inference/inference_bench.py", broken)
    publish("inference", text, options.write, broken)


if __name__ == "__main__":
    main()
