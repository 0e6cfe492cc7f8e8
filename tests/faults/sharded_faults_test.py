"""A rank of a sharded model is killed in every phase of a step: it is named at once, and the run goes on from its
checkpoint in another layout to the result of a run that nothing has disturbed."""

import time
from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case, main

PROGRAM = Path(TRIREME).parent / "parallel_ranks"
SECONDS = 300 if SANITIZED else 60
NOBODY = -1


class ShardedFaults(Case):
    def train(self, folder, ranks, shard, victim=NOBODY, phase="none"):
        env = {
            "TRIREME_TEST_FOLDER": self.folder / folder,
            "TRIREME_TEST_EXPECTED": self.folder / "expected.pt",
            "TRIREME_TEST_SHARD": shard,
            "TRIREME_TEST_VICTIM": victim,
            "TRIREME_TEST_PHASE": phase,
            "OMP_NUM_THREADS": 1,
        }
        return self.launch(
            "-n", ranks, "--tee", "all", PROGRAM, "sharded_killed", env={k: str(v) for k, v in env.items()}, timeout=SECONDS
        )

    def assert_trained(self, result):
        self.assert_ends(result, 0)
        self.assert_says(result, "ok sharded_killed")

    def kill_and_resume(self, phase, victim, before, after, saved):
        """`before` and `after`: ranks and what is split. `saved`: the step of the checkpoint that is left."""
        self.assert_trained(self.train("undisturbed", 1, "optimizer"))
        result = self.train("run", *before, victim, phase)
        ended = time.time()
        self.assert_ends(result, 137)
        self.assertEqual((self.folder / "run.died").read_text(), phase, result)
        self.assertLess(ended - (self.folder / "run.died").stat().st_mtime, 5 if SANITIZED else 1, result)
        self.assert_says(result, rf"Rank {victim}\b[^\n]*killed by signal 9")
        resumed = self.train("run", *after)
        self.assert_trained(resumed)
        self.assert_says(resumed, rf"step_0+{saved}\b")

    def test_gather_in_forward(self):
        self.kill_and_resume("forward", 2, (3, "parameters"), (2, "gradients"), 4)

    def test_backward(self):
        self.kill_and_resume("backward", 1, (2, "parameters"), (3, "optimizer"), 4)

    def test_reduce_scatter(self):
        self.kill_and_resume("reduce", 1, (3, "gradients"), (2, "parameters"), 4)

    def test_optimizer_step(self):
        self.kill_and_resume("step", 1, (2, "optimizer"), (1, "parameters"), 4)

    def test_save(self):
        """Rank 0 writes; what it has not finished is not found."""
        self.kill_and_resume("save", 0, (2, "parameters"), (3, "gradients"), 2)


if __name__ == "__main__":
    main()
