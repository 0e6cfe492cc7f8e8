"""Ctrl-C and SIGTERM to the launcher: workers first, with the grace to save; then the end, in time."""

import os
import pty
import signal
import time

from trireme_test import FOREVER, TRIREME, Case, main, read

SAVES = f"""
    trap 'echo INT >got.$RANK; exit 0' INT
    trap 'echo TERM >got.$RANK; exit 0' TERM
    echo $$ >pid.$RANK
    {FOREVER}"""
STUBBORN = f"trap 'echo INT >>got.$RANK' INT; trap 'echo TERM >>got.$RANK' TERM; echo $$ >pid.$RANK; {FOREVER}"


class Signals(Case):
    def interrupt(self, number, body, *options):
        job = self.start("-n", 2, *options, self.script("worker", body))
        self.worker_pids(2)
        return self.signalled(job, number)

    def signalled(self, job, number):
        before = os.times().elapsed
        job.signal(number)
        result = job.wait()
        result.seconds = os.times().elapsed - before
        return result

    def test_ctrl_c(self):
        result = self.interrupt(signal.SIGINT, SAVES)
        self.assert_ends(result, 130)
        self.assert_within(2, result)
        self.assertEqual([read(self.folder / f"got.{rank}") for rank in (0, 1)], ["INT\n"] * 2, result)
        self.assert_says(result, r"interrupt|ctrl-c|SIGINT")
        self.assertEqual(self.result_json()["exit_code"], 130)

    def test_sigterm(self):
        result = self.interrupt(signal.SIGTERM, SAVES)
        self.assert_ends(result, 143)
        self.assert_within(2, result)
        self.assertEqual([read(self.folder / f"got.{rank}") for rank in (0, 1)], ["TERM\n"] * 2, result)

    def test_grace_is_waited_and_no_longer(self):
        result = self.interrupt(signal.SIGINT, STUBBORN, "--grace", 1)
        self.assert_ends(result, 130)
        self.assertGreater(result.seconds, 0.9, result)
        self.assert_within(3, result)

    def test_time_to_save(self):
        result = self.interrupt(
            signal.SIGTERM, f"trap 'sleep 1; echo saved >saved.$RANK; exit 0' TERM; echo $$ >pid.$RANK; {FOREVER}"
        )
        self.assert_ends(result, 143)
        self.assertEqual([read(self.folder / f"saved.{rank}") for rank in (0, 1)], ["saved\n"] * 2, result)

    def test_second_ctrl_c_does_not_wait(self):
        job = self.start("-n", 2, self.script("worker", STUBBORN))
        self.worker_pids(2)
        job.signal(signal.SIGINT)
        self.wait_file("got.0"), self.wait_file("got.1")
        time.sleep(0.15)  # sooner, it would count as part of the first
        result = self.signalled(job, signal.SIGINT)
        self.assert_ends(result, 130)
        self.assert_within(2, result)

    def test_hangup(self):
        """The terminal is closed: nothing stays behind."""
        result = self.interrupt(signal.SIGHUP, STUBBORN, "--grace", 1)
        self.assertIn(result.code, (129, -signal.SIGHUP), result)
        self.assert_gone(2)

    def test_ctrl_c_from_a_terminal(self):
        """The key, not the signal: the terminal sends SIGINT to its foreground group."""
        worker = self.script("worker", SAVES)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(TRIREME, [TRIREME, "launch", "-n", "2", str(worker)], self.environment())
        self.worker_pids(2)
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130)
        self.assertEqual([read(self.folder / f"got.{rank}") for rank in (0, 1)], ["INT\n"] * 2)


if __name__ == "__main__":
    main()
