"""The dashboard and `trireme top` of a job on two machines: node 0 shows the ranks of both."""

import json
import os
import re
import signal
import subprocess

from machines import MachineCase, main
from trireme_test import TRIREME, read, wait_for

TRAINER = os.environ["FAKE_TRAINER"]
WAIT = 60  # seconds, on a loaded machine
FOREVER = 1_000_000


class TwoMachines(MachineCase):
    def ask(self, path):
        """What node 0 answers on its own loopback address."""
        url = self.wait_file_on(self.alpha, "log/dashboard.url", WAIT).strip()
        command = self.alpha.command("/", "curl", "-sS", "--max-time", "20", url + path)
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def test_one_page_shows_all_ranks(self):
        jobs = self.start_everywhere("--ips", self.ips, "-n", 2, "--quiet", "--dashboard", 0, "--trace", "steps=5:8",
                                     TRAINER, FOREVER, 30)
        state = wait_for(lambda: next((found for found in [self.ask("api/state")]
                                       if all((rank["step"] or 0) > 10 for rank in found["ranks"])), None),
                         WAIT, "the steps of all ranks")
        self.assertEqual([rank["host"] for rank in state["ranks"]], ["alpha", "alpha", "beta", "beta"])
        self.assertTrue(all(rank["memory"] and rank["pid"] for rank in state["ranks"]), state)
        self.assertEqual(state["nodes"], 2)
        self.assertFalse((self.log_of(self.beta) / "dashboard.url").exists(), "node 0 alone has a page")
        timelines = self.ask("api/timeline?ranks=1,3")
        self.assertEqual([timeline["rank"] for timeline in timelines], [1, 3])
        ends = [max(span[0] + span[1] for span in timeline["spans"]) for timeline in timelines]
        self.assertLess(abs(ends[0] - ends[1]), 10_000_000, "on one clock")
        log = wait_for(lambda: self.ask("api/log?rank=3")["text"], WAIT, "the log of the other machine")
        self.assertIn("rank 3 of 4 begins", log)
        self.assertIn("loss", self.ask("api/curves?rank=2"))
        trace = wait_for(lambda: read(self.log_of(self.alpha) / "trace.json"), WAIT, "the trace")
        hosts = re.findall(r"rank \d on (\w+)", trace)
        self.assertEqual(hosts, ["alpha", "alpha", "beta", "beta"])
        jobs[0].signal(signal.SIGTERM)
        for job in jobs:
            job.wait(WAIT)

    def test_top_shows_the_ranks_of_both_without_a_page(self):
        jobs = self.start_everywhere("--ips", self.ips, "-n", 2, "--quiet", TRAINER, FOREVER, 30)
        self.wait_file_on(self.alpha, "log/live.json", WAIT)
        command = self.alpha.command(self.folder_of(self.alpha), TRIREME, "top", "--once")
        row = r"(?m)^ +{} +\d+ +\S.* {} +CPU +\d+ +[\d.]+ +[\d.]+ +\d+% +\d+% +\d+% "
        rows = [row.format(rank, host) for rank, host in enumerate(("alpha", "alpha", "beta", "beta"))]

        def table():
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT).stdout

        seen = wait_for(lambda: next((text for text in [table()] if all(re.search(row, text) for row in rows)), None),
                        WAIT, lambda: f"the numbers of all ranks:\n{table()}")
        self.assertIn("4 ranks on 2 nodes", seen)
        jobs[0].signal(signal.SIGTERM)
        for job in jobs:
            job.wait(WAIT)
        self.assertIn("the job has ended: interrupted, exit code 143", table())

    def launch_trainers(self, *trainer):
        """The results, and what node 0 has written in the end."""
        results = self.launch_everywhere("--ips", self.ips, "-n", 2, "--quiet", "--dashboard", 0, "--trace", "steps=5:8",
                                         TRAINER, *trainer, timeout=WAIT)
        history, trace = (json.loads(self.read_on(self.alpha, f"log/{name}.json")) for name in ("history", "trace"))
        return results, history["state"]["ranks"], trace

    def test_a_short_job_is_shown_to_its_end(self):
        results, ranks, trace = self.launch_trainers(12, 20)
        for result in results:
            self.assert_ends(result, 0)
        self.assertEqual({event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"}, {0, 1, 2, 3})
        self.assertEqual([(rank["state"], rank["step"]) for rank in ranks], [("ended", 12)] * 4)
        subprocess.run(self.alpha.command(self.folder_of(self.alpha), TRIREME, "report", "log"), check=True)
        report = self.read_on(self.alpha, "log/report.html")
        self.assertIn("rank 1 is done", report)
        self.assertIn(f"the log of rank 3 is on beta: {self.log_of(self.beta)}/workerlog.", report)

    def test_a_trace_that_is_too_long_says_so(self):
        results = self.launch_everywhere("--ips", self.ips, "-n", 1, "--trace", "steps=1:1300", TRAINER, 1300, 1,
                                         timeout=2 * WAIT)
        for result in results:
            self.assert_ends(result, 0)
        self.assert_says(results[0], r"trace.json lacks the last \d+ spans: .* of a machine other than node 0 up to 8000")
        trace = json.loads(self.read_on(self.alpha, "log/trace.json"))
        self.assertGreater(trace["otherData"]["truncated"], 0)

    def test_how_a_rank_of_the_other_machine_ended(self):
        _, ranks, trace = self.launch_trainers(FOREVER, 20, "die=3@7")
        self.assertEqual([rank["failed"] for rank in ranks], [False, False, False, True], ranks)
        self.assertIn("killed by signal 9", ranks[3]["state"])
        self.assertEqual(ranks[2]["state"], "stopped by the launcher")
        self.assertEqual({event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"}, {0, 1, 2, 3})

    def test_the_hang_and_the_failure_of_a_rank_of_the_other_machine(self):
        jobs = self.start_everywhere("--ips", self.ips, "-n", 2, "--quiet", "--dashboard", 0, "--hang_timeout", "20s",
                                     "--grace", 2, TRAINER, FOREVER, 20, "hang=3@10")
        verdict = wait_for(lambda: self.ask("api/state")["verdict"], WAIT, "the verdict")
        self.assertEqual(verdict["rank"], 3)
        self.assertRegex(verdict["words"], r"ranks? 0.* wait.* for rank 3")
        self.assertIn("all_reduce", self.ask("api/state")["ranks"][0]["activity"])
        os.kill(self.ask("api/state")["ranks"][3]["pid"], signal.SIGKILL)
        results = [job.wait(WAIT) for job in jobs]
        self.assertEqual([result.code for result in results], [137, 137], results[0])
        failure = json.loads(self.read_on(self.alpha, "log/history.json"))["state"]["failure"]
        self.assertRegex(failure, r"Rank 3 on beta\b")
        self.assertIn("signal 9", failure)


class Membership(MachineCase):
    """Nodes leave and join; the page of node 0 stays."""

    def join(self, machine):
        return self.start_on(machine, "--master", f"{self.alpha.address}:7100", "--nnodes", "1:2", "--elastic_timeout", 2,
                             "--grace", 2, "--quiet", "--dashboard", "0.0.0.0:0", "-n", 1, TRAINER, FOREVER, 20)

    def ask(self, url, path):
        address, token = re.fullmatch(r"http://[^/]+:(\d+)/#token=(\w+)", url).groups()
        command = self.alpha.command("/", "curl", "-sS", "--max-time", "20", "-H", f"Authorization: Bearer {token}",
                                     f"http://127.0.0.1:{address}/{path}")
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def wait_state(self, url, ranks):
        return wait_for(lambda: next((found for found in [self.ask(url, "api/state")] if len(found["ranks"]) == ranks and all(
            (rank["step"] or 0) > 5 for rank in found["ranks"])), None), WAIT,
            lambda: f"steps of {ranks} ranks:\n{self.consoles()}")

    def first_point(self, url):
        return self.ask(url, "api/curves")["loss"]["points"][0]

    def test_the_page_and_its_curves_stay(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        url = self.wait_file_on(self.alpha, "log/dashboard.url", WAIT).strip()
        self.wait_state(url, 2)
        first = self.first_point(url)
        beta.signal(signal.SIGTERM)
        beta.wait(WAIT)
        self.assertEqual(self.wait_state(url, 1)["nodes"], 1)
        self.assertEqual(self.first_point(url), first)
        beta = self.join(self.beta)
        self.assertEqual(self.wait_state(url, 2)["nodes"], 2)
        self.assertEqual(self.first_point(url), first)
        self.assertEqual(self.read_on(self.alpha, "log/dashboard.url").strip(), url)
        for job in (beta, alpha):
            job.signal(signal.SIGTERM)
        for job in (beta, alpha):
            job.wait(WAIT)


if __name__ == "__main__":
    main()
