"""Jobs whose nodes leave and join. Real launchers; their workers write down every sample (elastic_worker.cc)."""

import os
import re
import signal
import time

from machines import MachineCase, main
from trireme_test import FOREVER, read, wait_for

WORKER = os.environ.get("ELASTIC_WORKER", "elastic_worker")
SAMPLES = 100000  # more than any test waits for: a file tells when it has been enough


class ElasticCase(MachineCase):
    """Three machines; alpha hosts the job's store unless a test says otherwise."""

    names = ("alpha", "beta", "gamma")
    options = ("--grace", 2, "--link_timeout", 2)

    def join(self, machine, *options, samples=SAMPLES):
        """Starts a launcher of the job on the machine."""
        return self.start_on(machine, *self.meeting, *self.options, *options, "-n", 1, WORKER, self.folder, samples)

    def history(self):
        """[attempt, world size, first sample, last sample] of every committed step."""
        return [[int(word) for word in re.split("[ -]", line)] for line in read(self.folder / "history").splitlines()]

    def wait_steps(self, jobs, world_size, timeout=30):
        """Until steps are committed by a world of that size in a new attempt; returns the attempt."""
        before = self.attempts[-1] if self.attempts else -1

        def found():
            steps = [step for step in self.history() if step[0] > before and step[1] == world_size]
            return len(steps) >= 3 and steps[-1]

        attempt = wait_for(
            found, timeout, lambda: f"steps of {world_size} ranks after attempt {before}:\n{self.consoles()}"
        )[0]
        self.attempts.append(attempt)
        for job in jobs:
            if attempt > 0:
                job.wait_output(rf"attempt {attempt} has {world_size} nodes?, {world_size} ranks?")
        return attempt

    def assert_each_sample_once(self, at_least=1):
        """No sample lost or doubled, whatever happened to the nodes."""
        expected = 0
        for _, _, first, last in self.history():
            self.assertEqual(first, expected, self.history())
            expected = last + 1
        self.assertGreater(expected, at_least)

    def setUp(self):
        super().setUp()
        self.attempts = []
        self.meeting = ("--master", f"{self.alpha.address}:7100", "--nnodes", "2:3", "--elastic_timeout", 3)

    def end(self, jobs):
        """Ctrl-C on every node at once."""
        for job in jobs:
            job.signal(signal.SIGTERM)
        for job in jobs:
            self.assertIn(job.wait().code, (143, 75), job.wait())


