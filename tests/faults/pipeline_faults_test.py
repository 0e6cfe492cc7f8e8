"""A rank of a pipeline is killed in every phase of a step: it is named at once, and the run goes on from its checkpoint
with another number of stages to the result of a run that nothing has disturbed."""

import shutil
import tempfile
import time
from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case, main

PROGRAM = Path(TRIREME).parent / "parallel_ranks"
SECONDS = 300 if SANITIZED else 60
NOBODY = -1


class PipelineFaults(Case):
    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="trireme-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.expected = cls.shared / "undisturbed"

    def setUp(self):
        super().setUp()
        if not self.expected.exists():
            self.assert_trained(self.train(self.expected, 1, 1), 0)

    def train(self, folder, ranks, stages, shard="none", victim=NOBODY, phase="none"):
        env = {
            "TRIREME_TEST_FOLDER": folder,
            "TRIREME_TEST_EXPECTED": self.expected,
            "TRIREME_TEST_PIPE": stages,
            "TRIREME_TEST_SHARD": shard,
            "TRIREME_TEST_VICTIM": victim,
            "TRIREME_TEST_PHASE": phase,
            "OMP_NUM_THREADS": 1,
        }
        return self.launch("-n", ranks, "--tee", "all", PROGRAM, "pipeline_killed", env=env, timeout=SECONDS)

    def assert_trained(self, result, begin):
        self.assert_ends(result, 0)
        self.assert_says(result, rf"goes on from step {begin}\b", "ok pipeline_killed")

    def kill_and_resume(self, phase, victim, before, after, saved=4):
        """`before` and `after`: ranks, stages and what is split. `saved`: the step of the checkpoint that is left."""
        run = self.folder / "run"
        result = self.train(run, *before, victim, phase)
        ended = time.time()
        self.assert_ends(result, 137)
        self.assertEqual((self.folder / "run.died").read_text(), phase, result)
        self.assertLess(ended - (self.folder / "run.died").stat().st_mtime, 5 if SANITIZED else 1, result)
        self.assert_says(result, rf"Rank {victim}\b[^\n]*killed by signal 9")
        self.assert_trained(self.train(run, *after), saved)

    def test_forward(self):
        self.kill_and_resume("forward", 1, (3, 3, "none"), (1, 1))

    def test_send(self):
        """The outputs of a micro-batch are on their way."""
        self.kill_and_resume("send", 0, (3, 3, "none"), (4, 2, "gradients"))

    def test_backward(self):
        self.kill_and_resume("backward", 2, (3, 3, "none"), (4, 2, "parameters"))

    def test_optimizer_step(self):
        self.kill_and_resume("optimizer", 3, (4, 2, "optimizer"), (3, 3))

    def test_save(self):
        """Rank 0 writes; a checkpoint that it has not finished is not found."""
        self.kill_and_resume("save", 0, (3, 3, "none"), (2, 2), 2)


if __name__ == "__main__":
    main()
