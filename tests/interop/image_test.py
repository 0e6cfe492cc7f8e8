"""Decoding, resizing and the augmentations: pixel for pixel those of OpenCV and Pillow, within what image_peers.py says."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from stock_scripts_test import peers

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("IMAGE_DUMP", str(HERE.parents[1] / "build/bin/image_dump"))
LEAST_CASES = 750


class Image(unittest.TestCase):
    def test_the_same_pixels(self):
        python = [peers() / "bin/python", HERE / "image_peers.py"]
        with tempfile.TemporaryDirectory(prefix="trireme-image-") as folder:
            subprocess.run([*python, folder], check=True, timeout=120)
            cases = (Path(folder) / "cases").read_text().splitlines()
            self.assertGreater(len(cases), LEAST_CASES)
            commands = "".join(case.split(maxsplit=2)[2] + "\n" for case in cases)
            subprocess.run([DUMP], input=commands, text=True, check=True, timeout=120)
            off = subprocess.run([*python, folder, "compare"], stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        self.assertEqual(off.stdout, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
