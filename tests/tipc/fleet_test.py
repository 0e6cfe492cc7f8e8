"""`trireme tipc` on two machines at once, with scripts as programs."""

from machines import MachineCase, main
from tipc_case import TipcCase, statuses
from trireme_test import TRIREME

GROUP = "fleet_train_gpus_cpu2_nodes_2"


class FleetCase(TipcCase, MachineCase):
    trainer = "fleet_train"

    def setUp(self):
        super().setUp()
        self.write_config(gpu_list=f"{self.ips};cpu:2")

    def start_chain(self, machine, *words, mode="lite_train_lite_infer", folder=None, env=None):
        command = [TRIREME, "tipc", "run", self.config, mode, *words]
        return self.start_command(machine.command(folder or self.folder_of(machine), *command), env=env)

    def chain_everywhere(self, *words):
        jobs = [self.start_chain(machine, *words) for machine in self.machines]
        return [job.wait(60) for job in jobs]


class Fleet(FleetCase):
    def test_both_machines(self):
        first, second = self.chain_everywhere()
        self.assert_ends(first, 0)
        self.assert_ends(second, 0)
        self.assertEqual(statuses(first.out), ["Run successfully"] * 5, first)
        self.assertEqual(statuses(second.out), ["Run successfully"] + ["Run skipped (trainer 0 saves)"] * 4, second)
        for result in (first, second):
            self.assert_says(result, rf"trireme launch --ips {self.ips} -n 2 ")
        self.assertIn("epochs 2 of 0/4", self.output(f"{GROUP}/train.log", folder=self.folder_of(self.alpha)))
        self.assertIn("epochs 2 of 2/4", self.output(f"{GROUP}/train.node1.log", folder=self.folder_of(self.beta)))

    def test_a_folder_that_both_see(self):
        jobs = [self.start_chain(machine, folder=self.folder) for machine in self.machines]
        for job in jobs:
            self.assert_ends(job.wait(60), 0)
        self.assertEqual(len(self.output("results_cpp.log").splitlines()), 5)
        self.assertEqual(self.output("results_cpp.node1.log").count("trainer 0 saves"), 4)

    def test_speed_up_in_a_folder_that_both_see(self):
        with self.config.open("a") as config:
            config.write("===========train_benchmark_params==========\nbatch_size:8\nfp_items:fp32\nepoch:1\n")
        self.program("train", "[ $RANK != 0 ] || for i in 1 2 3 4; do echo 'loss: 2.5, ips: 10.0 samples/s, eta'; done")
        jobs = [self.start_chain(machine, folder=self.folder, mode="benchmark_train") for machine in self.machines]
        first, second = [job.wait(60) for job in jobs]
        self.assert_ends(first, 0)
        self.assert_ends(second, 0)
        self.assert_says(first, r"^\| 1 CPU \| 1 \| 8 \| fp32 \| 10\.00 ",
                         r"^\| 4 CPU \| 2 \| 8 \| fp32 \| 40\.00 \| 1 \| 4\.00 ")
        self.assertEqual(statuses(second.out),
                         ["Run successfully", "Run skipped (the first machine measures one device)"])

    def test_two_chains_at_once(self):
        jobs = []
        for machine in self.machines:
            for port in (17000, 17100):
                folder = self.folder_of(machine) / str(port)
                folder.mkdir()
                jobs.append(self.start_chain(machine, folder=folder, env={"FLAGS_START_PORT": port}))
        for job in jobs:
            self.assert_ends(job.wait(60), 0)

    def test_one_machine_fails(self):
        self.program("train", "[ $RANK != 3 ] || { echo bad luck; exit 9; }; sleep 60")
        for result in self.chain_everywhere():
            self.assert_ends(result, 1)
            self.assertEqual(statuses(result.out)[0], "Run failed")
            self.assert_says(result, "^  exit 9 after")

    def test_this_machine_is_not_in_the_list(self):
        result = self.start_chain(self.alpha, "--set", "gpu_list=10.77.0.8,10.77.0.9;cpu:2").wait()
        self.assert_usage(result, "gpu_list: none of 10.77.0.8, 10.77.0.9 is this machine", self.alpha.address)


if __name__ == "__main__":
    main()
