"""ShardedDataParallel and PyTorch's FSDP2, from the same weights with the same data: the same weights after training."""

import json
import os
import subprocess
from pathlib import Path

from stock_scripts_test import peers
from trireme_test import TRIREME, Case, main

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("SHARDED_DUMP", str(Path(TRIREME).parent / "sharded_dump"))
PATIENCE = 150
SHAPE = ["width=256", "layers=3", "heads=8", "words=64", "length=16", "batch=2", "steps=5", "double=1"]  # as in sharded_dump.cc
COMPARE = """
import json, sys
from safetensors.torch import load_file
ours, theirs, start = (load_file(path) for path in sys.argv[1:])
moved = max((theirs[name] - start[name]).abs().max().item() for name in theirs)
apart = max((ours[name] - theirs[name]).abs().max().item() for name in theirs) if set(ours) == set(theirs) else None
print(json.dumps({"names": sorted(set(ours) ^ set(theirs)), "moved": moved, "apart": apart}))
"""


class Fsdp(Case):
    def train(self, out, *command):
        env = {"PATH": f"{peers()}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.assert_ends(self.launch("-n", 2, *command, env=env, timeout=PATIENCE), 0)
        return self.folder / out

    def compare(self, mode):
        theirs = self.train("theirs", HERE / "fsdp_gpt.py", mode, *SHAPE, f"out={self.folder}/theirs")
        start = self.train("start", HERE / "fsdp_gpt.py", mode, *SHAPE, "steps=0", f"out={self.folder}/start")
        ours = self.train("ours", DUMP, mode, self.folder / "ours")
        compared = subprocess.run(
            [peers() / "bin/python", "-c", COMPARE, ours, theirs, start], stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(compared.stdout)
        self.assertEqual(found["names"], [])
        self.assertGreater(found["moved"], 1e-3, "it does not learn")
        self.assertLess(found["apart"], 1e-9, found)

    def test_gradients(self):
        self.compare("gradients")

    def test_parameters(self):
        self.compare("parameters")


if __name__ == "__main__":
    main()
