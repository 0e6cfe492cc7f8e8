"""Files of trireme/io and of tools/ beside those of Python's safetensors, tensorboard, torchvision and paddle."""

import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from stock_scripts_test import peers

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("IO_DUMP", str(HERE.parents[1] / "build/bin/io_dump"))
TOOLS = HERE.parents[1] / "tools"


class IoCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trireme-io-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, *command, succeeds=True):
        result = subprocess.run(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200
        )
        self.assertEqual(result.returncode == 0, succeeds, f"{command}: {result.returncode}\n{result.stdout}")
        return result.stdout

    def dump(self, *words):
        return self.run_program(DUMP, *words)

    def python(self, command, *paths):
        return self.run_program(peers() / "bin/python", HERE / "io_peers.py", command, *paths)

    def tool(self, name, *words, succeeds=True):
        return self.run_program(peers() / "bin/python", TOOLS / name, *words, succeeds=succeeds)


class Safetensors(IoCase):
    def test_python_reads_every_dtype(self):
        self.dump("make", self.folder / "ours")
        self.python("check_every_dtype", self.folder / "ours")

    def test_we_read_every_dtype(self):
        self.python("write_every_dtype", self.folder / "theirs")
        self.dump("copy", self.folder / "theirs", self.folder / "copy")
        self.python("check_same", self.folder / "theirs", self.folder / "copy")


class Events(IoCase):
    def test_tensorboard_reads_them(self):
        self.dump("events", self.folder / "events")
        found = json.loads(self.python("print_events", self.folder / "events").splitlines()[-1])
        self.assertEqual(
            found["tags"],
            {"scalars": ["train/loss", "lr"], "tensors": [], "histograms": [], "images": []},
        )
        self.assertEqual(found["loss"], [[step, 0.5 * step] for step in range(1000)])
        self.assertEqual(found["lr"][0][0], 2**40)
        self.assertAlmostEqual(found["lr"][0][1], 1e-3, places=9)
        self.assertAlmostEqual(found["wall_time"], time.time(), delta=200)


class Pth(IoCase):
    TOOL = "pth_to_safetensors.py"

    def test_torchvision(self):
        plain, wrapped, evil = (self.folder / name for name in ("plain.pth", "wrapped.pth", "evil.pth"))
        out, copy = self.folder / "out.safetensors", self.folder / "copy.safetensors"
        self.python("write_pth", plain, wrapped, evil)
        for source in (plain, wrapped):
            self.assertIn("122 tensors", self.tool(self.TOOL, source, out))
            self.dump("copy", out, copy)
            self.python("check_resnet", plain, copy)
        self.assertNotIn("sprung", self.tool(self.TOOL, evil, out, succeeds=False))
        self.assertIn("nothing", self.tool(self.TOOL, wrapped, out, "--key", "nothing", succeeds=False))


class Pdparams(IoCase):
    TOOL = "pdparams_to_safetensors.py"

    def test_paddle(self):
        params, outputs, evil = (self.folder / name for name in ("a.pdparams", "outputs", "evil.pdparams"))
        out, copy = self.folder / "out.safetensors", self.folder / "copy.safetensors"
        self.python("write_pdparams", params, outputs, evil)
        self.assertIn("10 tensors", self.tool(self.TOOL, params, out))
        self.dump("copy", out, copy)
        self.python("check_pdparams", copy, outputs)
        self.assertIn("1 tensors", self.tool(self.TOOL, params, out, "--prefix", "table."))
        refusal = self.tool(self.TOOL, evil, out, succeeds=False)
        self.assertIn("builtins.print", refusal)
        self.assertNotIn("sprung", refusal)

    def test_what_is_no_pickle(self):
        (self.folder / "text").write_text("no pickle")
        message = self.tool(self.TOOL, self.folder / "text", self.folder / "out", succeeds=False)
        self.assertIn("not a .pdparams file", message)
        self.assertNotIn("Traceback", message)


if __name__ == "__main__":
    unittest.main(verbosity=2)