class Replacement(ElasticCase):
    """A fixed number of nodes: another one takes the seat of the lost one."""

    def setUp(self):
        super().setUp()
        self.meeting = ("--master", f"{self.alpha.address}:7100", "--nnodes", 2, "--max_restart", 1)

    def test_launcher_killed_and_another_machine_takes_the_seat(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        beta.signal(signal.SIGKILL)
        beta.wait()
        alpha.wait_output(r"lost node 1 \(beta|1 of 2 nodes is here", 10)
        gamma = self.join(self.gamma)
        self.wait_steps([alpha, gamma], 2)
        alpha.wait_output(r"attempt 1 .*lost node 1 \(beta, 10\.77\.0\.2\).*new: node 1 \(gamma")
        self.assert_each_sample_once()
        self.end([alpha, gamma])
        found = self.result_json(self.log_of(self.alpha))
        self.assertEqual([m["nodes"] for m in found["memberships"]], [["alpha", "beta"], ["alpha", "gamma"]], found)
        self.assertEqual(found["restarts"], 0, found)

    def test_sigterm_frees_the_seat(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        beta.signal(signal.SIGTERM)
        self.assert_ends(beta.wait(), 143)
        self.assert_says(beta.wait(), "this node has left the job")
        beta = self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        self.assert_each_sample_once()
        self.end([alpha, beta])

    def test_nobody_comes(self):
        alpha, beta = self.join(self.alpha, "--elastic_timeout", 2), self.join(self.beta, "--elastic_timeout", 2)
        self.wait_steps([alpha, beta], 2)
        beta.signal(signal.SIGKILL)
        beta.wait()
        result = alpha.wait()
        self.assert_ends(result, 75)
        self.assert_says(result, r"lost node 1 \(beta, 10\.77\.0\.2\).*1 of at least 2 nodes ", r"--elastic_timeout \(2 s\)")
        self.assertIn("beta", self.result_json(self.log_of(self.alpha))["reason"])

    def test_ctrl_c_ends_the_job(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        beta.signal(signal.SIGINT)
        for job in (alpha, beta):
            self.assert_ends(job.wait(), 130)

    def test_without_elasticity_the_loss_is_final(self):
        options = ("--elastic_level", -1)
        alpha, beta = self.join(self.alpha, *options), self.join(self.beta, *options)
        self.wait_steps([alpha, beta], 2)
        beta.signal(signal.SIGKILL)
        beta.wait()
        self.assert_ends(alpha.wait(10), 75)


class Range(ElasticCase):
    """2:3 nodes with the embedded store."""

    def test_join_leave_kill_cut_and_come_back(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        gamma = self.join(self.gamma)
        self.wait_steps([alpha, beta, gamma], 3)
        alpha.wait_output(r"node 2 \(gamma, 10\.77\.0\.3\) joined")
        beta.signal(signal.SIGTERM)
        self.assert_ends(beta.wait(), 143)
        self.wait_steps([alpha, gamma], 2)
        gamma.wait_output(r"node 1 \(beta, 10\.77\.0\.2\) left: SIGTERM.*this is node 1")
        beta = self.join(self.beta)
        self.wait_steps([alpha, beta, gamma], 3)
        gamma.signal(signal.SIGKILL)
        gamma.wait()
        self.wait_steps([alpha, beta], 2)
        gamma = self.join(self.gamma)
        self.wait_steps([alpha, beta, gamma], 3)
        self.gamma.set_cable("down")
        self.wait_steps([alpha, beta], 2)
        gamma.wait_output(r"lost the connection to node 0.*looks for the job")
        self.gamma.set_cable("up")
        self.wait_steps([alpha, beta, gamma], 3)
        self.assert_each_sample_once()
        self.end([gamma, beta, alpha])
        memberships = self.result_json(self.log_of(self.alpha))["memberships"]
        self.assertEqual([len(m["nodes"]) for m in memberships][:7], [2, 3, 2, 3, 2, 3, 2], memberships)

    def test_ctrl_c_removes_one_node(self):
        jobs = [self.join(machine) for machine in self.machines]
        self.wait_steps(jobs, 3)
        jobs[1].signal(signal.SIGINT)
        self.assert_ends(jobs[1].wait(), 130)
        self.wait_steps([jobs[0], jobs[2]], 2)
        # Both came at the same time, so beta was node 1 or node 2.
        jobs[2].wait_output(r"node [12] \(beta, 10\.77\.0\.2\) left: SIGINT.*this is node 1")
        self.assert_each_sample_once()
        self.end([jobs[2], jobs[0]])

    def test_it_ends_well(self):
        jobs = [self.join(machine, samples=60) for machine in self.machines]
        for job in jobs:
            self.assert_ends(job.wait(), 0)
        self.assert_each_sample_once(59)

    def test_too_few_are_left(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        beta.signal(signal.SIGTERM)
        beta.wait()
        result = alpha.wait()
        self.assert_ends(result, 75)
        self.assert_says(result, r"node 1 \(beta, 10\.77\.0\.2\) left: SIGTERM; 1 of at least 2 nodes")

    def test_a_spare_takes_the_seat_at_once(self):
        self.meeting = ("--master", f"{self.alpha.address}:7100", "--nnodes", "1:2", "--elastic_timeout", 2)
        token = self.folder / "token"
        token.write_text("5a" * 32)
        token.chmod(0o600)
        jobs = [self.start_with(token, machine) for machine in (self.alpha, self.beta)]
        self.wait_steps(jobs, 2)
        spare = self.start_with(token, self.gamma)
        spare.wait_output("waiting as a spare")
        jobs[1].signal(signal.SIGKILL)
        jobs[1].wait()
        self.wait_steps([jobs[0], spare], 2)
        self.assert_each_sample_once()
        self.end([spare, jobs[0]])

    def start_with(self, token, machine):
        return self.start_on(
            machine,
            *self.meeting,
            *self.options,
            WORKER,
            self.folder,
            SAMPLES,
            env={"TRIREME_TOKEN_FILE": token},
        )

    def test_node_0_is_lost(self):
        """Nobody hosts the store then: the others end and say how that can be avoided."""
        jobs = [self.join(machine) for machine in self.machines]
        self.wait_steps(jobs, 3)
        jobs[0].signal(signal.SIGKILL)
        jobs[0].wait()
        for job in jobs[1:]:
            result = job.wait(30)
            self.assert_ends(result, 75)
            self.assert_says(result, r"lost the connection to node 0 \(alpha.*could not reach it again.*--master etcd://")

    def test_node_0_is_started_again(self):
        jobs = [self.join(machine) for machine in self.machines]
        self.wait_steps(jobs, 3)
        jobs[0].signal(signal.SIGKILL)
        jobs[0].wait()
        jobs[0] = self.join(self.alpha)
        self.wait_steps(jobs, 3)
        self.assert_each_sample_once()
        self.end(jobs)

    def test_ctrl_c_on_node_0_ends_the_job_and_says_why(self):
        jobs = [self.join(machine) for machine in self.machines]
        self.wait_steps(jobs, 3)
        jobs[0].signal(signal.SIGINT)
        for job in jobs:
            result = job.wait()
            self.assert_ends(result, 130)
            self.assert_says(result, r"SIGINT on alpha, which hosts the job's store; with --master etcd")


class Failures(ElasticCase):
    """Processes that fail, as against nodes that go."""

    def test_failures_count_and_departures_do_not(self):
        """One restart is allowed; a departure before it and one after it change nothing."""
        body = f"""
            echo $TORCHELASTIC_RESTART_COUNT $RANK $WORLD_SIZE >>{self.folder}/starts
            go={self.folder}/fail.$TORCHELASTIC_RESTART_COUNT
            [ "$RANK" = 0 ] && while [ ! -e $go ]; do sleep 0.01; done && exit 5
            {FOREVER}"""
        worker = self.script("worker", body)
        command = ["--master", f"{self.alpha.address}:7100", "--nnodes", "1:2", "--elastic_timeout", 2]
        command += ["--max_restart", 1, "-n", 1, worker]
        alpha, beta = self.start_on(self.alpha, *command), self.start_on(self.beta, *command)
        self.wait_start("0 1 2")
        beta.signal(signal.SIGTERM)
        self.wait_start("1 0 1")
        (self.folder / "fail.1").touch()
        self.wait_start("2 0 1")
        beta.wait()
        beta = self.start_on(self.beta, *command)
        self.wait_start("3 1 2")
        (self.folder / "fail.3").touch()
        for job in (alpha, beta):
            self.assert_ends(job.wait(), 5)
        found = self.result_json(self.log_of(self.alpha))
        self.assertEqual((found["restarts"], [m["attempt"] for m in found["memberships"]]), (1, [0, 1, 3]), found)

    def test_at_level_0_the_failing_node_leaves(self):
        body = f"""
            echo $TORCHELASTIC_RESTART_COUNT $RANK $WORLD_SIZE >>{self.folder}/starts
            [ "$WORLD_SIZE" = 1 ] && exit 0
            [ "$RANK" = 1 ] && exit 7
            {FOREVER}"""
        command = ["--master", f"{self.alpha.address}:7100", "--nnodes", "1:2", "--elastic_level", 0, "-n", 1]
        jobs = [self.start_on(machine, *command, self.script("worker", body)) for machine in (self.alpha, self.beta)]
        codes = sorted(job.wait().code for job in jobs)
        self.assertEqual(codes, [0, 7], self.consoles())

    def test_a_newcomer_that_does_not_fit_disturbs_nobody(self):
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps([alpha, beta], 2)
        gamma = self.start_on(self.gamma, *self.meeting, *self.options, "true", env={"TRIREME_CHECK": 1})
        result = gamma.wait()
        self.assert_ends(result, 2)
        self.assert_says(result, r"alpha has TRIREME_CHECK unset, but gamma has TRIREME_CHECK=1")
        steps = len(self.history())
        wait_for(lambda: len(self.history()) > steps + 5, 10, self.consoles)
        self.assertEqual({step[0] for step in self.history()}, {0}, self.consoles())
        self.end([beta, alpha])

    def test_two_nodes_go_at_once(self):
        self.meeting = ("--master", f"{self.alpha.address}:7100", "--nnodes", "1:3", "--elastic_timeout", 2)
        alpha, beta, gamma = [self.join(machine) for machine in self.machines]
        self.wait_steps([alpha, beta, gamma], 3)
        beta.signal(signal.SIGTERM)
        gamma.signal(signal.SIGKILL)
        self.assert_ends(beta.wait(), 143)
        gamma.wait()
        self.wait_steps([alpha], 1)
        self.assert_each_sample_once()
        self.end([alpha])

    def wait_start(self, line):
        wait_for(lambda: line in read(self.folder / "starts").splitlines(), 15, lambda: f"{line}:\n{self.consoles()}")


class Etcd(ElasticCase):
    """The nodes meet by a real etcd, on a machine of its own: every node may go."""

    names = ("alpha", "beta", "gamma", "delta")

    def setUp(self):
        super().setUp()
        self.meeting = ("--master", f"etcd://{self.delta.address}:2379", "--nnodes", "2:3", "--elastic_timeout", 6)
        self.start_etcd()

    def start_etcd(self):
        url = f"http://{self.delta.address}:2379"
        words = ["--data-dir", self.folder / "etcd", "--listen-client-urls", url, "--advertise-client-urls", url]
        words += ["--listen-peer-urls", "http://127.0.0.1:2380"]
        self.etcd = self.start_command(self.delta.command(self.folder, "etcd", *words))
        self.etcd.wait_output("ready to serve client requests")

    def start_first(self):
        """alpha is the coordinator."""
        alpha = self.join(self.alpha)
        alpha.wait_output("not authenticated")
        jobs = [alpha, self.join(self.beta), self.join(self.gamma)]
        self.wait_steps(jobs, 3)
        return jobs

    def test_the_coordinator_is_killed_and_comes_back(self):
        alpha, beta, gamma = self.start_first()
        alpha.signal(signal.SIGKILL)
        alpha.wait()
        self.wait_steps([beta, gamma], 2, 40)
        alpha = self.join(self.alpha)
        self.wait_steps([alpha, beta, gamma], 3)
        self.assert_each_sample_once()
        self.end([alpha, beta, gamma])

    def test_the_coordinator_leaves(self):
        alpha, beta, gamma = self.start_first()
        alpha.signal(signal.SIGTERM)
        self.assert_ends(alpha.wait(), 143)
        self.wait_steps([beta, gamma], 2, 40)
        beta.wait_output(r"node 0 \(alpha, 10\.77\.0\.1\) left: SIGTERM")
        self.assert_each_sample_once()
        self.end([beta, gamma])

    def test_the_coordinator_is_cut_off(self):
        """It must have stopped when the others go on, and comes back as a newcomer."""
        alpha, beta, gamma = self.start_first()
        self.alpha.set_cable("down")
        self.wait_steps([beta, gamma], 2, 40)
        alpha.wait_output(r"looks for the job")
        self.alpha.set_cable("up")
        self.wait_steps([alpha, beta, gamma], 3, 40)
        self.assert_each_sample_once()
        self.end([alpha, beta, gamma])

    def test_a_newcomer_becomes_the_coordinator(self):
        """It has no token of the job and waits for a third node; the one that is left finds it late, and stays."""
        alpha = self.join(self.alpha)
        alpha.wait_output("not authenticated")
        gamma = self.join(self.gamma)
        self.wait_steps([alpha, gamma], 2)
        alpha.signal(signal.SIGKILL)
        alpha.wait()
        gamma.wait_output("looks for the job for up to 18 s")
        late = time.monotonic() + 13
        gamma.signal(signal.SIGSTOP)
        beta = self.join(self.beta)
        beta.wait_output("not authenticated.*may join", 30)
        wait_for(lambda: time.monotonic() > late, 20, "most of the time in which gamma looks for the job to pass")
        gamma.signal(signal.SIGCONT)
        self.wait_steps([beta, gamma], 2, 40)
        self.assert_each_sample_once()
        self.end([beta, gamma])

    def test_etcd_restarts(self):
        alpha, beta, gamma = self.start_first()
        self.etcd.signal(signal.SIGKILL)
        self.etcd.wait()
        steps = len(self.history())
        self.start_etcd()
        wait_for(lambda: len(self.history()) > steps + 20, 20, self.consoles)
        self.assertEqual({step[0] for step in self.history()}, {self.attempts[-1]}, "the job was disturbed")
        beta.signal(signal.SIGTERM)
        self.assert_ends(beta.wait(), 143)
        self.wait_steps([alpha, gamma], 2)
        alpha.signal(signal.SIGKILL)
        alpha.wait()
        beta = self.join(self.beta)
        self.wait_steps([beta, gamma], 2, 40)
        self.assert_each_sample_once()
        self.end([beta, gamma])


if __name__ == "__main__":
    main()
