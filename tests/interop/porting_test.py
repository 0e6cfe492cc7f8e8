"""The Python programs of docs/porting_*.md run under `trireme launch`, and print what the pages show for both sides."""

import os
import re
import sys
from collections import Counter

from stock_scripts_test import peers
from trireme_test import ROOT, Case, main

sys.path.insert(0, str(ROOT / "tests/docs"))
import pages  # noqa: E402
from run_test import lines_of  # noqa: E402

PATIENCE = 150
# Gloo's threads may abort PyTorch when Python shuts down (see torch_ddp.py): leave without that.
WITHOUT_SHUTDOWN = """
import os, runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


class PortingCase(Case):
    def write(self, page, name):
        """Writes the program into the test's folder; returns the lines of the output that the page shows after it."""
        (self.folder / "data").symlink_to(ROOT / "examples/data/fashion-mnist")
        blocks = pages.marked_blocks(pages.page(page))
        at = next(i for i, block in enumerate(blocks) if block.argument == name)
        (self.folder / name).write_text(blocks[at].text)
        return next(block.text for block in blocks[at:] if block.kind == "output")

    def peer_environment(self):
        return {"PATH": f"{peers()}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def assert_shown(self, shown, result):
        self.assert_ends(result, 0)
        missing = Counter(line for line in shown if line != "...") - Counter(lines_of(result.out))
        self.assertFalse(missing, f"the page shows {list(missing)}{result}")


class Paddle(PortingCase):
    PAGE = "docs/porting_paddle.md"

    def launched(self, name):
        shown = self.write(self.PAGE, name)
        self.assert_shown(lines_of(shown), self.launch("-n", 2, name, env=self.peer_environment(), timeout=PATIENCE))

    def test_loop(self):
        self.launched("mnist.py")

    def test_model(self):
        self.launched("clothes.py")

    def test_spawn(self):
        shown = self.write(self.PAGE, "linear.py")
        result = self.start_command(["python3", "linear.py"], env=self.peer_environment()).wait(PATIENCE)
        self.assert_shown(lines_of(re.sub(r"^rank \d: ", "", shown, flags=re.M)), result)  # Paddle names no rank


class PyTorch(PortingCase):
    """The numbers are equal to the last digit shown."""

    def launched(self, name):
        shown = self.write("docs/porting_pytorch.md", name)
        self.assertRegex(shown, r"loss \d+\.\d\d$")
        result = self.launch("-n", 2, "python3", "-c", WITHOUT_SHUTDOWN, name, env=self.peer_environment(),
                             timeout=PATIENCE)
        self.assert_shown(lines_of(shown), result)

    def test_distributed_data_parallel(self):
        self.launched("ddp.py")

    def test_fully_shard(self):
        self.launched("fsdp.py")


if __name__ == "__main__":
    main()
