"""What `trireme serve` answers to requests, good and bad, and how it begins and ends."""

import base64
import concurrent.futures
import email.utils
import json
import os
import re
import shutil
import signal
import socket
import struct
import threading
import time
from pathlib import Path

from exported_model import exported_model
from serve_case import PLAIN, SECONDS, ServeCase, Server, black_png, json_of, png, progressive_jpeg
from trireme_test import TRIREME, alive, main, wait_for


class AnswersCase(ServeCase):
    def test_one_picture_several_and_the_command_line_agree(self):
        server = self.serve()
        pictures = [png(seed) for seed in range(5)]
        single = [server.post(picture).json() for picture in pictures]
        self.assertEqual(single[0]["model"], "LeNet")
        prediction = single[0]["predictions"][0]
        self.assertEqual(sorted(prediction), ["class_ids", "label_names", "scores"])
        self.assertEqual(prediction["scores"], sorted(prediction["scores"], reverse=True))
        together = server.post(json_of(*pictures), "application/json").json()["predictions"]
        for alone, shared in zip(single, together):
            self.assertEqual(alone["predictions"][0]["class_ids"], shared["class_ids"])
            for a, b in zip(alone["predictions"][0]["scores"], shared["scores"]):
                self.assertAlmostEqual(a, b, places=5)
        (self.folder / "0.png").write_bytes(pictures[0])
        command = [TRIREME, "infer", "--model-dir", self.model(), "--image", "0.png", "--engine", self.engine]
        said = self.start_command(command, env=PLAIN).wait(SECONDS)
        self.assert_ends(said, 0)
        self.assert_says(said, ", ".join(str(number) for number in prediction["class_ids"]))

    def test_topk(self):
        server = self.serve("--topk", 2)
        count = lambda answer: len(answer.json()["predictions"][0]["class_ids"])
        self.assertEqual(count(server.post(png(1))), 2)
        self.assertEqual(count(server.post(png(1), path="/predict?topk=1")), 1)
        self.assertEqual(count(server.post(json_of(png(1), topk=4), "application/json")), 4)

    def test_a_bad_picture_among_good_ones(self):
        server = self.serve()
        answer = server.post(json_of(png(1), b"no picture", png(2)), "application/json")
        self.assertEqual(answer.status, 200)
        self.assertEqual(["error" in prediction for prediction in answer.json()["predictions"]], [False, True, False])

    def test_a_text_that_is_not_base64_among_good_pictures(self):
        server = self.serve()
        good = base64.b64encode(png(1)).decode()
        answer = server.post(json.dumps({"images": [good, "not Base64!!", good]}), "application/json")
        self.assertEqual(answer.status, 200, answer.text)
        first, bad, last = answer.json()["predictions"]
        self.assertRegex(bad["error"], "character 4 is not Base64")
        self.assertEqual(first, last)

    def test_answers_are_dated(self):
        server = self.serve()
        for answer in (server.get("/healthz"), server.get("/nowhere"), server.post(png(1))):
            sent = email.utils.parsedate_to_datetime(answer.headers["Date"])
            self.assertLess(abs(sent.timestamp() - time.time()), SECONDS)
            self.assertRegex(answer.headers["Date"], r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")

    def test_many_clients_at_once_get_what_each_would_alone(self):
        server = self.serve("--batch-size", 4)
        pictures = [png(seed) for seed in range(12)]
        alone = [server.post(picture).json()["predictions"][0] for picture in pictures]

        def ask(index):
            return index % 12, server.post(pictures[index % 12]).json()["predictions"][0]

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for index, prediction in pool.map(ask, range(240)):
                self.assertEqual(prediction["class_ids"], alone[index]["class_ids"])
                for a, b in zip(prediction["scores"], alone[index]["scores"]):
                    self.assertAlmostEqual(a, b, places=5)
        self.check_metrics(server)

    def check_metrics(self, server):
        metrics = server.metrics()
        answered = sum(value for name, value in metrics.items() if name.startswith("trireme_requests_total"))
        self.assertEqual(metrics['trireme_requests_total{status="200"}'], 252)
        self.assertEqual(answered, metrics["trireme_request_seconds_count"])
        self.assertEqual(metrics['trireme_request_seconds_bucket{le="+Inf"}'], answered)
        self.assertEqual(metrics["trireme_batch_size_sum"], 252)
        self.assertLessEqual(metrics["trireme_batch_size_count"], 252)
        self.assertEqual(metrics['trireme_batch_size_bucket{le="4"}'], metrics["trireme_batch_size_count"])
        self.assertEqual((metrics["trireme_queue_depth"], metrics["trireme_in_flight"]), (0, 1))


class OpenVINO(AnswersCase):
    engine = "openvino"


class Torch(AnswersCase):
    engine = "torch"


class Refusals(ServeCase):
    """One server for all: after each refusal it must still answer."""

    def test_everything_that_is_wrong_with_a_request(self):
        server = self.serve("--body-limit", "100K", "--images-per-request", 2, "--max-pixels", 10000)
        good = png(1)
        broken = bytearray(good)
        broken[-20] ^= 1  # in the checksum of the pixels
        cases = [
            (400, "empty_body", server.post(b"")),
            (400, "bad_image", server.post(b"no picture")),
            (400, "bad_image", server.post(good[:-30])),
            (400, "bad_image", server.post(bytes(broken))),
            (413, "image_too_large", server.post(png(1, 101))),
            (400, "bad_image", server.post(b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg")),
            (400, "bad_image", server.post(json_of(b"no"), "application/json")),
            (400, "bad_json", server.post(b'{"images": [', "application/json")),
            (400, "bad_json", server.post(good, "application/json")),
            (400, "bad_base64", server.post(b'{"images": ["a!=="]}', "application/json")),
            (400, "bad_request", server.post(b'{"pictures": []}', "application/json")),
            (400, "no_images", server.post(b"{}", "application/json")),
            (400, "too_many_images", server.post(json_of(good, good, good), "application/json")),
            (400, "bad_topk", server.post(good, path="/v1/predict?topk=0")),
            (400, "bad_topk", server.post(good, path="/v1/predict?topk=")),
            (400, "bad_topk", server.post(good, path="/v1/predict?topk=1&topk=1")),
            (413, "body_too_large", server.post(bytes(200_000))),
            (413, "body_too_large", server.post(iter([bytes(60_000)] * 5))),  # http.client sends it in chunks
            (415, "unsupported_type", server.post(good, "application/x-www-form-urlencoded")),
            (404, "not_found", server.get("/")),
            (405, "method_not_allowed", server.get("/v1/predict")),
            (405, "method_not_allowed", server.request("DELETE", "/healthz")),
        ]
        for status, code, answer in cases:
            with self.subTest(code=code, text=answer.text):
                self.assertEqual((answer.status, answer.error()[0]), (status, code))
        self.assertEqual(server.get("/v1/predict").headers["Allow"], "POST")
        self.assertRegex(server.post(bytes(200_000)).error()[1], "200000 bytes.*102400")
        self.assertIn("/v1/predict", server.get("/x").error()[1])
        self.assertEqual(server.post(good).status, 200)
        self.assertEqual(server.metrics()["trireme_in_flight"], 1)

    def test_what_is_no_http(self):
        server = self.serve()
        for data, status in (
            (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" * 20 + b"\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\n\r\n", b"400"),
            (b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b"400"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
            (b"GET /" + b"a" * 100_000, b"431"),
            (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000, b"431"),
            (b"GET / HTTP/3.0\r\n\r\n", b"505"),
            (b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n\r\n" + png(1), b"411"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", b"400"),
            (b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\nHost: x\0\r\n\r\n", b"400"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505"),
        ):
            self.assertTrue(server.raw(data).startswith(b"HTTP/1.1 " + status), (data[:60], server.raw(data)[:200]))
        self.assertEqual(server.raw(b""), b"")
        self.assertEqual(server.get("/healthz").json(), {"status": "ok", "model": "LeNet"})

    def test_what_will_never_be_http_is_answered_at_once(self):
        server = self.serve("--read-timeout", "1h")
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\nHost: x\n\n", b"GET /\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as client:
                client.sendall(data)
                self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 400"), data)

    def test_ways_to_ask(self):
        server = self.serve()
        picture = png(1)
        whole = server.post(picture).text.encode()
        head = b"Host: x\r\nConnection: close\r\nContent-Type: image/png\r\n"
        length = b"Content-Length: %d\r\n" % len(picture)
        chunks = b'%x;a="b c"\r\n' % len(picture) + picture + b"\r\n0;last\r\nTrailer: x\r\n\r\n"
        for request in (
            b"POST /v1/predict HTTP/1.0\r\n" + head + length + b"\r\n" + picture,
            b"POST http://x:80/v1/predict HTTP/1.1\r\n" + head + length + b"\r\n" + picture,
            b"POST /predict HTTP/1.1\r\n" + head + length + b"Expect: 100-continue\r\n\r\n" + picture,
            b"POST /predict HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        ):
            answer = server.raw(request)
            self.assertIn(b"HTTP/1.1 200 OK", answer)
            self.assertTrue(answer.endswith(b"\r\n\r\n" + whole), answer)
        many = server.raw(50 * (b"POST /predict HTTP/1.1\r\n" + head[:9] + head[28:] + length + b"\r\n" + picture))
        self.assertEqual(many.count(whole), 50)  # sent ahead, by a client that is done with sending
        url = "data:image/png;base64," + base64.b64encode(picture).decode()
        self.assertEqual(server.post(json.dumps({"images": [url]}), "application/json").text.encode(), whole)
        self.assertEqual(server.request("HEAD", "/healthz").text, "")

    def test_reading_the_metrics_leaves_no_connection_open(self):
        server = self.serve()
        self.assertEqual([server.metrics()["trireme_connections"] for _ in range(5)], [1] * 5)

    def test_clients_that_leave_in_the_middle_harm_nobody(self):
        server = self.serve()
        picture = png(1)
        request = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n" % len(picture)
        for size in range(0, 3 * len(picture), 97):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall((3 * (request + picture))[:size])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()  # with a reset
        self.assertEqual(server.post(picture).status, 200)
        wait_for(lambda: server.metrics()["trireme_connections"] == 1, SECONDS, "the end of all other connections")
        wait_for(lambda: server.metrics()["trireme_in_flight"] == 1, SECONDS, "the end of all but this request")

    def test_every_code_of_the_sources_is_in_the_page_and_the_other_way_round(self):
        root = Path(__file__).resolve().parents[2]
        sources = [path.read_text() for folder in ("core/http", "deploy/serve")
                   for path in (root / "trireme" / folder).rglob("*.cc") if not path.name.endswith("_test.cc")]
        used = set(re.findall(r'\bproblem\("(\w+)"\)', "".join(sources)))
        page = (root / "docs/serve.md").read_text().split("## Errors")[1]
        self.assertEqual(used, set(re.findall(r"^\| \d+ \| `(\w+)` \|", page, re.M)))

    def test_slow_senders_are_ended_and_disturb_nobody(self):
        server = self.serve("--read-timeout", "500ms", "--workers", 1)
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        for client in slow:
            self.addCleanup(client.close)
            client.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
        self.assertEqual(server.post(png(1)).status, 200)
        for client in slow:
            client.settimeout(SECONDS)
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 408"))

    def test_a_full_queue_and_the_time_limit(self):
        server = self.serve("--queue", 1, "--images-per-request", 1, "--batch-size", 1, "--workers", 16)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: server.post(png(1)), range(400)))
        self.assertEqual({answer.status for answer in answers} | {503}, {200, 503})
        for answer in answers:
            if answer.status == 503:
                self.assertEqual((answer.error()[0], answer.headers["Retry-After"]), ("overloaded", "1"))
        late = self.serve("--request-timeout", "1ms")
        self.assertEqual(late.post(black_png(2000, 2000)).status, 504)


class Hostile(ServeCase):
    """Clients that cost more than they should."""

    def posted(self, body, kind):
        head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def test_work_for_clients_that_have_left_is_dropped(self):
        server = self.serve()
        picture = black_png(5792, 5792)
        request = self.posted(json_of(*[picture] * 64).encode(), "application/json")
        self.assertLess(len(request), 16 << 20)
        begin = server.cpu_seconds()
        self.assertEqual(server.post(picture).status, 200)
        before = server.cpu_seconds()
        one = before - begin
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(request)
        self.assertEqual(server.post(png(1)).status, 200)
        # Not the end of work in flight: the last requests may not have been read yet, and are not in flight until then.
        wait_for(lambda: server.metrics().get('trireme_requests_total{status="499"}') == 10, SECONDS, "the end of all ten")
        self.assertLess(server.cpu_seconds() - before, 160 * one, "a quarter of all 640 pictures")

    def test_a_picture_of_many_scans_is_refused(self):
        server = self.serve()
        self.assertEqual(server.post(progressive_jpeg(5792, 32), kind="image/jpeg").status, 200)
        answer = server.post(progressive_jpeg(5792, 200), kind="image/jpeg")
        code, message = answer.error()
        self.assertEqual((answer.status, code), (400, "bad_image"))
        self.assertIn("JPEG of 5792x5792 pixels with more than 32 scans", message)

    def test_a_decoding_ends_when_its_client_leaves(self):
        server = self.serve()
        picture = progressive_jpeg(5792, 32)
        begin = server.cpu_seconds()
        self.assertEqual(server.post(picture, kind="image/jpeg").status, 200)
        whole = server.cpu_seconds() - begin
        begin = server.cpu_seconds()
        for count in range(1, 6):
            before = server.cpu_seconds()
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(self.posted(picture, "image/jpeg"))
                wait_for(lambda start=before: server.cpu_seconds() > start + whole / 10, SECONDS, "the decoding")
            wait_for(lambda n=count: server.metrics().get('trireme_requests_total{status="499"}') == n, SECONDS, "its end")
        self.assertLess(server.cpu_seconds() - begin, 5 * whole * 0.6)

    def test_a_client_that_is_done_with_sending_waits_for_its_answer(self):
        server = self.serve()
        for version in (b"HTTP/1.1", b"HTTP/1.0"):
            request = self.posted(black_png(3000, 3000), "image/png").replace(b"HTTP/1.1", version, 1)
            answer = server.raw(request.replace(b"Host", b"Connection: close\r\nHost", 1))
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer[:100])
            self.assertEqual(answer.count(b"HTTP/1.1"), 1)

    def test_unfinished_bodies_do_not_lock_others_out(self):
        server = self.serve("--read-timeout", "10m")
        length = (256 << 20) // 24  # of 256M, the --memory-limit, they leave a few bytes
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n" % length
        for _ in range(24):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
            self.addCleanup(client.close)
            client.sendall(head + bytes(length - 1))
        time.sleep(1.5)  # until all of it has arrived, and longer than a sender is spared
        wait_for(lambda: server.post(png(1)).status == 200, SECONDS, "an answer beside them")
        for _ in range(20):
            self.assertEqual(server.post(png(1)).status, 200)


class Reload(ServeCase):
    def setUp(self):
        super().setUp()
        self.live = shutil.copytree(self.model(), self.folder / "live")

    def other_model(self):
        return exported_model(self, more=", in_channels: 3, infer_add_softmax: False")

    def replace_model(self, source):
        for file in Path(source).iterdir():
            shutil.copy(file, self.live / file.name)

    def reload(self, server, count):
        """For the count-th time."""
        server.job.signal(signal.SIGHUP)
        wait_for(lambda: server.metrics().get('trireme_reloads_total{result="ok"}') == count, SECONDS, "the reload")

    def scores(self, server):
        return server.post(png(1), path="/v1/predict?topk=4").json()["predictions"][0]["scores"]

    def test_sighup_loads_the_model_that_is_there_now(self):
        server = Server(self, self.start_server("--model-dir", self.live))
        before = self.scores(server)
        self.replace_model(self.other_model())
        self.assertEqual(self.scores(server), before)
        server.job.signal(signal.SIGHUP)
        server.job.wait_output("reload: LeNet is loaded again", SECONDS)
        self.assertNotEqual(self.scores(server), before)
        wait_for(lambda: server.metrics()['trireme_reloads_total{result="ok"}'] == 1, SECONDS, "the old one's end")
        server.job.signal(signal.SIGTERM)
        self.assert_ends(server.job.wait(10), 0)

    def test_a_reload_that_fails_keeps_the_old_model_and_says_why(self):
        server = Server(self, self.start_server("--model-dir", self.live))
        before = self.scores(server)
        os.truncate(self.live / "inference.onnx", 1000)
        server.job.signal(signal.SIGHUP)
        server.job.wait_output("reload: LeNet stays as it was: .*inference.onnx has 1000 bytes", SECONDS)
        self.assertEqual(self.scores(server), before)
        self.assertEqual(server.get("/healthz").status, 200)
        shutil.rmtree(self.live)
        server.job.signal(signal.SIGHUP)
        server.job.wait_output("there is no folder", SECONDS)
        self.assertEqual(self.scores(server), before)
        wait_for(lambda: server.metrics()['trireme_reloads_total{result="failed"}'] == 2, SECONDS, "the count")

    def test_no_request_is_lost_while_models_change(self):
        server = Server(self, self.start_server("--model-dir", self.live))
        stop = threading.Event()

        def ask():
            connection, statuses = server.connect(), []
            while not stop.is_set():
                statuses.append(server.post(png(1), connection=connection).status)
            return statuses

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(ask) for _ in range(4)]
            try:
                for count in range(1, 4):
                    self.reload(server, count)
            finally:
                stop.set()
        for client in clients:
            self.assertEqual(set(client.result()), {200})


    def test_an_export_at_work_leaves_the_old_model(self):
        server = Server(self, self.start_server("--model-dir", self.live))
        before = self.scores(server)
        hidden = self.live / ".export-x"  # as an export that was killed leaves it
        hidden.mkdir()
        for file in self.live.iterdir():
            if file != hidden:
                file.rename(hidden / file.name)
        server.job.signal(signal.SIGHUP)
        server.job.wait_output("reload: LeNet stays as it was: .*inference.yml", SECONDS)
        self.assertEqual(self.scores(server), before)
        result = self.start_server("--model-dir", self.live).wait(SECONDS)
        self.assert_ends(result, 1)
        self.assert_says(result, "inference.yml")


class SeveralModels(ServeCase):
    def setUp(self):
        super().setUp()
        self.models = self.folder / "models"
        shutil.copytree(self.model(), self.models / "soft")
        shutil.copytree(exported_model(self, more=", in_channels: 3, infer_add_softmax: False"), self.models / "raw")
        (self.models / "notes").mkdir()
        (self.models / "readme.txt").write_text("not a model")

    def start(self, *options):
        return Server(self, self.start_server("--model-dir", self.models, *options))

    def test_each_is_asked_by_its_folders_name(self):
        server = self.start()
        scores = {name: server.post(png(1), path=f"/v1/models/{name}/predict?topk=4").json()["predictions"][0]["scores"]
                  for name in ("soft", "raw")}
        self.assertAlmostEqual(sum(scores["soft"]), 1, places=5)
        self.assertNotAlmostEqual(sum(scores["raw"]), 1, places=3)
        answer = server.post(png(1))
        self.assertEqual((answer.status, answer.error()[0]), (400, "which_model"))
        self.assertRegex(answer.error()[1], "raw, soft")
        answer = server.post(png(1), path="/v1/models/other/predict")
        self.assertEqual((answer.status, answer.error()[0]), (404, "no_such_model"))
        self.assertEqual(server.get("/healthz").json()["models"], ["raw", "soft"])
        self.assertIn("notes", server.job.output())  # skipped, as it has no inference.yml

    def test_a_reload_adds_changes_and_removes(self):
        server = self.start()
        shutil.copytree(self.models / "raw", self.models / "third")
        shutil.rmtree(self.models / "raw")
        os.truncate(self.models / "soft/inference.onnx", 10)
        server.job.signal(signal.SIGHUP)
        server.job.wait_output("soft stays as it was", SECONDS)
        wait_for(lambda: server.get("/healthz").json()["models"] == ["soft", "third"], SECONDS, "the new list")
        for name in ("soft", "third"):
            self.assertEqual(server.post(png(1), path=f"/v1/models/{name}/predict").status, 200)

    def test_one_that_cannot_be_loaded_ends_the_start(self):
        os.truncate(self.models / "soft/inference.onnx", 10)
        result = self.start_server("--model-dir", self.models).wait(SECONDS)
        self.assert_ends(result, 1)
        self.assert_says(result, "soft.*inference.onnx has 10 bytes")


class Start(ServeCase):
    def end(self, *options):
        return self.start_server(*options).wait(SECONDS)

    def test_a_folder_that_is_missing_empty_or_damaged(self):
        (self.folder / "empty").mkdir()
        shutil.copytree(self.model(), self.folder / "damaged")
        os.truncate(self.folder / "damaged/inference.onnx", 1000)
        for name, words in (("nowhere", "nowhere"), ("empty", "empty.*inference.yml|inference.yml.*empty"),
                            ("damaged", "inference.onnx")):
            result = self.end("--model-dir", name)
            self.assert_ends(result, 1)
            self.assert_says(result, words)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = self.end("--model-dir", self.model(), "--port", port)
        self.assert_ends(result, 71)
        self.assert_says(result, f"{port}.*in use.*ss -ltnp.*--port, 0")

    def test_wrong_options(self):
        self.assert_usage(self.end(), "--model-dir")
        self.assert_usage(self.end("--prot", 1), "did you mean --port")
        self.assert_usage(self.end("--model-dir", ".", "--request-timeout", 0), "from 1ms to 30 days")
        self.assert_usage(self.end("--model-dir", ".", "--decode-memory", 1), "from 1M to 1024G")
        self.assert_usage(self.end("--model-dir", ".", "--port-file", "."), "--port-file . is not a file")
        self.assert_usage(self.end("--model-dir", ".", "--use-gpu", "True"), "take --engine torch")
        self.assert_ends(self.end("--help"), 0)

    def test_memory_for_no_picture_at_all(self):
        model = exported_model(self, arch="MobileNetV3_small_x0_35", side=192, more="")
        self.assert_usage(self.end("--model-dir", model, "--decode-memory", "1M"), "--decode-memory 1048576 is too little")

    def test_the_port_file(self):
        path = self.folder / "port"
        path.write_text("1\n")  # of a server that was killed
        self.assert_ends(self.end("--model-dir", "nowhere", "--port-file", "port"), 1)
        self.assertFalse(path.exists(), "an old one might be taken for ours")
        path.write_text("1\n")
        server = self.serve("--port-file", "port")
        wait_for(lambda: path.exists() and int(path.read_text()) == server.port, SECONDS, "the port")
        self.assert_ends(self.end("--model-dir", self.model(), "--port", server.port, "--port-file", "port"), 71)
        self.assertEqual(int(path.read_text()), server.port, "whoever cannot start takes nobody's file")
        server.job.signal(signal.SIGTERM)
        self.assert_ends(server.job.wait(10), 0)
        self.assertFalse(path.exists())

    def test_a_killed_server_leaves_its_port_to_the_next(self):
        server = self.serve()
        held = server.connect()
        server.get("/healthz", connection=held)
        server.job.signal(signal.SIGKILL)
        server.job.wait(10)
        again = self.serve("--port", server.port)
        self.assertEqual((again.port, again.get("/healthz").status), (server.port, 200))


class End(ServeCase):
    def test_signals_end_an_idle_server_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            server.get("/healthz", connection=server.connect())
            server.job.signal(number)
            began = time.monotonic()
            self.assert_ends(server.job.wait(10), 0)
            self.assertLess(time.monotonic() - began, 5)

    def test_a_request_that_has_begun_is_answered_and_a_later_one_refused(self):
        server = self.serve()
        picture = png(1)
        begun, idle = server.connect(), server.connect()
        server.get("/healthz", connection=idle)
        begun.putrequest("POST", "/v1/predict")
        begun.putheader("Content-Type", "image/png")
        begun.putheader("Content-Length", str(len(picture)))
        begun.endheaders(picture[:100])
        wait_for(lambda: server.metrics()["trireme_connections"] >= 3, SECONDS, "the connections")
        server.get("/healthz", connection=idle)
        server.job.signal(signal.SIGTERM)
        server.job.wait_output("SIGTERM: no more connections")
        wait_for(lambda: self.refuses(server), SECONDS, "the closed door")
        health = server.get("/healthz", connection=idle)
        self.assertEqual((health.status, health.json()["status"]), (503, "draining"))
        begun.send(picture[100:])
        answer = begun.getresponse()
        self.assertEqual((answer.status, answer.headers["Connection"]), (200, "close"))
        answer.read()
        self.assert_ends(server.job.wait(10), 0)

    def end_by_signals(self, job, number=signal.SIGTERM):
        """Several, as one that follows the first at once is taken for part of it."""

        def ended():
            job.signal(number)
            time.sleep(0.2)
            return not alive(job.pid)

        wait_for(ended, SECONDS, "the end")
        return job.wait(10)

    def test_the_port_stays_open_for_the_drain_delay_until_a_second_signal(self):
        server = self.serve("--drain-delay", "1h", "--port-file", "port")
        self.assertEqual(server.get("/healthz").status, 200)
        server.job.signal(signal.SIGTERM)
        server.job.wait_output("SIGTERM: not ready")
        health = server.get("/healthz")
        self.assertEqual((health.status, health.json()["status"]), (503, "draining"))
        self.assertEqual(server.get("/v2/health/ready").status, 503)
        self.assertEqual(server.get("/v2/health/live").status, 200)
        self.assertEqual(server.post(png(1)).status, 200, "a client that comes meanwhile is answered")
        self.assert_ends(self.end_by_signals(server.job), 128 + signal.SIGTERM)
        self.assertFalse((self.folder / "port").exists())

    def test_the_drain_delay_has_an_end(self):
        server = self.serve("--drain-delay", "300ms")
        began = time.monotonic()
        server.job.signal(signal.SIGTERM)
        self.assert_ends(server.job.wait(SECONDS), 0)
        self.assertGreaterEqual(time.monotonic() - began, 0.3)

    def refuses(self, server):
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
            return False
        except ConnectionRefusedError:
            return True

    def test_the_drain_has_an_end_and_a_second_signal_is_faster(self):
        for options, code in ((["--drain-timeout", "300ms"], 1), (["--drain-timeout", "60s"], 128 + signal.SIGTERM)):
            server = self.serve(*options)
            half = server.connect()
            half.putrequest("POST", "/v1/predict")
            half.putheader("Content-Length", "1000")
            half.endheaders(b"x")
            wait_for(lambda: server.metrics()["trireme_connections"] >= 2, SECONDS, "the connection")
            server.job.signal(signal.SIGTERM)
            server.job.wait_output("SIGTERM: no more connections")
            self.assert_ends(server.job.wait(10) if code == 1 else self.end_by_signals(server.job), code)


DESCRIPTION = """\
Global: {model_name: "%s"}
Input: {name: x, shape: [-1, 3, 4, 4]}
Output: {name: out, activation: none, class_num: 3}
PreProcess:
  transform_ops:
    - ResizeImage: {size: 4}
    - NormalizeImage: {scale: 1.0/255.0, mean: [0.0, 0.0, 0.0], std: [1.0, 1.0, 1.0], order: ''}
    - ToCHWImage:
"""


class Hanging(ServeCase):
    """hanging_engine.cc: one that never comes back."""

    env = {**PLAIN, "TRIREME_PLUGIN_DIR": Path(TRIREME).resolve().parents[1] / "tests/serve/hanging_engine"}

    def start_model(self, name, *options):
        model = self.folder / "model"
        model.mkdir(exist_ok=True)
        (model / "inference.onnx").touch()
        (model / "inference.yml").write_text(DESCRIPTION % name)
        return self.start_server("--model-dir", model, *options)

    def test_a_signal_ends_it_while_the_model_is_loaded(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            job = self.start_model("loads for ever")
            job.wait_output("the engine hangs", SECONDS)
            job.signal(number)
            self.assert_ends(job.wait(10), 128 + number)

    def test_a_signal_ends_it_when_all_requests_are_answered(self):
        server = Server(self, self.start_model("computes for ever \\e", "--request-timeout", "200ms"))
        self.assertIn(r"serving computes for ever \x1b on", server.job.output())
        self.assertEqual(server.post(png(1)).error()[0], "timeout")
        server.job.signal(signal.SIGTERM)
        self.assert_ends(server.job.wait(10), 0)

    def test_an_old_model_that_computes_for_ever_holds_up_no_reload(self):
        server = Server(self, self.start_model("computes for ever", "--request-timeout", "200ms"))
        for count in range(1, 4):
            self.assertEqual(server.post(png(1)).error()[0], "timeout")
            server.job.signal(signal.SIGHUP)
            wait_for(lambda: server.metrics().get('trireme_reloads_total{result="ok"}') == count, SECONDS, "the reload")
        server.job.signal(signal.SIGTERM)
        self.assert_ends(server.job.wait(10), 0)


if __name__ == "__main__":
    main()
