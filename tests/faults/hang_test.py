"""Jobs that hang: the launcher says which rank waits for which, and ends the job where it cannot go on."""

import os
import re
import signal
import sys
import time

from trireme_test import SLOWER, TRIREME, Case, main, orphans, proc_file, read, wait_for

PROGRAM = os.environ["HANG_RANKS"]
START = 60  # seconds; libtorch on a busy machine
END = 30  # from the verdict to the end of the job; a debugger reads the stack first
HANG = 2  # seconds
VERDICT = 2 * SLOWER  # seconds from --hang_timeout to the end of a job that is proven to hang


class HangCase(Case):
    """Jobs on one machine."""

    def hang(self, case, *options, ranks=2, backend="shm", timeout=HANG, env=None):
        return self.start(
            "-n", ranks, "--hang_timeout", f"{timeout}s", *options, PROGRAM, case, env={"TRIREME_BACKEND": backend, **(env or {})}
        )

    def assert_hang(self, result, culprit, *patterns):
        """The job was ended, and the screen and result.json blame the same rank."""
        self.assert_ends(result, 76)
        self.assert_says(result, rf"^Rank {culprit} on \S+ ", "^Exit code 76$", *patterns)
        found = self.result_json()
        self.assertEqual((found["outcome"], found["exit_code"]), ("failure", 76), found)
        self.assertEqual((found["culprit"]["rank"], found["culprit"]["cause"]), (culprit, "hang"), found)
        others = {worker["rank"]: worker["cause"] for worker in found["workers"] if worker["rank"] != culprit}
        self.assertEqual(set(others.values()), {"stopped"}, found)
        return found


class Proven(HangCase):
    def test_a_stopped_rank(self):
        result = self.hang("stop", ranks=3).wait(START + END)
        self.assert_hang(
            result,
            1,
            r"ranks 0, 2 wait in all_reduce #17 float\[1000\] sum of group 0 since \d+ s for rank 1 \(stopped\)$",
            r"^Rank 1 on \S+ is stopped while ranks 0, 2 wait for it in all_reduce #17",
            "kill -CONT",
            r"^  ranks 0, 2: stopped because of rank 1",
        )

    def test_different_collectives(self):
        # Where calls are not compared, Gloo waits for bytes that do not come.
        job = self.hang("collectives", "--tee", "all", backend="gloo", env={"GLOG_v": 3, "TRIREME_CHECK": 0})
        job.wait_output("rank 0 calls all_reduce #17", START)
        job.wait_output("rank 1 calls broadcast #17")
        waiting_since = time.monotonic()
        result = job.wait(END)
        self.assertLess(time.monotonic() - waiting_since, HANG + VERDICT, result)
        found = self.assert_hang(
            result,
            1,
            r"rank 0: all_reduce #17 float\[1000\] sum, rank 1: broadcast #1[78] float\[10\] with root 0",
            "GLOG_v=3",
        )
        self.assertIn("rank 0", found["culprit"]["details"][0])

    def test_groups_in_different_order(self):
        self.assert_hang(
            self.hang("groups").wait(START + END),
            0,
            r"rank 0 waits in all_reduce #1 .* of the group of ranks 0, 1 \(#1\) for rank 1; "
            r"rank 1 waits in all_reduce #1 .* of the group of ranks 0, 1 \(#2\) for rank 0",
        )


class Late(HangCase):
    """The ranks that wait give up after PADDLE_PG_TIMEOUT: the headline is the rank that they waited for."""

    def assert_blames_the_late_rank(self, backend):
        job = self.hang("loop", ranks=3, backend=backend, timeout=60, env={"PADDLE_PG_TIMEOUT": 6000 * SLOWER})
        result = job.wait(START + END)
        self.assert_ends(result, 75)
        self.assert_says(
            result,
            r"^Rank 1 on \S+ is running while ranks? [02, ]+ waits? for it in all_reduce #17 .*; ranks? [02, ]+ gave up$",
            r"^  > rank 1: running; its last call was all_reduce #16",
            "PADDLE_PG_TIMEOUT",
            r"^The others:\n",
            r"^  ranks? [02, ]+: exit 75",
        )
        culprit = self.result_json()["culprit"]
        self.assertEqual((culprit["rank"], culprit["cause"], culprit["awaited_in"]), (1, "late", "all_reduce"), culprit)

    def test_shared_memory(self):
        self.assert_blames_the_late_rank("shm")

    def test_gloo(self):
        self.assert_blames_the_late_rank("gloo")


