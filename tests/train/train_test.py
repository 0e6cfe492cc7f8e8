"""Model on one, two and three ranks. The cases are in train_ranks.cc.

By hand: trireme launch -n 2 build/bin/train_ranks evaluate 50 8
"""

import os
import pty
import re
import select
import time
import unittest
from pathlib import Path

from trireme_test import ROOT, SANITIZED, TRIREME, Case, main

PROGRAM = Path(TRIREME).parent / "train_ranks"
SECONDS = 300 if SANITIZED else 60
# Some virtual machines promise matrix instructions on which oneDNN's bf16 dies.
PLAIN = {"OMP_NUM_THREADS": "1", "PADDLE_PG_TIMEOUT": "60000", "ONEDNN_MAX_CPU_ISA": "AVX2"}


class RanksCase(Case):
    def run_ranks(self, ranks, *words, code=0):
        result = self.launch("-n", ranks, "--tee", "all", PROGRAM, *words, env=PLAIN, timeout=SECONDS)
        self.assert_ends(result, code)
        return result

    def values(self, ranks, *words):
        """{name: [numbers]} of the lines "name number…"."""
        lines = self.run_ranks(ranks, *words).out.splitlines()
        return {line.split()[0]: [float(word) for word in line.split()[1:]] for line in lines}

    def assert_near(self, got, expected, tolerance=1e-5):
        self.assertEqual(got.keys(), expected.keys())
        for name, numbers in expected.items():
            self.assertEqual(len(got[name]), len(numbers), name)
            for one, other in zip(got[name], numbers):
                self.assertAlmostEqual(one, other, delta=tolerance, msg=name)


