"""A sharded model takes the memory that docs/hybrid.md promises, and so trains where one process cannot."""

import os
from pathlib import Path

from cgroup import MemoryCgroup
from trireme_test import SANITIZED, TRIREME, Case, main

PROGRAM = Path(TRIREME).parent / "parallel_ranks"
SECONDS = 600 if SANITIZED else 150
LIMIT = (1200 if SANITIZED else 400) << 20  # bytes; one process needs 16 for each of 32 million parameters


class Memory(Case):
    def run_ranks(self, ranks, case, **env):
        env = {"PADDLE_PG_TIMEOUT": "60000", "OMP_NUM_THREADS": "1", **env}
        return self.launch("-n", ranks, "--tee", "all", PROGRAM, case, env=env, timeout=SECONDS)

    def test_peak_of_every_stage(self):
        result = self.run_ranks(4, "sharded_peak")
        self.assert_ends(result, 0)
        self.assert_says(result, "ok sharded_peak")

    def test_peak_of_a_checkpoint(self):
        result = self.run_ranks(4, "sharded_checkpoint_peak", TRIREME_TEST_FOLDER=self.folder / "out")
        self.assert_ends(result, 0)
        self.assert_says(result, "ok sharded_checkpoint_peak")

    def limited(self, ranks):
        """A run whose ranks have a control group each."""
        name = f"trireme-test-{os.getpid()}-{ranks}"
        try:
            groups = [MemoryCgroup(f"{name}.{rank}", LIMIT) for rank in range(ranks)]
        except OSError as error:
            self.fail(f"cannot limit memory: {error}; this test needs root")
        for group in groups:
            self.addCleanup(group.remove)  # runs after the check that no process is left
        self.addCleanup(self._nothing_left)
        return self.run_ranks(ranks, "sharded_under_a_limit", TRIREME_TEST_CGROUP=groups[0].path.with_name(name))

    def test_too_large_for_one_process(self):
        result = self.limited(1)
        self.assert_ends(result, 137)
        self.assert_says(result, r"rank 0\b[^\n]*kernel[^\n]*memory")

    def test_four_ranks_have_room_for_it(self):
        result = self.limited(4)
        self.assert_ends(result, 0)
        self.assert_says(result, "ok sharded_under_a_limit")


if __name__ == "__main__":
    main()
