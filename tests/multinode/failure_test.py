"""A failure on one machine is known on the others within seconds, with the culprit's name, host and code."""

import os
import signal
import time

from machines import MachineCase, main
from trireme_test import FOREVER, alive

READY = "echo $$ >pid.$LOCAL_RANK"


class Failure(MachineCase):
    def start_job(self, body, *options):
        jobs = self.start_everywhere("--ips", self.ips, "-n", 2, *options, self.script("worker", f"{READY}; {body}"))
        self.workers = {
            machine.name: [int(self.wait_file_on(machine, f"pid.{rank}")) for rank in (0, 1)]
            for machine in self.machines
        }
        return jobs

    def end_after(self, jobs, action):
        """The results, their seconds counted from the action."""
        before = time.monotonic()
        action()
        results = [job.wait(30) for job in jobs]
        elapsed = time.monotonic() - before
        for result in results:
            result.seconds = elapsed
        return results

    def test_rank_exits_on_the_second_machine(self):
        jobs = self.start_job(
            f"if [ $RANK = 3 ]; then while [ ! -e go ]; do sleep 0.01; done; echo last words; exit 7; fi; {FOREVER}"
        )
        results = self.end_after(jobs, (self.folder_of(self.beta) / "go").touch)
        for machine, result in zip(self.machines, results):
            self.assert_ends(result, 7)
            self.assert_within(3, result)
            self.assert_says(result, r"rank 3\b[^\n]*beta[^\n]*exit 7|rank 3\b[^\n]*exit 7[^\n]*beta", r"last words")
            found = self.result_json(self.log_of(machine))
            self.assertEqual(
                (found["exit_code"], found["culprit"]["rank"], found["culprit"]["host"]), (7, 3, "beta"), found
            )

    def test_rank_killed_on_the_first_machine(self):
        jobs = self.start_job(FOREVER)
        results = self.end_after(jobs, lambda: os.kill(self.workers["alpha"][1], signal.SIGKILL))
        for result in results:
            self.assert_ends(result, 137)
            self.assert_within(3, result)
            self.assert_says(result, r"rank 1\b[^\n]*alpha", r"killed by signal 9")

    def test_peers_that_ignore_sigterm(self):
        jobs = self.start_job(f"trap '' TERM; {FOREVER}", "--grace", 1)
        results = self.end_after(jobs, lambda: os.kill(self.workers["beta"][0], signal.SIGKILL))
        for result in results:
            self.assert_ends(result, 137)
            self.assert_within(3 + 1, result)
            self.assert_says(result, r"rank 2\b")

    def test_launcher_killed_on_the_second_machine(self):
        first, second = self.start_job(FOREVER)
        result = self.end_after([first], lambda: second.signal(signal.SIGKILL))[0]
        second.wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(3, result)
        self.assert_says(result, rf"node 1\b[^\n]*(beta|{self.beta.address})")
        self.assert_gone(2)

    def test_launcher_killed_on_the_first_machine(self):
        first, second = self.start_job(FOREVER)
        result = self.end_after([second], lambda: first.signal(signal.SIGKILL))[0]
        first.wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(3, result)
        self.assert_says(result, rf"node 0\b[^\n]*(alpha|{self.alpha.address})")
        self.assert_gone(2)

    def test_a_stopped_coordinator_holds_nobody_up(self):
        """A stopped process keeps its connections open and answers nothing."""
        first, second = self.start_job(
            f"if [ $RANK = 3 ]; then while [ ! -e go ]; do sleep 0.01; done; exit 5; fi; {FOREVER}", "--grace", 1
        )
        first.signal(signal.SIGSTOP)
        self.addCleanup(lambda: first.code is None and first.signal(signal.SIGCONT))
        result = self.end_after([second], (self.folder_of(self.beta) / "go").touch)[0]
        self.assert_ends(result, 5)
        self.assert_within(1 + 5 + 2, result)
        first.signal(signal.SIGCONT)
        self.assertNotEqual(first.wait().code, 0)

    def test_ctrl_c_while_the_others_are_stopping_means_no_restart(self):
        """The second machine is done with the failed try and waits for the first one, whose rank 0 takes its time."""
        body = (
            "if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep 0.01; done; exit 7; fi; "
            f"[ $RANK = 0 ] && trap 'echo stopping >stopping' TERM; {FOREVER}"
        )
        jobs = self.start_job(body, "--max_restart", 2, "--grace", 6)
        (self.folder_of(self.alpha) / "go").touch()
        self.wait_file_on(self.alpha, "stopping")
        jobs[1].wait_output("restarting on every node")
        results = self.end_after(jobs, lambda: jobs[1].signal(signal.SIGINT))
        self.assert_ends(results[1], 130)
        self.assert_ends(results[0], 130)
        self.assert_says(results[0], "SIGINT on beta")

    def test_ctrl_c_on_the_second_machine(self):
        first, second = self.start_job(FOREVER)
        results = self.end_after([first, second], lambda: second.signal(signal.SIGINT))
        self.assert_ends(results[1], 130)
        self.assertNotEqual(results[0].code, 0, results[0])
        self.assert_within(3, results[0])
        self.assert_says(results[0], r"beta|node 1\b")

    def test_ctrl_c_on_the_first_machine(self):
        first, second = self.start_job(FOREVER)
        results = self.end_after([first, second], lambda: first.signal(signal.SIGINT))
        self.assert_ends(results[0], 130)
        self.assertNotEqual(results[1].code, 0, results[1])
        self.assert_within(3, results[1])

    def test_cable_pulled(self):
        jobs = self.start_job(FOREVER, "--link_timeout", 2)
        results = self.end_after(jobs, lambda: self.beta.set_cable("down"))
        for result, other in zip(results, (self.beta, self.alpha)):
            self.assertNotEqual(result.code, 0, result)
            self.assert_within(7, result)
            self.assert_says(result, rf"{other.address}|{other.name}")
        self.assert_gone(2)

    def test_an_outage_within_the_link_timeout_is_survived(self):
        """Without the option a machine is lost after 8 s."""
        jobs = self.start_job("while [ ! -e go ]; do sleep 0.01; done", "--link_timeout", 25)
        self.beta.set_cable("down")
        time.sleep(9.5)  # the length of the outage is what is tried out
        self.beta.set_cable("up")
        for machine in self.machines:
            (self.folder_of(machine) / "go").touch()
        for job in jobs:
            self.assert_ends(job.wait(30), 0)

    def test_one_machine_finishes_early(self):
        """A node whose workers are done waits for the others: that is no failure."""
        jobs = self.start_job("if [ $RANK -ge 2 ]; then exit 0; fi; while [ ! -e go ]; do sleep 0.01; done")
        beta_workers = self.workers["beta"]
        while any(alive(pid) for pid in beta_workers):
            time.sleep(0.01)
        results = self.end_after(jobs, (self.folder_of(self.alpha) / "go").touch)
        for result in results:
            self.assert_ends(result, 0)

    def test_program_missing_on_one_machine(self):
        worker = self.folder_of(self.alpha) / "only-here"
        worker.write_text("#!/bin/sh\nsleep 60\n")
        worker.chmod(0o755)
        jobs = [
            self.start_on(machine, "--ips", self.ips, "--join_timeout", 3, "./only-here") for machine in self.machines
        ]
        results = [job.wait() for job in jobs]
        self.assert_ends(results[1], 127)
        self.assertNotEqual(results[0].code, 0, results[0])
        self.assert_within(8, results[0])


if __name__ == "__main__":
    main()
