"""Stock PyTorch and Paddle scripts, unchanged, under `trireme launch` as under their own launchers."""

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

from machines import MachineCase, main
from trireme_test import ROOT, TRIREME, Case, read, wait_for

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


class Watched(StockCase, Case):
    """What the launcher alone knows of a script: the page shows it while the job runs, and the report keeps it."""

    def ask_state(self, address):
        with urllib.request.urlopen(f"{address}api/state", timeout=PATIENCE) as answer:
            return json.load(answer)

    def watch_script(self, name):
        job = self.start("-n", 2, "--dashboard", 0, HERE / name, env=self.with_peers())
        address = self.wait_file("log/dashboard.url").strip()
        ranks = wait_for(lambda: self.ask_state(address)["ranks"], PATIENCE, job.output)
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1])
        for rank in ranks:
            self.assertFalse(rank["records"] or rank["step"], "it reports nothing itself")
        self.assert_ends(job.wait(PATIENCE), 0)
        self.check_report()

    def check_report(self):
        self.assert_ends(self.start_command([TRIREME, "report", self.log]).wait(), 0)
        history = json.loads(read(self.log / "history.json"))
        self.assertEqual(history["state"]["state"], "success")
        report = read(self.log / "report.html")
        for rank in (0, 1):
            self.assertIn(f"rank {rank} of 2: parameters are equal", report)

    def test_torch(self):
        self.watch_script("torch_ddp.py")

    def test_paddle(self):
        self.watch_script("paddle_dp.py")


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
