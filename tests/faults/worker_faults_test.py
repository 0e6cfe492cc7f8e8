"""A rank fails on one machine: the right one is blamed, in words, and the launcher ends in time."""

import os
import signal
import time

from trireme_test import FOREVER, TRIREME, Case, main, wait_for

READY = "echo $$ >pid.$RANK"


class WorkerFaults(Case):
    def start_ranks(self, *bodies, options=()):
        """One job; rank N runs the N-th shell text."""
        cases = "\n".join(f"{rank})\n{body}\n;;" for rank, body in enumerate(bodies))
        return self.start("-n", len(bodies), *options, self.script("worker", f"case $RANK in\n{cases}\nesac"))

    def end_after(self, job, action):
        """The result, its seconds counted from the action."""
        before = time.monotonic()
        action()
        result = job.wait()
        result.seconds = time.monotonic() - before
        return result

    def go(self):
        (self.folder / "go").touch()

    WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.01; done"

    def test_exit_7_while_the_peer_ignores_sigterm(self):
        job = self.start_ranks(
            f"trap '' TERM; {READY}; {FOREVER}", f"{READY}; {self.WAIT_FOR_GO}; exit 7", options=["--grace", 1]
        )
        self.worker_pids(2)
        result = self.end_after(job, self.go)
        self.assert_ends(result, 7)
        self.assertGreater(result.seconds, 0.9, result)
        self.assert_within(1 + 5, result)
        self.assert_names_first(result, 1, r"exit 7")
        self.assert_gone(0.5)

    def test_cooperative_peer_ends_at_once(self):
        job = self.start_ranks(f"{READY}; {FOREVER}", f"{READY}; {self.WAIT_FOR_GO}; exit 7")
        self.worker_pids(2)
        result = self.end_after(job, self.go)
        self.assert_ends(result, 7)
        self.assert_within(1, result)

    def test_sigkill(self):
        job = self.start_ranks(f"{READY}; {FOREVER}", f"{READY}; {FOREVER}")
        victim = self.worker_pids(2)[1]
        result = self.end_after(job, lambda: os.kill(victim, signal.SIGKILL))
        self.assert_ends(result, 137)
        self.assert_within(1, result)
        self.assert_names_first(result, 1, r"killed by signal 9")
        self.assert_silent_on(result, r"killed by the kernel")
        self.assertEqual(self.result_json()["exit_code"], 137)

    def test_segmentation_fault(self):
        job = self.start_ranks(f"{READY}; {FOREVER}", f"ulimit -c 0; {READY}; {self.WAIT_FOR_GO}; kill -SEGV $$")
        self.worker_pids(2)
        result = self.end_after(job, self.go)
        self.assert_ends(result, 139)
        self.assert_within(1, result)
        self.assert_names_first(result, 1, r"killed by signal 11, segmentation fault")

    def test_stopped_rank_with_a_failing_peer(self):
        job = self.start_ranks(f"{READY}; {FOREVER}", f"{READY}; {self.WAIT_FOR_GO}; exit 7", options=["--grace", 1])
        os.kill(self.worker_pids(2)[0], signal.SIGSTOP)
        result = self.end_after(job, self.go)
        self.assert_ends(result, 7)
        self.assert_within(1 + 5, result)
        self.assert_names_first(result, 1, r"exit 7")
        self.assert_gone(0.5)

    def test_stopped_rank_and_ctrl_c(self):
        job = self.start_ranks(f"{READY}; {FOREVER}", f"{READY}; {FOREVER}", options=["--grace", 1])
        os.kill(self.worker_pids(2)[0], signal.SIGSTOP)
        result = self.end_after(job, lambda: job.signal(signal.SIGINT))
        self.assert_ends(result, 130)
        self.assert_within(1 + 5, result)

    def test_first_of_two_failures_is_the_culprit(self):
        """Rank 0 fails too, but only because it is told to stop."""
        job = self.start_ranks(
            f"trap 'exit 3' TERM; {READY}; {FOREVER}", f"{READY}; {self.WAIT_FOR_GO}; exit 7", f"{READY}; {FOREVER}"
        )
        self.worker_pids(3)
        result = self.end_after(job, self.go)
        self.assert_ends(result, 7)
        self.assert_names_first(result, 1, r"exit 7")
        self.assert_says(result, r"ranks? 0.*2.*stopped because of|stopped because of")

    def test_rank_fails_while_peer_closed_its_output(self):
        job = self.start_ranks(
            f"exec >&- 2>&-; trap '' TERM; {READY}; {FOREVER}",
            f"{READY}; {self.WAIT_FOR_GO}; exit 7",
            options=["--grace", 1],
        )
        self.worker_pids(2)
        result = self.end_after(job, self.go)
        self.assert_ends(result, 7)
        self.assert_within(6, result)

    def test_all_ranks_fail_at_once(self):
        result = self.launch("-n", 8, "sh", "-c", "exit 7")
        self.assert_ends(result, 7)
        self.assert_within(3, result)

    def test_console_that_does_not_read(self):
        """The launcher's own output is a full pipe; the failure is still acted upon."""
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        worker = self.script("worker", f"{READY}; if [ $RANK = 1 ]; then {self.WAIT_FOR_GO}; exit 7; fi; yes")
        pid = os.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.dup2(write_end, 1), os.dup2(write_end, 2)
            os.execve(TRIREME, [TRIREME, "launch", "-n", "2", "--grace", "1", str(worker)], self.environment())
        os.close(write_end)
        self.worker_pids(2)
        self.go()
        ended = wait_for(lambda: self._reaped(pid), 8, "the launcher's end")
        self.assertEqual(ended, 7)

    def _reaped(self, pid):
        found, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None

    def assert_names_first(self, result, rank, how):
        """The first rank that the screen speaks of as failed is this one, with these words."""
        self.assert_says(result, rf"rank {rank}\b[^\n]*{how}")
        first = result.err.lower().find(f"rank {rank}")
        others = [result.err.lower().find(f"rank {other}") for other in range(8) if other != rank]
        self.assertTrue(
            all(position < 0 or position > first for position in others), f"rank {rank} is not named first:{result}"
        )


if __name__ == "__main__":
    main()
