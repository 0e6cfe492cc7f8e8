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
        re.findall(r'\{"(\w+)", \1\}', re.split(r"sharded_file_cases\(\)|gpt_alone_cases\(\)", path.read_text())[0])
        for path in Path(__file__).parent.glob("*_cases.cc")
        if path.name not in ("last_cases.cc", "resnet_cases.cc", "sharded_alone_cases.cc")
    ),
    [],
)
BREAK_A_GROUP = {
    "changed_after_forward",
    "changed_around_forward",
    "changed_on_one_rank",
    "create_graph",
    "gradients_by_hand",
    "gradients_by_hand_later",
    "hook_that_throws",
    "join_with_an_exception",
    "join_without_the_optimizer",
    "layer_added_with_other_weights",
    "newly_used",
    "no_sync_in_the_last_group",
    "no_sync_over_the_step",
    "no_sync_then_new_use",
    "parameters_not_finite",
    "parameters_that_differ",
    "parameters_that_differ_early",
    "pipeline_failing_backward",
    "pipeline_failing_layer",
    "pipeline_frozen_weights_differ",
    "pipeline_no_sync_over_the_step",
    "pipeline_other_learning_rates",
    "replicas_that_drift",
    "replicas_torch_clipping",
    "sharded_changed_model",
    "sharded_frozen_on_one_rank",
    "sharded_loaded_behind_its_back",
    "sharded_not_cleared",
    "sharded_not_finite",
    "sharded_other_layers",
    "sharded_step_before_backward",
    "sharded_step_on_one_rank",
    "sharded_step_while_gathered",
    "sharded_torch_clipping",
    "sharded_written_on_one_rank",
    "sharded_wrong_optimizer",
    "static_graph_with_fewer_gradients",
    "unused_everywhere",
    "used_then_unused",
}
# Every layout of a model that is split: on shared memory. Over other backends the shorter cases of split models do, since
# all backends give the same bits to the same calls (tests/comm).
EVERY_LAYOUT = {
    "gpt_checkpoints",
    "gpt_layouts",
    "pipeline_checkpoint",
    "pipeline_schedules",
    "sharded_equality",
    "tensor_layouts",
}
SECONDS = 900 if SANITIZED else 450


class RanksCase(Case):
    layouts = "all"  # or "some" of them

    def run_ranks(self, ranks, *cases, backend="auto", **variables):
        env = {"TRIREME_BACKEND": backend, "PADDLE_PG_TIMEOUT": "60000", "OMP_NUM_THREADS": "1", **variables}
        env["TRIREME_TEST_LAYOUTS"] = self.layouts
        return self.launch("-n", ranks, "--tee", "all", PROGRAM, *cases, env=env, timeout=SECONDS)

    @staticmethod
    def without(*names):
        return [name for name in CASES if name not in names]

    def assert_all_ok(self, result, cases=None):
        self.assert_ends(result, 0)
        self.assertEqual(sorted(re.findall(r"^ok (\w+)", result.out, re.M)), sorted(cases or CASES), result)


class Shm(RanksCase):
    def test_alone(self):
        self.assert_all_ok(self.run_ranks(1))

    def test_two(self):
        self.assert_all_ok(self.run_ranks(2, backend="shm"))

    def test_four(self):
        cases = self.without("resnet50_buckets")
        self.assert_all_ok(self.run_ranks(4, *cases), cases)

    def test_three_join(self):
        self.assert_all_ok(self.run_ranks(3, "join"), ["join"])

    def test_start_up_line(self):
        result = self.run_ranks(2, "resnet50_buckets")
        self.assert_says(result, r"161 gradient tensors \(102\.2 MB\) fused into 5 buckets, averaged over 2 ranks by")


class LayoutsCase(RanksCase):
    EIGHT = ["gpt_layouts", "gpt_pipelines", "pipeline_schedules", "pipeline_sharded", "resnet_layouts",
             "sharded_equality", "tensor_layouts"]

    def test_eight(self):
        """More ranks than this machine has processors: every axis has two of them at least."""
        self.assert_all_ok(self.run_ranks(8, *self.EIGHT), self.EIGHT)


class Layouts(LayoutsCase):
    layouts = "some"  # all of them: layouts_soak_test.py

    def test_resnet(self):
        self.layouts = "all"
        for ranks in (1, 2, 4):
            cases = ["resnet_layouts", "resnet_checkpoints", "resnet_export"]
            self.assert_all_ok(self.run_ranks(ranks, *cases), cases)


class Sharded(RanksCase):
    def test_a_checkpoint_in_worlds_of_other_sizes(self):
        """Saved by some ranks, it is restored by more and by fewer, split in any way or not at all."""
        for saved, loaded in ((2, 1), (2, 3), (3, 2)):
            env = {"TRIREME_TEST_FOLDER": self.folder / f"from{saved}to{loaded}"}
            for ranks, case in ((saved, "sharded_save"), (loaded, "sharded_load")):
                result = self.launch("-n", ranks, "--tee", "all", PROGRAM, case, env=env, timeout=SECONDS)
                self.assert_all_ok(result, [case])

    def test_every_layout_of_a_gpt_in_worlds_of_other_sizes(self):
        env = {"TRIREME_TEST_FOLDER": self.folder / "out", "TRIREME_TEST_LAYOUTS": "some", "OMP_NUM_THREADS": 1}
        for ranks, case in ((4, "gpt_save"), (2, "gpt_load"), (1, "gpt_load")):
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
        cases = self.without(*EVERY_LAYOUT)
        self.assert_all_ok(self.run_ranks(2, *cases, backend="gloo"), cases)


class Mpi(RanksCase):
    def test_two(self):
        """An MPI library is of no more use after one failure, so the cases that break a group are left out."""
        cases = self.without(*BREAK_A_GROUP, *EVERY_LAYOUT)
        result = self.start_command(["mpirun", "-n", "2", PROGRAM, *cases], env=self.mpi_environment()).wait(SECONDS)
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
        result = self.run_ranks(2, "again", backend=self.backend)
        self.assert_all_ok(result, ["again"])
        self.assert_silent_on(result, "was averaged over")

    def test_nothing_was_averaged(self):
        """One warning: the ranks have joined, but nothing brings them together."""
        result = self.run_ranks(2, "nothing_averaged", backend=self.backend)
        self.assert_all_ok(result, ["nothing_averaged"])
        line = r"none of the 12 calls of backward\(\) on rank 0 was averaged over the 2 ranks"
        self.assert_says(result, line)
        self.assertEqual(len(re.findall(line, result.text)), 1, result)


class LastShm(LastCase):
    backend = "shm"

    def test_a_variable_switches_shared_tensors_off(self):
        self.assert_all_ok(self.run_ranks(2, "large_tensors_are_shared"), ["large_tensors_are_shared"])
        result = self.run_ranks(2, "large_tensors_are_libtorchs", TRIREME_SHARED_TENSORS="0")
        self.assert_all_ok(result, ["large_tensors_are_libtorchs"])


class LastGloo(LastCase):
    backend = "gloo"


if __name__ == "__main__":
    main()
