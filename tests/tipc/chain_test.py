"""The whole chain of mobilenet_v3_small, exactly as test_tipc/README.md has it, on one machine and on two."""

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from machines import MachineCase, main
from tipc_case import statuses
from trireme_test import ROOT, TRIREME, Case, read

CONFIGS = "test_tipc/configs/mobilenet_v3_small"
MODE = "lite_train_lite_infer"
UNMEASURED = ("--set", "benchmark=False")  # measuring takes seconds for each inference; tests/docs does it
OUTPUT = f"test_tipc/output/mobilenet_v3_small/{MODE}"


def chain(config, *words):
    prepare = f"bash test_tipc/prepare.sh {config} {MODE}"
    return ["bash", "-c", f"{prepare} && exec bash test_tipc/test_train_inference_cpp.sh {config} {MODE} \"$@\"", "sh",
            *words]


def checkout(folder):
    """The files of the repository that a chain needs."""
    for name in ("configs", "test_tipc"):
        shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("output"))


class OneMachine(Case):
    def test_the_chain(self):
        checkout(self.folder)
        config = f"{CONFIGS}/train_infer_cpp.txt"
        result = self.start_command(chain(config, *UNMEASURED), env={"TRIREME": TRIREME}).wait(240)
        self.assert_ends(result, 0)
        passed, no_gpu = "Run successfully", "Run skipped (gpu_list has the CPU only)"
        self.assertEqual(statuses(result.out), [passed] * 3 + [no_gpu] * 4 + [passed] * 4, result)
        suite = ElementTree.fromstring(read(self.folder / OUTPUT / "junit.xml"))
        self.assertEqual((suite.get("tests"), suite.get("failures"), suite.get("skipped")), ("11", "0", "4"))
        self.compare_batch_sizes()

    def compare_batch_sizes(self):
        """An image's answer does not depend on what else is in its batch."""
        logs = sorted((self.folder / OUTPUT).glob("*/cpp_infer_cpu_*precision_fp32_*.log"))
        self.assertEqual(len(logs), 2)
        self.assertEqual(read(logs[0]).count("class id(s)"), 16, read(logs[0]))
        command = [TRIREME, "tipc", "compare", "--gt", logs[0], "--log", logs[1], "--atol", "1e-5"]
        result = self.start_command(command).wait()
        self.assert_ends(result, 0)
        self.assert_says(result, "16 pictures, 160 numbers compared")
        self.assert_silent_on(result, "^note:")

    def test_the_small_networks(self):
        """On data of another form; and nothing is written beside the chain's folder."""
        checkout(self.folder)
        config = "test_tipc/configs/LeNet/train_infer_cpp.txt"
        before = set(self.folder.iterdir())
        result = self.start_command(chain(config, *UNMEASURED), env={"TRIREME": TRIREME}).wait(120)
        self.assert_ends(result, 0)
        self.assert_says(result, r"iter: 1/2", "11 steps: 7 passed, 0 failed, 4 skipped")
        made = {path.name for path in set(self.folder.iterdir()) - before if not path.name.startswith("console.")}
        self.assertEqual(made, {"dataset"})


class TwoMachines(MachineCase):
    def test_the_chain(self):
        config = f"{CONFIGS}/train_fleet_infer_cpp.txt"
        jobs = []
        for machine in self.machines:
            folder = self.folder_of(machine)
            checkout(folder)
            words = chain(config, *UNMEASURED, "--set", f"gpu_list={self.ips};cpu:2")
            jobs.append(self.start_command(machine.command(folder, *words), env={"TRIREME": TRIREME}))
        first, second = [job.wait(240) for job in jobs]
        self.assert_ends(first, 0)
        self.assert_ends(second, 0)
        passed, no_gpu = "Run successfully", "Run skipped (gpu_list has the CPU only)"
        self.assertEqual(statuses(first.out), [passed] * 3 + [no_gpu] * 2 + [passed] * 2, first)
        self.assertEqual(statuses(second.out), [passed] + ["Run skipped (trainer 0 saves)"] * 6, second)


if __name__ == "__main__":
    main()
