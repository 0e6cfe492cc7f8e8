"""A rank of a GPT that is split over several axes is killed, on one machine and on one of two: it is named at once, and
the run goes on from its checkpoint in another layout, to what one process has."""

import time
from pathlib import Path

from machines import MachineCase, main
from trireme_test import SANITIZED, SLOWER, TRIREME, Case

PROGRAM = Path(TRIREME).parent / "parallel_ranks"
SECONDS = 300 if SANITIZED else 60
NOBODY = -1


class SplitCase(Case):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"

    def options(self, layout, victim=NOBODY):
        env = {
            "TRIREME_TEST_FOLDER": self.run_folder,
            "TRIREME_TEST_LAYOUT": layout,
            "TRIREME_TEST_VICTIM": victim,
            "OMP_NUM_THREADS": 1,
        }
        return {"env": env, "timeout": SECONDS}

    def assert_named(self, victim, *results):
        ended = time.time()
        died = self.folder / "run.died"
        self.assertEqual(died.read_text(), "9", results[0])
        bound = 3 if len(results) > 1 else 1  # seconds: as in the fault matrix
        self.assertLess(ended - died.stat().st_mtime, bound * SLOWER, results[0])
        for result in results:
            self.assertNotEqual(result.code, 0, result)
            self.assert_says(result, rf"Rank {victim}\b[^\n]*killed by signal 9")

    def goes_on(self, ranks, layout):
        result = self.launch("-n", ranks, "--tee", "all", PROGRAM, "gpt_killed", **self.options(layout))
        self.assert_ends(result, 0)
        self.assert_says(result, r"step_0+8\b", "ok gpt_killed")


class OneMachine(SplitCase):
    def test_model_axis(self):
        """The others wait for it in the forward: its neighbour on the axis, and the ranks of its data axis."""
        words = ("-n", 4, "--tee", "all", PROGRAM, "gpt_killed")
        self.assert_named(3, self.launch(*words, **self.options("model", victim=3)))
        self.goes_on(2, "pipe")


class TwoMachines(MachineCase, SplitCase):
    def kill_and_resume(self, before, victim, after):
        words = ("--ips", self.ips, "-n", 2, "--tee", "all", PROGRAM, "gpt_killed")
        self.assert_named(victim, *self.launch_everywhere(*words, **self.options(before, victim)))
        self.goes_on(*after)

    def test_model_axis_and_sharded(self):
        self.kill_and_resume("model", 3, (2, "pipe"))

    def test_pipeline_and_sharded(self):
        self.kill_and_resume("pipe", 2, (1, "whole"))


if __name__ == "__main__":
    main()
