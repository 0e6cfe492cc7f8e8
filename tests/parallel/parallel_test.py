"""Ranks that train together and compare themselves with one process. The cases are in *_cases.cc.

By hand: trireme launch -n 2 build/bin/parallel_ranks equality
"""

import os
import re
import unittest
from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case, main

BIN = Path(TRIREME).parent
PROGRAM = BIN / "parallel_ranks"
CASES = sum(
    (
        re.findall(r'\{"(\w+)", \1\}', path.read_text().split("sharded_file_cases()")[0])
        for path in Path(__file__).parent.glob("*_cases.cc")
        if path.name not in ("last_cases.cc", "resnet_cases.cc", "sharded_alone_cases.cc")
    ),
    [],
)
BREAK_A_GROUP = {
    "changed_on_one_rank",
    "create_graph",
    "hook_that_throws",
    "join_with_an_exception",
    "layer_added_with_other_weights",
    "newly_used",
    "no_sync_then_new_use",
    "parameters_not_finite",
    "parameters_that_differ",
    "parameters_that_differ_early",
    "pipeline_failing_backward",
    "pipeline_failing_layer",
    "sharded_changed_model",
    "sharded_frozen_on_one_rank",
    "sharded_loaded_behind_its_back",
    "sharded_not_cleared",
    "sharded_other_layers",
    "sharded_step_before_backward",
    "sharded_step_while_gathered",
    "sharded_torch_clipping",
    "sharded_wrong_optimizer",
    "unused_everywhere",
    "used_then_unused",
}
SECONDS = 600 if SANITIZED else 300
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


class RanksCase(Case):
    def run_ranks(self, ranks, *cases, backend="auto"):
        env = {"TRIREME_BACKEND": backend, "PADDLE_PG_TIMEOUT": "60000", "OMP_NUM_THREADS": "1"}
        return self.launch("-n", ranks, "--tee", "all", PROGRAM, *cases, env=env, timeout=SECONDS)

    def assert_all_ok(self, result, cases=None):
        self.assert_ends(result, 0)
        self.assertEqual(sorted(re.findall(r"^ok (\w+)", result.out, re.M)), sorted(cases or CASES), result)


class Shm(RanksCase):
    def test_alone(self):
        self.assert_all_ok(self.run_ranks(1))

    def test_two(self):
        self.assert_all_ok(self.run_ranks(2, backend="shm"))

    def test_four(self):
        self.assert_all_ok(self.run_ranks(4, *self.without("resnet50_buckets")), self.without("resnet50_buckets"))

    def test_three_join(self):
        self.assert_all_ok(self.run_ranks(3, "join"), ["join"])

    def test_start_up_line(self):
        result = self.run_ranks(2, "resnet50_buckets")
        self.assert_says(result, r"161 gradient tensors \(102\.2 MB\) fused into 5 buckets, averaged over 2 ranks by")

    @staticmethod
    def without(*names):
        return [name for name in CASES if name not in names]


class Layouts(RanksCase):
    """On more ranks than this machine has processors: every axis has two of them at least."""

    def test_eight(self):
        cases = ["gpt_pipelines", "pipeline_sharded", "resnet_layouts"]
        self.assert_all_ok(self.run_ranks(8, *cases), cases)

    def test_resnet(self):
        for ranks in (1, 2, 4):
            self.assert_all_ok(self.run_ranks(ranks, "resnet_layouts"), ["resnet_layouts"])


class Sharded(RanksCase):
    def test_a_checkpoint_in_worlds_of_other_sizes(self):
        """Saved by some ranks, it is restored by more and by fewer, split in any way or not at all."""
        for saved, loaded in ((2, 1), (2, 3), (3, 2)):
            env = {"TRIREME_TEST_FOLDER": self.folder / f"from{saved}to{loaded}"}
            for ranks, case in ((saved, "sharded_save"), (loaded, "sharded_load")):
                result = self.launch("-n", ranks, "--tee", "all", PROGRAM, case, env=env, timeout=SECONDS)
                self.assert_all_ok(result, [case])


@unittest.skipUnless(os.access("/dev/nvidiactl", os.F_OK), "no NVIDIA GPU here")
class ShardedOnGpu(RanksCase):
    def test_offload_and_precision(self):
        cases = ["sharded_offload", "sharded_low_precision", "sharded_low_precision_digits", "sharded_ema"]
        for ranks in (1, 2):  # two share the card
            self.assert_all_ok(self.run_ranks(ranks, *cases), cases)


class Gloo(RanksCase):
    def test_two(self):
        self.assert_all_ok(self.run_ranks(2, backend="gloo"))


class Mpi(RanksCase):
    def test_two(self):
        """An MPI library is of no more use after one failure, so the cases that break a group are left out."""
        cases = [name for name in CASES if name not in BREAK_A_GROUP]
        result = self.start_command(["mpirun", "-n", "2", PROGRAM, *cases], env=MPI).wait(SECONDS)
        self.assert_all_ok(result, cases)


class LastCase(RanksCase):
    backend = "shm"

    def test_an_exception_in_backward(self):
        for case in ("thrown_in_the_first_backward", "thrown_later"):
            result = self.run_ranks(2, case, backend=self.backend)
            self.assert_all_ok(result, [case])
            self.assert_within(30, result)

    def test_a_killed_rank_is_named(self):
        for case in ("killed_in_the_first_backward", "killed_later", "killed_in_a_pipeline"):
            result = self.run_ranks(3, case, backend=self.backend)
            self.assertNotEqual(result.code, 0, result)
            self.assert_within(30, result)
            self.assert_silent_on(result, "FAILED killed")
            self.assert_says(result, r"rank 0 goes on: PeerError.*rank 2\b", r"rank 1 goes on: PeerError.*rank 2\b")

    def test_a_new_world(self):
        self.assert_all_ok(self.run_ranks(2, "again", backend=self.backend), ["again"])


class LastShm(LastCase):
    backend = "shm"


class LastGloo(LastCase):
    backend = "gloo"


if __name__ == "__main__":
    main()
