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

def samples(reference):
    """Images, and what the network gives for them."""
    for number in range(sum(name.startswith("images.") for name in reference)):
        outputs = [name for name in reference if name.startswith(f"output.{number}.")]
        yield reference[f"images.{number}"], [reference[f"output.{number}.{i}"] for i in range(len(outputs))]


def difference(run, reference):
    """The largest, of numbers above 1 relative to the largest of them."""
    worst = 0.0
    for images, expected in samples(reference):
        found = run(images)
        assert len(found) == len(expected), f"{len(found)} outputs, expected {len(expected)}"
        for number, (ours, theirs) in enumerate(zip(found, expected)):
            assert ours.shape == theirs.shape, f"output {number}: {ours.shape} for {images.shape}, not {theirs.shape}"
            if theirs.size:
                off = float(numpy.abs(ours - theirs).max()) / max(1.0, float(numpy.abs(theirs).max()))
                assert off < 0.1, f"output {number} is off by {off} for {images.shape}"
                worst = max(worst, off)
    return worst


def by_torch(folder, reference):
    module = torch.jit.load(folder / "inference.pt")
    names = list(module.state_dict())
    alone = ("norm.", "part")  # normalisations that follow no convolution
    assert names and not any("running" in name for name in names if not name.startswith(alone)), names  # folded
    module.eval()

    def run(images):
        result = module(torch.from_numpy(images))
        return [each.numpy() for each in (result if isinstance(result, tuple) else (result,))]

    with torch.no_grad():
        return difference(run, reference)


def by_onnxruntime(folder, reference):
    path = str(folder / "inference.onnx")
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return difference(lambda images: session.run(None, {session.get_inputs()[0].name: images}), reference)


def check(folder):
    reference = load_file(folder / "reference.safetensors")
    assert (folder / "inference.yml").read_text()
    return {"torch": by_torch(folder, reference), "onnx": by_onnxruntime(folder, reference),
            "spread": float(reference["output.0.0"].std())}


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
