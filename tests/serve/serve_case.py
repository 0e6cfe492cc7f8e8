"""`trireme serve` for tests: an exported model with random weights, pictures, the server and its clients.

    class Answers(ServeCase):
        def test_it(self):
            server = self.serve()
            self.assertEqual(server.get("/healthz").status, 200)
"""

import base64
import contextlib
import http.client
import json
import os
import re
import socket
import struct
import zlib
from pathlib import Path

from exported_model import PLAIN, SECONDS, exported_model
from trireme_test import TRIREME, Case


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


def progressive_jpeg(side, scans):
    """Grey, of a multiple of 8 pixels. A scan has a bit for each block of 8 x 8, and says that nothing changes."""
    def segment(marker, data):
        return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data

    bits = bytes(((side // 8) ** 2 + 7) // 8)
    codes = b"\1" + bytes(15) + b"\0"  # one code, a bit long, for the symbol 0
    head = (segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0") +
            segment(0xC4, b"\0" + codes) + segment(0xC4, b"\x10" + codes))
    first, more = segment(0xDA, b"\1\1\0\0\0\0") + bits, segment(0xDA, b"\1\1\0\1\x3f\0") + bits
    return b"\xff\xd8" + head + first + more * (scans - 1) + b"\xff\xd9"


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
        """Over `connection`, which stays open; without one over a new connection, which is closed afterwards."""
        if connection is None:
            with contextlib.closing(self.connect()) as own:
                return self.request(method, path, body, headers, own)
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

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.job.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kb(self, kind="VmRSS"):
        """VmHWM: the most there was so far."""
        return int(re.search(kind + r":\s+(\d+)", Path(f"/proc/{self.job.pid}/status").read_text())[1])


class ServeCase(Case):
    engine = "openvino"
    env = PLAIN

    def model(self):
        given = os.environ.get("TRIREME_TEST_MODEL")  # by hand: a folder that is there already
        return given or exported_model(self)

    def start_server(self, *options):
        command = [TRIREME, "serve", "--engine", self.engine, "--port", 0, "--cpu-threads", 1, *options]
        return self.start_command(command, env=self.env)

    def serve(self, *options):
        return Server(self, self.start_server("--model-dir", self.model(), *options))
