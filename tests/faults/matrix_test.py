"""The fault matrix: its table, and some of its cells. matrix_soak_test.py runs all of them.

By hand, some cells: CELLS="SIGKILL,step,2;exit 0,step,1" PYTHONPATH=tests/support tests/faults/matrix_test.py Cells
"""

import os
import re
from pathlib import Path

import matrix
import reliability_page
from cell_runner import CellCase
from machines import main
from trireme_test import ROOT, SLOWER, Case

SOME = (
    ("SIGKILL", "collective", 1),
    ("exit 0", "step", 1),
    ("disk full", "checkpoint", 1),
    ("out of memory", "step", 1),
    ("SIGSTOP", "collective", 2),
    ("SIGKILL", "checkpoint", 2),
    ("packet loss", "step", 2),
    ("launcher killed", "step", 2),
)


class Cells(CellCase):
    def test_some(self):
        asked = [cell.split(",") for cell in os.environ.get("CELLS", "").split(";") if cell]
        for fault, phase, nodes in asked or SOME:
            with self.subTest(fault=fault, phase=phase, nodes=nodes):
                self.run_cell(fault, phase, int(nodes))

    def test_restart(self):
        self.assertLess(self.seconds_to_restart(1), matrix.RESTART * SLOWER)


class Table(Case):
    def test_every_cell_has_an_outcome(self):
        for cell in matrix.cells():
            with self.subTest(cell=cell):
                outcome = matrix.outcome(*cell)
                self.assertIsInstance(outcome, (matrix.Run, matrix.NoSense, matrix.Elsewhere))
                if isinstance(outcome, matrix.Elsewhere):
                    self.assert_exists(outcome.test)
                if isinstance(outcome, matrix.Run) and outcome.outside:
                    self.assertTrue(hasattr(CellCase, outcome.outside), outcome)

    def assert_exists(self, test):
        path, name = test.split(" ")
        class_name, method = name.split(".")
        text = Path(ROOT, path).read_text()
        found = re.search(rf"^class {class_name}\(.*?(?=^class |\Z)", text, re.M | re.S)
        self.assertTrue(found and f"    def {method}(" in found[0], f"there is no {test}")

    def test_the_cells_of_the_ordinary_tests_are_in_the_matrix(self):
        self.assertEqual(set(SOME) - set(matrix.runs()), set())

    def test_the_page_shows_this_table(self):
        self.assertEqual(reliability_page.block("cells"), reliability_page.cells_table(),
                         "docs/reliability.md is out of date; run tests/faults/reliability_page.py")

    def test_the_page_keeps_its_promises(self):
        """Once measured, each time is below what is promised."""
        rows = re.findall(r"^\| (.+?) \| (\d+) \|(?: ([\d.]+) \|)?$", reliability_page.block("times"), re.M)
        self.assertEqual([(what, int(bound)) for what, bound, _ in rows], list(reliability_page.PROMISES))
        for what, bound, longest in rows:
            self.assertLess(float(longest or 0), int(bound), what)


if __name__ == "__main__":
    main()
