"""What a job shows to others: where it listens, and its token nowhere. On one machine and on two, while it trains.

The ranks are `checkpoint_ranks wait`, so all that a training opens is there: store, endpoints, Gloo, beacons.
"""

import os
import re
import signal
import socket
import struct
from pathlib import Path

from machines import MachineCase, main
from trireme_test import MARK, SANITIZED, TRIREME, command_line, proc_file, read

PROGRAM = Path(TRIREME).parent / "checkpoint_ranks"
START = 300 if SANITIZED else 60  # seconds; libtorch on a busy machine
LOOPBACK = {"127.0.0.1", "::1"}
EVERYWHERE = {"0.0.0.0", "::"}


def address_of(text):
    """ "0100007F:1F90" of /proc/net/tcp, as (address, port)."""
    host, port = text.split(":")
    words = [int(host[i:i + 8], 16) for i in range(0, len(host), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)), int(port, 16)


def listening(machine):
    """{(address, port)} of the TCP sockets on which programs of a machine listen."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in read(f"/proc/{machine.pid}/net/{name}").splitlines()[1:]]
    return {address_of(words[1]) for words in lines if words[3] == "0A"}


class ExposureCase(MachineCase):
    def train(self, machines, *options, backend="auto", **variables):
        """A job whose ranks take steps; launchers by machine."""
        meeting = ("--ips", ",".join(machine.address for machine in machines)) if len(machines) > 1 else ()
        worker = self.script("worker", f"""
            cat /proc/self/fd/$TRIREME_TOKEN_FD >{self.folder}/token.$RANK
            exec {PROGRAM} wait {self.folder}/out""")
        env = {"OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": -1, "TRIREME_BACKEND": backend, **variables}
        jobs = [self.start_on(machine, *meeting, *options, "-n", 2, "--tee", "all", worker, env=env)
                for machine in machines]
        for number, machine in enumerate(machines):
            for rank in range(2):
                self.wait_file_on(machine, f"pid.{2 * number + rank}", START)
        return jobs

    def end(self, jobs):
        for job in jobs:
            job.signal(signal.SIGTERM)
        return [job.wait(START) for job in jobs]


class Listening(ExposureCase):
    def hosts(self, machine, but=()):
        """The addresses, of which there must be one; not those of the ports `but`."""
        found = {host for host, port in listening(machine) if port not in but}
        self.assertTrue(found, "nobody listens")
        return found

    def test_one_machine(self):
        for backend in ("shm", "gloo"):
            with self.subTest(backend=backend):
                jobs = self.train([self.alpha], backend=backend)
                self.assertEqual(self.hosts(self.alpha) - LOOPBACK, set())
                self.end(jobs)
                for rank in range(2):
                    (self.folder_of(self.alpha) / f"pid.{rank}").unlink()

    def test_two_machines(self):
        """On the one address by which the machines reach each other, and not on all of them."""
        jobs = self.train(self.machines)
        for machine in self.machines:
            self.assertEqual(self.hosts(machine) - LOOPBACK - {machine.address}, set(), machine.name)
        self.assertIn(self.alpha.address, self.hosts(self.alpha), "the store")
        self.end(jobs)

    def test_everywhere_only_when_asked(self):
        jobs = self.train([self.alpha], "--dashboard", "0.0.0.0:8080")
        self.assertIn(("0.0.0.0", 8080), listening(self.alpha))
        self.assertEqual(self.hosts(self.alpha, but=[8080]) - LOOPBACK, set())
        self.end(jobs)

    def test_a_dashboard(self):
        jobs = self.train([self.alpha], "--dashboard", "8080")
        self.assertIn(("127.0.0.1", 8080), listening(self.alpha))
        self.assertEqual(self.hosts(self.alpha) & EVERYWHERE, set())
        self.end(jobs)


class Token(ExposureCase):
    """The ranks read it from their descriptor; it is nowhere else."""

    def check(self, machines, **variables):
        debug = {"GLOG_v": 3, "NCCL_DEBUG": "INFO"}
        jobs = self.train(machines, "--log_level", "debug", **debug, **variables)
        token = (self.folder / "token.0").read_bytes()
        self.assertEqual(len(token), 32, "the test has not found the token")
        shown = self.of_processes()
        results = self.end(jobs)
        shown.update({f"console {number}": result.text for number, result in enumerate(results)})
        for machine in machines:
            logs = [path for path in self.log_of(machine).parent.rglob("*") if path.is_file()]
            self.assertIn("result.json", {path.name for path in logs})
            shown.update({str(path): path.read_bytes().decode("latin1") for path in logs})
        self.assertIn("all_reduce", "".join(shown.values()), "GLOG_v=3 has shown nothing")
        for place, text in shown.items():
            self.assertNotIn(token.hex(), text.lower(), place)
            self.assertNotIn(token.decode("latin1"), text, place)

    def of_processes(self):
        """{what: text}: command lines and environments of all processes of this test."""
        shown = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            environment = proc_file(pid, "environ")
            if f"{MARK}={self.mark}".encode() in environment.split(b"\0"):
                shown[f"environment of {command_line(pid)}"] = environment.decode("latin1")
                shown[f"command line of {pid}"] = command_line(pid)
        self.assertTrue(any(re.search("checkpoint_ranks wait", text) for text in shown.values()), shown.keys())
        return shown

    def test_one_machine(self):
        self.check([self.alpha])

    def test_two_machines_with_a_file(self):
        path = self.folder / "secret"
        path.write_text("5a" * 32)
        path.chmod(0o600)
        self.check(self.machines, TRIREME_TOKEN_FILE=path)

    def test_two_machines_without_a_file(self):
        self.check(self.machines)


if __name__ == "__main__":
    main()
