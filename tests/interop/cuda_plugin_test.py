"""The CUDA plugin compiles and links against a libtorch that comes with CUDA; without a GPU that is all there is to see."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from stock_scripts_test import peers

ROOT = Path(__file__).resolve().parents[2]


def run(*command):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class CudaPlugin(unittest.TestCase):
    def test_it_is_built_where_libtorch_has_cuda(self):
        torch = next(peers().glob("lib/python*/site-packages/torch"))
        with tempfile.TemporaryDirectory(prefix="trireme-cuda-") as folder:
            configured = run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DTRIREME_DEVELOPER=OFF",
                             f"-DTRIREME_TORCH_DIR={torch}")
            self.assertEqual(configured.returncode, 0, configured.stdout)
            self.assertIn("CUDA plugin: yes", configured.stdout)
            built = run("cmake", "--build", folder, "--target", "trireme_cuda")
            self.assertEqual(built.returncode, 0, built.stdout)
            symbols = run("nm", "-D", "--defined-only", os.path.join(folder, "lib/libtrireme_cuda.so"))
            self.assertIn("trireme_cuda_plugin", symbols.stdout)


if __name__ == "__main__":
    unittest.main()
