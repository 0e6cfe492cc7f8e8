"""Ctrl-C and SIGTERM to the launcher: workers first, with the grace to save; then the end, in time."""

import os
import pty
import signal
import time

from trireme_test import FOREVER, TRIREME, Case, alive, main, proc_file, read, wait_for

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


class PassedOn(Case):
    """Signals that mean something to the program: the launcher hands them on and goes on."""

    NOTES = f"""
        for name in USR1 USR2 QUIT; do trap "echo $name >>got.$RANK" $name; done
        echo $$ >pid.$RANK
        while [ ! -e end ]; do sleep 0.05; done"""

    def test_the_workers_get_them_and_the_job_goes_on(self):
        job = self.start("-n", 2, self.script("worker", self.NOTES))
        self.worker_pids(2)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
            job.signal(number)
            name = number.name.removeprefix("SIG")
            for rank in (0, 1):
                wait_for(lambda: name in read(self.folder / f"got.{rank}"), 5, lambda: f"{name}:\n{self.consoles()}")
        (self.folder / "end").touch()
        result = job.wait()
        self.assert_ends(result, 0)
        self.assert_says(result, r"SIGUSR1: passed on to 2 workers")

    def test_a_program_behind_a_shell_has_the_grace_to_save(self):
        """The shell dies at once; the program that it started saves for longer than leftovers usually live."""
        self.script("trainer", f"trap 'sleep 1.5; echo saved >saved; exit 0' TERM; echo $$ >pid.0; {FOREVER}")
        job = self.start("-n", 1, "sh", "-c", "./trainer; true")
        self.worker_pids(1)
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assert_ends(result, 143)
        self.assertEqual(read(self.folder / "saved"), "saved\n", result)

    def test_the_grace_bounds_a_program_behind_a_shell(self):
        self.script("trainer", f"trap '' TERM; echo $$ >pid.0; {FOREVER}")
        job = self.start("-n", 1, "--grace", 1.5, "sh", "-c", "./trainer; true")
        pid = self.worker_pids(1)[0]
        job.signal(signal.SIGTERM)
        result = job.wait(5)
        self.assert_ends(result, 143)
        self.assertFalse(alive(pid), result)


class CtrlZ(Case):
    def start_in_a_group(self, *args):
        """As a shell with job control starts it: in this session, in a process group of its own."""
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.chdir(self.folder)
            os.execve(TRIREME, [TRIREME, "launch", *map(str, args)], self.environment())
        return pid

    def states(self, pids):
        return {proc_file(pid, "stat").rpartition(b")")[2].split()[0].decode() for pid in pids}

    def test_stops_and_continues_the_workers(self):
        # The worker starts no process: a shell whose child is stopped between vfork() and exec() cannot stop itself.
        worker = self.script("worker", "echo $$ >pid.$RANK; read _ <end.$RANK; exit 0")
        for rank in range(2):
            os.mkfifo(self.folder / f"end.{rank}")
        launcher = self.start_in_a_group("-n", 2, "--quiet", worker)
        workers = self.worker_pids(2)
        for _ in range(2):
            os.kill(launcher, signal.SIGTSTP)
            _, status = os.waitpid(launcher, os.WUNTRACED)
            self.assertTrue(os.WIFSTOPPED(status), f"the launcher ended: {status}")
            wait_for(lambda: self.states(workers) == {"T"}, 5, lambda: f"stopped workers: {self.states(workers)}")
            os.kill(launcher, signal.SIGCONT)
            wait_for(lambda: "T" not in self.states(workers), 5, lambda: f"running workers: {self.states(workers)}")
        for rank in range(2):
            (self.folder / f"end.{rank}").write_text("\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1]), 0)


class LastMoment(Case):
    def test_a_signal_after_the_end_does_not_change_the_exit_code(self):
        for _ in range(30):
            job = self.start("-n", 1, "--quiet", "true")
            wait_for(lambda: (self.log / "result.json").exists() or None, 10, "result.json")
            job.signal(signal.SIGTERM)
            self.assertIn(job.wait().code, (0, 143))
            (self.log / "result.json").unlink()


if __name__ == "__main__":
    main()
