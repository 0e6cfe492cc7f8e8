"""How nodes find each other, and what they say when they do not."""

import re
import signal
import sys

from machines import MachineCase, main
from trireme_test import FOREVER, TRIREME, wait_for

LISTENING = "not authenticated"  # the coordinator says so once its port is open


class Meeting(MachineCase):
    def test_coordinator_first(self):
        alpha = self.start_on(self.alpha, "--ips", self.ips, "-n", 1, "true")
        alpha.wait_output(LISTENING)
        self.assert_ends(self.start_on(self.beta, "--ips", self.ips, "-n", 1, "true").wait(), 0)
        self.assert_ends(alpha.wait(), 0)

    def test_coordinator_last(self):
        beta = self.start_on(self.beta, "--ips", self.ips, "-n", 1, "true")
        wait_for(self.beta.refused_connections, 10, lambda: f"beta's first try:\n{beta.output()}")
        self.assert_ends(self.start_on(self.alpha, "--ips", self.ips, "-n", 1, "true").wait(), 0)
        self.assert_ends(beta.wait(), 0)

    def test_missing_node_is_named(self):
        for present, missing in ((self.alpha, self.beta), (self.beta, self.alpha)):
            result = self.start_on(present, "--ips", self.ips, "--join_timeout", 2, "sh", "-c", "echo ran >ran").wait()
            self.assertNotEqual(result.code, 0, result)
            self.assertGreater(result.seconds, 1.9, result)
            self.assert_within(5, result)
            self.assert_says(result, re.escape(missing.address), r"firewall|ping|is the port right")
            self.assertEqual(self.read_on(present, "ran"), "", "a job without all its nodes was started")

    def test_missing_node_of_a_master_job_is_counted(self):
        result = self.start_on(
            self.alpha, "--master", f"{self.alpha.address}:7100", "--nnodes", 2, "--join_timeout", 2, "true"
        ).wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(5, result)
        self.assert_says(result, r"1 of 2")

    def test_own_address_not_in_the_list(self):
        result = self.start_on(self.alpha, "--ips", "10.77.0.8,10.77.0.9", "true").wait()
        self.assert_usage(result, r"10\.77\.0\.8", re.escape(self.alpha.address), r"--host")
        self.assert_within(2, result)

    def test_host_that_is_not_here(self):
        result = self.start_on(self.alpha, "--ips", self.ips, "--host", "10.77.0.9", "true").wait()
        self.assert_usage(result, r"10\.77\.0\.9", re.escape(self.alpha.address))
        result = self.start_on(self.alpha, "--ips", self.ips, "--host", self.beta.address, "true").wait()
        self.assert_usage(result, r"--host", re.escape(self.alpha.address))

    def test_unresolvable_name(self):
        result = self.start_on(self.alpha, "--ips", f"{self.alpha.address},no-such-host", "true").wait()
        self.assert_ends(result, 75)  # no name server answers here, which may change: not the fault of the command
        self.assert_says(result, r"no-such-host")

    def test_same_machine_twice_under_two_names(self):
        result = self.start_on(self.alpha, "--ips", f"{self.alpha.address},alpha", "true").wait()
        self.assert_usage(result, r"alpha", r"twice|same|more than once")

    def test_loopback_among_many(self):
        result = self.start_on(self.alpha, "--ips", f"127.0.0.1,{self.beta.address}", "true").wait()
        self.assert_usage(result, r"127\.0\.0\.1")

    def test_job_ids_differ(self):
        jobs = [
            self.start_on(machine, "--ips", self.ips, "--job_id", job_id, "--join_timeout", 3, "true")
            for machine, job_id in ((self.alpha, "monday"), (self.beta, "tuesday"))
        ]
        results = [job.wait() for job in jobs]
        self.assertNotIn(0, [result.code for result in results], results[0])
        for result in results:  # node 0 as well: else it waits without knowing why
            self.assert_says(result, r"beta.*refused|with --job_id", r"monday", r"tuesday")

    def test_node_counts_differ(self):
        jobs = [
            self.start_on(
                machine, "--master", f"{self.alpha.address}:7100", "--nnodes", nodes, "--join_timeout", 3, "true"
            )
            for machine, nodes in ((self.alpha, 2), (self.beta, 3))
        ]
        results = [job.wait() for job in jobs]
        self.assertNotIn(0, [result.code for result in results], results[1])
        self.assert_says(results[1], r"nnodes", r"\b2\b", r"\b3\b")

    def test_programs_differ(self):
        jobs = [
            self.start_on(self.alpha, "--ips", self.ips, "sh", "-c", "true"),
            self.start_on(self.beta, "--ips", self.ips, "sh", "-c", "exit 0"),
        ]
        results = [job.wait() for job in jobs]
        for result in results:
            self.assert_ends(result, 0)
        self.assertTrue(
            any(re.search(r"warn.*differ|differ", result.text, re.I) for result in results), f"{results[0]}{results[1]}"
        )

    def test_same_program_is_no_warning(self):
        for result in self.launch_everywhere("--ips", self.ips, "sh", "-c", "true"):
            self.assert_silent_on(result, r"differ")

    def test_settings_of_the_workers_differ(self):
        """Ranks with different backends would wait for each other in vain."""
        jobs = [
            self.start_on(self.alpha, "--ips", self.ips, "sh", "-c", "echo ran >ran", env={"TRIREME_BACKEND": "gloo"}),
            self.start_on(self.beta, "--ips", self.ips, "--env", "TRIREME_CHECK=1", "sh", "-c", "echo ran >ran"),
        ]
        for job in jobs:
            result = job.wait()
            self.assert_ends(result, 75)
            self.assert_says(
                result,
                r"alpha has TRIREME_BACKEND=gloo, but beta has TRIREME_BACKEND unset",
                r"alpha has TRIREME_CHECK unset, but beta has TRIREME_CHECK=1",
            )
        self.assertEqual([self.read_on(machine, "ran") for machine in self.machines], [""] * 2)

    def test_two_jobs_on_the_same_port(self):
        first = self.start_everywhere(
            "--ips", self.ips, "--job_id", "early", "sh", "-c", f"echo $$ >pid; trap 'exit 0' TERM; {FOREVER}"
        )
        self.wait_file_on(self.alpha, "pid"), self.wait_file_on(self.beta, "pid")
        for machine in self.machines:
            late = self.start_on(machine, "--ips", self.ips, "--job_id", "late", "--join_timeout", 3, "true").wait()
            self.assertNotEqual(late.code, 0, late)
            self.assert_says(late, r"6069", r"another job|in use|taken")
        for job in first:
            job.signal(signal.SIGTERM)
        for job in first:
            job.wait()

    def test_two_jobs_with_their_own_ports(self):
        for options in (["--start_port", 17000], ["--start_port", 17100]):
            jobs = self.start_everywhere("--ips", self.ips, *options, "true")
            self.assertEqual([job.wait().code for job in jobs], [0, 0])

    def test_restart_on_two_machines(self):
        """Rank 1 fails the first time; rank 0 is stopped because of it, and both succeed the second time."""
        body = f"""
            echo $TORCHELASTIC_RESTART_COUNT >>counts
            case $TORCHELASTIC_RESTART_COUNT.$RANK in
            0.0) {FOREVER} ;;
            0.1) while [ ! -s {self.folder_of(self.alpha)}/counts ]; do sleep 0.01; done; exit 5 ;;
            esac"""
        for result in self.launch_everywhere("--ips", self.ips, "--max_restart", 1, self.script("worker", body)):
            self.assert_ends(result, 0)
        self.assertEqual([self.read_on(machine, "counts") for machine in self.machines], ["0\n1\n"] * 2)


