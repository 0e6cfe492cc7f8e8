"""`make demo` after its build: what it shows, and what it says when something is wrong."""
import re
import shutil
from pathlib import Path

import pages
from trireme_test import TRIREME, Case, main

BIN = Path(TRIREME).resolve().parent


class Demo(Case):
    def demo(self, bin_folder=BIN, **environment):
        own = {"TRIREME_DATA_DIR": pages.ROOT / "examples/data", **environment}
        return self.start_command([pages.ROOT / "setup/demo.sh", bin_folder], env=own).wait(240)

    def test_it_learns_and_compares(self):
        result = self.demo()
        self.assert_ends(result, 0)
        self.assertEqual(len(re.findall(r"^epoch \d/5: loss", result.out, re.M)), 10, result)
        accuracies = re.findall(r"^(\d) process.*test accuracy ([\d.]+)$", result.out, re.M)
        self.assertEqual([processes for processes, _ in accuracies], ["2", "1"], result)
        for _, accuracy in accuracies:
            self.assertGreaterEqual(float(accuracy), 0.80, result)
        self.assert_says(result, r"^2 processes: +[\d.]+ s", r"^1 process: +[\d.]+ s",
                         r"^[\d.]+ times as many images a second")
        self.assertEqual(len(re.findall(r"^  \S*/trireme ", result.out, re.M)), 6, result)
        # short, and nothing of the launcher's own
        self.assert_silent_on(result, r"PADDLE_|Only For Debug|TRIREME info|\r")
        self.assertLess(len(result.text.splitlines()), 40, result)
        self.a_model_is_exported_and_asked(result)

    def a_model_is_exported_and_asked(self, result):
        accuracy = re.search(r"^test accuracy ([\d.]+)$", result.out, re.M)
        self.assertTrue(accuracy and float(accuracy[1]) > 0.70, result)
        self.assert_says(result, "^exported: inference.onnx inference.pt inference.yml$",
                         r"^ankle_boot.png:\tclass id\(s\): \[9, .*label_name\(s\): \['ankle boot', ")

    def test_a_failure_is_shown_with_its_reason(self):
        result = self.demo(TRIREME_DATA_DIR=self.folder)
        self.assert_ends(result, 2)
        self.assert_says(result, "failed first", "TRIREME_DATA_DIR", r"^demo: the training failed \(exit 2\)")

    def test_programs_that_are_missing_are_named(self):
        result = self.demo(self.folder)
        self.assert_ends(result, 1)
        self.assert_says(result, "demo: no .*/trireme; run: make demo")

    def test_an_export_that_fails_is_shown_with_its_reason(self):
        folder = self.folder / "bin"
        folder.mkdir()
        for program in BIN.iterdir():
            (folder / program.name).symlink_to(program)
        for name in ("trireme", "trireme-export"):  # the one, a copy, starts the other from its own folder
            (folder / name).unlink()
        shutil.copy(TRIREME, folder)
        (folder / "trireme-export").write_text("#!/bin/sh\necho the disk is full >&2\nexit 1\n")
        (folder / "trireme-export").chmod(0o755)
        result = self.demo(folder)
        self.assert_ends(result, 1)
        self.assert_says(result, "the disk is full", r"^demo: the export failed \(exit 1\)")


if __name__ == "__main__":
    main()
