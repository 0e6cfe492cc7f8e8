"""Files of trireme/io and of tools/ beside those of Python's safetensors, tensorboard, torchvision and paddle."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from stock_scripts_test import peers

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "trainer"))
from trainer_case import TrainerCase  # noqa: E402

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
    def read_events(self, folder):
        return json.loads(self.python("print_events", folder).splitlines()[-1])

    def steps(self, found, tag):
        return [step for step, _ in found["scalars"][tag]]

    def test_tensorboard_reads_them(self):
        self.dump("events", self.folder / "events")
        found = self.read_events(self.folder / "events")
        self.assertEqual(found["others"], [])
        self.assertEqual(set(found["scalars"]), {"train/loss", "lr"})
        self.assertEqual(found["scalars"]["train/loss"], [[step, 0.5 * step] for step in range(1000)])
        ((step, rate),) = found["scalars"]["lr"]
        self.assertEqual(step, 2**40)
        self.assertAlmostEqual(rate, 1e-3, places=9)
        self.assertAlmostEqual(found["wall_time"], time.time(), delta=200)

    def test_tensorboard_reads_those_of_a_model(self):
        """Four steps an epoch, two epochs, and an evaluation after each."""
        self.dump("fit", self.folder / "board")
        found = self.read_events(self.folder / "board")
        self.assertEqual(set(found["scalars"]), {"train/loss", "train/learning_rate", "eval/loss"})
        self.assertEqual(self.steps(found, "train/loss"), list(range(1, 9)))
        self.assertEqual(self.steps(found, "eval/loss"), [4, 8])
        self.assertEqual({value for _, value in found["scalars"]["train/learning_rate"]}, {0.25})
        losses = [value for _, value in found["scalars"]["eval/loss"]]
        self.assertLess(losses[1], losses[0])


class TrainedEvents(TrainerCase):
    def test_tensorboard_reads_those_of_a_configuration(self):
        """48 pictures by 2 ranks in batches of 8: three steps an epoch."""
        self.train("Global.use_visualdl=True", "Global.print_batch_step=1", ranks=2)
        folder = self.folder / "out/LeNet/tensorboard"
        self.assertEqual(len(list(folder.iterdir())), 1, "rank 0 alone writes")
        result = self.start_command([peers() / "bin/python", HERE / "io_peers.py", "print_events", folder]).wait(200)
        self.assert_ends(result, 0)
        scalars = json.loads(result.out.splitlines()[-1])["scalars"]
        for tag in ("train/loss", "train/top1", "train/lr"):
            self.assertEqual([step for step, _ in scalars[tag]], [1, 2, 3, 4, 5, 6], tag)
        self.assertEqual([step for step, _ in scalars["eval/top1"]], [3, 6])
        self.assertAlmostEqual(scalars["train/lr"][0][1], 0.02, places=6)


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