class Unproven(HangCase):
    """The job is reported, and goes on when the rank comes."""

    def wait_stack(self, job, frames):
        # gdb reads libtorch's symbols for seconds, on a busy machine longer than it is given; the next verdict has it.
        job.wait_output(rf"stack of rank 1:\n(.*\n)*.*{frames}", START)

    def test_an_endless_loop(self):
        job = self.hang("loop")
        job.wait_output(r"rank 0 waits in all_reduce #17 float\[1000\] sum of group 0 since \d+ s for rank 1", START)
        job.wait_output(r"no progress for \d+ s: .* for rank 1 \(running\)", END)
        job.wait_output("The job is not ended", END)
        asked = self.start_command([TRIREME, "doctor", "--job", self.log]).wait(END)
        self.assert_ends(asked, 0)
        state = "(running|in a debugger)"  # the launcher's, which reads the stack for the next verdict
        self.assert_says(asked, rf"^rank 0 waits in all_reduce #17 .* for rank 1 \({state}\)$", f"^  rank 1: {state}")
        table = self.start_command([TRIREME, "top", self.log, "--interval", "200ms"]).wait(END)
        self.assert_ends(table, 0)
        self.assert_says(table, r"^ +0 +\d+ +\w+ .*all_reduce #17 float\[1000\] sum for \d", rf"^ +1 +\d+ +{state} ",
                         "^rank 0 waits in all_reduce #17")
        self.wait_stack(job, "compute_without_end")
        (self.folder / "go").touch()
        self.assert_ends(job.wait(END), 0)

    def test_backwards_in_another_order(self):
        """What waits is not the main thread's own call, so that nothing is proven; but it is said who waits for whom."""
        job = self.hang("backwards")
        job.wait_output(r"no progress for \d+ s: ranks wait for each other since \d+ s: rank 0 waits in .* for rank 1; "
                        r"rank 1 waits in .* for rank 0", START)
        job.wait_output("Every rank must run the same backwards, of the same models in the same order", END)
        job.signal(signal.SIGTERM)
        self.assertNotEqual(job.wait(END).code, 0)

    def test_a_loader_that_stalls(self):
        job = self.hang("loader")
        job.wait_output(r"no progress for \d+ s: .* for rank 1 \(loading data for \d+ s", START)
        job.wait_output("Its dataset does not deliver", END)
        self.wait_stack(job, r"Loader::begin.*\n(.*\n)*.*in a thread of the Loader:\n(.*\n)*.*SlowDataset::get")
        (self.folder / "go").touch()
        self.assert_ends(job.wait(END), 0)

    def test_all_ranks_in_their_loaders(self):
        """No rank waits for another: the storage is gone."""
        job = self.hang("storage")
        job.wait_output(r"no progress for \d+ s: nothing has moved since \d+ s: ranks 0, 1 \(loading data for \d+ s", START)
        job.wait_output("Its dataset does not deliver", END)
        (self.folder / "go").touch()
        self.assert_ends(job.wait(END), 0)

    def test_the_only_rank(self):
        job = self.hang("alone", ranks=1)
        job.wait_output(r"no progress for \d+ s: nothing has moved since \d+ s: rank 0 \(running in step 1\)", START)
        job.wait_output("The job is not ended", END)
        (self.folder / "go").touch()
        self.assert_ends(job.wait(END), 0)

    def test_off(self):
        """Nothing is said about the same loop, and the workers get no ring."""
        worker = self.script("worker.sh", 'echo "watch=$TRIREME_WATCH_FD"')
        result = self.launch("-n", 2, "--hang_timeout", 0, worker)
        self.assert_ends(result, 0)
        self.assert_says(result, "^watch=$")
        self.assert_says(self.launch("-n", 2, worker), r"^watch=\d+$")


