"""Machines for multi-node tests: namespaces on this machine, joined by a virtual switch.

    class Pair(MachineCase):
        names = ("alpha", "beta")
        def test_it(self):
            job = self.start_on(self.alpha, "--ips", self.ips, "true")

A machine has its own network (eth0 with 10.77.0.N and fd77::N, and loopback), host name, /etc/hosts, /run, /dev/shm
and IPC; the other files and the processes are shared with the test. It lives as long as its holder, a process that ends
with the test, so that the kernel takes everything away even when the test is killed: there are no names to clean up.

Needs root, or a kernel that lets users make namespaces: main() then enters a user namespace first.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import trireme_test
from trireme_test import TRIREME, Case, read

IN_USER_NAMESPACE = "TRIREME_TEST_IN_USER_NAMESPACE"
PR_SET_PDEATHSIG = 1


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}")
    return done.stdout


class Namespace:
    """Namespaces of some kinds, held open by a process that waits for the end of its standard input."""

    def __init__(self, *kinds, setup=""):
        self._kinds = kinds
        self._holder = subprocess.Popen(
            ["unshare", *kinds, "sh", "-ec", f"{setup}\necho ready\nexec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_die_with_parent,
        )
        self.pid = self._holder.pid
        answer = self._holder.stdout.readline()
        if answer != "ready\n":
            raise AssertionError(f"cannot make namespaces ({' '.join(kinds)}): {answer}{self._holder.stdout.read()}")

    def ip(self, *words):
        """ip(8) in this network."""
        self.run("ip", *words)

    def run(self, *words):
        """Runs a command in these namespaces; returns its output."""
        return _run("nsenter", f"--target={self.pid}", *self._kinds, *words)

    def close(self):
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


class Machine(Namespace):
    def __init__(self, name, number, hosts_file):
        self.name, self.address, self.address6 = name, f"10.77.0.{number}", f"fd77::{number}"
        super().__init__(
            "--net",
            "--uts",
            "--ipc",
            "--mount",
            setup=f"""
            hostname {name}
            mount -t tmpfs run /run
            mkdir -m 0755 /run/sshd
            mount -t tmpfs shm /dev/shm
            mount --bind {hosts_file} /etc/hosts
            ip link set lo up""",
        )

    def command(self, cwd, *words):
        """The words as a command that runs on this machine; it keeps the process id."""
        return ["nsenter", f"--target={self.pid}", *self._kinds, "--", "env", f"--chdir={cwd}", *words]

    def plug_in(self, switch):
        """eth0 of this machine to a port of the switch."""
        switch.ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        self.ip("address", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("address", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        self.ip("link", "set", "eth0", "up")
        switch.ip("link", "set", self.name, "up", "master", "switch")

    def refused_connections(self):
        """How many connections that programs here tried to make have failed so far."""
        return self._tcp_counter("AttemptFails")

    def listens(self):
        """Whether a program here listens on a TCP port."""
        lines = read(f"/proc/{self.pid}/net/tcp").splitlines() + read(f"/proc/{self.pid}/net/tcp6").splitlines()
        return any(line.split()[3] == "0A" for line in lines if ":" in line.split()[0])

    def _tcp_counter(self, name):
        names, values = [
            line.split() for line in read(f"/proc/{self.pid}/net/snmp").splitlines() if line.startswith("Tcp:")
        ]
        return int(values[names.index(name)])

    def set_cable(self, state):
        """`down` pulls the cable, `up` puts it back."""
        self.ip("link", "set", "eth0", state)

    def lose_packets(self, share):
        """Drops this share of the packets of eth0, in both directions."""
        for chain in ("INPUT", "OUTPUT"):
            words = ["!", "-i" if chain == "INPUT" else "-o", "lo", "-m", "statistic", "--mode", "random"]
            self.run("iptables", "-A", chain, *words, "--probability", share, "-j", "DROP")

    def lost_packets(self):
        """The number that lose_packets() has dropped so far."""
        rules = self.run("iptables", "-nvxL").splitlines()
        return sum(int(rule.split()[0]) for rule in rules if " DROP " in rule)

    def limit_rate(self, rate):
        """Limits what this machine sends to a rate like "8mbit"."""
        self.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16k", "latency", "400ms")

    def delayed_packets(self):
        """The number that limit_rate() has held back so far."""
        found = re.search(r"overlimits (\d+)", self.run("tc", "-s", "qdisc", "show", "dev", "eth0", "root"))
        return int(found[1]) if found else 0

    def repair_network(self):
        """Undoes set_cable(), lose_packets() and limit_rate()."""
        self.set_cable("up")
        self.run("iptables", "-F")
        self.run("sh", "-c", "tc qdisc del dev eth0 root 2>/dev/null || true")

    def files_in(self, folder):
        """The sorted names in a folder, as this machine sees it."""
        return sorted(os.listdir(f"/proc/{self.pid}/root{folder}"))


@contextlib.contextmanager
def machines(names, folder):
    """Machines with these names on one network, numbered from 1."""
    hosts = Path(folder, "hosts")
    hosts.write_text(
        "127.0.0.1 localhost\n::1 localhost\n"
        + "".join(f"10.77.0.{number} {name}\n" for number, name in enumerate(names, 1))
    )
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(
            contextlib.closing(Namespace("--net", setup="ip link add switch type bridge; ip link set switch up"))
        )
        made = [
            stack.enter_context(contextlib.closing(Machine(name, number, hosts)))
            for number, name in enumerate(names, 1)
        ]
        for machine in made:
            machine.plug_in(switch)
        yield made


class MachineCase(Case):
    """A test on several machines, each with a working folder of its own: self.folder/NAME."""

    names = ("alpha", "beta")

    def setUp(self):
        super().setUp()
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self.machines = self._stack.enter_context(machines(self.names, self.folder))
        for machine in self.machines:
            setattr(self, machine.name, machine)
            self.folder_of(machine).mkdir()
        self.ips = ",".join(machine.address for machine in self.machines)

    def folder_of(self, machine):
        return self.folder / machine.name

    def log_of(self, machine):
        return self.folder_of(machine) / "log"

    def start_on(self, machine, *args, **options):
        """`trireme launch ARGS` on the machine, running."""
        return self.start_command(machine.command(self.folder_of(machine), TRIREME, "launch", *args), **options)

    def start_everywhere(self, *args, **options):
        """The same command on every machine."""
        return [self.start_on(machine, *args, **options) for machine in self.machines]

    def launch_everywhere(self, *args, timeout=30, **options):
        return [job.wait(timeout) for job in self.start_everywhere(*args, **options)]

    def wait_file_on(self, machine, name, timeout=10):
        return self.wait_file(f"{machine.name}/{name}", timeout)

    def read_on(self, machine, name):
        return read(self.folder_of(machine) / name)


def main():
    """As trireme_test.main(), in a user namespace when this is not root."""
    if os.geteuid() and IN_USER_NAMESPACE not in os.environ:
        os.environ[IN_USER_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-current-user", "--keep-caps", sys.executable, *sys.argv])
    trireme_test.main()
