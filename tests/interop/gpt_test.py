"""Our GPT split over two ranks, and PyTorch's tensor parallelism from the same weights on the same text."""

import json
import os
import subprocess
from pathlib import Path

from stock_scripts_test import peers
from trireme_test import Case, main

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("GPT_DUMP", str(HERE.parents[1] / "build/bin/gpt_dump"))
PATIENCE = 150  # seconds


class TensorParallel(Case):
    def peer(self, word):
        command = [peers() / "bin/python", HERE / "gpt_peers.py", word, self.folder]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE).stdout

    def run_ranks(self, *command):
        env = {"PATH": f"{peers()}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.assert_ends(self.launch("-n", 2, *command, env=env, timeout=PATIENCE), 0)

    def test_the_same_parameters_after_ten_steps(self):
        self.peer("make")
        self.run_ranks(HERE / "gpt_peers.py", "train", self.folder)
        for sequence_parallel in ("0", "1"):
            self.run_ranks(DUMP, self.folder, sequence_parallel)
            result = json.loads(self.peer("compare"))
            self.assertEqual(result["names"], [])
            self.assertLess(result["largest"], 1e-8, result)
            self.assertGreater(result["moved"], 1e-3, "weights that do not move prove nothing")
            self.assertLess(result["losses"][-1], result["losses"][0], result)


if __name__ == "__main__":
    main()
