"""Runs cells of the fault matrix (matrix.py) on machines made of namespaces, and checks what must hold in each."""

import itertools
import os
import re
import signal
import time
from pathlib import Path

import matrix
from cgroup import MemoryCgroup
from machines import MachineCase
from trireme_test import SLOWER, TRIREME, alive, read, wait_for

PROGRAM = Path(TRIREME).parent / "checkpoint_ranks"
START = 90  # seconds; libtorch on a busy machine
END = 60  # from the fault to the end of the job
MEMORY = 1 << 30  # for the launcher and its ranks, where one of them takes all of it


class CellCase(MachineCase):
    """alpha has the first ranks; gamma has etcd, where there is one."""

    names = ("alpha", "beta", "gamma")
    program = PROGRAM

    def setUp(self):
        super().setUp()
        self.etcd = self.group = None
        self.measured = {}  # {cell: [seconds on the node of the fault, on the other one]}
        self._undisturbed = {}  # {nodes: what the ranks say at the end}
        self._numbers = itertools.count(1)

    def run_cell(self, fault, phase, nodes):
        """Asserts all that the matrix promises of this cell."""
        self.fault, self.phase, self.hosts = fault, phase, self.machines[:nodes]
        self.wanted = matrix.outcome(fault, phase, nodes)
        self.assertIsInstance(self.wanted, matrix.Run)
        self.rank = 0 if phase == "checkpoint" else nodes * matrix.PER_NODE - 1
        self.host = self.hosts[self.rank // matrix.PER_NODE]
        try:
            expected = self._expected()
            self.cell = self._new_folder(f"{fault} {phase} {nodes}")
            self._prepare()
            self._break(expected)
            self._check_leftovers()
            self._resume(expected)
        finally:
            self._clean_up()

    def aborting_program(self, when_killed="true"):
        """The program with an uncaught PeerError: exit code 75 is that of one which it has caught."""
        return self.script("worker", f"""ulimit -c 0
            {PROGRAM} "$@"
            code=$?
            [ $code != 75 ] || kill -ABRT $$
            [ $code != 137 ] || {when_killed}
            [ $code -le 128 ] || kill -$((code - 128)) $$
            exit $code""")

    def seconds_to_restart(self, nodes):
        """From a SIGKILL to the end of the next step of the restarted job."""
        self.hosts, self.host = self.machines[:nodes], None
        try:
            expected = self._expected()
            self.cell = self._new_folder(f"restart {nodes}")
            jobs = self._start(("--max_restart", 1), {"TRIREME_TEST_FAULT": "kill step 1"})
            self._check_learnt(jobs, expected)
            return (self.cell / "resumed").stat().st_mtime - (self.cell / "fault").stat().st_mtime
        finally:
            self._clean_up()

    # --- the parts of a cell

    def _prepare(self):
        if self.fault == "out of memory":
            self.group = MemoryCgroup(f"trireme-test-{os.getpid()}", MEMORY)
        if self.wanted.inject == "disk":
            (self.cell / "out").mkdir()
            self.host.run("mount", "-t", "tmpfs", "-o", "size=1m", "small", self.cell / "out")
        if self.fault == "etcd restarted":
            self._start_etcd()

    def _break(self, expected):
        self.happened = lambda: True  # the rank's file says so
        self.broken_at = None  # when the rank's file was written
        self.jobs = self._start(self.wanted.options,
                                {"TRIREME_TEST_FAULT": f"{self.wanted.inject} {self.phase} {self.rank}"})
        wait_for(self._has_come, START, lambda: f"the fault; consoles:\n{self.consoles()}")
        if self.wanted.outside:
            getattr(self, self.wanted.outside)()
        seconds = self._await_ends()
        if self.wanted.code == 0:
            self._check_learnt(self.jobs, expected)
        self.assertTrue(self.happened(), f"{self.fault} has not happened")
        for machine, job in zip(self.hosts, self.jobs):
            self._check_end(machine, job.wait())
        if self.wanted.code != 0:
            self._check_times(seconds)

    def _has_come(self):
        running = all(alive(job.pid) for job in self.jobs)  # asked first: what follows the fault may be quick
        come = read(self.cell / "fault")
        self.assertTrue(come or running, f"a launcher has ended before the fault; consoles:\n{self.consoles()}")
        return come

    def _await_ends(self):
        """The seconds from the fault to the end of each launcher."""
        ended = {}

        def all_have_ended():
            for job in self.jobs:
                if job not in ended and not alive(job.pid):
                    ended[job] = time.time()
            return len(ended) == len(self.jobs)

        wait_for(all_have_ended, END, lambda: f"the end of the launchers; consoles:\n{self.consoles()}")
        begin = self.broken_at or (self.cell / "fault").stat().st_mtime
        return [ended[job] - begin for job in self.jobs]

    def _check_end(self, machine, result):
        if result.code == -signal.SIGKILL:
            self.assertIn(self.wanted.outside, ("kill_last_launcher", "kill_first_launcher"), result)
            return
        self.assert_ends(result, self.wanted.code)
        found = self.result_json(self._log_of(machine))
        self.assertEqual(found["exit_code"], self.wanted.code, found)
        if self.wanted.headline:
            self.assert_says(result, self._words(self.wanted.headline))
        culprit = found["culprit"]
        if not self.wanted.cause:
            self.assertIsNone(culprit, found)
            return
        self.assertEqual(len(re.findall(r"^Rank \d+ on ", result.err, re.M)), 1, result)
        self.assertEqual(culprit["cause"], self.wanted.cause, found)
        if not self.wanted.thrown_by_all:
            self.assertEqual((culprit["rank"], culprit["host"]), (self.rank, self.host.name), found)

    def _check_times(self, seconds):
        if self.host is not self.hosts[0]:
            seconds.reverse()  # the node of the fault comes first
        self.measured[(self.fault, self.phase, len(self.hosts))] = seconds
        for took, bound in zip(seconds, self.wanted.bounds):
            self.assertLess(took, bound * SLOWER, f"seconds to the end of each launcher: {seconds}\n{self.consoles()}")

    def _check_leftovers(self):
        self._stop_etcd()
        self.assert_gone()
        self.assertEqual(os.listdir(self.cell / "tmp"), [], "temporary files are left")
        for machine in self.machines:
            self.assertFalse(machine.listens(), f"a port of {machine.name} is left")
            self.assertEqual(machine.files_in("/dev/shm"), [], f"shared memory of {machine.name} is left")

    def _resume(self, expected):
        """Ends with the bits of the undisturbed run, and no file of the broken one is left."""
        for machine in self.hosts:
            machine.repair_network()
        if self.wanted.inject == "disk":
            self.host.run("rm", self.cell / "out" / "filler")
        if self.wanted.code != 0:
            self._check_learnt(self._start(self.wanted.options, {}), expected)
        kept = self.hosts[0].files_in(self.cell / "out")
        self.assertEqual(len(kept), 2, f"two checkpoints are kept, and no leftovers: {kept}")

    def _clean_up(self):
        self._stop_etcd()
        for job in self._jobs:
            job.kill()
        self._kill_left()
        self.assert_gone()
        self._jobs.clear()  # consoles() shows those of one cell
        for machine in self.machines:
            machine.repair_network()
        if self.host and os.path.ismount(f"/proc/{self.host.pid}/root{self.cell}/out"):
            self.host.run("umount", self.cell / "out")
        if self.group:
            wait_for(lambda: not read(self.group.path / "cgroup.procs"), 5, "the end of the control group")
            self.group.remove()
            self.group = None

    # --- faults from outside; the faulted rank waits until the file `go` is there

    def go(self):
        (self.cell / "go").touch()

    def cut_link(self):
        self.broken_at = time.time()
        self.hosts[-1].set_cable("down")

    def lose_packets(self):
        self.hosts[-1].lose_packets(0.05)
        self.happened = self.hosts[-1].lost_packets
        self.go()

    def slow_link(self):
        self.hosts[-1].limit_rate("4mbit")
        self.happened = self.hosts[-1].delayed_packets
        self.go()

    def wait_for_words(self):
        """The launcher tells who is slow; then that rank goes on."""
        self.jobs[0].wait_output(self._words(self.wanted.said), END)
        self.go()

    def continue_after_words(self):
        """Every launcher names the stopped rank; then that rank continues."""
        for job in self.jobs:
            job.wait_output(self._words(self.wanted.said), END)
        os.kill(int(read(self.cell / "fault").split()[-1]), signal.SIGCONT)

    def kill_last_launcher(self):
        self._kill(self.jobs[-1])

    def kill_first_launcher(self):
        self._kill(self.jobs[0])

    def _kill(self, job):
        self.broken_at = time.time()
        job.signal(signal.SIGKILL)

    def restart_etcd(self):
        self._stop_etcd()
        self._start_etcd()
        self.go()

    # --- jobs

    def _new_folder(self, name):
        folder = self.folder / f"{next(self._numbers)}.{name}".replace(" ", "_")
        (folder / "tmp").mkdir(parents=True)
        return folder

    def _log_of(self, machine):
        return self.cell / f"log.{machine.name}"

    def _start(self, options, env):
        meeting = ("--ips", ",".join(machine.address for machine in self.hosts)) if len(self.hosts) > 1 else ()
        if "--master" in options:
            meeting = ()
        options = [str(option).format(etcd=f"{self.gamma.address}:2379") for option in options]
        env = {"TRIREME_TEST_FOLDER": self.cell, "TMPDIR": self.cell / "tmp", "OMP_NUM_THREADS": 1,
               "CUDA_VISIBLE_DEVICES": -1, **env}
        return [self._start_one(machine, [*meeting, *options], env) for machine in self.hosts]

    def _start_one(self, machine, options, env):
        launch = [TRIREME, "launch", *options, "-n", matrix.PER_NODE, "--tee", "all", "--log_dir",
                  self._log_of(machine), self.program, "faulty", self.cell]
        if self.group and machine is self.host:
            launch = ["sh", "-c", f'echo $$ >{self.group.path}/cgroup.procs && exec "$@"', "sh", *launch]
        return self.start_command(machine.command(self.cell, *launch), env=env)

    def _expected(self):
        """What the ranks say at the end of a run on so many nodes that nothing disturbs."""
        nodes = len(self.hosts)
        if nodes not in self._undisturbed:
            self.cell = self._new_folder(f"undisturbed {nodes}")
            learnt = self._learnt(self._start((), {}))
            self.assertEqual(len(learnt), nodes * matrix.PER_NODE, self.consoles())
            self._undisturbed[nodes] = learnt
        return self._undisturbed[nodes]

    def _check_learnt(self, jobs, expected):
        self.assertEqual(self._learnt(jobs), expected, self.consoles())

    def _learnt(self, jobs):
        results = [job.wait(START + END) for job in jobs]
        for result in results:
            self.assert_ends(result, 0)
        return sorted(line for result in results
                      for line in re.findall(r"rank \d+ faulty step \d+ learnt .*", result.text))

    def _words(self, pattern):
        return pattern.format(rank=self.rank, host=self.host.name)

    def _start_etcd(self):
        url = f"http://{self.gamma.address}:2379"
        words = ["--data-dir", self.cell / "etcd", "--listen-client-urls", url, "--advertise-client-urls", url]
        words += ["--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"]
        self.etcd = self.start_command(self.gamma.command(self.cell, "etcd", *words))
        self.etcd.wait_output("ready to serve client requests", START)

    def _stop_etcd(self):
        if self.etcd:
            self.etcd.kill()
            self.etcd = None
