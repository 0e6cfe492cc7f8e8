"""comm_ranks under the real torchrun: its store is what the ranks meet in."""

import os
import subprocess
from pathlib import Path

from trireme_test import ROOT, Case, main

COMM_RANKS = os.environ["COMM_RANKS"]
PATIENCE = 120  # seconds


def torchrun():
    asked = subprocess.run(
        ["bash", ROOT / "setup/setup.sh", "where", "peers"], stdout=subprocess.PIPE, text=True, check=True
    )
    program = Path(os.environ.get("TRIREME_PEERS", asked.stdout.strip())) / "bin/torchrun"
    if not program.exists():
        raise AssertionError(f"no {program}; run `make interop`, or setup/setup.sh interop")
    return program


class Torchrun(Case):
    def run_ranks(self, backend, *args):
        result = self.start_command(
            [torchrun(), "--standalone", "--nproc-per-node", 2, "--no-python", COMM_RANKS, *args],
            env={"TRIREME_BACKEND": backend},
        ).wait(PATIENCE)
        self.assert_ends(result, 0)
        self.assert_says(result, rf"^backend {backend}$")
        return result

    def test_shared_memory(self):
        self.assert_says(self.run_ranks("shm", "matrix"), r"operations as they must be, by shm")

    def test_gloo(self):
        self.assert_says(self.run_ranks("gloo", "random", 300, 7), r"rank 1: \d+ of 300 random operations")


if __name__ == "__main__":
    main()
