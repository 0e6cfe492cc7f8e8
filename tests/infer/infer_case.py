"""Exported models and pictures, for tests of inference."""

import shutil
from pathlib import Path

from exported_model import PLAIN, SECONDS, exported_model
from trireme_test import TRIREME, Case


def program(name):
    return Path(TRIREME).parent / name


class InferCase(Case):
    """The engine openvino is built wherever set-up has fetched OpenVINO, which it does."""

    def run_words(self, *words, code=0, env=None):
        result = self.start_command([str(word) for word in words], env={**PLAIN, **(env or {})}).wait(SECONDS)
        self.assert_ends(result, code)
        return result

    def export(self, folder="inference", **model):
        """A copy, of the test's own."""
        shutil.rmtree(self.folder / folder, ignore_errors=True)
        return shutil.copytree(exported_model(self, **model), self.folder / folder)

    def pictures(self, count=5, folder="pictures"):
        """The files' names, in the order in which they are answered."""
        self.run_words(program("make_images"), folder, count, 2, 40)
        (self.folder / folder / "list.txt").unlink(missing_ok=True)
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def infer(self, *words, **options):
        return self.run_words(TRIREME, "infer", "--model-dir", "inference", *words, **options)
