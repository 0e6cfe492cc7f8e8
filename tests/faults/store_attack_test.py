"""Strangers at the job's store: noise, wrong lengths, a wrong token, slowness. The job does not notice."""

import contextlib
import os
import random
import socket
import struct

from trireme_test import Case, environment_of, main, wait_for

HEADER = struct.Struct("<3sBB3xI")  # "TRM", version, type, payload length: trireme/store/wire.h
VERSION = 2
CHALLENGE, HELLO, SET = 1, 2, 16
RANDOM_MESSAGES = 10_000


def message(kind, *parts, number=0):
    payload = struct.pack("<q", number) + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return HEADER.pack(b"TRM", VERSION, kind, len(payload)) + payload


def random_message(dice):
    """Noise, or what looks more and more like a message: with a header, with its length, of a greeting."""
    noise = dice.randbytes(dice.randrange(1, 300))
    kind = dice.randrange(4)
    if kind == 0:
        return noise
    if kind == 1:
        return HEADER.pack(b"TRM", VERSION, dice.randrange(256), dice.getrandbits(dice.randrange(1, 33))) + noise
    if kind == 2:
        return HEADER.pack(b"TRM", VERSION, dice.randrange(256), len(noise)) + noise
    greeting = bytearray(message(HELLO, b"n" * 32, noise[:40], b"p" * 32))
    for _ in range(3):
        greeting[dice.randrange(len(greeting))] = dice.randrange(256)
    return bytes(greeting)


class StoreAttack(Case):
    def setUp(self):
        super().setUp()
        self.job = self.start(
            "-n",
            2,
            self.script(
                "worker", "env -0 >part.$RANK; mv part.$RANK env.$RANK; while [ ! -e go ]; do sleep 0.02; done"
            ),
        )
        self.wait_file("env.0"), self.wait_file("env.1")
        host, _, port = environment_of(self.folder / "env.0")["TRIREME_STORE"].rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def connect(self):
        return contextlib.closing(socket.create_connection(self.address, timeout=10))

    def read_to_the_end(self, client):
        """What the server says before it closes; AssertionError when it does not."""
        received = b""
        try:
            while chunk := client.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        except TimeoutError:
            self.fail(f"the server keeps a bad client; it said {received[:100]}")
        return received

    def send_and_be_closed(self, data):
        with self.connect() as client:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(data)
            return self.read_to_the_end(client)

    def assert_job_ends_well(self):
        (self.folder / "go").touch()
        result = self.job.wait()
        self.assert_ends(result, 0)
        return result

    def test_random_bytes(self):
        for size in (1 << 10, 1 << 16, 1 << 20):
            self.send_and_be_closed(b"\x00" + os.urandom(size))
        self.send_and_be_closed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assert_job_ends_well()

    def test_wrong_lengths(self):
        for length in (0xFFFFFFFF, 0x7FFFFFFF, 0, 7):
            self.send_and_be_closed(HEADER.pack(b"TRM", VERSION, HELLO, length) + b"x" * 64)
        self.send_and_be_closed(message(HELLO, b"n" * 31, b"name", b"p" * 32))
        self.send_and_be_closed(HEADER.pack(b"TRM", 9, HELLO, 8) + bytes(8))
        self.assert_job_ends_well()

    def test_random_messages(self):
        """To a live launcher; the log does not grow with them."""
        dice = random.Random(11)
        for _ in range(RANDOM_MESSAGES):
            with self.connect() as client:
                with contextlib.suppress(OSError):  # closed already
                    client.sendall(random_message(dice))
                    client.shutdown(socket.SHUT_WR)
                self.read_to_the_end(client)
        result = self.assert_job_ends_well()
        self.assertLess(result.err.count("\n"), RANDOM_MESSAGES / 50, result)

    def test_wrong_token(self):
        answer = self.send_and_be_closed(message(HELLO, b"n" * 32, b"node 1", b"p" * 32))
        self.assertIn(b"token", answer, "a client with a wrong token is not told why")
        result = self.assert_job_ends_well()
        self.assert_says(result, r"token")

    def test_request_before_the_proof(self):
        self.send_and_be_closed(message(SET, b"key", b"value"))
        self.assert_job_ends_well()

    def test_half_closed_and_vanishing_clients(self):
        for _ in range(20):
            with self.connect() as client:
                client.sendall(b"TRM")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
        self.assert_job_ends_well()

    def test_slow_client(self):
        """One byte now and then must not keep a place for ever, nor hold up the job."""
        with self.connect() as client:
            hello = message(HELLO, b"n" * 32, b"slow", b"p" * 32)
            sent = iter(hello)
            wait_for(lambda: self.drip(client, sent), 15, "the server to close the slow client")
        self.assert_job_ends_well()

    def drip(self, client, bytes_left):
        """Sends one byte, waits a little for an answer; True once the server has closed."""
        client.settimeout(0.5)
        try:
            client.sendall(bytes([next(bytes_left)]))
            while client.recv(4096):
                pass
            return True
        except TimeoutError:
            return False
        except (ConnectionResetError, BrokenPipeError):
            return True

    def test_many_idle_clients(self):
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(self.connect())
            self.assert_job_ends_well()

    def test_loopback_only(self):
        self.assertIn(self.address[0], ("127.0.0.1", "::1"), "the store of a one-machine job is open to the network")
        self.assert_job_ends_well()


if __name__ == "__main__":
    main()
