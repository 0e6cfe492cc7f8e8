"""Who runs where: ranks, endpoints and environments of jobs on several machines."""

import re
import signal

from machines import MachineCase, main
from trireme_test import FOREVER, environment_of, read

DUMP = "env -0 >env.$RANK"


class PlacementCase(MachineCase):
    def assert_all_end_well(self, results):
        for result in results:
            self.assert_ends(result, 0)
        return results

    def environments(self, machine):
        """{rank: environment} of the workers that ran on the machine."""
        files = self.folder_of(machine).glob("env.*")
        return {int(path.suffix[1:]): environment_of(path) for path in files}

    def ranks(self):
        """The ranks that ran on each machine."""
        return [sorted(self.environments(machine)) for machine in self.machines]

    def values(self, name):
        """The variable's value on every rank, by rank."""
        everyone = {rank: env for machine in self.machines for rank, env in self.environments(machine).items()}
        return [everyone[rank][name] for rank in sorted(everyone)]


class TwoMachines(PlacementCase):
    def test_two_by_two(self):
        self.assert_all_end_well(self.launch_everywhere("--ips", self.ips, "-n", 2, "sh", "-c", DUMP))
        self.assertEqual(self.ranks(), [[0, 1], [2, 3]])
        for name, expected in {
            "RANK": "0123",
            "PADDLE_TRAINER_ID": "0123",
            "PADDLE_GLOBAL_RANK": "0123",
            "LOCAL_RANK": "0101",
            "PADDLE_LOCAL_RANK": "0101",
            "PADDLE_RANK_IN_NODE": "0101",
            "WORLD_SIZE": "4444",
            "PADDLE_TRAINERS_NUM": "4444",
            "PADDLE_GLOBAL_SIZE": "4444",
            "LOCAL_WORLD_SIZE": "2222",
            "PADDLE_LOCAL_SIZE": "2222",
            "GROUP_RANK": "0011",
            "GROUP_WORLD_SIZE": "2222",
            "PADDLE_NNODES": "2222",
        }.items():
            self.assertEqual(self.values(name), list(expected), name)
        self.assertEqual(set(self.values("MASTER_ADDR")), {self.alpha.address})
        self.assertEqual(set(self.values("GLOO_SOCKET_IFNAME")) | set(self.values("NCCL_SOCKET_IFNAME")), {"eth0"})
        for name in ("MASTER_PORT", "PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS"):
            self.assertEqual(len(set(self.values(name))), 1, f"{name} differs between workers: {self.values(name)}")
        self.assertEqual(self.values("PADDLE_CURRENT_ENDPOINT"), self.values("PADDLE_TRAINER_ENDPOINTS")[0].split(","))
        hosts = [endpoint.rpartition(":")[0] for endpoint in self.values("PADDLE_CURRENT_ENDPOINT")]
        self.assertEqual(hosts, [self.alpha.address] * 2 + [self.beta.address] * 2)

    def test_fixed_ports_and_the_table(self):
        first, second = self.assert_all_end_well(
            self.launch_everywhere("--ips", self.ips, "-n", 2, "sh", "-c", DUMP, env={"FLAGS_START_PORT": "17000"})
        )
        endpoints = [f"{machine.address}:{port}" for machine in self.machines for port in (17000, 17001)]
        self.assertEqual(self.values("PADDLE_CURRENT_ENDPOINT"), endpoints)
        self.assertEqual(set(self.values("PADDLE_TRAINER_ENDPOINTS")), {",".join(endpoints)})
        for result, endpoint, rank in (
            (first, f"{self.alpha.address}:17000", 0),
            (second, f"{self.beta.address}:17000", 2),
        ):
            self.assertIn("Local start 2 processes.", result.text, result)
            self.assert_says(
                result,
                rf"\| +PADDLE_CURRENT_ENDPOINT +{re.escape(endpoint)} +\|",
                r"\| +PADDLE_TRAINERS_NUM +4 +\|",
                rf"\| +PADDLE_TRAINER_ID +{rank} +\|",
                r"\| +PADDLE_TRAINER_ENDPOINTS  \.\.\. .*17000.*\.\.\. \|",
            )

    def test_host_names(self):
        self.assert_all_end_well(self.launch_everywhere("--ips", "alpha,beta", "-n", 1, "sh", "-c", DUMP))
        self.assertEqual(self.ranks(), [[0], [1]])

    def test_order_is_the_lists(self):
        self.assert_all_end_well(
            self.launch_everywhere("--ips", f"{self.beta.address},{self.alpha.address}", "-n", 1, "sh", "-c", DUMP)
        )
        self.assertEqual(self.ranks(), [[1], [0]])
        self.assertEqual(set(self.values("MASTER_ADDR")), {self.beta.address})

    def test_master_without_rank(self):
        self.assert_all_end_well(
            self.launch_everywhere("--master", f"{self.alpha.address}:7100", "--nnodes", 2, "-n", 2, "sh", "-c", DUMP)
        )
        self.assertEqual(self.ranks(), [[0, 1], [2, 3]])

    def test_without_master_the_first_node_says_what_to_type(self):
        first = self.start_on(self.alpha, "--nnodes", 2, "-n", 1, "sh", "-c", DUMP)
        master = first.wait_output(rf"--master ({re.escape(self.alpha.address)}:\d+) --nnodes 2")[1]
        second = self.start_on(self.beta, "--master", master, "--nnodes", 2, "-n", 1, "sh", "-c", DUMP)
        self.assert_all_end_well([first.wait(), second.wait()])
        self.assertEqual(self.ranks(), [[0], [1]])

    def test_rank_0_belongs_to_the_master(self):
        result = self.start_on(self.beta, "--master", "alpha:7100", "--nnodes", 2, "--rank", 0, "true").wait()
        self.assert_usage(result, r"--rank 0", r"alpha")

    def test_torchruns_names(self):
        options = ["--nnodes=2", "--nproc-per-node=1", "--master-addr", self.alpha.address, "--master-port=7100"]
        jobs = [
            self.start_on(machine, *options, f"--node-rank={rank}", "sh", "-c", DUMP)
            for rank, machine in enumerate(self.machines)
        ]
        self.assert_all_end_well([job.wait() for job in jobs])
        self.assertEqual(self.ranks(), [[0], [1]])
        rdzv = [
            "--nnodes=2",
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={self.alpha.address}:7101",
            "--rdzv-id=x",
        ]
        self.assert_all_end_well(self.launch_everywhere(*rdzv, "true"))

    def test_unequal_machines(self):
        hostfile = self.folder / "hostfile"
        hostfile.write_text("alpha slots=1\nbeta slots=3  # the bigger one\n")
        self.assert_all_end_well(self.launch_everywhere("--hostfile", hostfile, "sh", "-c", DUMP))
        self.assertEqual(self.ranks(), [[0], [1, 2, 3]])
        self.assertEqual(self.values("LOCAL_WORLD_SIZE"), ["1", "3", "3", "3"])
        self.assertEqual(self.values("LOCAL_RANK"), ["0", "0", "1", "2"])
        self.assertEqual(set(self.values("WORLD_SIZE")), {"4"})

    def test_horovods_host_list(self):
        self.assert_all_end_well(self.launch_everywhere("-np", 3, "-H", "alpha:2,beta:1", "sh", "-c", DUMP))
        self.assertEqual(self.ranks(), [[0, 1], [2]])

    def test_ipv6(self):
        ips = f"{self.alpha.address6},{self.beta.address6}"
        self.assert_all_end_well(
            self.launch_everywhere("--ips", ips, "-n", 1, "sh", "-c", DUMP, env={"FLAGS_START_PORT": "17000"})
        )
        self.assertEqual(
            self.values("PADDLE_CURRENT_ENDPOINT"), [f"[{self.alpha.address6}]:17000", f"[{self.beta.address6}]:17000"]
        )
        self.assertEqual(set(self.values("MASTER_ADDR")), {self.alpha.address6})

    def test_ipv6_master(self):
        self.assert_all_end_well(
            self.launch_everywhere(
                "--master", f"[{self.alpha.address6}]:7100", "--nnodes", 2, "-n", 1, "sh", "-c", DUMP
            )
        )
        self.assertEqual(self.ranks(), [[0], [1]])

    def test_console_and_logs_on_each_machine(self):
        first, second = self.assert_all_end_well(
            self.launch_everywhere("--ips", self.ips, "-n", 2, "sh", "-c", "echo I am $RANK")
        )
        self.assert_says(first, r"I am 0$")
        self.assert_says(second, r"I am 2$")
        self.assert_silent_on(first, r"I am [123]$")
        self.assertEqual(read(self.log_of(self.alpha) / "workerlog.1"), "I am 1\n")
        self.assertEqual(read(self.log_of(self.beta) / "workerlog.1"), "I am 3\n")

    def test_shared_log_dir_has_a_folder_for_each_node(self):
        shared = self.folder / "shared"
        self.assert_all_end_well(
            self.launch_everywhere("--ips", self.ips, "-n", 1, "--log_dir", shared, "sh", "-c", "echo I am $RANK")
        )
        logs = sorted(read(path) for path in shared.rglob("workerlog.0"))
        self.assertEqual(logs, ["I am 0\n", "I am 1\n"], list(shared.rglob("*")))

    def test_a_second_job_in_the_same_log_folders_ends_on_every_node(self):
        first = self.start_everywhere("--ips", self.ips, "-n", 1, "sh", "-c", f"echo started; {FOREVER}")
        for job in first:
            job.wait_output("^started$")
        for result in self.launch_everywhere("--ips", self.ips, "-n", 1, "--start_port", 18000, "echo", "second"):
            self.assert_usage(result, r"the log folder \S*/log is in use: process \d+ on ", "--log_dir")
        first[0].signal(signal.SIGTERM)  # not both: the second launcher may already be at its end
        for job, machine in zip(first, self.machines):
            self.assert_ends(job.wait(), 143)
            self.assertEqual(read(self.log_of(machine) / "workerlog.0"), "started\n")

    def test_dry_run_of_one_node_shows_all(self):
        result = self.start_on(
            self.alpha, "--ips", self.ips, "-n", 2, "--start_port", 17000, "--dry-run", "true"
        ).wait()
        self.assert_ends(result, 0)
        self.assert_says(result, r"rank 3", rf"{re.escape(self.beta.address)}:17001", r"WORLD_SIZE=4")


