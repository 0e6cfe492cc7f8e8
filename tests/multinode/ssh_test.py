"""Every node from one terminal: --ssh, against a real sshd on the second machine."""

import getpass
import os
import signal
import subprocess

from machines import MachineCase, main
from trireme_test import FOREVER, orphans, read, wait_for

SSHD = "/usr/sbin/sshd"


class Ssh(MachineCase):
    def setUp(self):
        super().setUp()
        self.keys = self.folder / "ssh"
        self.keys.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", self.keys / name], check=True
            )
        self.start_sshd()
        self.ssh = {"TRIREME_SSH": f"ssh -F {self.client_config()}"}

    def start_sshd(self):
        config = self.keys / "sshd_config"
        config.write_text(f"""
            Port 2022
            ListenAddress {self.beta.address}
            HostKey {self.keys}/host
            AuthorizedKeysFile {self.keys}/user.pub
            StrictModes no
            UsePAM no
            PidFile none
            PasswordAuthentication no
            PermitRootLogin prohibit-password
            SetEnv TRIREME_TEST_MARK={self.mark}
            """)
        self.sshd = self.start_command(self.beta.command(self.folder, SSHD, "-D", "-e", "-f", config))
        self.sshd.wait_output("Server listening")

    def client_config(self):
        host_key = read(self.keys / "host.pub").strip()
        (self.keys / "known_hosts").write_text(
            "".join(f"[{name}]:2022 {host_key}\n" for name in (self.beta.address, "beta"))
        )
        config = self.keys / "config"
        config.write_text(f"""
            Host *
              Port 2022
              User {getpass.getuser()}
              IdentityFile {self.keys}/user
              IdentitiesOnly yes
              UserKnownHostsFile {self.keys}/known_hosts
              StrictHostKeyChecking yes
              BatchMode yes
            """)
        return config

    def start_ssh(self, *args, env=None):
        return self.start_on(self.alpha, "--ssh", *args, env={**self.ssh, **(env or {})})

    def test_two_by_two(self):
        result = self.start_ssh("--ips", self.ips, "-n", 2, "sh", "-c", "hostname >host.$RANK; env >env.$RANK").wait()
        self.assert_ends(result, 0)
        hosts = [self.read_on(self.alpha, f"host.{rank}").strip() for rank in range(4)]
        self.assertEqual(hosts, ["alpha", "alpha", "beta", "beta"], result)
        self.assertIn("WORLD_SIZE=4\n", self.read_on(self.alpha, "env.3"))
        self.assert_silent_on(result, r"not authenticated")

    def test_lines_about_the_progress_are_taken_out_of_every_hosts_output(self):
        result = self.start_ssh("--ips", self.ips, "-n", 1, "--progress", "on", "sh", "-c", "echo from $RANK >&2").wait()
        self.assert_ends(result, 0)
        self.assertNotIn("\x1e", result.text)

    def test_hostfile(self):
        (self.folder / "hostfile").write_text("alpha slots=1\nbeta slots=2\n")
        result = self.start_ssh("--hostfile", self.folder / "hostfile", "sh", "-c", "hostname >host.$RANK").wait()
        self.assert_ends(result, 0)
        self.assertEqual(
            [self.read_on(self.alpha, f"host.{rank}").strip() for rank in range(3)], ["alpha", "beta", "beta"], result
        )

    def test_arguments_survive_the_remote_shell(self):
        worker = self.script("worker", 'for word; do printf "<%s>" "$word"; done >words.$RANK')
        words = ["two words", "it's", '"quoted"', "$HOME", "*", "a;b", "", "back\\slash", "new\nline"]
        result = self.start_ssh("--ips", self.ips, "-n", 1, worker, *words).wait()
        self.assert_ends(result, 0)
        expected = "".join(f"<{word}>" for word in words)
        self.assertEqual(self.read_on(self.alpha, "words.0"), expected, result)
        self.assertEqual(self.read_on(self.alpha, "words.1"), expected, result)

    def test_options_reach_the_other_node(self):
        result = self.start_ssh(
            "--ips",
            self.ips,
            "-n",
            1,
            "--env",
            "A=two words",
            "--start_port",
            17000,
            "sh",
            "-c",
            "env >env.$RANK",
            env={"OMP_NUM_THREADS": "1"},
        ).wait()
        self.assert_ends(result, 0)
        text = self.read_on(self.alpha, "env.1")
        self.assertIn("A=two words\n", text)
        self.assertIn(f"PADDLE_CURRENT_ENDPOINT={self.beta.address}:17000\n", text)

    def test_an_elastic_job_goes_on_without_the_other_node(self):
        worker = self.script("worker", f'[ "$WORLD_SIZE" = 1 ] && exit; echo $$ >pid.$RANK; {FOREVER}')
        job = self.start_ssh("--ips", self.ips, "--nnodes", "1:2", "-n", 1, worker)
        self.wait_file_on(self.alpha, "pid.0"), self.wait_file_on(self.alpha, "pid.1")
        launchers = [pid for pid, words in orphans(self.mark).items() if "--ssh_child" in words and "ssh -F" not in words]
        beta = [pid for pid in launchers if os.readlink(f"/proc/{pid}/ns/net") == self.network_of(self.beta)]
        os.kill(min(beta), signal.SIGKILL)
        result = job.wait()
        self.assert_ends(result, 0)
        self.assert_says(result, r"attempt 1 has 1 node, 1 rank: lost node 1 \(beta")

    @staticmethod
    def network_of(machine):
        return os.readlink(f"/proc/{machine.pid}/ns/net")

    def test_failure_on_the_other_node(self):
        result = self.start_ssh(
            "--ips", self.ips, "-n", 1, "sh", "-c", f"if [ $RANK = 1 ]; then exit 7; fi; {FOREVER}"
        ).wait()
        self.assert_ends(result, 7)
        self.assert_says(result, r"rank 1\b[^\n]*beta")

    def test_ctrl_c_ends_both(self):
        job = self.start_ssh("--ips", self.ips, "-n", 1, "sh", "-c", f"echo $$ >pid.$RANK; {FOREVER}")
        self.wait_file_on(self.alpha, "pid.0"), self.wait_file_on(self.alpha, "pid.1")
        job.signal(signal.SIGINT)
        result = job.wait()
        self.assert_ends(result, 130)
        self.assert_only_sshd_left()

    def test_signals_for_the_program_reach_both(self):
        body = "trap 'echo USR1 >got.$RANK; exit 0' USR1; echo up >up.$RANK; " + FOREVER
        job = self.start_ssh("--ips", self.ips, "-n", 1, "sh", "-c", body)
        for rank in (0, 1):
            self.wait_file_on(self.alpha, f"up.{rank}")
        job.signal(signal.SIGUSR1)
        self.assert_ends(job.wait(), 0)
        self.assertEqual([self.read_on(self.alpha, f"got.{rank}") for rank in (0, 1)], ["USR1\n"] * 2)

    def test_launcher_killed(self):
        job = self.start_ssh("--ips", self.ips, "-n", 1, "sh", "-c", f"echo $$ >pid.$RANK; {FOREVER}")
        pids = [int(self.wait_file_on(self.alpha, f"pid.{rank}")) for rank in (0, 1)]
        job.signal(signal.SIGKILL)
        job.wait()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 3, "the workers' end")
        self.assert_only_sshd_left()

    def test_unreachable_host(self):
        self.sshd.signal(signal.SIGTERM)
        self.sshd.wait()
        result = self.start_ssh("--ips", self.ips, "true").wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(5, result)
        self.assert_says(result, rf"{self.beta.address}|beta", r"ssh")

    def test_ctrl_c_while_a_host_is_silent(self):
        """beta takes the connection and says nothing; alpha's node is up and waits."""
        self.sshd.signal(signal.SIGSTOP)
        job = self.start_ssh("--ips", self.ips, "--grace", 1, "true")
        wait_for(lambda: any(" -F " in line for line in orphans(self.mark).values()), 5, "ssh's start")
        job.signal(signal.SIGINT)
        self.assert_ends(job.wait(1 + 5), 130)
        self.assert_only_sshd_left()

    def assert_only_sshd_left(self):
        """Of the launchers and workers, nothing."""

        def others():
            return {pid: line for pid, line in orphans(self.mark).items() if "sshd" not in line}

        try:
            wait_for(lambda: not others(), 3, "")
        except AssertionError:
            self.fail(f"left behind: {others()}\n{self.consoles()}")


if __name__ == "__main__":
    main()
