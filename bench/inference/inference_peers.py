"""The peers of inference_bench.py: OpenVINO's own Python and ONNX Runtime on the same file and the same batch.

    inference_peers.py WHO SECONDS MODEL.onnx PRECISION BATCH IN OUT

IN is a file with the floats of one batch, OUT gets the scores. Prints the median of a batch in milliseconds.
"""

import statistics
import sys
import time

import numpy

WARM_UP = 10


def openvino(model, precision, images):
    """As benchmark_app does it for latency: one request, the size of the batch known, no copies."""
    import openvino as ov

    core = ov.Core()
    network = core.read_model(model)
    network.reshape(list(images.shape))
    kind = {"fp32": "f32", "bf16": "bf16"}[precision]
    compiled = core.compile_model(network, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": kind})
    request = compiled.create_infer_request()
    return lambda: request.infer({0: images}, share_inputs=True, share_outputs=True)[0]


def onnxruntime(model, precision, images):
    import onnxruntime as ort

    assert precision == "fp32"
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: images}
    return lambda: session.run(None, feed)[0]


def main():
    who, seconds, model, precision, batch, source, target = sys.argv[1:]
    images = numpy.fromfile(source, dtype=numpy.float32).reshape(int(batch), 3, 224, 224)
    run = {"openvino": openvino, "onnxruntime": onnxruntime}[who](model, precision, images)
    for _ in range(WARM_UP):
        run()
    times, end = [], time.perf_counter() + float(seconds)
    while time.perf_counter() < end:
        begin = time.perf_counter()
        scores = run()
        times.append(time.perf_counter() - begin)
    numpy.asarray(scores, dtype=numpy.float32).tofile(target)
    print(statistics.median(times) * 1e3)


if __name__ == "__main__":
    main()
