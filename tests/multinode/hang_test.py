"""Ranks on two machines that wait for a stopped rank or for each other: both launchers name the rank and end the job."""

import os
import re
import time

from machines import MachineCase, main
from trireme_test import SLOWER, TRIREME, alive, wait_for

PROGRAM = os.environ["HANG_RANKS"]
START = 90  # seconds; libtorch on a busy machine
END = 30
HANG = 3  # seconds
LINK = 3  # seconds, --link_timeout
VERDICT = 2 * SLOWER  # seconds from --hang_timeout to the end of the job


class HangCase(MachineCase):
    """alpha has the first ranks, beta the others."""

    def hang(self, case, per_machine, *options, env=None):
        return self.start_everywhere(
            "--ips", self.ips, "-n", per_machine, "--hang_timeout", f"{HANG}s", *options, PROGRAM, case, env=env
        )

    def assert_hang(self, jobs, host, *patterns):
        """Both launchers have ended the job and blame rank 1."""
        for machine, result in zip(self.machines, [job.wait(START + END) for job in jobs]):
            self.assert_ends(result, 76)
            self.assert_says(result, *patterns)
            found = self.result_json(self.log_of(machine))
            culprit = found["culprit"]
            self.assertEqual((found["exit_code"], culprit["rank"], culprit["host"]), (76, 1, host), found)
            self.assertEqual(culprit["cause"], "hang", found)


class Stopped(HangCase):
    def assert_blames(self, per_machine, host):
        self.assert_hang(
            self.hang("stop", per_machine),
            host,
            r"waits? in all_reduce #17 float\[1000\] sum of group 0 since \d+ s",
            rf"^Rank 1 on {host} is stopped while ranks? [\d, -]+ waits? for it in all_reduce #17",
        )

    def test_one_rank_on_each(self):
        self.assert_blames(1, "beta")

    def test_two_ranks_on_each(self):
        self.assert_blames(2, "alpha")


class DifferentCollectives(HangCase):
    def test_one_rank_on_each(self):
        # Without TRIREME_CHECK=0 the ranks compare their calls, and there is no hang.
        env = {"TRIREME_BACKEND": "gloo", "TRIREME_CHECK": 0, "GLOG_v": 3}
        jobs = self.hang("collectives", 1, "--tee", "all", env=env)
        for job, call in zip(jobs, ("rank 0 calls all_reduce #17", "rank 1 calls broadcast #17")):
            job.wait_output(call, START)
        waiting_since = time.monotonic()
        results = [job.wait(END) for job in jobs]
        self.assertLess(time.monotonic() - waiting_since, HANG + VERDICT, "".join(map(str, results)))
        self.assert_hang(
            jobs,
            "beta",
            r"^Rank 1 on beta called another operation than the others of group 0: "
            r"rank 0: all_reduce #17 float\[1000\] sum, rank 1: broadcast #17 float\[10\] with root 0$",
        )


class Unproven(HangCase):
    """Reported on both screens; node 0 also gets the stack of a rank on the other machine."""

    def assert_reports(self, case, what, frame):
        jobs = self.hang(case, 1)
        for job in jobs:
            job.wait_output(rf"no progress for \d+ s: rank 0 waits in all_reduce #17 .* for rank 1 \({what}", START)
        jobs[0].wait_output(rf"stack of rank 1:\n(.*\n)*.*{frame}", START)
        (self.folder_of(self.beta) / "go").touch()
        for job in jobs:
            self.assert_ends(job.wait(END), 0)

    def test_an_endless_loop(self):
        self.assert_reports("loop", "running", "compute_without_end")

    def test_a_loader_that_stalls(self):
        self.assert_reports("loader", r"loading data for \d+ s", "SlowDataset::get")


