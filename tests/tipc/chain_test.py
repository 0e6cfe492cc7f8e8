"""The chain with the real programs: of mobilenet_v3_small exactly as test_tipc/README.md has it, on one machine and on
two, and of LeNet with what the cases that come along leave out."""

import json
import re
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


def chain(config, *words, mode=MODE):
    prepare = f"bash test_tipc/prepare.sh {config} {mode}"
    return ["bash", "-c", f"{prepare} && exec bash test_tipc/test_train_inference_cpp.sh {config} {mode} \"$@\"", "sh",
            *words]


def settings(**values):
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def checkout(folder):
    """The files of the repository that a chain needs."""
    for name in ("configs", "test_tipc"):
        shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("output"))


class OneMachine(Case):
    def test_nothing_is_built(self):
        checkout(self.folder)
        result = self.start_command(chain(f"{CONFIGS}/train_infer_cpp.txt"), env={"PATH": "/usr/bin:/bin"}).wait(20)
        self.assert_ends(result, 127)
        self.assert_says(result, "there is no trireme here or in PATH; build it: make build")

    def test_the_chain(self):
        checkout(self.folder)
        (self.folder / "build").mkdir()
        (self.folder / "build/bin").symlink_to(Path(TRIREME).parent)  # a clone after `make build`
        config = f"{CONFIGS}/train_infer_cpp.txt"
        result = self.start_command(chain(config, *UNMEASURED)).wait(240)
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
        self.assert_silent_on(result, "digits behind the point")
        result = self.start_command([*command, "--distinct"]).wait()
        self.assert_ends(result, 1)  # two epochs on 16 pictures teach it no difference; --distinct says so
        self.assert_says(result, "all 16 pictures have the same answer")

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
        self.compare_pictures("LeNet")

    def test_resnet18(self):
        checkout(self.folder)
        words = settings(gpu_list="cpu:1", infer_device="False", precision="fp32", benchmark="False")
        result = self.start_command(chain("test_tipc/configs/ResNet18/train_infer_cpp.txt", *words),
                                    env={"TRIREME": TRIREME}).wait(240)
        self.assert_ends(result, 0)
        self.compare_pictures("ResNet18")

    def compare_pictures(self, model):
        """These get different answers, so the comparison would notice if two were mixed up."""
        alone, batched = sorted((self.folder / f"test_tipc/output/{model}/{MODE}").glob("*/cpp_infer_cpu_*_fp32_*.log"))
        compare = [TRIREME, "tipc", "compare", "--distinct", "--gt", alone, "--log"]
        result = self.start_command([*compare, batched]).wait()
        self.assert_ends(result, 0)
        mixed_up = batched.with_name("mixed_up_fp32.log")
        names = {"000.png": "001.png", "001.png": "000.png"}
        mixed_up.write_text(re.sub("00[01].png", lambda name: names[name[0]], read(batched)))
        result = self.start_command([*compare, mixed_up]).wait()
        self.assert_ends(result, 1)
        self.assert_says(result, r"000\.png: ", r"001\.png: ")


DISTILLED = """\
base: LeNet_fashion_mnist.yaml
Arch:
  name: DistillationModel
  freeze_params_list: [True, False]
  infer_model_name: Student
  models:
    - Teacher: {name: LeNet, class_num: 10}
    - Student: {name: LeNet, class_num: 10}
Loss:
  Train:
    - DistillationDMLLoss: {weight: 1.0, model_name_pairs: [[Student, Teacher]]}
Metric:
  Train: &metric
    - DistillationTopkAcc: {model_key: Student, topk: [1, 5]}
  Eval: *metric
DataLoader:
  Train: {dataset: {image_root: ./dataset/fashion-mnist}}
  Eval: {dataset: {image_root: ./dataset/fashion-mnist}}
"""


class Small(Case):
    """LeNet, a few pictures, one inference."""

    config = "test_tipc/configs/LeNet/train_infer_cpp.txt"
    quick = settings(gpu_list="cpu:1", train_model_name="latest", infer_device="False", infer_batch_size=4,
                     precision="fp32", benchmark="False")
    infer_log = "cpp_infer_cpu_threads_2_precision_fp32_batchsize_4.log"

    def setUp(self):
        super().setUp()
        checkout(self.folder)

    def run_chain(self, *words, **options):
        command = chain(self.config, *self.quick, *words, **options)
        return self.start_command(command, env={"TRIREME": TRIREME}).wait(120)

    def test_mixed_precision_distillation_and_the_exported_model(self):
        (self.folder / "configs/classification/LeNet_distilled.yaml").write_text(DISTILLED)
        result = self.run_chain(*settings(
            autocast="amp", trainer="norm_train|distill_train",
            distill_train="trireme train -c configs/classification/LeNet_distilled.yaml -o Global.print_batch_step=1"))
        self.assert_ends(result, 0)
        self.assert_says(result, "8 steps: 8 passed", "DistillationDMLLoss")
        groups = sorted((self.folder / "test_tipc/output/LeNet" / MODE).glob("*_gpus_cpu1_autocast_amp_nodes_1"))
        self.assertEqual([group.name.split("_gpus")[0] for group in groups], ["distill_train", "norm_train"])
        for group in groups:
            [manifest] = group.glob("*/latest/manifest.json")
            self.assertRegex(read(manifest), "use_amp: [Tt]rue")
            self.assertEqual(read(group / self.infer_log).count("class id(s)"), 16)
            self.infer_again(group)

    def infer_again(self, group):
        """whole_infer with what this chain exported gives its answers."""
        words = self.quick + settings(infer_model=group / "inference", infer_export="False")
        result = self.start_command([TRIREME, "tipc", "run", self.config, "whole_infer", *words]).wait()
        self.assert_ends(result, 0)
        self.assert_says(result, "1 steps: 1 passed")
        log = self.folder / "test_tipc/output/LeNet/whole_infer/infer" / self.infer_log
        command = [TRIREME, "tipc", "compare", "--gt", group / self.infer_log, "--log", log, "--atol", "1e-5"]
        result = self.start_command(command).wait()
        self.assert_ends(result, 0)
        self.assert_says(result, "16 pictures")

    def test_speed_up(self):
        """That the lines of a training's log are still understood."""
        result = self.run_chain(*settings(gpu_list="cpu:1|cpu:2"), mode="benchmark_train")
        self.assert_ends(result, 0)
        rows = [re.search(rf"^\| {devices} CPU \| 1 \| 8 \| fp32 \| ([\d.]+) \| 1 \| ([\d.]+) \| (\d+) % \|$",
                          result.out, re.M) for devices in (1, 2)]
        for devices, row in enumerate(rows, 1):
            self.assertTrue(row, result)
            text = read(self.folder / f"test_tipc/output/LeNet/benchmark_train/bs8_fp32_DP_N1C{devices}.json")
            measured = json.loads(text)
            self.assertAlmostEqual(measured["ips"], float(row[1]), delta=0.01)
            for value in (measured["ips_per_device"], measured["convergence_value"], *row.groups()):
                self.assertGreater(float(value), 0, result)
            self.assertEqual(measured["speed_unit"], "samples/s")


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
