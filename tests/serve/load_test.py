"""`trireme serve` under load: no errors, bounded memory, no accepted request lost. TRIREME_LOAD_SECONDS makes it longer
(`make soak`)."""

import concurrent.futures
import http.client
import os
import re
import signal
import socket
import threading

from serve_case import SECONDS, ServeCase, black_png, png
from trireme_test import SANITIZED, main, wait_for

LOAD_SECONDS = int(os.environ.get("TRIREME_LOAD_SECONDS", "5"))
GROWTH_KB = 200_000 if SANITIZED else 40_000


class Load(ServeCase):
    def test_a_thousand_requests_on_one_connection_take_no_memory(self):
        server = self.serve()
        connection, picture = server.connect(), png(1)
        ask = lambda: self.assertEqual(server.post(picture, connection=connection).status, 200)
        for _ in range(200):
            ask()
        before = server.memory_kb()
        for _ in range(1000):
            ask()
        self.assertLess(server.memory_kb() - before, 10_000)
        self.assertEqual(server.metrics()["trireme_connections"], 2)

    def test_large_pictures_are_decoded_in_turn(self):
        server = self.serve("--decode-memory", "60M", "--workers", 8)
        self.assertEqual(server.post(png(1)).status, 200)
        before, picture = server.memory_kb(), black_png(4000, 4000)  # 48 MB of pixels
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: server.post(picture), range(8)))
        self.assertEqual([answer.status for answer in answers], [200] * 8)
        for size in ((5000, 5000), (1, 400_000)):  # the second would be resized to 1.2 GB
            self.assertEqual(server.post(black_png(*size)).error()[0], "image_too_large")
        self.assertLess(server.memory_kb("VmHWM") - before, 60_000 + GROWTH_KB)

    def test_many_slow_senders_of_large_bodies_share_the_memory(self):
        server = self.serve("--memory-limit", "32M")
        self.assertEqual(server.post(png(1)).status, 200)
        before = server.memory_kb()
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 16000000\r\n\r\n"
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for client in clients:
            self.addCleanup(client.close)
            client.setblocking(False)
            client.sendall(head)
        piece, open_ones = bytes(64 << 10), set(clients)
        for _ in range(32):  # 2 MB of each, in turn
            for client in list(open_ones):
                try:
                    client.send(piece)
                except BlockingIOError:
                    pass
                except OSError:
                    open_ones.remove(client)
        wait_for(lambda: server.metrics()['trireme_requests_total{status="503"}'] > 0, SECONDS, "a refusal")
        self.assertLess(server.memory_kb("VmHWM") - before, 32_000 + GROWTH_KB)
        for client in clients:
            client.close()
        wait_for(lambda: server.post(png(1)).status == 200, SECONDS, "an answer, now that the memory is free")

    def test_wrk_sees_no_error_and_memory_stays(self):
        server = self.serve()
        body = self.folder / "picture.png"
        body.write_bytes(png(1))
        script = self.folder / "post.lua"
        script.write_text(
            f'local file = io.open("{body}", "rb")\n'
            'wrk.method = "POST"\nwrk.body = file:read("*a")\nwrk.headers["Content-Type"] = "image/png"\n'
        )
        self.wrk(server, script, 1)
        before = server.memory_kb()
        text = self.wrk(server, script, LOAD_SECONDS)
        self.assertNotRegex(text, "Non-2xx|Socket errors", text)
        requests = int(re.search(r"(\d+) requests in", text)[1])
        self.assertGreater(requests, 10 * LOAD_SECONDS, text)
        after = server.memory_kb()
        print(f"wrk: {requests} requests in {LOAD_SECONDS} s, no error; resident {before} kB before, {after} kB after")
        self.assertLess(after - before, GROWTH_KB)
        metrics = server.metrics()
        self.assertGreaterEqual(metrics['trireme_requests_total{status="200"}'], requests)
        self.assertLess(metrics["trireme_batch_size_count"], metrics["trireme_batch_size_sum"])  # some were shared

    def wrk(self, server, script, seconds):
        command = ["wrk", "-t1", "-c32", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{server.port}/v1/predict"]
        result = self.start_command(command).wait(seconds + SECONDS)
        self.assert_ends(result, 0)
        return result.out

    def test_sigterm_under_load_loses_no_request(self):
        for signals in (1, 1, 2, 2):  # timeout(1) sends two at once, which are one wish
            self.stop_under_load(signals)

    def stop_under_load(self, signals):
        server = self.serve()
        answered, lost, stopped = [], [], threading.Event()
        picture = png(1)

        def client():
            connection = server.connect()
            while not stopped.is_set():
                try:
                    if connection.sock is None:
                        connection.connect()
                except ConnectionRefusedError:
                    return  # the door is closed: nothing was accepted
                try:
                    connection.request("POST", "/v1/predict", picture, {"Content-Type": "image/png"})
                    response = connection.getresponse()
                    response.read()
                    answered.append(response.status)
                except (OSError, http.client.HTTPException) as error:
                    lost.append(repr(error))
                    return

        clients = [threading.Thread(target=client) for _ in range(8)]
        for thread in clients:
            thread.start()
        wait_for(lambda: len(answered) >= 100 or lost, SECONDS, "a hundred answers")
        for _ in range(signals):
            server.job.signal(signal.SIGTERM)
        result = server.job.wait(SECONDS)
        stopped.set()
        for thread in clients:
            thread.join()
        self.assert_ends(result, 0)
        self.assertEqual(lost, [])
        self.assertLessEqual(set(answered), {200, 503})


if __name__ == "__main__":
    main()