class Etcd(MachineCase):
    """Nodes that meet by a real etcd."""

    def setUp(self):
        super().setUp()
        url = f"http://{self.alpha.address}:2379"
        self.etcd = self.start_command(
            self.alpha.command(
                self.folder,
                "etcd",
                "--data-dir",
                self.folder / "etcd",
                "--listen-client-urls",
                url,
                "--advertise-client-urls",
                url,
                "--listen-peer-urls",
                "http://127.0.0.1:2380",
                "--unsafe-no-fsync",
            )
        )
        self.etcd.wait_output("ready to serve client requests")
        self.master = f"etcd://{self.alpha.address}:2379"

    def test_two_jobs_by_one_etcd(self):
        body = 'echo "$RANK/$WORLD_SIZE $TORCHELASTIC_RUN_ID" >>world'
        for job_id in ("monday", "tuesday"):
            for result in self.launch_everywhere(
                "--master", self.master, "--nnodes", 2, "--job_id", job_id, "-n", 1, "sh", "-c", body
            ):
                self.assert_ends(result, 0)
        lines = sorted((self.read_on(self.alpha, "world") + self.read_on(self.beta, "world")).splitlines())
        self.assertEqual(lines, ["0/2 monday", "0/2 tuesday", "1/2 monday", "1/2 tuesday"])

    def test_failure_travels(self):
        jobs = self.start_everywhere(
            "--master", self.master, "--nnodes", 2, "-n", 1, "sh", "-c", f"if [ $RANK = 1 ]; then exit 7; fi; {FOREVER}"
        )
        for job in jobs:
            self.assert_ends(job.wait(), 7)

    def test_missing_node(self):
        result = self.start_on(self.beta, "--master", self.master, "--nnodes", 2, "--join_timeout", 2, "true").wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(6, result)
        self.assert_says(result, r"1 of 2")

    def test_same_job_id_after_a_crash(self):
        """What a killed coordinator left in etcd does not keep the next try away."""
        options = ["--master", self.master, "--nnodes", 2, "-n", 1]
        jobs = self.start_everywhere(*options, "sh", "-c", f"echo $$ >pid; {FOREVER}")
        self.wait_file_on(self.alpha, "pid"), self.wait_file_on(self.beta, "pid")
        for job in jobs:
            job.kill()
        for result in self.launch_everywhere(*options, "true", timeout=20):
            self.assert_ends(result, 0)

    def test_no_etcd_there(self):
        result = self.start_on(
            self.beta, "--master", f"etcd://{self.alpha.address}:2999", "--nnodes", 2, "--join_timeout", 2, "true"
        ).wait()
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(6, result)
        self.assert_says(result, r"2999", r"etcd")


