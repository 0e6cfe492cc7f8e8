"""A real Slurm on two machines: slurmctld and a slurmd on alpha, a slurmd on beta, a munged on each.

    class Jobs(SlurmCase):
        def test_it(self):
            result = self.srun("--ntasks-per-node=1", TRIREME, "launch", "./train")
"""

import os
import pwd

from machines import MachineCase
from trireme_test import read, wait_for

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=alpha(10.77.0.1)
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
KillWait=5
SchedulerParameters=sched_interval=1
NodeName=alpha NodeAddr=10.77.0.1 CPUs=2
NodeName=beta NodeAddr=10.77.0.2 CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class SlurmCase(MachineCase):
    def setUp(self):
        super().setUp()
        self.configuration = self.folder / "slurm.conf"
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.configuration.write_text(CONFIGURATION.format(folder=self.folder, user=user))
        for name in ("state", "spool.alpha", "spool.beta", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)  # the way to munge's socket
        self.daemons = []
        self.addCleanup(self.stop)
        key = os.urandom(64)
        for machine in (self.alpha, self.beta):
            self.start_munge(machine, key)
        self.daemons += [self.start_daemon(self.alpha, "slurmctld", "-D"),
                         self.start_daemon(self.alpha, "slurmd", "-D", "-N", "alpha"),
                         self.start_daemon(self.beta, "slurmd", "-D", "-N", "beta")]
        wait_for(self.nodes_are_idle, 30, lambda: f"two idle nodes; {self.logs()}")

    def start_munge(self, machine, key):
        """A daemon of the machine's own, which it sees in the folder munge: one daemon for both would take what slurmctld
        sends to both for a replay."""
        own = self.folder / f"munge.{machine.name}"
        own.mkdir(mode=0o755)
        (own / "key").write_bytes(key)
        (own / "key").chmod(0o600)
        seen = self.folder / "munge"
        mounted = self.start_command(machine.command(self.folder, "mount", "--bind", own, seen)).wait()
        self.assert_ends(mounted, 0)
        files = [f"--{name}-file={seen / name}" for name in ("key", "pid", "log", "seed")]
        munge = self.start_command(
            machine.command(self.folder, "munged", "--foreground", "--force", f"--socket={seen}/socket", *files))
        self.daemons.append(munge)
        wait_for((own / "socket").exists, 10, lambda: f"munge's socket: {munge.output()}{read(own / 'log')}")

    def start_daemon(self, machine, *words):
        return self.start_command(machine.command(self.folder, *words), env=self.variables())

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.kill()

    def variables(self):
        return {"SLURM_CONF": self.configuration}

    def nodes_are_idle(self):
        states = self.command("sinfo", "--noheader", "--Node", "--format=%t").wait().out.split()
        return states == ["idle", "idle"]

    def logs(self):
        return "\n".join(f"{path.name}:\n{read(path)[-2000:]}" for path in self.folder.glob("*.log"))

    def command(self, *words, env=None):
        """One of Slurm's commands, as typed on alpha."""
        return self.start_command(self.alpha.command(self.folder, *words), env={**self.variables(), **(env or {})})

    def srun(self, *words, timeout=30):
        return self.command("srun", "--nodes=2", *words).wait(timeout)
