"""Faults on one of two nodes for which the ranks of the fault matrix (matrix.py) must behave differently."""

import signal

from cell_runner import PROGRAM, CellCase
from machines import MachineCase, main
from trireme_test import SANITIZED

SECONDS = 300 if SANITIZED else 60


class UncaughtError(CellCase):
    """A rank is killed. The others do not catch the PeerError, so they abort."""

    def setUp(self):
        super().setUp()
        self.signals = {}  # {rank: the signal that ended it}
        # The launcher sees the end of the killed rank later than the others see it, so that it sees an abort first.
        self.program = self.aborting_program(when_killed="sleep 0.2")

    def test_the_killed_rank_is_blamed(self):
        self.run_cell("SIGKILL", "collective", 2)
        self.assertIn(signal.SIGABRT, self.signals.values(), self.signals)

    def _check_end(self, machine, result):
        super()._check_end(machine, result)
        workers = self.result_json(self._log_of(machine))["workers"]
        self.signals.update({worker["rank"]: worker["signal"] for worker in workers})


class NotANumber(MachineCase):
    def test_both_nodes_name_the_rank(self):
        """Rank 0 on alpha has the bad sample."""
        words = ("--ips", self.ips, "-n", 1, "--tee", "all", PROGRAM.parent / "train_ranks", "broken")
        env = {"OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": -1}
        results = self.launch_everywhere(*words, self.folder / "out", env=env, timeout=SECONDS)
        for rank, result in enumerate(results):
            self.assert_ends(result, 0)
            self.assert_says(result, rf"rank {rank} stops: .*step 4/5: the loss of rank 0 is -?nan")


if __name__ == "__main__":
    main()
