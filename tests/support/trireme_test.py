"""Black-box tests of the `trireme` program: start it, watch it from outside, leave nothing behind.

    class Exit(Case):
        def test_code(self):
            self.assert_ends(self.launch("-n", 2, "sh", "-c", "exit 7"), 7)

By hand: PYTHONPATH=tests/support python3 tests/launch/exit_test.py Exit.test_code   (TRIREME names another binary)

Every launcher runs in a temporary folder of its test, with an environment that holds nothing but the few variables in
INHERITED and a mark. All processes that inherit the mark must be gone two seconds after the test's own end.
"""

import itertools
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRIREME = os.environ.get("TRIREME", str(ROOT / "build/bin/trireme"))
MARK = "TRIREME_TEST_MARK"
SANITIZED = bool(os.environ.get("TRIREME_SANITIZE"))  # such a program is several times as large and as slow
LOADED = bool(os.environ.get("TRIREME_TEST_LOADED"))  # tests/soak/under_load.sh keeps the processors busy
SLOWER = 5 if SANITIZED else 3 if LOADED else 1  # a factor for bounds of a few seconds
INHERITED = ("PATH", "LANG", "TERM", "CUDA_VISIBLE_DEVICES", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")
FOREVER = "while :; do sleep 0.1; done"  # a worker's idle loop: traps run between the short sleeps

_marks = itertools.count(1)


def wait_for(condition, timeout, what):
    """The first true value of condition(); AssertionError when there is none in time."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {timeout} s still waiting for {what() if callable(what) else what}")
        time.sleep(0.01)


def read(path):
    """The text of a file, or "" while it does not exist."""
    try:
        return Path(path).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def environment_of(path):
    """A dictionary from a file written by `env -0`."""
    return dict(entry.split("=", 1) for entry in read(path).split("\0") if "=" in entry)


def proc_file(pid, name):
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:  # gone, or not ours
        return b""


def command_line(pid):
    return proc_file(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def alive(pid):
    """Whether the process exists and is more than a zombie."""
    stat = proc_file(pid, "stat")
    return bool(stat) and stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def orphans(mark):
    """{pid: command line} of all processes whose environment holds the mark."""
    needle = f"{MARK}={mark}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return {pid: command_line(pid) for pid in pids if needle in proc_file(pid, "environ").split(b"\0") and alive(pid)}


def free_port(host="127.0.0.1"):
    """A port that was free a moment ago: for tests that need a number before anything can reserve one."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Result:
    """How a program ended."""

    def __init__(self, job):
        self.command, self.code, self.seconds, self.memory_kb = job.command, job.code, job.seconds, job.memory_kb
        self.out, self.err = read(job.out_path), read(job.err_path)
        self.text = self.out + self.err

    def __str__(self):
        return (
            f"\n$ {' '.join(self.command)}\nexit {self.code} after {self.seconds:.2f} s\n"
            f"--- stdout\n{_clip(self.out)}\n--- stderr\n{_clip(self.err)}\n---"
        )


def _clip(text, limit=8000):
    return (
        text
        if len(text) <= limit
        else f"{text[:limit // 2]}\n[... {len(text) - limit} characters ...]\n{text[-limit // 2:]}"
    )


class Job:
    """A running program, its output in two files."""

    def __init__(self, command, env, cwd, output, discard_stdout=False):
        self.command = [str(word) for word in command]
        self.out_path, self.err_path = Path(f"{output}.out"), Path(f"{output}.err")
        self.code = self.seconds = self.memory_kb = None
        with open(os.devnull if discard_stdout else self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self._started = time.monotonic()
            self._process = subprocess.Popen(
                self.command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        self.pid = self._process.pid

    def output(self):
        return read(self.out_path) + read(self.err_path)

    def signal(self, number):
        os.kill(self.pid, number)

    def wait_output(self, pattern, timeout=10):
        """Waits until the console matches; returns the match."""
        return wait_for(
            lambda: re.search(pattern, self.output(), re.M),
            timeout,
            lambda: f"/{pattern}/ in the output of {' '.join(self.command)}:\n{self.output()}",
        )

    def wait(self, timeout=20):
        """The Result; a program that is still running then is killed and an AssertionError raised."""
        if self.code is None:
            self._reap(timeout)
        return Result(self)

    def _reap(self, timeout):
        descriptor = os.pidfd_open(self.pid)
        try:
            if not select.select([descriptor], [], [], timeout)[0]:
                self.kill()
                raise AssertionError(f"still running after {timeout} s:{Result(self)}")
        finally:
            os.close(descriptor)
        self._collect()

    def _collect(self):
        _, status, usage = os.wait4(self.pid, 0)
        self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self._started
        self.memory_kb = usage.ru_maxrss

    def kill(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self._collect()


class Case(unittest.TestCase):
    """A test with a folder of its own, a mark on all its processes, and a check that none is left."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="trireme-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.mark = f"{os.getpid()}.{next(_marks)}"
        self.addCleanup(self._nothing_left)
        self.log = self.folder / "log"
        self._jobs = []

    def environment(self, extra=None):
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env.update({"HOME": str(self.folder), MARK: self.mark})
        env.update(extra or {})
        return {name: str(value) for name, value in env.items()}

    def mpi_environment(self):
        """For mpirun as root. One mpirun removes the folder of sessions that they share while the next one makes it."""
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
                "OMPI_MCA_orte_tmpdir_base": str(self.folder)}

    def start_command(self, command, env=None, cwd=None, **options):
        job = Job(
            command, self.environment(env), cwd or self.folder, self.folder / f"console.{len(self._jobs)}", **options
        )
        self._jobs.append(job)
        return job

    def start(self, *args, **options):
        """`trireme launch ARGS` in the test's folder, running."""
        return self.start_command([TRIREME, "launch", *args], **options)

    def launch(self, *args, timeout=20, **options):
        """`trireme launch ARGS` in the test's folder, to its end."""
        return self.start(*args, **options).wait(timeout)

    def script(self, name, text, mode=0o755):
        """An executable file in the test's folder; a shell script unless the text brings its own #! line."""
        path = self.folder / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(mode)
        return path

    def wait_file(self, name, timeout=10):
        """Waits until the file in the test's folder has content; returns it. On failure the consoles are shown."""
        return wait_for(
            lambda: read(self.folder / name), timeout, lambda: f"the file {name}; consoles:\n{self.consoles()}"
        )

    def worker_pids(self, count, timeout=10):
        """The pids that workers wrote by `echo $$ >pid.$RANK`, by rank."""
        return [int(self.wait_file(f"pid.{rank}", timeout)) for rank in range(count)]

    def worker_environments(self, count):
        """The environments that workers wrote by `env -0 >env.$RANK`, by rank."""
        return [environment_of(self.folder / f"env.{rank}") for rank in range(count)]

    def result_json(self, log=None):
        text = read((log or self.log) / "result.json")
        self.assertTrue(text, f"no result.json in {log or self.log}; consoles:\n{self.consoles()}")
        return json.loads(text)

    def consoles(self):
        return "".join(f"$ {' '.join(job.command)}\n{_clip(job.output())}\n" for job in self._jobs)

    def assert_ends(self, result, code):
        self.assertEqual(result.code, code, result)

    def assert_says(self, result, *patterns):
        for pattern in patterns:
            self.assertTrue(re.search(pattern, result.text, re.M | re.I), f"/{pattern}/ is not in the output:{result}")

    def assert_silent_on(self, result, pattern):
        self.assertFalse(re.search(pattern, result.text, re.M | re.I), f"/{pattern}/ is in the output:{result}")

    def assert_within(self, seconds, result):
        self.assertLess(result.seconds, seconds, result)

    def assert_usage(self, result, *patterns):
        """The caller's fault: exit 2, quickly, with words."""
        self.assert_ends(result, 2)
        self.assert_says(result, *patterns)

    def assert_gone(self, seconds=2.0):
        """No process of this test is left after the given time."""
        try:
            wait_for(lambda: not orphans(self.mark), seconds, "")
        except AssertionError:
            self.fail(f"left behind after {seconds} s: {orphans(self.mark)}\n{self.consoles()}")

    def _nothing_left(self):
        running = [job for job in self._jobs if job.code is None]
        for job in running:  # the test failed or ended early: its own launchers are no finding
            job.kill()
        try:
            self.assert_gone()
        finally:
            self._kill_left()

    def _kill_left(self):
        for pid in orphans(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def main():
    """Runs the file's tests; says first when there is no program to test."""
    if not os.access(TRIREME, os.X_OK):
        sys.exit(f"no program to test at {TRIREME}: run `make build`, or set TRIREME")
    unittest.main(verbosity=2)
