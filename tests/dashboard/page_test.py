"""The dashboard of a real launcher, asked over HTTP: what it shows, and what it refuses."""

import copy
import http.client
import json
import os
import re
import signal
import socket
import sys

import metrics_check
import trace_check
import trireme_test
from trireme_test import TRIREME, Case, read, wait_for

TRAINER = os.environ["FAKE_TRAINER"]
START = 30  # seconds until a page of a loaded machine shows a step
FOREVER = 1_000_000


def listening(port):
    """The addresses on which this machine listens on the port."""
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in read(f"/proc/net/{name}").splitlines()[1:]:
            local, state = (line.split()[field] for field in (1, 3))
            address, number = local.split(":")
            if state == "0A" and int(number, 16) == port:  # TCP_LISTEN
                words = bytes.fromhex(address)  # of 32 bits each, in this machine's order
                found.append(socket.inet_ntop(family, b"".join(words[i:i + 4][::-1] if sys.byteorder == "little" else words[i:i + 4]
                                                               for i in range(0, len(words), 4))))
    return found


class PageCase(Case):
    def begin(self, *options, trainer=(FOREVER, 20), ranks=2, address="0"):
        """A job with a page."""
        if not (self.folder / "train").exists():
            (self.folder / "train").symlink_to(TRAINER)  # a short name: it is on the page
        self.job = self.start("-n", ranks, "--dashboard", address, "--quiet", *options, "./train", *trainer)
        url = self.wait_file("log/dashboard.url", START)
        match = re.fullmatch(r"http://([^/]+):(\d+)/(?:#token=(\w+))?\n", url)
        self.assertTrue(match, url)
        self.port, self.token = int(match[2]), match[3]
        return self.job

    def ask(self, path, method="GET", headers=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        try:
            connection.request(method, path, headers={"Host": "localhost", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def get(self, path):
        status, body, _ = self.ask(path)
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def wait_state(self, condition, seconds=START):
        """The first state for which the condition holds."""
        return wait_for(lambda: next(filter(condition, [self.get("/api/state")]), None), seconds,
                        lambda: f"a state; the last one: {self.ask('/api/state')[1]}")

    def wait_steps(self, count):
        return self.wait_state(lambda state: (state["totals"]["step"] or 0) >= count)


class Page(PageCase):
    def test_what_it_shows(self):
        self.begin("--trace", "steps=5:8")
        state = self.wait_steps(20)
        self.assertEqual([rank["rank"] for rank in state["ranks"]], [0, 1])
        for rank in state["ranks"]:
            self.assertTrue(rank["records"] and rank["pid"] and rank["memory"] and rank["device"] == "CPU", rank)
            self.assertAlmostEqual(sum(rank["shares"][:3]), 1, places=6)
        state = self.wait_state(lambda found: found["totals"]["samples_per_second"])
        self.assertEqual(state["operations"][0]["name"], "all_reduce")
        curves = self.get("/api/curves")
        self.assertLessEqual({"loss", "accuracy", "lr", "samples/s"}, set(curves))
        steps = [point[0] for point in curves["loss"]["points"]]
        self.assertEqual(steps, sorted(steps))
        (timeline,) = self.get("/api/timeline?ranks=1")
        self.assertLessEqual({-1, 1, 2, 3, 4, 7, 8}, {span[2] for span in timeline["spans"]})
        self.assertIn("step 10 loss", wait_for(lambda: self.get("/api/log?rank=1")["text"], START, "a log"))
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def test_what_it_refuses(self):
        self.begin()
        for path in ("/log/workerlog.0", "/../etc/passwd", "/%2e%2e/etc/passwd", "/api/log?rank=7", "/api/log?rank=../x"):
            self.assertEqual(self.ask(path)[0], 404, path)
        for method in ("POST", "PUT", "DELETE"):
            self.assertEqual(self.ask("/api/state", method, {"Content-Length": "0"})[0], 405)
        self.assertEqual(self.ask("/", headers={"Host": "evil.example"})[0], 403)
        self.assertEqual(self.ask("/", headers={"X": "x" * 20_000})[0], 431)
        self.assertIn("default-src 'none'", self.ask("/")[2]["Content-Security-Policy"])
        self.assertEqual(listening(self.port), ["127.0.0.1"])
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def test_many_silent_clients(self):
        """Connections that say nothing neither lock others out for long nor stay for ever."""
        self.begin()
        silent = [socket.create_connection(("127.0.0.1", self.port), 5) for _ in range(60)]
        self.assertEqual(self.ask("/api/state")[0], 200)
        for connection in silent:
            connection.close()
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def test_off_loopback_it_asks_for_a_token(self):
        self.begin("--log_level", "info", address="0.0.0.0:0")
        self.assertEqual(listening(self.port), ["0.0.0.0"])
        self.assertEqual(os.stat(self.log / "dashboard.url").st_mode & 0o777, 0o600)
        self.assertEqual(self.ask("/")[0], 200)
        for path in ("/api/state", "/metrics", "/progress.json", "/api/log?rank=0"):
            self.assertEqual(self.ask(path)[0], 401)
            self.assertEqual(self.ask(path, headers={"Authorization": "Bearer " + "0" * 64})[0], 401)
            self.assertEqual(self.ask(path, headers={"Authorization": f"Bearer {self.token}"})[0], 200)
        cookie = self.ask("/api/login", headers={"Authorization": f"Bearer {self.token}"})[2]["Set-Cookie"].split(";")[0]
        self.assertEqual(self.ask("/api/state", headers={"Cookie": cookie})[0], 200)
        self.job.signal(signal.SIGTERM)
        result = self.job.wait()
        self.assertNotIn(self.token, result.text)
        self.assertFalse((self.log / "dashboard.url").exists())

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            result = self.launch("-n", 2, "--dashboard", port, "sh", "-c", "echo started")
        self.assertNotEqual(result.code, 0)
        self.assert_says(result, f"cannot take port {port} on 127.0.0.1")
        self.assert_silent_on(result, "started")


class Files(PageCase):
    def test_progress_and_metrics(self):
        self.begin()
        self.wait_steps(5)
        progress = wait_for(lambda: json.loads(read(self.log / "progress.json") or "{}").get("step") and
                            json.loads(read(self.log / "progress.json")), START, "progress.json")
        self.assertEqual((progress["state"], progress["ranks"]), ("running", 2))
        self.assertIn("loss", progress["values"])
        status, text, headers = self.ask("/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        samples, problem = metrics_check.read_metrics(text)
        self.assertIsNone(problem)
        host = self.get("/api/state")["host"]
        of_rank = f'{{rank="1",host="{host}",operation="all_reduce"}}'
        count, size, seconds = (samples[f"trireme_operation{what}_total{of_rank}"] for what in ("s", "_bytes", "_seconds"))
        self.assertGreaterEqual(count, 3 * 4, "three in each step that is done")
        self.assertGreater(size, 0)
        self.assertGreater(seconds, 0)
        self.assertEqual(samples["trireme_job_running"], 1)
        self.job.signal(signal.SIGTERM)
        self.job.wait()
        self.assertEqual(json.loads(read(self.log / "progress.json"))["state"], "interrupted")

    def test_metrics_that_prometheus_would_not_read(self):
        """The checker finds what is wrong, else its silence on good metrics says nothing."""
        head = "# HELP a x\n# TYPE a gauge\n"
        self.assertEqual(metrics_check.read_metrics(head + 'a{b="c"} 1e-7\n'), ({'a{b="c"}': 1e-7}, None))
        for bad in ("", "a 1\n", "# HELP a x\n# TYPE a counter\na 1\n", head + "a 1\na 2\n", head + "a 0x1\n",
                    head + "a{b=c} 1\n", head + "a 1", "# HELP a x\na 1\n", head + 'a{b="c""} 1\n', head + head):
            self.assertTrue(metrics_check.read_metrics(bad)[1] is not None, bad)

    def test_the_trace_shows_communication_beside_backward(self):
        result = self.launch("-n", 2, "--quiet", "--trace", "steps=10:13", TRAINER, 30, 20)
        self.assert_ends(result, 0)
        trace = json.loads(read(self.log / "trace.json"))
        self.assertEqual(trace_check.problems(trace), [])
        self.assertEqual(trace["otherData"], {"job_id": "default", "truncated": 0})
        events = trace["traceEvents"]
        for rank in (0, 1):
            spans = [event for event in events if event["pid"] == rank and event["ph"] == "X"]
            self.assertEqual({event["args"]["step"] for event in spans}, {10, 11, 12})
            backward = [(event["ts"], event["ts"] + event["dur"]) for event in spans if event["name"] == "backward"]
            self.assertEqual(len(backward), 3)
            inside = [event for event in spans if event["name"] == "all_reduce" and event["tid"] > 1 and any(
                start <= event["ts"] and event["ts"] + event["dur"] <= end for start, end in backward)]
            self.assertEqual(len(inside), 6, "two buckets in each step")

    def test_a_trace_that_no_viewer_would_read(self):
        """The checker finds what is wrong, else its silence on a good trace says nothing."""
        self.assert_ends(self.launch("-n", 1, "--quiet", "--trace", "steps=2:5", TRAINER, 8, 20), 0)
        good = json.loads(read(self.log / "trace.json"))
        self.assertEqual(trace_check.problems(good), [])
        for fault, spoil in {
            "ph is 'B'": lambda spans, _: spans[0].update(ph="B"),
            "ts is 1.5": lambda spans, _: spans[0].update(ts=1.5),
            "dur is -1": lambda spans, _: spans[0].update(dur=-1),
            "after the span around it": lambda spans, _: spans[0].update(dur=spans[1]["ts"] + 1 - spans[0]["ts"]),
            "thread_name of process 0, thread 99: missing": lambda spans, _: spans[0].update(tid=99),
            "process_name of process 0, thread None: missing": lambda _, trace: trace["traceEvents"].pop(0),
        }.items():
            bad = copy.deepcopy(good)
            spans = [event for event in bad["traceEvents"] if event["ph"] == "X" and event["name"].startswith("step")]
            spoil(sorted(spans, key=lambda event: event["ts"]), bad)
            self.assertIn(fault, "\n".join(trace_check.problems(bad)))

    def test_a_trace_of_steps_that_never_come(self):
        first = self.launch("-n", 2, "--trace", "steps=2:4", TRAINER, 5, 10)
        self.assert_ends(first, 0)
        self.assert_says(first, rf"^trireme: the trace is in {self.log}/trace.json \(asked were steps 2 to 3\)$")
        second = self.launch("-n", 2, "--trace", "steps=100:110", TRAINER, 5, 10)
        self.assert_ends(second, 0)
        self.assert_says(second, f"^trireme: warning: {self.log}/trace.json is not written: "
                                 "ranks were in steps 1 to 5, asked were 100 to 109$")
        self.assertFalse((self.log / "trace.json").exists(), "that of the job before is gone")

    def test_report(self):
        result = self.launch("-n", 2, "--quiet", TRAINER, 20, 10, "die=1@15")
        self.assertEqual(result.code, 137, result)
        made = self.start_command([TRIREME, "report", self.log]).wait()
        self.assert_ends(made, 0)
        html = read(self.log / "report.html")
        for words in ("killed by signal 9", '"loss"', "rank 0 of 2 begins", "Content-Security-Policy"):
            self.assertTrue(words in html, words)
        self.assert_usage(self.start_command([TRIREME, "report", self.folder]).wait(), "history.json", "--log_dir")

    def test_a_folder_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        result = self.launch("-n", 2, "--log_dir", self.folder / "file", TRAINER, 5, 10)
        self.assert_ends(result, 0)

    def test_a_page_has_steps_also_without_the_hang_watch(self):
        self.begin("--hang_timeout", 0, trainer=(FOREVER, 20))
        self.assertTrue(self.wait_steps(2)["ranks"][0]["records"], "the page wants the rings")
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def test_without_rings_only_processes_are_known(self):
        """Neither a page nor a terminal nor the hang watch reads them: there are none."""
        self.job = self.start("-n", 2, "--quiet", "--hang_timeout", 0, TRAINER, FOREVER, 20)

        def ranks_with_memory():
            ranks = json.loads(read(self.log / "live.json") or '{"ranks": []}')["ranks"]
            return ranks and all(rank["memory"] and rank["pid"] for rank in ranks) and ranks

        ranks = wait_for(ranks_with_memory, START, "the memory of the ranks")
        self.wait_file("log/workerlog.0", START)
        wait_for(lambda: "step 10 " in read(self.log / "workerlog.0"), START, "steps of the program")
        self.assertEqual([(rank["records"], rank["step"], rank["shares"]) for rank in ranks], [(False, None, None)] * 2)
        top = self.start_command([TRIREME, "top", "--once"]).wait()
        self.assert_says(top, "no step recorded")
        progress = json.loads(read(self.log / "progress.json"))
        self.assertEqual((progress["state"], progress["step"], progress["samples_per_second"], progress["values"]),
                         ("running", None, None, {}))
        self.job.signal(signal.SIGTERM)
        self.job.wait()


class OtherPrograms(PageCase):
    def test_a_program_without_trireme(self):
        self.job = self.start("-n", 2, "--dashboard", 0, "--quiet", "sh", "-c", "echo I am $RANK; " + trireme_test.FOREVER)
        self.port = int(re.search(r":(\d+)/", self.wait_file("log/dashboard.url", START))[1])
        state = self.wait_state(lambda found: found["ranks"] and all(rank["memory"] for rank in found["ranks"]))
        self.assertFalse(state["ranks"][1]["records"])
        self.assertIsNone(state["totals"]["step"])
        self.assertEqual(self.get("/api/log?rank=1")["text"], "I am 1\n")
        self.job.signal(signal.SIGTERM)
        self.job.wait()


if __name__ == "__main__":
    trireme_test.main()
