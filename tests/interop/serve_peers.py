"""Triton's own HTTP client against a running `trireme serve` of the model LeNet (3 x 28 x 28 in, 4 classes out).

    serve_peers.py PORT PICTURE

Prints one JSON object: what the server says of itself, and scores by each way to ask.
"""

import json
import sys

import numpy
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

port, picture_file = sys.argv[1:]
client = triton.InferenceServerClient(f"127.0.0.1:{port}")
picture = open(picture_file, "rb").read()
tensor = numpy.linspace(-1, 1, 2 * 3 * 28 * 28, dtype=numpy.float32).reshape(2, 3, 28, 28)


def ask(data, kind, binary_in=True, binary_out=True, classes=0):
    given = triton.InferInput("x", list(data.shape), kind)
    given.set_data_from_numpy(data, binary_data=binary_in)
    wanted = triton.InferRequestedOutput("out", binary_data=binary_out, class_count=classes)
    result = client.infer("LeNet", [given], outputs=[wanted], request_id="7")
    assert result.get_response()["id"] == "7"
    return result.as_numpy("out")


def refusal(call):
    try:
        call()
    except InferenceServerException as error:
        return error.message()
    return "accepted"


pictures = numpy.array([picture, picture], dtype=object)
by_default = triton.InferInput("x", [2, 3, 28, 28], "FP32")
by_default.set_data_from_numpy(tensor)
print(json.dumps({
    "live": client.is_server_live(),
    "ready": client.is_server_ready(),
    "model_ready": client.is_model_ready("LeNet"),
    "other_ready": client.is_model_ready("Other"),
    "version_ready": client.is_model_ready("LeNet", "1"),
    "server": client.get_server_metadata(),
    "model": client.get_model_metadata("LeNet"),
    "default": client.infer("LeNet", [by_default]).as_numpy("out").tolist(),
    "binary": ask(tensor, "FP32").tolist(),
    "json": ask(tensor, "FP32", binary_in=False, binary_out=False).tolist(),
    "pictures": ask(pictures, "BYTES").tolist(),
    "classes": [text.decode() for text in ask(pictures, "BYTES", classes=2)[0]],
    "bad_picture": refusal(lambda: ask(numpy.array([b"no picture"], dtype=object), "BYTES")),
    "bad_shape": refusal(lambda: ask(tensor[:, :1], "FP32")),
    "no_model": refusal(lambda: client.get_model_metadata("Other")),
}))
