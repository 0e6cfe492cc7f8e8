"""`trireme doctor`: one machine, and the ways between machines."""

import os
import shutil
import sys

from machines import MachineCase, main
from trireme_test import TRIREME

LISTEN = """import socket
server = socket.create_server(("127.0.0.1", 6069))
print("listens", flush=True)
server.accept()"""


class OneMachine(MachineCase):
    """Alone on its network, so that its ports are free."""

    names = ("alpha",)

    def doctor(self, program=TRIREME, **variables):
        return self.start_command(self.alpha.command(self.folder, program, "doctor"), env=variables).wait()

    def test_what_it_looks_at(self):
        result = self.doctor()
        self.assert_ends(result, 0)
        self.assert_says(
            result,
            r"on alpha$",
            rf"{len(os.sched_getaffinity(0))} usable cores",
            r"GPU",
            r"127\.0\.0\.1",
            r"/dev/shm",
            r"open files",
            r"locked memory",
            r"token",
            r"^ok +port 6069, where machines meet, is free$",
            r"^ok +towards other machines: no default route;.*--host",
        )

    def test_the_interface_of_the_default_route(self):
        self.alpha.ip("route", "add", "default", "via", "10.77.0.9")
        self.assert_says(self.doctor(), rf"^ok +towards other machines: {self.alpha.address} on eth0;")

    def test_a_port_that_is_taken(self):
        other = self.start_command(self.alpha.command(self.folder, sys.executable, "-c", LISTEN))
        other.wait_output("listens")
        result = self.doctor()
        other.kill()
        self.assert_ends(result, 1)
        self.assert_says(result, r"^problem machines cannot meet here on their usual port: .*6069.*--start_port$")

    def test_libraries_that_are_absent(self):
        """A copy of the launcher alone."""
        shutil.copy(TRIREME, self.folder / "trireme")
        (self.folder / "none").mkdir()
        result = self.doctor(self.folder / "trireme", PATH="/usr/bin:/bin", TRIREME_PLUGIN_DIR=self.folder / "none")
        self.assert_ends(result, 0)
        self.assert_says(
            result,
            r"^ok +no libtorch: trireme-train is neither beside this program nor in PATH",
            r"^ok +no inference by OpenVINO: there is no libtrireme_openvino\.so",
            r"^ok +no backend nccl: there is no libtrireme_cuda\.so",
        )

    def test_a_library_that_is_lost(self):
        """A program in trireme-train's place; then it needs a library that is nowhere."""
        train = self.folder / "trireme-train"
        for path in (self.folder / "trireme", train):
            shutil.copy(TRIREME, path)
        self.assert_says(self.doctor(self.folder / "trireme"), rf"^ok +libtorch: inside {train}$")
        program = train.read_bytes()
        self.assertIn(b"libcrypto.so", program)
        train.write_bytes(program.replace(b"libcrypto.so", b"libabsent.so"))
        result = self.doctor(self.folder / "trireme")
        self.assert_ends(result, 1)
        self.assert_says(result, rf"^problem {train} cannot start: the loader does not find libabsent\.so[.\d]*;")

    def test_bad_token_file_is_a_problem(self):
        result = self.doctor(TRIREME_TOKEN_FILE="nowhere")
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

    def test_leaves_the_result_of_the_last_job(self):
        results = [self.folder_of(machine) / "log/result.json" for machine in self.machines]
        for result in results:
            result.parent.mkdir(parents=True)
            result.write_text("{}")
        for result in self.doctor_everywhere():
            self.assert_ends(result, 0)
        self.assertEqual([result.exists() for result in results], [True] * len(results))

    def test_a_broken_way_is_named(self):
        self.gamma.ip("route", "add", "blackhole", self.beta.address)
        results = self.doctor_everywhere()
        self.assertNotIn(0, [result.code for result in results], results[0])
        self.assert_says(results[0], r"node 1\b.*node 2\b|node 2\b.*node 1\b|beta.*gamma|gamma.*beta")


if __name__ == "__main__":
    main()
