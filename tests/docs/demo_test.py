"""`make demo` after its build: what it shows, and what it says when something is wrong."""
import re
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
        for accuracy in re.findall(r"^\d process.*test accuracy ([\d.]+)$", result.out, re.M):
            self.assertGreaterEqual(float(accuracy), 0.80, result)
        self.assert_says(result, r"^2 processes: +[\d.]+ s", r"^1 process: +[\d.]+ s", r"^[\d.]+ times as fast")
        self.assertEqual(len(re.findall(r"^  \S*/trireme ", result.out, re.M)), 3, result)
        # short, and nothing of the launcher's own
        self.assert_silent_on(result, r"PADDLE_|Only For Debug|TRIREME info|\r")
        self.assertLess(len(result.text.splitlines()), 30, result)

    def test_a_failure_is_shown_with_its_reason(self):
        result = self.demo(TRIREME_DATA_DIR=self.folder)
        self.assert_ends(result, 2)
        self.assert_says(result, "failed first", "TRIREME_DATA_DIR", r"^demo: the training failed \(exit 2\)")

    def test_programs_that_are_missing_are_named(self):
        result = self.demo(self.folder)
        self.assert_ends(result, 1)
        self.assert_says(result, "demo: no .*/trireme; run: make demo")


if __name__ == "__main__":
    main()
