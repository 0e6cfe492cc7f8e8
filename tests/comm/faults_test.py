"""Ranks die, disagree, are late or leave in the middle of a collective: the others are told who, and in time."""

import os
import re

from trireme_test import Case, main, read, wait_for

COMM_RANKS = os.environ["COMM_RANKS"]
DEADLINE = 5  # seconds between a death and the error on every other rank
PATIENCE = 60  # for a whole job on a busy machine
KINDS = (
    "all_reduce reduce broadcast all_gather gather scatter reduce_scatter all_to_all barrier ring batch "
    "all_gather_object broadcast_object"
).split()


def segments():
    return {name for name in os.listdir("/dev/shm") if name.startswith("trireme")}


class FaultCase(Case):
    """Jobs of comm_ranks on one machine."""

    backend = "shm"
    ranks = 3

    def run_ranks(self, *args, env=None):
        """The Result; what the ranks wrote is read by report()."""
        return self.launch(
            *("-n", self.ranks, "--grace", 30, "--log_overwrite", COMM_RANKS),
            *args,
            timeout=PATIENCE,
            env={"TRIREME_BACKEND": self.backend, **(env or {})},
        )

    def report(self, rank):
        return read(self.log / f"workerlog.{rank}")

    def assert_told(self, rank, *patterns, within=DEADLINE):
        """The rank has got a PeerError with these words, in time."""
        text = self.report(rank)
        found = re.search(rf"^rank {rank}: PeerError after (\d+) ms: (.*)$", text, re.M)
        self.assertTrue(found, f"rank {rank} has no PeerError:\n{text}\n{self.consoles()}")
        for pattern in patterns:
            self.assertRegex(found[2], pattern)
        self.assertLess(int(found[1]), within * 1000, text)

    def assert_nothing_left(self, before):
        self.assert_gone()
        wait_for(lambda: not segments() - before, 5, lambda: f"the end of the segments {segments() - before}")

    def die(self, kind, victim):
        before = segments()
        result = self.run_ranks("die", kind, victim)
        self.assert_ends(result, 137)
        for rank in range(self.ranks):
            if rank != victim:
                self.assert_told(rank, rf"\brank {victim} \(process \d+.*\) died")
                self.assertRegex(self.report(rank), rf"(?m)^blames rank {victim} for \w+ #\d+ of \S+$")
        self.assert_nothing_left(before)

    def die_in_every_kind(self):
        for number, kind in enumerate(KINDS):
            with self.subTest(kind=kind):
                self.die(kind, number % self.ranks)


class SharedMemoryDeath(FaultCase):
    def test_in_every_kind(self):
        self.die_in_every_kind()


class GlooDeath(FaultCase):
    backend = "gloo"

    def test_in_every_kind(self):
        self.die_in_every_kind()

    def test_of_a_rank_that_is_no_neighbour(self):
        self.ranks = 4
        for kind in ("all_reduce", "broadcast", "reduce"):
            with self.subTest(kind=kind):
                self.die(kind, 0)


class EveryFaultCase(FaultCase):
    checking = {}
    says_who_is_late = ""

    def test_leave(self):
        self.assert_ends(self.run_ranks("leave", 1), 0)
        for rank in (0, 2):
            self.assert_told(rank, r"\brank 1 (\(process \d+.*\) )?(left the group|died)")

    def test_drop(self):
        self.assert_ends(self.run_ranks("drop"), 0)
        for rank in range(self.ranks):
            self.assert_told(rank, r"rank 0 aborted the group: the group was destroyed")

    def test_abort(self):
        self.assert_ends(self.run_ranks("abort"), 0)
        for rank in range(self.ranks):
            self.assert_told(rank, r"rank 0 aborted the group: enough")
            self.assertRegex(self.report(rank), r"(?m)^blames rank 0 for ")

    def test_late(self):
        self.assert_ends(self.run_ranks("late", 2, env={"PADDLE_PG_TIMEOUT": 1000}), 0)
        for rank in (0, 1):
            self.assert_told(rank, self.says_who_is_late)

    def test_disagreement(self):
        """Operation 42 differs on rank 1; all ranks get the same text."""
        for what, sides in {
            "size": (r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 float\[512\] sum"),
            "shape": (r"all_reduce #42 float\[2, 3\] sum", r"all_reduce #42 float\[3, 2\] sum"),
            "type": (r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 double\[1024\] sum"),
            "op": (r"all_reduce #42 float\[1024\] sum", r"all_reduce #42 float\[1024\] max"),
            "root": (r"broadcast #42 float\[1024\] from rank 0", r"broadcast #42 float\[1024\] from rank 1"),
            "order": (r"all_reduce #42 float\[1024\] sum", r"broadcast #42 float\[1024\] from rank 0"),
            "parts": (r"reduce_scatter\S* #42 float\[12\] sum", r"reduce_scatter\S* #42 float\[9\] sum"),
        }.items():
            with self.subTest(what=what):
                self.assert_ends(self.run_ranks("mismatch", what), 0)
                for rank in range(self.ranks):
                    self.assertRegex(
                        self.report(rank),
                        rf"(?m)^rank {rank}: UsageError: .*rank 0: {sides[0]}.* but rank 1: {sides[1]}",
                    )


class SharedMemory(EveryFaultCase):
    says_who_is_late = r"timeout of 1000 ms: rank 2 \(process \d+\) lives but has not come"


class Benchmark(FaultCase):
    def test_each_collective_is_waited_for(self):
        """With FLAGS_benchmark=1 an asynchronous collective is done when the call returns."""
        for flag, done in ((1, "true"), (0, "false")):
            with self.subTest(FLAGS_benchmark=flag):
                self.assert_ends(self.run_ranks("at_once", env={"FLAGS_benchmark": flag}), 0)
                self.assertIn(f"done at return: {done}", self.report(0))


class Gloo(EveryFaultCase):
    backend = "gloo"
    says_who_is_late = r"all ranks live, so one is late|aborted"

    def test_interface(self):
        """The interface of the environment is used, and one that does not exist is an error that names it."""
        self.assert_ends(self.run_ranks("random", 20, 1, env={"GLOO_SOCKET_IFNAME": "lo"}), 0)
        self.assertIn("interface lo (GLOO_SOCKET_IFNAME)", self.report(0))
        result = self.run_ranks("random", 20, 1, env={"GLOO_SOCKET_IFNAME": "eth99"})
        self.assertNotEqual(result.code, 0)
        self.assertIn("eth99", self.report(0))


if __name__ == "__main__":
    main()
