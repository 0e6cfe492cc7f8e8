"""Ports: taken ones are named, free ones are never raced for."""

import contextlib
import os
import socket

from trireme_test import Case, main, read

PORT_USER = os.environ.get("PORT_USER", "build/tests/launch/port_user")
ROUNDS = 100


@contextlib.contextmanager
def listener(port=0):
    with socket.socket() as held:
        held.bind(("", port))
        held.listen()
        yield held.getsockname()[1]


class Taken(Case):
    def test_start_port(self):
        with listener() as port:
            result = self.launch("-n", 2, "--start_port", port, "true")
        self.assertNotEqual(result.code, 0, result)
        self.assert_says(result, rf"\b{port}\b.*(in use|taken)")

    def test_master_port_held_by_a_stranger(self):
        with listener() as port:
            result = self.launch("-n", 1, "--nnodes", 2, "--master", f"127.0.0.1:{port}", "--join_timeout", 2, "true")
        self.assertNotEqual(result.code, 0, result)
        self.assert_says(result, rf"\b{port}\b")
        self.assert_within(8, result)


class NeverRaced(Case):
    """Rank 0 binds MASTER_PORT and its own endpoint itself, rank 1 connects to both, as foreign scripts do."""

    def test_two_jobs_at_a_time(self):
        for round_number in range(ROUNDS):
            jobs = [self.start("-n", 2, "--log_dir", f"log{number}", PORT_USER) for number in (1, 2)]
            for job in jobs:
                result = job.wait()
                self.assertEqual(result.code, 0, f"round {round_number}:{result}")

    def test_next_job_may_have_the_same_ports(self):
        for _ in range(3):
            self.assert_ends(self.launch("-n", 2, "--start_port", 17300, PORT_USER), 0)


class Inherited(Case):
    def test_worker_can_listen_on_its_descriptor(self):
        worker = self.script(
            "worker.py",
            "#!/usr/bin/env python3\n"
            "import os, socket\n"
            "held = socket.socket(fileno=int(os.environ['TRIREME_LISTEN_FD']))\n"
            "held.listen()\n"
            "host, port = os.environ['PADDLE_CURRENT_ENDPOINT'].rsplit(':', 1)\n"
            "socket.create_connection((host, int(port))).sendall(b'hello')\n"
            "print(held.accept()[0].recv(5))\n",
        )
        result = self.launch("--no-python", worker)
        self.assert_ends(result, 0)
        self.assertIn("b'hello'", read(self.log / "workerlog.0"))


if __name__ == "__main__":
    main()
