"""`trireme doctor`: one machine, and the ways between machines."""

import os

from machines import MachineCase, main
from trireme_test import TRIREME, Case


class OneMachine(Case):
    def test_what_it_looks_at(self):
        result = self.start_command([TRIREME, "doctor"]).wait()
        self.assert_ends(result, 0)
        self.assert_says(
            result,
            os.uname().nodename,
            rf"{len(os.sched_getaffinity(0))} usable cores",
            r"GPU",
            r"127\.0\.0\.1",
            r"/dev/shm",
            r"open files",
            r"token",
        )

    def test_bad_token_file_is_a_problem(self):
        result = self.start_command([TRIREME, "doctor"], env={"TRIREME_TOKEN_FILE": "nowhere"}).wait()
        self.assert_says(result, r"problem.*nowhere")

    def test_one_address_is_not_enough(self):
        self.assert_usage(self.start_command([TRIREME, "doctor", "--ips", "127.0.0.1"]).wait(), r"--ips a,b")

    def test_takes_no_program(self):
        self.assert_usage(self.start_command([TRIREME, "doctor", "--ips", "127.0.0.1,127.0.0.2", "true"]).wait(), r"")


class Between(MachineCase):
    names = ("alpha", "beta", "gamma")

    def doctor_everywhere(self):
        jobs = [
            self.start_command(machine.command(self.folder_of(machine), TRIREME, "doctor", "--ips", self.ips))
            for machine in self.machines
        ]
        return [job.wait(30) for job in jobs]

    def test_measures_each_pair(self):
        results = self.doctor_everywhere()
        for result in results:
            self.assert_ends(result, 0)
        text = "".join(result.text for result in results)
        self.assert_says(results[0], r"round trip ms +MB/s")
        for first in self.machines:
            for second in self.machines:
                if first is not second:
                    self.assertRegex(text, rf"(?m)^\d+ {first.address}\b.* \d+ {second.address}\b.* +\d+\.\d+ +\d+ ")

    def test_a_broken_way_is_named(self):
        self.gamma.ip("route", "add", "blackhole", self.beta.address)
        results = self.doctor_everywhere()
        self.assertNotIn(0, [result.code for result in results], results[0])
        self.assert_says(results[0], r"node 1\b.*node 2\b|node 2\b.*node 1\b|beta.*gamma|gamma.*beta")


if __name__ == "__main__":
    main()