class Doctor(HangCase):
    def test_the_ranks_of_both_machines(self):
        jobs = self.hang("loop", 1)
        for job in jobs:
            job.wait_output(r"rank 0 waits in all_reduce #17 .* for rank 1 \(running", START)
        command = self.alpha.command(self.folder_of(self.alpha), TRIREME, "doctor", "--job", self.log_of(self.alpha))
        asked = []

        def answered():
            asked[:] = [self.start_command(command).wait(END)]
            return re.search(r"^rank 0 waits in all_reduce #17 .* for rank 1 \(running", asked[0].text, re.M)

        wait_for(answered, START, lambda: f"the verdict in {asked}")
        self.assert_ends(asked[0], 0)
        self.assert_says(asked[0], r"^ +0 +\d+ +\w+ +alpha ", r"^ +1 +\d+ +\w+ +beta ",
                         "^Rank 1 runs on another machine: ask there for its stack")
        (self.folder_of(self.beta) / "go").touch()
        for job in jobs:
            self.assert_ends(job.wait(END), 0)


class Deadlock(HangCase):
    def test_groups_in_different_order(self):
        for result in [job.wait(START + END) for job in self.hang("groups", 1)]:
            self.assert_ends(result, 76)
            self.assert_says(result, r"^Rank 0 on alpha is in a deadlock: rank 0 waits in all_reduce #1 .*"
                                     r"rank 1 waits in all_reduce #1 ")


class Late(HangCase):
    def assert_blames(self, per_machine, host):
        """Both screens name the late rank; that of its own node also shows what it wrote last."""
        jobs = self.hang("loop", per_machine, env={"PADDLE_PG_TIMEOUT": 8000 * SLOWER})
        for machine, result in zip(self.machines, [job.wait(START + END) for job in jobs]):
            self.assert_ends(result, 75)
            self.assert_says(result, rf"^Rank 1 on {host} is running while ranks? [\d, -]+ waits? for it in all_reduce #17 ",
                             r"ranks? [\d, -]+ gave up$")
            culprit = self.result_json(self.log_of(machine))["culprit"]
            self.assertEqual((culprit["rank"], culprit["host"], culprit["cause"]), (1, host, "late"), culprit)

    def test_one_rank_on_each(self):
        self.assert_blames(1, "beta")

    def test_two_ranks_on_each(self):
        self.assert_blames(2, "alpha")


class CutLink(MachineCase):
    """Two of three machines lose each other while the job runs; each still reaches the first one, which has the store."""

    names = ("alpha", "beta", "gamma")

    def setUp(self):
        super().setUp()
        self.env = {"TRIREME_BACKEND": "gloo"}

    def start_job(self, *options):
        jobs = self.start_everywhere(*options, "-n", 1, "--link_timeout", f"{LINK}s", PROGRAM, "run", env=self.env)
        self.wait_file_on(self.alpha, "running", START)
        return jobs

    def cut(self, first, second):
        for machine, other in ((first, second), (second, first)):
            machine.ip("route", "add", "blackhole", f"{other.address}/32")

    def test_the_job_ends_and_names_both(self):
        jobs = self.start_job("--ips", self.ips)
        self.cut(self.beta, self.gamma)
        since = time.monotonic()
        for machine, result in zip(self.machines, [job.wait(END) for job in jobs]):
            self.assert_ends(result, 75)
            self.assert_says(result, r"^Job \S+ failed: node (1 \(beta, \S+\) cannot reach node 2 \(gamma|"
                                     r"2 \(gamma, \S+\) cannot reach node 1 \(beta), ")
            self.assertRegex(self.result_json(self.log_of(machine))["reason"], "cannot reach node")
        self.assertLess(time.monotonic() - since, 4 * LINK * SLOWER)

    def test_of_an_elastic_job_one_of_them_leaves(self):
        alpha, beta, gamma = self.start_job("--master", f"{self.alpha.address}:7100", "--nnodes", "2:3",
                                            "--elastic_timeout", 5)
        self.cut(self.beta, self.gamma)
        wait_for(lambda: not (alive(beta.pid) and alive(gamma.pid)), START, lambda: f"one to leave:\n{self.consoles()}")
        left, stays = (gamma, beta) if alive(beta.pid) else (beta, gamma)
        self.assert_ends(left.wait(), 75)
        self.assert_says(left.wait(), r"node 2 \(\S+, \S+\) cannot reach node 1 .*this node has left the job")
        alpha.wait_output(r"attempt 1 has 2 nodes, 2 ranks: node 2 \(\S+, \S+\) cannot reach node 1 ", START)
        (self.folder_of(self.alpha) / "go").touch()
        for job in (alpha, stays):
            self.assert_ends(job.wait(START), 0)


if __name__ == "__main__":
    main()
