"""Stock PyTorch and Paddle scripts, unchanged, under `trireme launch` as under their own launchers."""

import os
import re
import subprocess
from pathlib import Path

from machines import MachineCase, main
from trireme_test import ROOT, Case, read

HERE = Path(__file__).resolve().parent
PATIENCE = 100  # seconds: two cores may have to import torch four times


def peers():
    """The folder of the Python that has torch and paddle."""
    asked = subprocess.run(
        ["bash", ROOT / "setup/setup.sh", "where", "peers"], stdout=subprocess.PIPE, text=True, check=True
    )
    folder = Path(os.environ.get("TRIREME_PEERS", asked.stdout.strip()))
    if not (folder / "bin/python").exists():
        raise AssertionError(f"no Python peers in {folder}; run `make interop`, or setup/setup.sh interop")
    return folder


class StockCase:
    """Checks shared by all ways to start a script."""

    def with_peers(self):
        return {"PATH": f"{peers()}/bin:{os.environ['PATH']}"}

    def assert_trained(self, logs, size):
        """Every rank printed that all have equal parameters, and the same sum."""
        found = re.findall(r"rank (\d+) of (\d+): parameters are equal, sum (\S+)", "\n".join(logs))
        self.assertEqual(sorted(rank for rank, _, _ in found), [str(rank) for rank in range(size)], self.consoles())
        self.assertEqual({(world, total) for _, world, total in found}, {(str(size), found[0][2])}, self.consoles())


class OneMachine(StockCase, Case):
    def run_script(self, name):
        result = self.launch("-n", 2, HERE / name, env=self.with_peers(), timeout=PATIENCE)
        self.assert_ends(result, 0)
        self.assert_trained([read(self.log / f"workerlog.{rank}") for rank in (0, 1)], 2)

    def test_torch(self):
        self.run_script("torch_ddp.py")

    def test_paddle(self):
        self.run_script("paddle_dp.py")


class TwoMachines(StockCase, MachineCase):
    def run_script(self, name):
        results = self.launch_everywhere(
            "--ips", self.ips, "-n", 2, HERE / name, env=self.with_peers(), timeout=PATIENCE
        )
        for result in results:
            self.assert_ends(result, 0)
        self.assert_trained(
            [read(self.log_of(machine) / f"workerlog.{rank}") for machine in self.machines for rank in (0, 1)], 4
        )

    def test_torch(self):
        self.run_script("torch_ddp.py")

    def test_paddle(self):
        self.run_script("paddle_dp.py")


class OwnLaunchers(StockCase, Case):
    """The scripts are good: the peers' own launchers run them."""

    def run_command(self, *command):
        result = self.start_command([peers() / "bin/python", "-m", *command], env=self.with_peers()).wait(PATIENCE)
        self.assert_ends(result, 0)
        return result

    def test_torchrun(self):
        result = self.run_command(
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            2,
            "--redirects",
            3,
            "--log-dir",
            "log",
            HERE / "torch_ddp.py",
        )
        self.assert_trained([result.text] + [read(path) for path in self.log.rglob("stdout.log")], 2)

    def test_paddle(self):
        self.run_command("paddle.distributed.launch", "--nproc_per_node", 2, "--log_dir", "log", HERE / "paddle_dp.py")
        self.assert_trained([read(self.log / f"workerlog.{rank}") for rank in (0, 1)], 2)


if __name__ == "__main__":
    main()
