"""export_peers.py EXPORT_DUMP: reads what our export wrote for every network, with PyTorch and with ONNX Runtime.
Prints as JSON, by network, the largest difference to the network's own scores, or what was wrong. Runs in the peers'
Python."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
import torch
from safetensors.numpy import load_file

BATCHES = (1, 3)  # the trace was of 2


def difference(run, reference):
    worst = 0.0
    for batch in BATCHES:
        expected = reference["scores"][:batch]
        scores = run(reference["images"][:batch])
        assert scores.shape == expected.shape, f"{scores.shape} for {batch} images"
        worst = max(worst, float(numpy.abs(scores - expected).max()))
    return worst


def by_torch(folder, reference):
    module = torch.jit.load(folder / "inference.pt")
    names = list(module.state_dict())
    assert names and not any("running" in name for name in names if "norm." not in name), names  # folded
    module.eval()
    with torch.no_grad():
        return difference(lambda images: module(torch.from_numpy(images)).numpy(), reference)


def by_onnxruntime(folder, reference):
    path = str(folder / "inference.onnx")
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return difference(lambda images: session.run(None, {session.get_inputs()[0].name: images})[0], reference)


def check(folder):
    reference = load_file(folder / "reference.safetensors")
    assert (folder / "inference.yml").read_text()
    return {"torch": by_torch(folder, reference), "onnx": by_onnxruntime(folder, reference),
            "spread": float(reference["scores"].std())}


def main():
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([sys.argv[1], folder], stdout=subprocess.PIPE, text=True) as exporter:
            for line in exporter.stdout:  # while the next one is exported
                exported = Path(folder) / line.strip()
                try:
                    results[exported.name] = check(exported)
                except Exception as error:  # the others are still told
                    results[exported.name] = {"error": f"{type(error).__name__}: {error}"}
                shutil.rmtree(exported)
        code = exporter.returncode
    print(json.dumps({"code": code, "results": results}))


if __name__ == "__main__":
    main()
