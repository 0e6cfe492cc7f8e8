#!/usr/bin/env python3
"""What the programs do on a machine with a GPU: collectives, a small training, the chain, inference, serving.

    bench/gpu/gpu_bench.py [--write]

Every row is a command that was run and what it said. --write puts the table between the marks <!-- bench:gpu --> and
<!-- /bench:gpu --> of docs/benchmarks.md. Exit 1 when a command fails or an answer is wrong.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import ROOT, built, publish, run, signed, trireme  # noqa: E402

PICTURES, SIDE, BATCH = 64, 256, 8
REQUESTS, CLIENTS = 2000, 32
PRECISIONS = ("fp32", "fp16", "bf16")
CASE = "test_tipc/configs/mobilenet_v3_small/train_infer_cpp.txt"
MODE = "lite_train_lite_infer"


def launch(folder, *words):
    """All that a job says, on both streams."""
    command = [str(word) for word in (trireme(), "launch", "--tee", "all", *words)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def collectives(folder):
    for words, shown in ((("-n", 1), "-n 1"), (("-n", 2, "--gpus", 0), "-n 2 --gpus 0")):
        said = sorted(set(re.findall(r"rank \d of \d by \w+: [\d ]+", launch(folder, *words, built("example_allreduce")))))
        yield f"`trireme launch {shown} example_allreduce`", ", ".join(f"`{line.strip()}`" for line in said)


def training(folder):
    for words, shown in ((("-n", 1), "-n 1"), (("-n", 2, "--gpus", 0), "-n 2 --gpus 0")):
        said = launch(folder, *words, built("example_mnist"), "--epochs", 5)
        accuracy, seconds = re.findall(r"test accuracy ([\d.]+), ([\d.]+) s", said)[-1]
        yield f"`trireme launch {shown} example_mnist --epochs 5` (5,000 images)", f"{seconds} s an epoch, test accuracy {accuracy}"


def chain(folder):
    for part in ("configs", "test_tipc"):
        shutil.copytree(ROOT / part, folder / part)
    run([trireme(), "tipc", "prepare", CASE, MODE], folder)
    words = ["--set", "gpu_list=0", "--set", "-o Global.device=gpu", "--set", f"--precision={'|'.join(PRECISIONS)}"]
    said = run([trireme(), "tipc", "run", CASE, MODE, "--quiet", *words], folder, timeout=600)
    [summary] = re.findall(r"^\d+ steps: .*", said, flags=re.M)
    yield f"`trireme tipc run {CASE} {MODE} --set gpu_list=0 …`, {', '.join(PRECISIONS)} on the GPU and on the CPU", summary


def export(arch, folder):
    run([trireme(), "export", "-c", ROOT / f"configs/classification/{arch}.yaml", "-o", "Arch.pretrained=False", "-o",
         f"Global.save_inference_dir={arch}"], folder, timeout=300)
    return folder / arch


def inference(model, folder):
    for precision in PRECISIONS:
        said = run([trireme(), "infer", "--model-dir", model, "--image", "pictures", "--batch-size", BATCH, "--use-gpu", "True",
                    "--precision", precision, "--benchmark", "True"], folder, timeout=300)
        whole, network = re.findall(r"latency\(ms\) of a batch: p50: ([\d.]+)", said)
        rate = float(re.search(r"throughput\(images/s\): ([\d.]+)", said)[1])
        yield (f"`trireme infer --use-gpu True --batch-size {BATCH} --precision {precision}`, {model.name}",
               f"p50 {float(whole):.1f} ms a batch from JPEG to answer ({float(network):.1f} ms the network), {rate:,.0f} images/s")


def ask(port, picture):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/predict?topk=1", picture.read_bytes(), {"Content-Type": "image/jpeg"})
    return json.load(urllib.request.urlopen(request, timeout=30))["predictions"][0]["class_ids"]


def wait_for(file, server, seconds=60):
    deadline = time.monotonic() + seconds
    while not file.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"trireme serve has not come up in {seconds} s")
        time.sleep(0.05)
    return int(file.read_text())


def serving(model, folder):
    words = [trireme(), "serve", "--model-dir", model, "--use-gpu", "True", "--port", "0", "--port-file", "port"]
    with subprocess.Popen([str(word) for word in words], cwd=folder) as server:
        port = wait_for(folder / "port", server)
        pictures = sorted((folder / "pictures").glob("*.jpg"))
        expected = [ask(port, picture) for picture in pictures]
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            got = list(clients.map(lambda i: ask(port, pictures[i % len(pictures)]), range(REQUESTS)))
        seconds = time.monotonic() - begin
        server.terminate()
    wrong = sum(answer != expected[i % len(pictures)] for i, answer in enumerate(got))
    if wrong or server.returncode:
        sys.exit(f"trireme serve: {wrong} wrong answers, exit {server.returncode}")
    yield (f"`trireme serve --use-gpu True`, {model.name}, {REQUESTS:,} pictures from {CLIENTS} clients in Python",
           f"{REQUESTS / seconds:,.0f} answers a second, all right; ends with 0 on SIGTERM")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    os.environ["PATH"] = f"{trireme().parent}:{os.environ['PATH']}"
    gpu = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], ROOT).splitlines()[0]
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        folder = Path(scratch)
        run([built("make_images"), "pictures", PICTURES, 7, SIDE], folder)
        rows = [*collectives(folder), *training(folder), *chain(folder)]
        model = export("ResNet50", folder)
        rows += [*inference(model, folder), *serving(model, folder)]
    table = "\n".join(["| command | result |", "|---|---|", *(f"| {command} | {result} |" for command, result in rows)])
    machine = f"{gpu.replace(', ', ', driver ')}, {len(os.sched_getaffinity(0))} cores"
    publish("gpu", signed(table, "bench/gpu/gpu_bench.py", machine=machine), options.write)


if __name__ == "__main__":
    main()