class Straggler(HangCase):
    """A rank that is slower in every step is named, with the phase and the times; the job goes on."""

    def assert_names(self, case, phase):
        job = self.hang(case, timeout=60)
        line = rf"rank 1 is slower than the others: \d{{3,}} ms a step {phase}, the others \d+ ms"
        job.wait_output(f"warning: {line}", START)
        asked = self.start_command([TRIREME, "doctor", "--job", self.log]).wait(END)
        self.assert_ends(asked, 0)
        self.assert_says(asked, f"^{line}$")
        (self.folder / "go").touch()
        self.assert_ends(job.wait(END), 0)

    def test_in_the_data_phase(self):
        self.assert_names("late_data", "loading data")

    def test_in_the_forward_pass(self):
        self.assert_names("late_forward", "in the forward pass")


# Holds a process as a debugger does that takes long to read symbols.
SLOW_DEBUGGER = f"""#!{sys.executable}
import ctypes, signal, sys
PTRACE_ATTACH = 16
pid = int(sys.argv[sys.argv.index("-p") + 1])
ctypes.CDLL(None, use_errno=True).ptrace(ctypes.c_long(PTRACE_ATTACH), ctypes.c_long(pid), None, None)
signal.pause()
"""


class Debugger(HangCase):
    def is_held(self, pid):
        return proc_file(pid, "stat").rpartition(b")")[2].split()[:1] == [b"t"]

    def test_a_rank_that_a_debugger_holds_can_be_ended(self):
        (self.folder / "tools").mkdir()
        self.script("tools/gdb", SLOW_DEBUGGER)
        job = self.hang("loop", "--grace", 2, env={"PATH": f"{self.folder}/tools:{os.environ['PATH']}"})
        wait_for(lambda: any(map(self.is_held, orphans(self.mark))), START, lambda: f"a debugger:\n{job.output()}")
        job.signal(signal.SIGTERM)
        result = job.wait(END)
        self.assert_ends(result, 143)
        self.assert_silent_on(result, "survived SIGKILL")


class Doctor(HangCase):
    def ask(self, case, what, *patterns, backend="shm", env=None):
        """`trireme doctor --job ID` about a job that hangs, long before --hang_timeout."""
        name = f"hang-{case}-{os.getpid()}"
        job = self.hang(case, "--job_id", name, backend=backend, timeout=600, env=env)
        asked = []

        def answered():
            asked[:] = [self.start_command([TRIREME, "doctor", "--job", name]).wait(END)]
            return re.search(what, asked[0].text, re.M)

        wait_for(answered, START, lambda: f"/{what}/ in {asked}\n{self.consoles()}")
        self.assert_ends(asked[0], 0)
        self.assert_says(asked[0], r"^ +0 +\d+ +\w+ ", r"^ +1 +\d+ +\w+ ", *patterns)
        job.signal(signal.SIGTERM)
        job.wait(END)

    def test_a_stopped_rank(self):
        self.ask("stop", r"^rank 0 waits in all_reduce #17 .* for rank 1 \(stopped\)$", "kill -CONT", "^stack of rank 1:")

    def test_different_collectives(self):
        env = {"TRIREME_CHECK": 0}
        self.ask("collectives", r"rank 0: all_reduce #17 .*, rank 1: broadcast #17 ", "^stack of rank 1:", backend="gloo", env=env)

    def test_no_such_job(self):
        self.assert_usage(self.start_command([TRIREME, "doctor", "--job", self.folder]).wait(), "not the log folder")
        self.assert_usage(self.start_command([TRIREME, "doctor", "--job", os.getpid()]).wait(), "not a launcher")
        self.assert_usage(self.start_command([TRIREME, "doctor", "--job"]).wait(), "log folder")
        self.assert_usage(self.start_command([TRIREME, "top", self.folder]).wait(), "not the log folder")


class Logging(HangCase):
    def test_every_collective_is_logged_before_it_runs(self):
        result = self.hang("steps", "--log_overwrite", env={"GLOG_v": 3, "FLAGS_benchmark": 1}).wait(START)
        self.assert_ends(result, 0)
        for rank in (0, 1):
            log = read(self.log / f"workerlog.{rank}")
            for number in range(1, 19):
                self.assertRegex(log, rf"rank {rank} calls all_reduce #{number} float\[1000\] sum of group 0-1#0")
            self.assertRegex(log, rf"rank {rank} runs aten::ones")


if __name__ == "__main__":
    main()
