"""The fault matrix: every fault in every phase of a training, on one node and on two.

    outcome("SIGKILL", "step", 2)     # what must happen: a Run, or why this test has no such cell: Elsewhere, NoSense

The ranks are `checkpoint_ranks faulty` (DataParallel, Loader, Checkpoint); fault_point.h says how a rank is faulted.
Each node has two ranks. The faulted rank is the last one; in a checkpoint it is rank 0, which writes. cell_runner.py
runs the cells, and docs/reliability.md shows the table (reliability_page.py).
"""

from dataclasses import dataclass

PHASES = ("start-up", "step", "collective", "checkpoint", "end")
NODES = (1, 2)
PER_NODE = 2
HANG_TIMEOUT = 2  # seconds, where a rank is stopped or slow

# Seconds: the promises of docs/reliability.md.
SAME_NODE, OTHER_NODE, CUT_LINK, LOST_LAUNCHER, RESTART = 1, 3, 10, 3, 3
VERDICT = 2  # from --hang_timeout to the end of the job


@dataclass(frozen=True)
class Run:
    """A cell of this test."""

    inject: str  # in the rank: KIND of fault_point.h
    code: int = 0  # of the launchers that are left; 0: the job goes on to its end; -9: no launcher is left
    headline: str = ""  # of their failure screen; {rank} and {host} are those of the fault
    cause: str = ""  # of the culprit in result.json; "": a node is the culprit, or nobody
    thrown_by_all: bool = False  # so the culprit is the rank that ends first
    outside: str = ""  # what the test does while the rank waits: a method of CellCase
    said: str = ""  # by the launcher of node 0, while the job goes on
    options: tuple = ()  # of the launchers
    bounds: tuple = (5, 5)  # seconds from the fault to the end of the launchers: on the node of the rank, on the other


@dataclass(frozen=True)
class Elsewhere:
    """Another test has this cell."""

    test: str  # FILE CLASS.METHOD


@dataclass(frozen=True)
class NoSense:
    why: str


CRASH = (SAME_NODE, OTHER_NODE)
WATCHED = ("--hang_timeout", f"{HANG_TIMEOUT}s")


def _failed(words):
    return "^Rank {rank} on {host} failed first: " + words


_CRASHES = {
    "SIGKILL": Run("kill", 137, _failed("killed by signal 9"), "signal", bounds=CRASH),
    "SIGSEGV": Run("segv", 139, _failed("killed by signal 11, segmentation fault"), "signal", bounds=CRASH),
    "exit 1": Run("exit_1", 1, _failed("exit 1"), "exit", bounds=CRASH),
    # The bound is larger because it takes time to use up the memory.
    "out of memory": Run("memory", 137, _failed("killed by signal 9; the kernel killed it"), "out_of_memory"),
}
_WAITED = "while ranks? [0-9, -]+ wait(ed|s)? for it in "
_EARLY_END = Run("exit_0", 75, "^Rank {rank} on {host} ended with exit code 0 " + _WAITED, "ended_early")
_STOP = Run("stop", 76, "^Rank {rank} on {host} is stopped " + _WAITED, "hang", options=WATCHED,
            bounds=(HANG_TIMEOUT + VERDICT, HANG_TIMEOUT + OTHER_NODE))
_STOP_AT_END = Run("stop", outside="continue_after_words", options=WATCHED,
                   said=r"nothing has moved since .*: rank {rank} \(stopped.*; the others have ended")
_SLOW = Run("wait", outside="wait_for_words", said=r"for rank {rank} \([^)]*\b(running|sleeping)\b", options=WATCHED)
# Every rank throws the error; on the others "rank 0: " stands before it.
_NO_SPACE = "failed first: exit 71: no space left: "
_DISK = Run("disk", 71, r"^Rank ({rank} on {host} " + _NO_SPACE + r"|\d+ on \S+ " + _NO_SPACE + r".*\brank {rank}: )",
            "disk_full", thrown_by_all=True)
_NETWORK = {
    "link down": Run("wait", 75, r"(lost the connection to node 0|lost node 1) \(", outside="cut_link",
                     bounds=(CUT_LINK, CUT_LINK)),
    "packet loss": Run("wait", outside="lose_packets"),
    "slow link": Run("wait", outside="slow_link"),
}
_LAUNCHERS = {
    "launcher killed": Run("wait", 75, r"lost node 1 \(beta", outside="kill_last_launcher",
                           bounds=(LOST_LAUNCHER, LOST_LAUNCHER)),
    "coordinator killed": Run("wait", 75, r"lost the connection to node 0 \(alpha", outside="kill_first_launcher",
                              bounds=(LOST_LAUNCHER, LOST_LAUNCHER)),
}
_ETCD = Run("wait", outside="restart_etcd", options=("--master", "etcd://{etcd}", "--nnodes", 2, "--max_restart", 1))

FAULTS = (
    *_CRASHES, "SIGSTOP", "exit 0", "NaN loss", "slow rank", *_NETWORK, "disk full", *_LAUNCHERS, "etcd restarted",
)


def outcome(fault, phase, nodes):
    return _of_ranks(fault, phase, nodes) or _of_disks(fault, phase, nodes) or _of_nodes(fault, phase, nodes)


def _of_ranks(fault, phase, nodes):
    if fault in _CRASHES:
        return _CRASHES[fault]
    if fault == "NaN loss":
        return _of_nan(phase, nodes)
    if (fault, phase) == ("SIGSTOP", "end"):
        return _STOP_AT_END
    if phase == "end" and fault in ("exit 0", "slow rank"):
        return NoSense("that is success" if fault == "exit 0" else "no rank waits for it: it may have work of its own")
    return {"SIGSTOP": _STOP, "exit 0": _EARLY_END, "slow rank": _SLOW}.get(fault)


def _of_nan(phase, nodes):
    if phase != "step":
        return NoSense("a loss is computed in a step")
    if nodes == 2:
        return Elsewhere("tests/faults/two_nodes_test.py NotANumber.test_both_nodes_name_the_rank")
    return Elsewhere("tests/train/train_test.py Files.test_a_loss_that_is_no_number")


def _of_disks(fault, phase, nodes):
    if fault != "disk full":
        return None
    if phase == "checkpoint":
        return _DISK
    if phase in ("step", "collective"):
        return NoSense("only logs are written then, as at the end")
    if nodes == 2:
        return NoSense("each node writes its own logs, as one node does")
    return Elsewhere("tests/launch/output_test.py LogTrouble.test_disk_full"
                     + ("_from_the_start" if phase == "start-up" else ""))


def _of_nodes(fault, phase, nodes):
    if nodes == 2:
        if phase == "end" and fault in ("packet loss", "slow link"):
            return NoSense("the ranks send nothing any more")
        return {**_NETWORK, **_LAUNCHERS, "etcd restarted": _ETCD}[fault]
    if fault == "launcher killed":
        return Run("wait", outside="kill_last_launcher", code=-9)
    if fault == "coordinator killed":
        return NoSense("the launcher is the coordinator: see launcher killed")
    return NoSense("one node uses no " + ("etcd" if fault == "etcd restarted" else "network"))


def cells():
    """Every (fault, phase, nodes)."""
    return [(fault, phase, nodes) for fault in FAULTS for phase in PHASES for nodes in NODES]


def runs():
    """Those that are run."""
    return [cell for cell in cells() if isinstance(outcome(*cell), Run)]
