"""`trireme serve` for tests: an exported model with random weights, pictures, the server and its clients.

    class Answers(ServeCase):
        def test_it(self):
            server = self.serve()
            self.assertEqual(server.get("/healthz").status, 200)
"""

import base64
import fcntl
import http.client
import json
import os
import re
import shutil
import socket
import struct
import tempfile
import zlib
from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case

SECONDS = 180 if SANITIZED else 60
PLAIN = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
SIDE = 28
CONFIG = f"""\
Global: {{output_dir: out, device: cpu, epochs: 1, image_shape: [3, {SIDE}, {SIDE}]}}
Arch: {{name: LeNet, class_num: 4, in_channels: 3, pretrained: False}}
Loss: {{Eval: [CELoss: {{weight: 1.0}}]}}
DataLoader:
  Eval:
    dataset:
      name: ImageNetDataset
      image_root: data
      cls_label_path: data/list.txt
      transform_ops:
        - DecodeImage: {{to_rgb: True, channel_first: False}}
        - ResizeImage: {{resize_short: 32}}
        - CropImage: {{size: {SIDE}}}
        - NormalizeImage: {{scale: 1.0/255.0, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5], order: ''}}
    sampler: {{name: DistributedBatchSampler, batch_size: 4, drop_last: False, shuffle: False}}
Infer:
  PostProcess: {{name: Topk, topk: 3}}
"""


def png(seed, side=40):
    """A picture of its own for every seed."""
    rows = b"".join(
        b"\0" + bytes((x * (seed + 3) + y * (seed + 7) * c + 31 * seed) % 256 for x in range(side) for c in (1, 2, 3))
        for y in range(side)
    )
    return png_of_rows(rows, side, side)


def black_png(width, height):
    """Large, but not as a file."""
    return png_of_rows(bytes((1 + 3 * width) * height), width, height)


def png_of_rows(rows, width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def json_of(*pictures, **more):
    return json.dumps({"images": [base64.b64encode(picture).decode() for picture in pictures], **more})


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.text = response.status, response.headers, response.read().decode()

    def json(self):
        return json.loads(self.text)

    def error(self):
        """Code and message of a refusal."""
        return self.json()["error"]["code"], self.json()["error"]["message"]


class Server:
    def __init__(self, case, job):
        self.case, self.job = case, job
        self.line = job.wait_output(r"^serving .*http://127\.0\.0\.1:(\d+)", SECONDS)
        self.port = int(self.line[1])

    def connect(self, timeout=SECONDS):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        self.case.addCleanup(connection.close)
        return connection

    def request(self, method, path, body=None, headers=None, connection=None):
        connection = connection or self.connect()
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, body, kind="image/png", path="/v1/predict", **options):
        return self.request("POST", path, body, {"Content-Type": kind}, **options)

    def raw(self, data):
        """Sends exactly these bytes and returns all that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            got = b""
            while piece := client.recv(65536):
                got += piece
        return got

    def metrics(self):
        """{"name{labels}": value}"""
        lines = [line for line in self.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def memory_kb(self, kind="VmRSS"):
        """VmHWM: the most there was so far."""
        return int(re.search(kind + r":\s+(\d+)", Path(f"/proc/{self.job.pid}/status").read_text())[1])


def exported_model(case):
    """The folder of a model with random weights: exported by whichever test comes first, used by all."""
    program = Path(TRIREME).resolve().parent / "trireme-export"
    folder = Path(TRIREME).resolve().parents[1] / "tests/serve"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model"
    with open(folder / "model.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = model / "inference.yml"
        if not made.exists() or made.stat().st_mtime < program.stat().st_mtime:
            with tempfile.TemporaryDirectory(dir=folder) as work:
                Path(work, "config.yaml").write_text(CONFIG)
                command = [TRIREME, "export", "-c", "config.yaml", "-o", f"Global.save_inference_dir={work}/model"]
                case.assert_ends(case.start_command(command, env=PLAIN, cwd=work).wait(SECONDS), 0)
                shutil.rmtree(model, ignore_errors=True)
                os.rename(Path(work, "model"), model)
    return model


class ServeCase(Case):
    engine = "openvino"

    def model(self):
        given = os.environ.get("TRIREME_TEST_MODEL")  # by hand: a folder that is there already
        return given or exported_model(self)

    def start_server(self, *options):
        command = [TRIREME, "serve", "--engine", self.engine, "--port", 0, "--cpu-threads", 1, *options]
        return self.start_command(command, env=PLAIN)

    def serve(self, *options):
        return Server(self, self.start_server("--model-dir", self.model(), *options))