class LongWait(MachineCase):
    def test_missing_node_is_named_while_waiting(self):
        alpha = self.start_on(self.alpha, "--ips", self.ips, "true")
        alpha.wait_output(rf"1 of 2 nodes is here; missing {self.beta.address}", timeout=12)
        beta = self.start_on(self.beta, "--ips", self.ips, "true")
        self.assert_ends(beta.wait(), 0)
        self.assert_ends(alpha.wait(), 0)

    def test_a_signal_while_waiting_ends_with_a_line(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            job = self.start_on(self.alpha, "--ips", self.ips, "--quiet", "true")
            wait_for(self.alpha.listens, 10, lambda: f"alpha's port:\n{job.output()}")
            job.signal(number)
            result = job.wait(2)
            self.assert_ends(result, 128 + number)
            self.assertEqual(len(re.findall(rf"^trireme: .*{number.name}.*has not begun", result.err, re.M)), 1, result)


class OneOfThreeIsAbsent(MachineCase):
    names = ("alpha", "beta", "gamma")

    def test_both_others_say_who_is_missing(self):
        jobs = [self.start_on(machine, "--ips", self.ips, "true") for machine in (self.alpha, self.beta)]
        for job in jobs:
            job.wait_output(rf"^trireme: 2 of 3 nodes are here; missing {re.escape(self.gamma.address)} \(")
        self.assert_ends(self.start_on(self.gamma, "--ips", self.ips, "true").wait(), 0)
        for job in jobs:
            result = job.wait()
            self.assert_ends(result, 0)
            self.assertEqual(result.text.count("nodes are here"), 1, result)


class ComeAgainWithoutToken(MachineCase):
    names = ("alpha", "beta", "gamma")

    def test_a_node_may_come_again(self):
        """Enrolment counts who is there, not who ever was."""
        alpha = self.start_on(self.alpha, "--ips", self.ips, "true")
        beta = self.start_on(self.beta, "--ips", self.ips, "true")
        wait_for(self.beta.listens, 10, lambda: f"beta's port, which it opens with its seat:\n{beta.output()}")
        beta.signal(signal.SIGINT)
        beta.wait()
        alpha.wait_output(r"node 1 .*left before the job began")
        jobs = [self.start_on(machine, "--ips", self.ips, "true") for machine in (self.beta, self.gamma)]
        for job in [alpha, *jobs]:
            self.assert_ends(job.wait(), 0)


class ComeAndGo(MachineCase):
    """Nodes that leave before the job has begun."""

    names = ("alpha", "beta", "gamma")

    def token(self):
        path = self.folder / "token"
        path.write_text("5a" * 32)
        path.chmod(0o600)
        return {"TRIREME_TOKEN_FILE": str(path)}

    def start_beta(self, env):
        """beta's launcher once it has taken its seat: it then answers the others' questions on a port of its own."""
        job = self.start_on(self.beta, "--ips", self.ips, "true", env=env)
        wait_for(self.beta.listens, 10, lambda: f"beta's port:\n{job.output()}")
        return job

    def test_a_node_may_come_again(self):
        """Ctrl-C on a waiting node and the same command once more."""
        env = self.token()
        alpha = self.start_on(self.alpha, "--ips", self.ips, "true", env=env)
        first = self.start_beta(env)
        first.signal(signal.SIGINT)
        first.wait()
        alpha.wait_output(r"node 1\b.*left")
        beta = self.start_on(self.beta, "--ips", self.ips, "true", env=env)
        gamma = self.start_on(self.gamma, "--ips", self.ips, "true", env=env)
        for job in (beta, gamma, alpha):
            self.assert_ends(job.wait(), 0)

    def test_coordinator_dies_while_others_wait(self):
        env = self.token()
        alpha = self.start_on(self.alpha, "--ips", self.ips, "true", env=env)
        beta = self.start_beta(env)
        alpha.signal(signal.SIGKILL)
        alpha.wait()
        result = beta.wait(5)
        self.assertNotEqual(result.code, 0, result)
        self.assert_says(result, re.escape(self.alpha.address))

    def test_nodes_that_cannot_reach_each_other(self):
        """gamma cannot answer beta: both reach alpha, and the job must not start."""
        self.gamma.ip("route", "add", "blackhole", self.beta.address)
        results = self.launch_everywhere("--ips", self.ips, "sh", "-c", "echo ran >ran")
        for result in results:
            self.assertNotEqual(result.code, 0, result)
            self.assert_within(15, result)
        self.assert_says(results[0], rf"node 1\b.*node 2\b|node 2\b.*node 1\b", r"firewall|ping|route")
        self.assertEqual([self.read_on(machine, "ran") for machine in self.machines], [""] * 3)


class Strangers(MachineCase):
    names = ("alpha", "beta", "gamma")

    def test_a_node_that_was_not_invited(self):
        """gamma speaks to the meeting port of a job that waits for beta: it is not let in."""
        pair = f"{self.alpha.address},{self.beta.address}"
        alpha = self.start_on(self.alpha, "--ips", pair, "true")
        alpha.wait_output(LISTENING)
        gamma = self.start_on(
            self.gamma, "--master", f"{self.alpha.address}:6069", "--nnodes", 2, "--join_timeout", 3, "true"
        )
        self.assertNotEqual(gamma.wait().code, 0)
        beta = self.start_on(self.beta, "--ips", pair, "true")
        self.assert_ends(beta.wait(), 0)
        self.assert_ends(alpha.wait(), 0)

    def test_a_flood_of_connections_that_say_nothing(self):
        """gamma opens connections as fast as it can, and keeps the last thousand."""
        pair = f"{self.alpha.address},{self.beta.address}"
        alpha = self.start_on(self.alpha, "--ips", pair, "true")
        alpha.wait_output(LISTENING)
        flood = self.start_command(
            self.gamma.command(
                self.folder_of(self.gamma),
                sys.executable,
                "-c",
                "import collections, socket\n"
                "kept = collections.deque(maxlen=1000)\n"
                "while True:\n"
                f"    kept.append(socket.create_connection(('{self.alpha.address}', 6069)))\n"
                "    if len(kept) == 1000: open('flooding', 'w').write('yes')\n",
            )
        )
        self.wait_file_on(self.gamma, "flooding")
        beta = self.start_on(self.beta, "--ips", pair, "true")
        result = beta.wait()
        flood.kill()
        self.assert_ends(result, 0)
        self.assert_within(5, result)
        result = alpha.wait()
        self.assert_ends(result, 0)
        self.assert_says(result, rf"connections that do not greet .*{self.gamma.address}")

    def test_a_silent_name_server(self):
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
        server = self.start_command(
            self.alpha.command(
                self.folder,
                sys.executable,
                "-c",
                "import socket, time\n"
                "server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                "server.bind(('127.0.0.1', 53))\n"
                "open('ready', 'w').write('yes')\n"
                "time.sleep(60)\n",
            )
        )
        self.wait_file("ready")
        launch = f"mount --bind {self.folder}/resolv.conf /etc/resolv.conf && exec {TRIREME} launch"
        command = f"{launch} --ips {self.alpha.address},far.example --join_timeout 1 true"
        result = self.start_command(
            self.alpha.command(self.folder_of(self.alpha), "unshare", "--mount", "sh", "-c", command)
        ).wait(10)
        server.kill()
        self.assert_ends(result, 75)
        self.assert_says(result, r'cannot resolve host "far.example": no answer after 1\.\d s; check /etc/resolv.conf')

    def test_noise_on_the_meeting_port(self):
        pair = f"{self.alpha.address},{self.beta.address}"
        alpha = self.start_on(self.alpha, "--ips", pair, "true")
        alpha.wait_output(LISTENING)
        noise = self.start_command(
            self.gamma.command(
                self.folder_of(self.gamma),
                "bash",
                "-c",
                f"head -c 100000 /dev/urandom >/dev/tcp/{self.alpha.address}/6069",
            )
        )
        noise.wait()
        beta = self.start_on(self.beta, "--ips", pair, "true")
        self.assert_ends(beta.wait(), 0)
        self.assert_ends(alpha.wait(), 0)


if __name__ == "__main__":
    main()
