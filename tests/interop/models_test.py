"""Our networks with torchvision's weights: torchvision's scores, gradients and training. With PaddleClas': its scores."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from stock_scripts_test import peers

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("MODEL_DUMP", str(HERE.parents[1] / "build/bin/model_dump"))
PATIENCE = 250


class ModelCase(unittest.TestCase):
    def compare(self, network, steps=0, **environment):
        difference = self.differences(network, steps, **environment)
        self.assertLessEqual(difference["gradients"][1], 1, difference)
        return difference

    def differences(self, network, steps=0, **environment):
        finished = subprocess.run(
            [peers() / "bin/python", HERE / "models_peers.py", network, str(steps), DUMP],
            stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},  # sums in the same order
        )
        difference = json.loads(finished.stdout)
        self.assertEqual(difference["names"], [])
        self.assertGreater(difference["spread"], 1e-3, "scores this equal prove nothing")
        self.assertLessEqual(difference["scores"], 1, difference)
        self.assertLessEqual(difference["losses"], 1e-4, difference)
        if steps:
            first, last = difference["first_and_last_loss"]
            self.assertLess(last, first / 2, "it does not learn")
        return difference


class LastBit(ModelCase):
    networks = ("resnet18", "mobilenet_v3_small")

    def test_the_scores_of_all_layers(self):
        for network in self.networks:
            with self.subTest(network):
                self.assertTrue(self.compare(network, TRIREME_FUSED="0")["same_bits"])

    def test_the_gradients_of_the_fused_passes(self):
        """Their sums are in another order. Now and then that moves a number over the kink of a ReLU, which changes the
        gradients by up to 5e-3; without that they are 1e-5 apart, which models_test.cc checks."""
        for network in self.networks:
            with self.subTest(network):
                difference = self.differences(network, TRIREME_FUSED="1")
                self.assertTrue(difference["same_bits"])
                self.assertGreater(difference["gradient_distance"], 0, "nothing was fused")
                self.assertLessEqual(difference["gradient_distance"], 2e-2, difference)


class ResNet(ModelCase):
    def test_resnet18_and_its_training(self):
        self.compare("resnet18", steps=20)

    def test_resnet50(self):
        self.compare("resnet50")


class MobileNetV3(ModelCase):
    def test_small_and_its_training(self):
        self.compare("mobilenet_v3_small", steps=20)

    def test_large(self):
        self.compare("mobilenet_v3_large")


class PaddleClasResNet(unittest.TestCase):
    """From a .pdparams file by our tool into our network."""

    def compare(self, layers):
        python = peers() / "bin/python"
        with tempfile.TemporaryDirectory() as folder:
            for words in ([python, HERE / "clas_resnet_peers.py", str(layers), folder],
                          [python, HERE.parents[1] / "tools/pdparams_to_safetensors.py", f"{folder}/weights.pdparams",
                           f"{folder}/weights.safetensors"],
                          [DUMP, f"ResNet{layers}", "10", "0", folder],
                          [python, "-c", COMPARE, folder]):
                subprocess.run(words, check=True, timeout=PATIENCE)

    def test_18_with_its_first_shortcut(self):
        self.compare(18)

    def test_34(self):
        self.compare(34)

    def test_50(self):
        self.compare(50)

    def test_101(self):
        self.compare(101)


COMPARE = """
import sys
from safetensors.torch import load_file
ours, theirs = (load_file(f"{sys.argv[1]}/{name}.safetensors")["scores"] for name in ("result", "theirs"))
assert theirs.std() > 1e-3, "scores this equal prove nothing"
difference = ((ours - theirs).abs() / (1e-4 + 1e-3 * theirs.abs())).max().item()
assert difference <= 1, difference
"""


if __name__ == "__main__":
    unittest.main(verbosity=2)