class ThreeMachines(PlacementCase):
    names = ("alpha", "beta", "gamma")

    def test_three_by_one(self):
        self.assert_all_end_well(self.launch_everywhere("--ips", self.ips, "-n", 1, "sh", "-c", DUMP))
        self.assertEqual(self.ranks(), [[0], [1], [2]])
        self.assertEqual(self.values("GROUP_RANK"), ["0", "1", "2"])

    def test_the_first_node_need_not_share_the_log_dir_of_the_others(self):
        own, shared = self.folder / "own", self.folder / "shared"
        folders = {self.alpha: own, self.beta: shared, self.gamma: shared}
        jobs = [
            self.start_on(machine, "--ips", self.ips, "-n", 1, "--log_dir", folder, "sh", "-c", "echo I am $RANK")
            for machine, folder in folders.items()
        ]
        self.assert_all_end_well([job.wait() for job in jobs])
        logs = sorted(read(path) for path in self.folder.rglob("workerlog.0"))
        self.assertEqual(logs, ["I am 0\n", "I am 1\n", "I am 2\n"], list(self.folder.rglob("*")))
        self.assertEqual(list(self.folder.rglob(".trireme-*")), [])

    def test_master_with_rank(self):
        jobs = [
            self.start_on(machine, "--master", "alpha:7100", "--nnodes", 3, "-n", 1, "--rank", rank, "sh", "-c", DUMP)
            for machine, rank in ((self.gamma, 1), (self.beta, 2), (self.alpha, 0))
        ]
        self.assert_all_end_well([job.wait() for job in jobs])
        self.assertEqual(self.ranks(), [[0], [2], [1]])


if __name__ == "__main__":
    main()
