"""All cells of the fault matrix, and again and again those where several ranks fail at nearly the same moment.

    PYTHONPATH=tests/support python3 tests/faults/matrix_soak_test.py --write

runs all cells once, on an idle machine, and puts the longest times into docs/reliability.md.

    TRIREME_RACY_TIMES=100 PYTHONPATH=tests/support python3 tests/faults/matrix_soak_test.py Racy RacyAborts

repeats the latter a hundred times.
"""

import os
import sys

import matrix
import reliability_page
from cell_runner import CellCase
from machines import main
from trireme_test import SLOWER

WRITE = "TRIREME_WRITE_RELIABILITY"  # set by --write
TIMES = int(os.environ.get("TRIREME_RACY_TIMES", 10))  # `make soak` runs this ten times
# The others lose the rank, or the node, in the same collective and end by themselves.
RACY = tuple((fault, "collective", nodes) for fault in ("SIGKILL", "exit 1", "exit 0", "launcher killed") for nodes in (1, 2))
RACY += (("SIGSTOP", "collective", 2), ("coordinator killed", "collective", 2))


class Whole(CellCase):
    def test_all(self):
        passed = 0
        for cell in matrix.runs():
            with self.subTest(cell=cell):
                self.run_cell(*cell)
                passed += 1
        restarts = [self.seconds_to_restart(nodes) for nodes in matrix.NODES]
        self.assertLess(max(restarts), matrix.RESTART * SLOWER)
        if WRITE in os.environ and passed == len(matrix.runs()):
            reliability_page.write_times(self.longest_times() + restarts)

    def longest_times(self):
        """In the order of reliability_page.PROMISES, up to the restarts."""
        crashes = ("SIGKILL", "SIGSEGV", "exit 1")
        launchers = ("launcher killed", "coordinator killed")
        return [
            max(times[0] for cell, times in self.measured.items() if cell[0] in crashes),
            max(times[1] for cell, times in self.measured.items() if cell[0] in crashes and len(times) == 2),
            max(max(times) for cell, times in self.measured.items() if cell[0] == "link down"),
            max(max(times) for cell, times in self.measured.items() if cell[0] in launchers and len(times) == 2),
        ]


class RacyCase(CellCase):
    def run_many_times(self, cells):
        for cell in cells:
            for number in range(TIMES):
                with self.subTest(cell=cell, number=number):
                    self.run_cell(*cell)

    def _resume(self, expected):
        """Whole does this."""


class Racy(RacyCase):
    def test_many_times(self):
        self.run_many_times(RACY)


class RacyAborts(RacyCase):
    def test_many_times(self):
        """A rank is killed, and the others do not catch the PeerError."""
        self.program = self.aborting_program()
        self.run_many_times([("SIGKILL", "collective", nodes) for nodes in matrix.NODES])


if __name__ == "__main__":
    if "--write" in sys.argv:
        os.environ[WRITE] = "1"
        sys.argv = [sys.argv[0], "Whole"]
    main()
