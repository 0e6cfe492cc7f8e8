"""Nothing is left behind: grandchildren, daemons, and everything else when the launcher itself is killed."""

import os
import select
import signal

from trireme_test import FOREVER, Case, alive, main, orphans, proc_file, read, wait_for

# A child in the background, one in a session of its own, and one that ignores every polite signal.
FAMILY = f"""
    sh -c 'echo $$ >family.1; {FOREVER}' &
    setsid sh -c 'echo $$ >family.2; {FOREVER}' &
    setsid sh -c 'trap "" TERM INT HUP; echo $$ >family.3; {FOREVER}' &
    while [ ! -s family.1 ] || [ ! -s family.2 ] || [ ! -s family.3 ]; do sleep 0.01; done
    echo $$ >pid.$RANK"""


def parent_of(pid):
    return int(proc_file(pid, "stat").rpartition(b")")[2].split()[1])


class Grandchildren(Case):
    def family(self):
        return [int(read(self.folder / f"family.{number}")) for number in (1, 2, 3)]

    def assert_family_gone(self):
        left = [pid for pid in self.family() if alive(pid)]
        self.assertEqual(left, [], f"left behind: {orphans(self.mark)}\n{self.consoles()}")

    def run_family(self, end, *options):
        return self.start("-n", 1, "--grace", 1, *options, self.script("worker", f"{FAMILY}\n{end}"))

    def test_after_success(self):
        result = self.run_family("exit 0").wait()
        self.assert_ends(result, 0)
        self.assert_within(8, result)
        self.assert_family_gone()

    def test_after_failure(self):
        result = self.run_family("exit 7").wait()
        self.assert_ends(result, 7)
        self.assert_within(8, result)
        self.assert_family_gone()

    def test_after_ctrl_c(self):
        job = self.run_family(FOREVER)
        self.worker_pids(1)
        job.signal(signal.SIGINT)
        self.assert_ends(job.wait(), 130)
        self.assert_family_gone()

    def test_after_the_worker_was_killed(self):
        job = self.run_family(FOREVER)
        os.kill(self.worker_pids(1)[0], signal.SIGKILL)
        self.assert_ends(job.wait(), 137)
        self.assert_family_gone()

    def test_double_fork_daemon(self):
        """A daemon as daemons are made: its parent is gone before the worker ends."""
        result = self.launch(
            "-n",
            1,
            "--grace",
            1,
            self.script(
                "worker",
                f"""
            (setsid sh -c 'trap "" TERM HUP; echo $$ >daemon; {FOREVER}' >/dev/null 2>&1 &)
            while [ ! -s daemon ]; do sleep 0.01; done""",
            ),
        )
        self.assert_ends(result, 0)
        self.assertFalse(alive(int(read(self.folder / "daemon"))), result)


class LauncherKilled(Case):
    WORKER = f"trap '' TERM INT HUP; {FAMILY}\n{FOREVER}"

    def test_sigkill_leaves_nothing(self):
        job = self.start("-n", 2, self.script("worker", self.WORKER))
        self.worker_pids(2)
        job.signal(signal.SIGKILL)
        job.wait()
        self.assert_gone(2)

    def test_sigkill_with_a_stopped_worker(self):
        job = self.start("-n", 2, self.script("worker", self.WORKER))
        os.kill(self.worker_pids(2)[0], signal.SIGSTOP)
        job.signal(signal.SIGKILL)
        job.wait()
        self.assert_gone(2)

    def test_its_ports_are_free_again(self):
        job = self.start("-n", 2, "--start_port", 17400, self.script("worker", self.WORKER))
        self.worker_pids(2)
        job.signal(signal.SIGKILL)
        job.wait()
        self.assert_gone(2)
        self.assert_ends(self.launch("-n", 2, "--start_port", 17400, "true"), 0)

    def test_no_shared_memory_is_left(self):
        before = set(os.listdir("/dev/shm"))
        job = self.start("-n", 2, self.script("worker", self.WORKER))
        self.worker_pids(2)
        job.signal(signal.SIGKILL)
        job.wait()
        self.assert_gone(2)
        self.assertEqual({name for name in os.listdir("/dev/shm") if "trireme" in name.lower()} - before, set())


class KilledWhileStarting(Case):
    ROUNDS = 40

    def test_at_any_moment(self):
        """SIGKILL to the launcher 0 to 40 ms after its start."""
        worker = self.script("worker", "trap '' TERM HUP; setsid sleep 60 & sleep 60")
        for number in range(self.ROUNDS):
            job = self.start("-n", 4, worker)
            select.select([], [], [], number / 1000)  # the moment is the point of the test
            job.kill()
        self.assert_gone(2.5)


class GuardKilled(Case):
    """Between launcher and worker stands a process that ends the worker with the launcher; its death is a failure of that rank."""

    def test_worker_does_not_outlive_its_parent(self):
        job = self.start("-n", 2, "--grace", 1, self.script("worker", LauncherKilled.WORKER))
        workers = self.worker_pids(2)
        guard = parent_of(workers[1])
        self.assertNotEqual(guard, job.pid, "no process stands between the launcher and its worker")
        os.kill(guard, signal.SIGKILL)
        result = job.wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(10, result)
        self.assert_says(result, r"rank 1\b")
        self.assert_gone(2)

    def test_stopped_launcher_goes_on(self):
        """SIGSTOP and SIGCONT to the launcher (a suspended terminal) do not harm the job."""
        job = self.start("-n", 2, self.script("worker", "echo $$ >pid.$RANK; while [ ! -e go ]; do sleep 0.02; done"))
        self.worker_pids(2)
        job.signal(signal.SIGSTOP)
        wait_for(lambda: b"T" == proc_file(job.pid, "stat").rpartition(b")")[2].split()[0], 5, "the launcher's stop")
        (self.folder / "go").touch()
        job.signal(signal.SIGCONT)
        self.assert_ends(job.wait(), 0)


if __name__ == "__main__":
    main()