@unittest.skipUnless(os.access("/dev/nvidiactl", os.F_OK), "no NVIDIA GPU here")
class Gpu(RanksCase):
    def test_a_hidden_one_is_not_missed(self):
        env = {**PLAIN, "CUDA_VISIBLE_DEVICES": "-1"}
        result = self.start_command([PROGRAM, "fit", "64", "16", "1", "0"], env=env).wait(SECONDS)
        self.assert_ends(result, 0)
        self.assert_silent_on(result, "GPU|cuda")

    @unittest.skipIf(os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"), "CUDA_VISIBLE_DEVICES hides the GPU")
    def test_it_is_found_although_libtorch_was_used_before(self):
        """The case seeds libtorch and makes tensors before the ranks meet."""
        self.assertRegex(self.run_ranks(1, "fit", 64, 16, 1, 0).err, "rank 0: cuda:0 ")


class Training(RanksCase):
    def test_two_ranks_are_one_process_with_batches_twice_as_large(self):
        alone = self.values(1, "fit", 64, 16, 1, 0)
        self.assertIn("parameters", alone)
        self.assertGreater(alone["acc"][0], 0.3)
        self.assert_near(self.values(2, "fit", 64, 8, 1, 0), alone)

    def test_accumulated_batches_are_one_large_batch(self):
        alone = self.values(1, "fit", 60, 12, 1, 0)
        self.assert_near(self.values(1, "fit", 60, 6, 2, 0), alone)
        self.assert_near(self.values(2, "fit", 60, 3, 2, 0), alone)
        self.assert_near(self.values(3, "fit", 60, 2, 2, 0), alone)

    def test_a_number_of_iterations(self):
        alone = self.values(1, "fit", 60, 12, 1, 7)
        self.assert_near(self.values(2, "fit", 60, 6, 1, 7), alone)
        self.assertNotEqual(alone["parameters"], self.values(1, "fit", 60, 12, 1, 6)["parameters"])

    def test_one_rank_may_stop_all(self):
        result = self.run_ranks(2, "stop")
        self.assert_says(result, "rank 0 ended at 6", "rank 1 ended at 6")

    def test_several_inputs_labels_and_outputs(self):
        for ranks, samples, batch in ((1, 40, 6), (2, 40, 6), (3, 4, 4)):
            by_fit, by_step, *rest = self.run_ranks(ranks, "lists", samples, batch).out.splitlines()
            self.assertEqual(by_fit, by_step)
            self.assertEqual([line.split()[0] for line in rest[:2]], ["loss", "acc"])
            kinds, sums = rest[2 : 2 + ranks], rest[2 + ranks :]
            self.assertEqual(kinds, [kinds[0]] * ranks)
            self.assertEqual(sums, [sums[0]] * ranks)
            self.assertIn(f"{samples} x 2 ", kinds[0])
            self.assertIn(f"{samples} x 1 ", sums[0])

    def test_a_loader_of_the_caller(self):
        by_loader, by_dataset = self.run_ranks(2, "loader").out.splitlines()
        self.assertEqual(by_loader, by_dataset)

    def test_samples_that_cannot_be_read_are_counted_over_all_ranks(self):
        result = self.run_ranks(2, "too_many_holes")
        for rank in range(2):
            self.assert_says(result, rf"rank {rank} stops: training: 1[12] of 120 samples .* 10 are allowed")

    def test_datasets_of_other_sizes_are_named_before_anything_waits(self):
        for samples in (40, 0):
            result = self.run_ranks(2, "uneven", samples)
            for rank in range(2):
                for what in ("fit", "evaluate", "predict"):
                    self.assert_says(result, rf"rank {rank}, {what}: .* {samples} samples on rank 1 and 60 on rank 0")

    def test_options_that_differ_are_named_before_anything_waits(self):
        result = self.run_ranks(2, "other_options")
        for rank in range(2):
            for option, own, other in (("batch_size", 10, 6), ("epochs", 2, 3), ("accumulate_grad_batches", 1, 2)):
                self.assert_says(result, rf"rank {rank}: .*Model::fit.*{option} = ({own}|{other})\b.*{option} = ({own}|{other})\b")

    def test_a_signal_to_one_rank_ends_all_after_they_saved(self):
        result = self.launch("-n", 2, "--tee", "all", PROGRAM, "interrupt", self.folder / "out", env=PLAIN, timeout=SECONDS)
        self.assertNotEqual(result.code, 0, result)
        self.assert_says(result, "rank 0 saves after 10 steps", "rank 1 saves after 10 steps", "ends by SIGTERM")
        names = sorted(path.name for path in (self.folder / "out").iterdir())
        self.assertEqual(names, ["interrupted.optimizer.safetensors", "interrupted.safetensors"])

    def test_a_fit_that_a_signal_broke_off_goes_on_with_the_same_bits(self):
        whole = self.run_ranks(2, "resume", self.folder / "whole").out
        broken = self.folder / "broken"
        for iteration in (7, 64):
            result = self.launch("-n", 2, "--tee", "all", PROGRAM, "resume", broken, iteration, env=PLAIN, timeout=SECONDS)
            self.assertNotEqual(result.code, 0, result)
            self.assert_says(result, "ends by SIGTERM")
        self.assertEqual(self.run_ranks(2, "resume", broken).out, whole)
        self.assertEqual(self.run_ranks(2, "resume", broken).out, whole, "nothing is left to do")

    def test_ranks_with_batches_of_other_sizes_keep_equal_weights(self):
        self.assertIn("parameters", self.run_ranks(2, "step").out)

    def test_ranks_draw_different_numbers(self):
        self.assertEqual(self.run_ranks(3, "random").out, "different\n")


class Evaluation(RanksCase):
    def test_the_same_bits_on_any_number_of_ranks(self):
        for samples, batch in ((50, 8), (7, 2), (2, 4)):
            alone = self.run_ranks(1, "evaluate", samples, batch).out
            self.assertEqual(len(alone.splitlines()), 6, alone)
            for ranks in (2, 3):
                self.assertEqual(self.run_ranks(ranks, "evaluate", samples, batch).out, alone)

    def test_samples_that_cannot_be_read_do_not_count(self):
        alone = self.run_ranks(1, "holes", 50, 8).out
        self.assertIn("acc", alone)
        for ranks in (2, 3):
            self.assertEqual(self.run_ranks(ranks, "holes", 50, 8).out, alone)

    def test_predictions_in_the_order_of_the_dataset(self):
        for ranks, samples, batch in ((1, 10, 3), (2, 11, 3), (3, 10, 4), (3, 2, 4)):
            result = self.run_ranks(ranks, "predict", samples, batch)
            self.assertEqual(result.out, f"{samples} x 3\n" * ranks)

    def test_a_net_that_is_not_trained(self):
        self.assertEqual(self.run_ranks(2, "frozen").out, self.run_ranks(1, "frozen").out)


class Sharded(RanksCase):
    """PrepareOptions::shard: the numbers and the files of a fit that is not split."""

    def assert_like(self, values, prefix, expected, tolerance):
        got = {name.removeprefix(prefix): numbers for name, numbers in values.items() if name.startswith(prefix)}
        self.assertTrue(got)
        self.assert_near(
            got, {name.removeprefix(expected): values[name] for name in values if name.startswith(expected)}, tolerance
        )

    def test_every_layout_trains_saves_and_loads_alike(self):
        values = self.values(2, "shard", self.folder)
        for layout in ("optimizer", "gradients", "parameters"):
            for what in ("fit", "loaded", "prepared"):
                self.assert_like(values, f"{what}.{layout}.", f"{what}.none.", 1e-6)

    def test_low_precision(self):
        values = self.values(2, "shard_low", self.folder)
        for layout in ("masters", "pieces"):
            self.assert_like(values, f"fit.{layout}.", "fit.none.", 1e-2)
        for layout, file in {"none": "pieces", "masters": "none", "pieces": "masters"}.items():
            for what in ("weights", "optimizer", "ema"):
                self.assertEqual(values[f"loaded.{layout}.{what}"], values[f"fit.{file}.{what}"], (layout, what))
            self.assertEqual(values[f"raised.{layout}.weights"], values[f"fit.{file}.weights"], layout)

    def test_a_fit_that_a_signal_broke_off_goes_on_in_another_layout(self):
        whole = self.values(2, "resume", self.folder / "whole", -1, "none")
        broken = self.folder / "broken"
        for iteration, layout in ((7, "parameters"), (64, "none")):
            words = ("resume", broken, iteration, layout)
            result = self.launch("-n", 2, "--tee", "all", PROGRAM, *words, env=PLAIN, timeout=SECONDS)
            self.assert_says(result, "ends by SIGTERM")
        self.assert_near(self.values(2, "resume", broken, -1, "gradients"), whole, 1e-6)

    def test_export(self):
        self.assertEqual(self.run_ranks(2, "shard_export", self.folder / "net").out, "equal\n" * 3)

    def test_refusals(self):
        result = self.run_ranks(2, "shard_refusals", self.folder / "none")
        self.assert_says(
            result,
            "rank 0: .*with .shard the optimizer works on this rank's pieces",
            "rank 0: .*param_dtype .BFloat16.*level O0",
            "rank 0: .*rank 0 has shard = 2.*rank 1 has shard = none",
            "rank 1: .*rank 0 has shard = 2.*rank 1 has shard = none",
            "rank 0: rank 1: cannot open no such file",
            "goes on",
        )


class Files(RanksCase):
    def test_going_on_from_a_file(self):
        result = self.run_ranks(2, "save", self.folder / "out")
        unbroken, loaded = re.findall(r"^parameters .*", result.out, re.M)
        self.assertEqual(unbroken, loaded)
        self.assert_says(result, "rank 0 cannot save", "rank 1 cannot save: rank 0: ")
        names = sorted(path.name for path in (self.folder / "out").iterdir())
        self.assertEqual(names, ["half.optimizer.safetensors", "half.safetensors"])

    def test_a_loss_that_is_no_number(self):
        """Sample 25 of 40 comes fourth on rank 0 of two; both ranks say so, and the last checkpoint is whole."""
        result = self.run_ranks(2, "broken", self.folder / "out")
        for rank in range(2):
            self.assert_says(
                result, rf"rank {rank} stops: .*epoch 1/2, step 4/5: the loss of rank 0 is -?nan.*learning rate"
            )
        self.assertEqual(result.out.splitlines()[-1], "whole")


class MixedPrecision(RanksCase):
    def check(self, level, dtype, weights, tolerance):
        for ranks in (1, 2):
            result = self.run_ranks(ranks, "amp", level, dtype, self.folder / f"{ranks}")
            lines = result.out.splitlines()
            self.assertEqual(lines[:2], ["learnt", weights], result)
            self.assertLess(float(lines[2].split()[1]), tolerance, result)

    def test_o1(self):
        self.check("O1", "bf16", "Float", 2.0)

    def test_o1_with_a_scaled_loss(self):
        self.check("O1", "fp16", "Float", 0.5)

    def test_o2(self):
        self.check("O2", "bf16", "BFloat16", 4.0)

    def test_o2_with_a_scaled_loss(self):
        self.check("O2", "fp16", "Half", 1.0)


class Progress(RanksCase):
    LINE = r"step (\d+)/\d+ - loss: \d\.\d{4} - acc: \d\.\d{4} - \d+[mu]s/step"

    def on_a_terminal(self, *words):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [str(PROGRAM), *map(str, words)], self.environment(PLAIN))
        shown, deadline = b"", time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                break
        os.close(terminal)
        return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_lines_in_a_file(self):
        for verbose in (1, 2):
            result = self.start_command([PROGRAM, "progress", verbose], env=PLAIN).wait(SECONDS)
            self.assert_ends(result, 0)
            lines = result.out.splitlines()
            self.assertEqual(
                [line for line in lines if not line.startswith("step")],
                ["Epoch 1/2", "Eval begin...", "Eval samples: 20", "Epoch 2/2", "Eval begin...", "Eval samples: 20"],
            )
            steps = [re.fullmatch(self.LINE, line) for line in lines if line.startswith("step")]
            self.assertTrue(all(steps), result)
            self.assertEqual([match[1] for match in steps], ["10", "20", "30", "2"] * 2)

    def test_costs(self):
        result = self.start_command([PROGRAM, "progress", 3], env=PLAIN).wait(SECONDS)
        costs = r"avg_reader_cost: [\d.]+ sec - avg_batch_cost: [\d.]+ sec - ips: [\d.]+ samples/sec"
        self.assertRegex(result.out, costs)

    def test_a_bar_on_a_terminal(self):
        shown, code = self.on_a_terminal("progress", 1)
        self.assertEqual(code, 0, shown)
        self.assertRegex(shown, r"Epoch 1/2\r\n\rstep 10/30 \[=+>\.+\] - ETA: 0:0\d - loss: [\d.]+ - acc: [\d.]+")
        self.assertRegex(shown, r"\rstep 30/30 \[=+\] - loss: ")
        self.assertEqual(len(re.findall(r"step 30/30[^\r]*\r\n", shown)), 2, shown)

    def test_only_rank_0_speaks(self):
        result = self.run_ranks(2, "progress", 2)
        self.assertEqual(result.out.count("Epoch 1/2"), 1, result)
        self.assertEqual(result.out.count("step 15/15"), 2, result)

    def test_silence(self):
        self.assertEqual(self.run_ranks(2, "progress", 0).out, "")


