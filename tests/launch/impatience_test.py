"""Signals at awkward moments: in the first milliseconds, twice at once, while a failed job is being stopped."""

import os
import signal
import time

from trireme_test import FOREVER, TRIREME, Case, main

FAILS_SLOWLY = f"""
    echo $$ >pid.$RANK
    if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep 0.01; done; exit 7; fi
    trap 'echo stopping >stopping' TERM
    {FOREVER}"""


class Awkward(Case):
    def test_a_signal_in_the_first_milliseconds_is_not_lost(self):
        for turn in range(40):
            job = self.start("-n", 8, "--grace", 20, "sh", "-c", FOREVER)
            job.wait_output(r"PADDLE_TRAINER_ID", 5) if turn % 2 else None
            time.sleep(0.002 * (turn % 20))  # the moment is what is tried out
            job.signal(signal.SIGINT)
            result = job.wait(10)
            self.assertIn(result.code, (130, -signal.SIGINT), result)

    def test_timeout_leaves_the_grace(self):
        """timeout(1) signals the launcher and then its group: that is one wish, not two."""
        saves = self.script("worker", f"trap 'sleep 0.3; echo saved >saved.$RANK; exit 0' TERM; echo $$ >pid.$RANK; {FOREVER}")
        for turn in range(5):
            for rank in (0, 1):
                (self.folder / f"saved.{rank}").unlink(missing_ok=True)
            result = self.start_command(["timeout", "0.5", TRIREME, "launch", "-n", 2, saves]).wait()
            self.assertIn(result.code, (124, 143), result)
            for rank in (0, 1):
                self.assertTrue((self.folder / f"saved.{rank}").exists(), result)

    def test_ctrl_c_while_a_failed_job_is_stopped_means_no_restart(self):
        job = self.start("-n", 2, "--max_restart", 2, "--grace", 2, self.script("worker", FAILS_SLOWLY))
        self.worker_pids(2)
        (self.folder / "go").touch()
        self.wait_file("stopping")
        job.signal(signal.SIGINT)
        result = job.wait()
        self.assert_ends(result, 7)
        self.assert_silent_on(result, "restarting")

    def test_an_old_result_is_not_taken_for_a_new_one(self):
        self.assert_ends(self.launch("true"), 0)
        self.assertTrue((self.log / "result.json").exists())
        job = self.start("sh", "-c", f"echo $$ >pid.0; {FOREVER}")
        self.worker_pids(1)
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        self.assertFalse((self.log / "result.json").exists())

    def test_a_token_file_that_is_a_pipe_does_not_hang(self):
        os.mkfifo(self.folder / "token")
        result = self.start_command([TRIREME, "doctor"], env={"TRIREME_TOKEN_FILE": self.folder / "token"}).wait(5)
        self.assert_ends(result, 1)
        self.assert_says(result, "problem .*token is not a regular file")

    def test_full_standard_output_is_an_error(self):
        result = self.start_command(["sh", "-c", f"{TRIREME} help >/dev/full"]).wait(5)
        self.assert_ends(result, 71)

    def test_a_command_of_ones_own_that_is_no_program(self):
        (self.folder / "trireme-own").write_bytes(b"\x7fELF of another machine")
        (self.folder / "trireme-own").chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        result = self.start_command([TRIREME, "own"], env={"PATH": path}).wait(5)
        self.assert_ends(result, 71)
        self.assert_says(result, "cannot start .*/trireme-own: Exec format error")


if __name__ == "__main__":
    main()
