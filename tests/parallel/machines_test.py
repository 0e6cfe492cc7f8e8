"""Data parallelism on two machines: shared memory inside, the network between."""

from machines import MachineCase, main
from parallel_test import CASES, EVERY_LAYOUT, PROGRAM, SECONDS, LayoutsCase, RanksCase

from examples_test import comparable, here, shown

SPLIT = ("gpt_", "pipeline_", "sharded_", "tensor_")  # models that are split over the ranks


class Machines(MachineCase, RanksCase):
    layouts = "some"

    def run_everywhere(self, ranks, cases):
        options = ["--ips", self.ips, "-n", ranks, "--tee", "all"]
        env = {"PADDLE_PG_TIMEOUT": "60000", "OMP_NUM_THREADS": "1", "TRIREME_TEST_LAYOUTS": self.layouts}
        return self.launch_everywhere(*options, PROGRAM, *cases, env=env, timeout=SECONDS)

    def test_example(self):
        command, output = shown("06_two_machines")
        words = here(command)
        self.assertEqual(words[1:4], ["launch", "--ips", self.ips], "the example's addresses are those of the test")
        first, second = self.launch_everywhere(*words[2:], env={"OMP_NUM_THREADS": "1"}, timeout=SECONDS)
        self.assert_ends(first, 0), self.assert_ends(second, 0)
        self.assertEqual(first.out.splitlines(), output, first)
        self.assertEqual(second.out, "", second)

    def check_hierarchical(self, cases):
        first, second = self.run_everywhere(2, cases)
        self.assert_all_ok(first, cases), self.assert_ends(second, 0)
        self.assert_says(first, "4 ranks, backend hierarchical")
        return first

    def test_hierarchical(self):
        self.check_hierarchical([name for name in CASES if not name.startswith(SPLIT) and name != "resnet50_buckets"])

    def test_split_models(self):
        self.check_hierarchical([name for name in self.without(*EVERY_LAYOUT) if name.startswith(SPLIT)])

    def test_layouts(self):
        first = self.check_hierarchical(LayoutsCase.EIGHT)
        self.assert_says(
            first,
            "mesh data 2 x model 2 on 4 ranks: data goes over several hosts, the other axes stay within one",
            "mesh data 1 x model 4 on 4 ranks: model goes over several hosts",
        )

    def test_gloo(self):
        cases = ["plain_libtorch_program", "equality", "used_then_unused", "join", "batch_norm_training"]
        first, second = self.run_everywhere(1, cases)
        self.assert_all_ok(first, cases), self.assert_ends(second, 0)
        self.assert_says(first, "2 ranks, backend gloo")

    def test_a_killed_rank_is_named(self):
        first, second = self.run_everywhere(2, ["killed_later"])
        self.assertNotIn(0, [first.code, second.code], first)
        for rank, result in ((0, first), (1, first), (2, second)):
            self.assert_says(result, rf"rank {rank} goes on: PeerError.*rank 3\b")


if __name__ == "__main__":
    main()