class Example(RanksCase):
    """examples/04_model.cc prints what its first comment shows, but for losses, shares and times."""

    @staticmethod
    def comparable(lines):
        return [re.sub(r"\d+(\.\d+)?[mu]?s/step", "#/step", re.sub(r"\d+\.\d+", "#.#", line)) for line in lines]

    def test_what_is_shown_is_printed(self):
        text = (ROOT / "examples/04_model.cc").read_text()
        shown = re.search(r"^//   \$ (.*)\n((?://   .*\n)+)", text, re.M)
        self.assertEqual(shown[1], "trireme launch -n 2 build/bin/example_model")
        env = PLAIN | {"TRIREME_DATA_DIR": ROOT / "examples/data"}
        result = self.launch("-n", 2, PROGRAM.parent / "example_model", env=env, timeout=SECONDS)
        self.assert_ends(result, 0)
        expected = [line[5:] for line in shown[2].splitlines()]
        self.assertEqual(self.comparable(result.out.splitlines()), self.comparable(expected), result)
        self.assertGreater(float(re.search(r"test accuracy ([\d.]+)", result.out)[1]), 0.75)
        self.assertTrue((self.folder / "lenet/final.safetensors").is_file())


class Arguments(RanksCase):
    def test_what_an_example_does_not_know_it_refuses(self):
        for name in ("allreduce", "mnist", "model", "accumulation", "two_machines", "ring", "spawn"):
            result = self.start_command([PROGRAM.parent / f"example_{name}", "--epoch", 3], env=PLAIN).wait(SECONDS)
            self.assert_ends(result, 2)
            self.assertRegex(result.err, rf"(?i)usage: example_{name}\b")
        result = self.start_command([PROGRAM.parent / "example_mnist", "--epochs", "many"], env=PLAIN).wait(SECONDS)
        self.assert_ends(result, 2)
        self.assertRegex(result.err, "--epochs is 'many', which is no number")


if __name__ == "__main__":
    main()
