"""Our Pipeline and PyTorch's torch.distributed.pipelining train one GPT, from the same weights on the same text."""

import json
import os
import subprocess
from pathlib import Path

from stock_scripts_test import peers
from trireme_test import Case, main

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("PIPELINE_DUMP", str(HERE.parents[1] / "build/bin/pipeline_dump"))
PATIENCE = 150  # seconds
STEPS, MICRO_BATCHES = 10, 4  # as in gpt_peers.py and pipeline_peers.py
HALVES = [["block0", "embedding"], ["block1", "head"]]  # the layers of each rank
INTERLEAVED = [["block1", "embedding"], ["block0", "head"]]


class Pipelining(Case):
    def peer(self, word):
        command = [peers() / "bin/python", HERE / "pipeline_peers.py", word, self.folder]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE).stdout

    def run_ranks(self, *command):
        env = {"PATH": f"{peers()}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.assert_ends(self.launch("-n", 2, *command, env=env, timeout=PATIENCE), 0)

    def compare(self, schedule, layers):
        self.peer("make")
        self.run_ranks(HERE / "pipeline_peers.py", "train", self.folder, schedule)
        self.run_ranks(DUMP, self.folder, schedule)
        result = json.loads(self.peer("compare"))
        self.assertEqual(result["layers"], [layers, layers], "a rank must have the parameters of its own stages only")
        self.assertEqual(result["micro_batches"], [[STEPS, MICRO_BATCHES]] * 2, "the loss must see every micro-batch")
        self.assertEqual(result["names"], [[], []])
        self.assertLess(result["largest"], 1e-9, result)
        self.assertGreater(result["moved"], 1e-3, "weights that do not move prove nothing")
        self.assertLess(result["losses"][-1], result["losses"][0], result)

    def test_fill_drain(self):
        self.compare("fill_drain", HALVES)

    def test_one_f_one_b(self):
        self.compare("one_f_one_b", HALVES)

    def test_interleaved(self):
        self.compare("interleaved", INTERLEAVED)


if __name__ == "__main__":
    main()
