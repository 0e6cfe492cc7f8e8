#!/usr/bin/env python3
"""Trains what docs/train.md promises and puts the figures there.

    bench/training/training_bench.py accuracy  [--write]    LeNet and MobileNetV3-small on all of Fashion-MNIST, two processes
    bench/training/training_bench.py precision [--write]    ResNet50 in float32, bfloat16 and float16, 200 steps; needs a GPU
    bench/training/training_bench.py fused     [--write]    MobileNetV3-small fused and layer by layer, two tasks, three seeds; CPU

Without a GPU MobileNetV3-small trains on the CPU, which takes about an hour on two cores. Exit 1 when an accuracy is below
0.90, a loss in low precision does not fall as it does in float32, or the mean accuracies fused and layer by layer differ by
more than 0.01.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import ROOT, built, machine_facts, replace, trireme  # noqa: E402

PAGE = ROOT / "docs/train.md"
CONFIGS = "configs/classification"
LEAST_ACCURACY = 0.90
LEAST_FALL = 0.1  # of the first epoch's loss, in the last
PRECISIONS = {"float32": "AMP.use_amp=False", "bfloat16, O1": "AMP.use_amp=True AMP.dtype=bfloat16",
              "float16, O1": "AMP.use_amp=True AMP.dtype=float16"}
PICTURES, CLASSES, SIDE = 2560, 7, 256

SEEDS = (1, 2, 3)
MOST_APART = 0.01  # of the mean accuracies
TASK_PICTURES, TASK_CLASSES, TASK_SIDE, VALIDATED = 1500, 10, 96, 300
SMALL = "-o Global.device=cpu -o Global.epochs=3 -o Global.save_interval=100"
# A task of ten classes of pictures: colours, with and without stripes, cropped at random.
TASK = """\
Global: {{device: cpu, epochs: 3, print_batch_step: 10, image_shape: [3, 64, 64], eval_during_train: True, save_interval: 100}}
Arch: {{name: mobilenet_v3_small, class_num: {classes}, pretrained: False}}
Loss: {{Train: [CELoss: {{weight: 1.0}}], Eval: [CELoss: {{weight: 1.0}}]}}
Optimizer: {{name: Momentum, momentum: 0.9, lr: {{name: Cosine, learning_rate: 0.05, warmup_epoch: 1}}}}
DataLoader:
  Train:
    dataset:
      {{name: ImageNetDataset, image_root: {folder}, cls_label_path: {folder}/train.txt, transform_ops: [DecodeImage: {{}},
        RandCropImage: {{size: 64}}, RandFlipImage: {{flip_code: 1}}, NormalizeImage: {{}}]}}
    sampler: {{name: DistributedBatchSampler, batch_size: 32, drop_last: True, shuffle: True}}
  Eval:
    dataset:
      {{name: ImageNetDataset, image_root: {folder}, cls_label_path: {folder}/val.txt, transform_ops: [DecodeImage: {{}},
        ResizeImage: {{resize_short: 72}}, CropImage: {{size: 64}}, NormalizeImage: {{}}]}}
    sampler: {{name: DistributedBatchSampler, batch_size: 32, drop_last: False, shuffle: False}}
