"""What we export computes what the network computes: in PyTorch and in ONNX Runtime, for every network of the zoo and
for networks with every operator."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from stock_scripts_test import peers

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("EXPORT_DUMP", str(HERE.parents[1] / "build/bin/export_dump"))
PATIENCE = 400
LIMIT = 1e-4
NETWORKS = 48  # 31 different ones of the zoo, EveryOperator, and 16 of operator_cases.h
SMALL = 8


class ExportCase(unittest.TestCase):
    pass


class EveryNetwork(ExportCase):
    def test_torch_and_onnxruntime_agree_with_us(self):
        finished = subprocess.run([peers() / "bin/python", HERE / "export_peers.py", DUMP], stdout=subprocess.PIPE,
                                  text=True, check=True, timeout=PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        report = json.loads(finished.stdout)
        self.assertEqual(report["code"], 0)
        results = report["results"]
        self.assertEqual({name: result["error"] for name, result in results.items() if "error" in result}, {})
        small = [name for name in results if name.endswith("-small")]
        self.assertEqual((len(results) - len(small), len(small)), (NETWORKS, SMALL), sorted(results))
        for name, result in results.items():
            with self.subTest(name):
                self.assertGreater(result["spread"], 1e-2, "scores this equal prove nothing")
                self.assertLessEqual(result["torch"], LIMIT)
                self.assertLessEqual(result["onnx"], LIMIT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
