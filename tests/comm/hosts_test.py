"""Collectives between hosts: ranks that share memory in part, and the network for the rest."""

import os
import re

from machines import MachineCase, main
from trireme_test import read

COMM_RANKS = os.environ["COMM_RANKS"]
PATIENCE = 200  # seconds; four ranks on two cores
DEADLINE = 5


class HostsCase(MachineCase):
    """alpha has the first ranks, beta the others."""

    def run_ranks(self, per_host, *args, env=None):
        jobs = [
            self.start_on(
                machine,
                *("--ips", self.ips, "-n", count, "--grace", 30, "--log_overwrite", COMM_RANKS),
                *args,
                env=env,
            )
            for machine, count in zip(self.machines, per_host)
        ]
        return [job.wait(PATIENCE) for job in jobs]

    def reports(self, per_host):
        """What each rank has written, by rank."""
        return [
            read(self.log_of(machine) / f"workerlog.{place}")
            for machine, count in zip(self.machines, per_host)
            for place in range(count)
        ]

    def assert_right(self, per_host, *args, env=None, backend="hierarchical"):
        for result in self.run_ranks(per_host, *args, env=env):
            self.assertEqual(result.code, 0, f"{result}\n{self.reports(per_host)}")
        self.assertIn(f"backend {backend}\n", self.reports(per_host)[0])


class Matrix(HostsCase):
    def test_two_and_two(self):
        self.assert_right((2, 2), "matrix")

    def test_three_and_one(self):
        self.assert_right((3, 1), "matrix")

    def test_one_and_one(self):
        self.assert_right((1, 1), "matrix", backend="gloo")


class Random(HostsCase):
    def test_two_and_two(self):
        self.assert_right((2, 2), "random", 500, 4)

    def test_unchecked(self):
        self.assert_right((2, 2), "random", 100, 5, env={"TRIREME_CHECK": 0})


class Faults(HostsCase):
    per_host = (2, 2)

    def assert_told(self, rank, *patterns):
        text = self.reports(self.per_host)[rank]
        found = re.search(rf"^rank {rank}: PeerError after (\d+) ms: (.*)$", text, re.M)
        self.assertTrue(found, f"rank {rank} has no PeerError:\n{text}\n{self.consoles()}")
        for pattern in patterns:
            self.assertRegex(found[2], pattern)
        self.assertLess(int(found[1]), DEADLINE * 1000, text)

    def test_death(self):
        for kind, victim in (("all_reduce", 0), ("broadcast", 1), ("all_gather", 2), ("all_to_all", 3), ("ring", 0)):
            with self.subTest(kind=kind):
                self.run_ranks(self.per_host, "die", kind, victim)
                for rank in range(4):
                    if rank != victim:
                        self.assert_told(rank, rf"\brank {victim} \(process \d+.*\) died")
                        self.assertRegex(self.reports(self.per_host)[rank], rf"(?m)^blames rank {victim} for ")

    def test_abort(self):
        for result in self.run_ranks(self.per_host, "abort"):
            self.assert_ends(result, 0)
        for rank in range(4):
            self.assert_told(rank, r"rank 0 aborted the group: enough")

    def test_disagreement(self):
        """Of one rank of a host: all four ranks get the same text."""
        for what, first, other in (
            ("order", r"all_reduce #42 float\[1024\] sum", r"broadcast #42 float\[1024\] from rank 0"),
            ("average", r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 float\[1024\] avg"),
            ("root", r"broadcast #42 float\[1024\] from rank 0", r"broadcast #42 float\[1024\] from rank 1"),
        ):
            with self.subTest(what=what):
                for result in self.run_ranks(self.per_host, "mismatch", what):
                    self.assert_ends(result, 0)
                for rank, text in enumerate(self.reports(self.per_host)):
                    self.assertRegex(text, rf"(?m)^rank {rank}: UsageError: .*rank 0: {first} but rank 1: {other}")

    def test_hosts_that_disagree(self):
        """No wrong numbers, no SIGABRT of Gloo's."""
        cases = (
            ("op", r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 float\[1024\] max"),
            ("average", r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 float\[1024\] avg"),
            ("size", r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 float\[512\] sum"),
            ("order", r"all_reduce #42 float\[1024\] sum", r"broadcast #42 float\[1024\] from rank 0"),
            ("way", r"gather #42 float\[\d+\] to rank 0", r"broadcast #42 float\[1024\] from rank 0"),
        )
        for per_host, tried in (((2, 2), cases), ((1, 1), cases[:1])):
            for what, first, other in tried:
                with self.subTest(per_host=per_host, what=what):
                    for result in self.run_ranks(per_host, "mismatch", what, env={"MISMATCH_BY_HOST": 1}):
                        self.assert_ends(result, 0)
                    for text in self.reports(per_host):
                        self.assertRegex(text, rf"UsageError: .*rank 0: {first} but rank {per_host[0]}: {other}")


if __name__ == "__main__":
    main()