Metric: {{Train: [TopkAcc: {{topk: [1]}}], Eval: [TopkAcc: {{topk: [1]}}]}}
"""


def gpu():
    names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], stdout=subprocess.PIPE, text=True) \
        if Path("/dev/nvidiactl").exists() else None
    return names.stdout.splitlines()[0] if names else ""


def train(words, scratch, **environment):
    """(the log, seconds) of `trireme launch WORDS`."""
    start = time.monotonic()
    command = [str(trireme()), "launch", "--log_dir", f"{scratch}/log", *words, "-o", f"Global.output_dir={scratch}/output"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr, time.monotonic() - start


def accuracy_row(config, words, options, **environment):
    shown = f"trireme launch {words} trireme train -c {CONFIGS}/{config}{options}"
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        log, seconds = train([*words.split(), str(trireme()), "train", "-c", f"{CONFIGS}/{config}", *options.split()], scratch,
                             **environment)
    best = float(re.findall(r"best metric: ([\d.]+)", log)[-1])
    epochs = re.findall(r"\[Train\]\[Epoch \d+/(\d+)\]", log)[-1]
    return best, f"| `{shown}` | {epochs} | {best:.3f} | {seconds:.0f} s |"


def accuracy():
    rows = [accuracy_row("LeNet_fashion_mnist.yaml", "-n 2", "", CUDA_VISIBLE_DEVICES="-1"),
            accuracy_row("mobilenet_v3_small_fashion_mnist.yaml", *(("-n 2 --gpus 0", " -o Global.device=gpu") if gpu() else ("-n 2", "")))]
    broken = [f"accuracy {best:.3f}, promised {LEAST_ACCURACY}" for best, _ in rows if best < LEAST_ACCURACY]
    return "\n".join(["| command | epochs | top-1 | time |", "|---|---:|---:|---:|", *(row for _, row in rows)]), broken


def precision_losses(overrides, pictures):
    """(mean loss of each epoch, images a second) of ResNet50."""
    words = ["-n", "1", str(trireme()), "train", "-c", f"{CONFIGS}/ResNet50.yaml", "-o", f"Arch.class_num={CLASSES}", "-o", "Arch.pretrained=False",
             "-o", "Global.device=gpu", "-o", "Global.epochs=5", "-o", "Global.eval_during_train=False", "-o", "Global.save_interval=100",
             "-o", "Optimizer.lr.learning_rate=0.02", "-o", "Optimizer.lr.values=[0.02,0.02,0.02,0.02]",
             "-o", f"DataLoader.Train.dataset.image_root={pictures}", "-o", f"DataLoader.Train.dataset.cls_label_path={pictures}/list.txt",
             "-o", f"DataLoader.Train.loader.num_workers={max(1, len(os.sched_getaffinity(0)) - 4)}"]
    for override in overrides.split():
        words += ["-o", override]
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        log, _ = train(words, scratch)
    averages = re.findall(r"\[Avg\].*?\bloss: ([\d.naif]+)", log)
    rates = [float(value) for value in re.findall(r"ips: ([\d.]+)", log)]
    return [float(value) for value in averages], max(rates)


def precision():
    if not gpu():
        sys.exit("precision: no GPU here")
    rows, broken = ["| precision | 1 | 2 | 3 | 4 | 5 | images/s |", "|---|---:|---:|---:|---:|---:|---:|"], []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as pictures:
        subprocess.run([str(built("make_images")), pictures, str(PICTURES), str(CLASSES), str(SIDE)], check=True, stdout=subprocess.DEVNULL)
        for name, overrides in PRECISIONS.items():
            losses, rate = precision_losses(overrides, pictures)
            rows.append(f"| {name} | {' | '.join(f'{loss:.3f}' for loss in losses)} | {rate:,.0f} |")
            if not losses[-1] < LEAST_FALL * losses[0]:
                broken.append(f"{name}: the loss went from {losses[0]} to {losses[-1]}")
    return "\n".join(rows), broken


def make_task(folder):
    """The configuration of the task; a part of the pictures is kept for the evaluation."""
    subprocess.run([str(built("make_images")), folder, str(TASK_PICTURES), str(TASK_CLASSES), str(TASK_SIDE)], check=True, stdout=subprocess.DEVNULL)
    lines = (folder / "list.txt").read_text().splitlines(keepends=True)
    (folder / "val.txt").write_text("".join(lines[:VALIDATED]))
    (folder / "train.txt").write_text("".join(lines[VALIDATED:]))
    (folder / "task.yaml").write_text(TASK.format(classes=TASK_CLASSES, folder=folder))
    return folder / "task.yaml"


def best_accuracy(config, options, seed, fused):
    words = ["-n", "1", str(trireme()), "train", "-c", str(config), *options.split(), "-o", f"Global.seed={seed}"]
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        log, _ = train(words, scratch, TRIREME_FUSED=fused)
    return float(re.findall(r"best metric: ([\d.]+)", log)[-1])


def fused():
    rows = ["| MobileNetV3-small, three epochs | layers | " + " | ".join(f"seed {seed}" for seed in SEEDS) + " | mean top-1 |",
            "|---|---|" + "---:|" * (len(SEEDS) + 1)]
    broken = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        tasks = {"Fashion-MNIST": (f"{CONFIGS}/mobilenet_v3_small_fashion_mnist.yaml", SMALL),
                 f"{TASK_CLASSES} classes of generated JPEGs": (make_task(Path(folder)), "")}
        for title, (config, options) in tasks.items():
            means = []
            for value, name in (("1", "fused"), ("0", "one by one")):
                found = [best_accuracy(config, options, seed, value) for seed in SEEDS]
                means.append(sum(found) / len(found))
                rows.append(f"| {title} | {name} | {' | '.join(f'{accuracy:.3f}' for accuracy in found)} | {means[-1]:.3f} |")
            if abs(means[0] - means[1]) > MOST_APART:
                broken.append(f"{title}: mean accuracies of {means[0]:.3f} fused and {means[1]:.3f} layer by layer, promised within {MOST_APART}")
    return "\n".join(rows), broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "precision", "fused"])
    parser.add_argument("--write", action="store_true", help="update docs/train.md")
    options = parser.parse_args()
    table, broken = {"accuracy": accuracy, "precision": precision, "fused": fused}[options.what]()
    text = f"{table}\n\nMachine: {machine_facts()}{', ' + gpu() if gpu() else ''}. Made by `bench/training/training_bench.py {options.what}`."
    print(text)
    if options.write:
        begin, end = f"<!-- bench:{options.what} -->", f"<!-- /bench:{options.what} -->"
        replace(PAGE, f"{begin}.*?{end}", f"{begin}\n{text}\n{end}")
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
