"""The examples do what their first comments show: each "$ command" there is run, and must print the lines below it.

Numbers with a decimal point may differ; lines of several processes may come in any order.
"""

import re
import socket

from trireme_test import ROOT, TRIREME, Case, main

from parallel_test import BIN

DATA = {"TRIREME_DATA_DIR": ROOT / "examples/data", "PADDLE_PG_TIMEOUT": "60000"}
FRACTION = re.compile(r"\d+\.\d+")
SECONDS = 120


def shown(example):
    """The command and the output in the first comment of examples/NN_name.cc."""
    text = (ROOT / "examples" / f"{example}.cc").read_text()
    command, output = re.search(r"^//   \$ (.*)\n((?://   .*\n)+)", text, re.M).groups()
    return command.split(), [line[5:] for line in output.splitlines()]


def here(words):
    """The command with this build's programs."""
    return [TRIREME if word == "trireme" else str(word).replace("build/bin", str(BIN)) for word in words]


def comparable(lines):
    host = re.compile(rf"^{re.escape(socket.gethostname())}:(?=\d)")  # before the lines of other ranks
    return sorted(FRACTION.sub("#.#", host.sub("node1:", line)) for line in lines)


class ExampleCase(Case):
    def run_words(self, words, env=None):
        return self.start_command(here(words), env=DATA | (env or {})).wait(SECONDS)

    def check_shown(self, example):
        command, output = shown(example)
        result = self.run_words(command)
        self.assert_ends(result, 0)
        self.assertEqual(comparable(result.out.splitlines()), comparable(output), result)
        return result


class Shown(ExampleCase):
    def test_all_reduce(self):
        self.check_shown("01_allreduce")

    def test_accumulation(self):
        self.check_shown("05_accumulation")

    def test_ring(self):
        self.check_shown("07_ring")

    def test_sharded(self):
        self.check_shown("08_sharded")

    def test_pipeline(self):
        self.check_shown("10_pipeline")

    def test_tensor_parallel(self):
        self.check_shown("09_tensor_parallel")

    def test_gpt(self):
        self.check_shown("11_gpt")

    def test_gpt_learns_a_text_file_alone(self):
        book = self.folder / "book.txt"
        book.write_text("row your boat; " * 400)
        result = self.run_words(["build/bin/example_gpt", book, "--steps", "160"], env={"OMP_NUM_THREADS": "1"})
        self.assert_ends(result, 0)
        self.assert_says(result, r"on 1 x 1 x 1 ranks", r"^row your boat; row your boat; row your boat")

    def test_ring_of_other_sizes(self):
        for ranks in (1, 2, 4):
            result = self.launch("-n", ranks, BIN / "example_ring", env=DATA, timeout=SECONDS)
            self.assert_ends(result, 0)
            self.assertIn(f"ring of {ranks}: 12 elements, the same as all_reduce", result.out)

    def test_all_reduce_under_mpi(self):
        result = self.run_words(["mpirun", "-n", "2", "build/bin/example_allreduce"], env=self.mpi_environment())
        self.assert_ends(result, 0)
        self.assertEqual(sorted(result.out.splitlines()), [f"rank {rank} of 2 by mpi: 3 3 3" for rank in range(2)])


class Spawn(ExampleCase):
    def test_on_two_processes(self):
        self.check_shown("02_spawn")

    def test_a_function_alone(self):
        result = self.run_words(["build/bin/example_spawn", "1"])
        self.assert_ends(result, 0)
        self.assertEqual(result.out, "")

    def test_with_arguments(self):
        result = self.run_words(["build/bin/example_spawn", "2"])
        self.assert_ends(result, 0)
        self.assert_says(result, r"^rank 0: step 1 loss \d")

    def test_gpus_that_are_not_there(self):
        result = self.run_words(["build/bin/example_spawn", "4"], env={"CUDA_VISIBLE_DEVICES": ""})
        self.assert_usage(result, r"\b4\b", "visible")


class Mnist(ExampleCase):
    def test_it_learns(self):
        result = self.check_shown("03_mnist")
        accuracy = [float(text) for text in re.findall(r"test accuracy ([\d.]+)", result.out)]
        self.assertGreaterEqual(accuracy[-1], 0.80, result)


if __name__ == "__main__":
    main()
