"""The test cases that come along, and those of the original documents, where they are at hand."""

import re
from pathlib import Path

from tipc_case import TipcCase, case_name, zoo
from trireme_test import ROOT, TRIREME, Case, main

CONFIGS = ROOT / "test_tipc/configs"
ORIGINALS = ROOT.parent / "shared/peer_data/tipc"  # not part of the project
NAMES = ("train_infer_cpp.txt", "train_fleet_infer_cpp.txt")


class Zoo(Case):
    """Every network has both cases; each can be read, and what it names is there."""

    def test_no_network_is_missing(self):
        self.assertGreater(len(zoo()), 30)
        for name in zoo():
            for file in NAMES:
                self.assertTrue((CONFIGS / case_name(name) / file).exists(), f"{case_name(name)}/{file}")

    def test_each_is_of_its_network(self):
        for file in sorted(CONFIGS.rglob("*.txt")):
            text = file.read_text()
            self.assertEqual(re.search("^model_name:(.*)", text, re.M)[1], file.parent.name)
            for config in re.findall(r"-c (\S+)", text):
                self.assertTrue((ROOT / config).exists(), f"{file}: {config}")
            network = re.search(r"-c \S*/(\w+)\.yaml(?: -o Arch\.name=(\w+))?", text)
            self.assertEqual(case_name(network[2] or network[1].replace("_fashion_mnist", "")), file.parent.name, file)

    def test_all_can_be_read(self):
        result = self.start_command([TRIREME, "tipc", "list"], cwd=ROOT).wait()
        self.assert_ends(result, 0)
        self.assert_silent_on(result, "error")
        self.assertEqual(len(result.out.splitlines()), len(list(CONFIGS.rglob("*.txt"))))

    def test_the_weights_are_where_the_training_puts_them(self):
        for file in sorted(CONFIGS.rglob("*.txt")):
            config, arch = re.search(r"-c (\S+\.yaml)(?: -o Arch\.name=(\w+))?", file.read_text()).groups()
            arch = arch or re.search(r"^Arch:\n  name: (\w+)", (ROOT / config).read_text(), re.M)[1]
            self.assertIn(f"\ntrain_model_name:{arch}/latest\n", file.read_text(), file)

    def test_every_mode_has_a_plan(self):
        config = CONFIGS / "mobilenet_v3_small/train_infer_cpp.txt"
        for mode, steps in (("lite_train_lite_infer", 11), ("lite_train_whole_infer", 11),
                            ("whole_train_whole_infer", 11), ("whole_infer", 9), ("benchmark_train", 2)):
            result = self.start_command([TRIREME, "tipc", "run", config, mode, "--dry-run"]).wait()
            self.assert_ends(result, 0)
            self.assertEqual(len(result.out.splitlines()), steps, result)


class Originals(TipcCase):
    """The documents' own files, with other programs and devices; generated ones of the same form where there are none."""

    def originals(self):
        found = sorted(ORIGINALS.glob("*.txt"))
        if found:
            return found
        for name, gpu_list in (("one.txt", "0|0,1"), ("fleet.txt", "192.168.0.1,192.168.0.2;0,1")):
            self.write_config(gpu_list=gpu_list)
            (self.folder / name).write_text(self.config.read_text())
        return [self.folder / "one.txt", self.folder / "fleet.txt"]

    def test_they_can_be_read(self):
        for file in self.originals():
            result = self.tipc("run", file, "lite_train_lite_infer", "--dry-run")
            self.assert_ends(result, 0)
            self.assert_says(result, r"^trireme launch (--ips 192\.168\.0\.1,192\.168\.0\.2 )?--gpus 0")

    def test_they_run(self):
        for file in self.originals():
            trainer = re.search(r"^trainer:(.*)", file.read_text(), re.M)[1]
            changes = ["gpu_list=cpu:2", "train_model_name=latest", "infer_device=False",
                       *(f"{key}={self.folder}/{name}" for key, name in
                         ((trainer, "train"), ("eval", "eval"), ("norm_export", "export"), ("inference", "infer")))]
            result = self.tipc("run", file, "lite_train_lite_infer",
                               *(word for change in changes for word in ("--set", change)))
            self.assert_ends(result, 0)
            self.assert_says(result, r"Run successfully with command - .*trireme launch -n 2 ", r"\b0 failed, 0 skipped")


if __name__ == "__main__":
    main()
