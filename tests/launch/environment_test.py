"""What each worker finds in its environment, and what the console says about it."""

import json
import os
import re

from trireme_test import TRIREME, Case, environment_of, main, read

DUMP = "env -0 >env.$RANK"
HEADLINE = "Local start 2 processes. First process distributed environment info (Only For Debug):"


class Environment(Case):
    def dump(self, *options, count=2, env=None):
        result = self.launch(*options, self.script("worker", DUMP), env=env)
        self.assert_ends(result, 0)
        return self.worker_environments(count)

    def assert_values(self, env, **expected):
        self.assertEqual({name: env.get(name) for name in expected}, expected)

    def test_two_processes(self):
        for rank, env in enumerate(self.dump("-n", 2, "--job_id", "seven")):
            self.assert_values(
                env,
                RANK=f"{rank}",
                LOCAL_RANK=f"{rank}",
                WORLD_SIZE="2",
                LOCAL_WORLD_SIZE="2",
                GROUP_RANK="0",
                GROUP_WORLD_SIZE="1",
                TORCHELASTIC_RESTART_COUNT="0",
                TORCHELASTIC_MAX_RESTARTS="0",
                TORCHELASTIC_RUN_ID="seven",
                TORCHELASTIC_USE_AGENT_STORE="False",
                PADDLE_TRAINER_ID=f"{rank}",
                PADDLE_GLOBAL_RANK=f"{rank}",
                PADDLE_LOCAL_RANK=f"{rank}",
                PADDLE_RANK_IN_NODE=f"{rank}",
                PADDLE_TRAINERS_NUM="2",
                PADDLE_GLOBAL_SIZE="2",
                PADDLE_LOCAL_SIZE="2",
                PADDLE_NNODES="1",
                PADDLE_DISTRI_BACKEND="gloo",
                PADDLE_LOG_DIR=str(self.log),
            )

    def test_endpoints(self):
        first, second = self.dump("-n", 2)
        endpoints = first["PADDLE_TRAINER_ENDPOINTS"].split(",")
        self.assertEqual([first["PADDLE_CURRENT_ENDPOINT"], second["PADDLE_CURRENT_ENDPOINT"]], endpoints)
        self.assertEqual(len(set(endpoints)), 2)
        for name in ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_MASTER", "MASTER_ADDR", "MASTER_PORT"):
            self.assertEqual(first[name], second[name], name)
        self.assertRegex(first["PADDLE_MASTER"], r"^\S+:\d+$")
        self.assertNotIn(first["MASTER_PORT"], [endpoint.rpartition(":")[2] for endpoint in endpoints])

    def test_every_variable_of_the_peers_is_there(self):
        env = self.dump("-n", 1, count=1)[0]
        wanted = {
            "PADDLE_AUTO_CLUSTER",
            "PADDLE_BACKUP_ENV_PATH",
            "POD_NAME",
            "OMP_NUM_THREADS",
            "GLOO_SOCKET_IFNAME",
            "TRIREME_STORE",
        }
        self.assertEqual(wanted - env.keys(), set())

    def test_backup_file_holds_the_same(self):
        """Paddle opens PADDLE_BACKUP_ENV_PATH itself and reads variables from it that are not set."""
        for env in self.dump("-n", 2):
            backup = json.loads(read(env["PADDLE_BACKUP_ENV_PATH"]))
            for name in ("PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"):
                self.assertEqual(backup[name], env[name])

    def test_fixed_ports(self):
        for name in ("FLAGS_START_PORT", "PADDLE_START_PORT"):
            with self.subTest(name):
                envs = self.dump("-n", 2, env={name: "17000"})
                self.assertEqual(
                    [env["PADDLE_CURRENT_ENDPOINT"].rpartition(":")[2] for env in envs], ["17000", "17001"]
                )

    def test_option_beats_variable(self):
        envs = self.dump("-n", 2, "--start_port", 18000, env={"FLAGS_START_PORT": "17000"})
        self.assertEqual([env["PADDLE_CURRENT_ENDPOINT"].rpartition(":")[2] for env in envs], ["18000", "18001"])

    def test_threads_share_the_cores(self):
        cores = len(os.sched_getaffinity(0))
        self.assert_values(self.dump("-n", 2)[0], OMP_NUM_THREADS=str(max(1, cores // 2)))

    def test_what_the_user_set_stays(self):
        mine = {
            "OMP_NUM_THREADS": "3",
            "GLOO_SOCKET_IFNAME": "mine0",
            "NCCL_SOCKET_IFNAME": "mine1",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "PLAIN": "inherited",
        }
        self.assert_values(self.dump("-n", 2, env=mine)[1], **mine)

    def test_env_option(self):
        env = self.dump("-n", 2, "--env", "A=1", "--env=B=two words=x", "--env", "PLAIN=", env={"PLAIN": "inherited"})[
            1
        ]
        self.assert_values(env, A="1", B="two words=x", PLAIN="")

    def test_env_option_without_value(self):
        self.assert_usage(self.launch("--env", "NO_EQUALS_SIGN", "true"), r"--env", r"NO_EQUALS_SIGN")

    def test_wrap_one_rank(self):
        first, second = self.dump("-n", 2, "--wrap", "1:env WRAPPED=yes")
        self.assertNotIn("WRAPPED", first)
        self.assert_values(second, WRAPPED="yes", RANK="1")

    def test_wrap_of_no_such_rank(self):
        self.assert_usage(self.launch("-n", 2, "--wrap", "2:gdb", "true"), r"--wrap", r"\b2\b")
        self.assert_usage(self.launch("-n", 2, "--wrap", "2:\033[31m", "true"), r"2:\\x1b\[31m")  # no terminal obeys it

    def test_stdin_is_empty(self):
        self.assert_ends(self.launch("-n", 2, "sh", "-c", "! read line"), 0)


class Inheritance(Case):
    """What a worker gets besides variables: descriptors, signals, a group of its own."""

    def report(self, body, *options):
        """The values that Python workers print as JSON, by rank."""
        worker = self.script("worker.py", f"import json, os, signal, sys\n{body}\n", mode=0o644)
        self.assert_ends(self.launch("-n", 2, "--log_overwrite", *options, worker), 0)
        return [json.loads(read(self.log / f"workerlog.{rank}")) for rank in (0, 1)]

    def test_no_stray_descriptors(self):
        body = (
            "fds = set(map(int, os.listdir('/proc/self/fd')))\n"
            "mine = {int(os.environ[name]) for name in os.environ if name.startswith('TRIREME_') and name.endswith('_FD')}\n"
            "stray = [f'/proc/self/fd/{fd}' for fd in fds - mine - {0, 1, 2}]\n"
            "print(json.dumps([os.readlink(path) for path in stray if os.path.lexists(path)]))"
        )
        self.assertEqual(self.report(body), [[], []])

    def test_every_worker_can_read_the_token(self):
        first, second = self.report("print(json.dumps(os.pread(int(os.environ['TRIREME_TOKEN_FD']), 100, 0).hex()))")
        self.assertEqual(first, second)
        self.assertEqual(len(first), 64)

    def test_token_is_read_only(self):
        body = (
            "fd = int(os.environ['TRIREME_TOKEN_FD'])\n"
            "try:\n    os.pwrite(fd, b'x' * 32, 0); print('true')\nexcept OSError:\n    print('false')"
        )
        self.assertEqual(self.report(body), [False, False])

    def test_signals_are_as_a_shell_gives_them(self):
        body = "print(json.dumps([line.split()[1] for line in open('/proc/self/status') if line.startswith('SigBlk')]))"
        self.assertEqual(self.report(body), [["0" * 16]] * 2)
        body = (
            "some = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)\n"
            "print(json.dumps([s.name for s in some if signal.getsignal(s) != signal.SIG_DFL]))"
        )
        self.assertEqual(self.report(body), [[], []])

    def test_limit_of_open_files(self):
        """The launcher takes all that it may have; its workers get what it was started with."""
        worker = self.script("worker", "echo $(ulimit -Sn) $(awk '/open files/ { print $4 }' /proc/$LAUNCHER/limits) >limits")
        command = f'export LAUNCHER=$$; ulimit -Sn 300; exec {TRIREME} launch -n 1 {worker}'
        self.assert_ends(self.start_command(["sh", "-c", command]).wait(), 0)
        own, launchers = map(int, read(self.folder / "limits").split())
        self.assertEqual(own, 300)
        self.assertGreater(launchers, own)

    def test_bind(self):
        body = "print(json.dumps(sorted(os.sched_getaffinity(0))))"
        everything = sorted(os.sched_getaffinity(0))
        self.assertEqual(self.report(body), [everything] * 2)
        first, second = self.report(body, "--bind", "core")
        self.assertEqual((len(first), len(second)), (max(1, len(everything) // 2),) * 2)
        self.assertTrue(len(everything) == 1 or not set(first) & set(second), (first, second))
        for cpus in self.report(body, "--bind", "numa"):
            self.assertLessEqual(set(cpus), set(everything))

    def test_own_process_group(self):
        launcher_and_workers = self.report("print(json.dumps([os.getpgrp(), os.getpid()]))")
        self.assertEqual(len({group for group, _ in launcher_and_workers}), 2)


class Table(Case):
    def rows(self, result):
        return dict(re.findall(r"^    \| +(\S+) {2,}(.*?) *\|$", result.text, re.M))

    def test_the_box(self):
        result = self.launch("-n", 2, self.script("worker", DUMP))
        env = environment_of(self.folder / "env.0")
        self.assertIn(HEADLINE, result.text, result)
        rules = re.findall(r"^    \+([=-]+)\+$", result.text, re.M)
        self.assertEqual(rules, ["=" * 87, "-" * 87, "=" * 87], result)
        rows = self.rows(result)
        for name in ("PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINER_ID"):
            self.assertEqual(rows.get(name), env[name], result)
        widths = {len(line) for line in result.text.splitlines() if re.match(r"    [+|]", line)}
        self.assertEqual(widths, {4 + 89}, result)

    def test_long_values_are_cut_to_the_box(self):
        result = self.launch("-n", 8, "true")
        self.assert_says(result, r"^    \| +PADDLE_TRAINER_ENDPOINTS  \.\.\. .*\.\.\. \|$")
        self.assertEqual(
            {len(line) for line in result.text.splitlines() if re.match(r"    [+|]", line)}, {4 + 89}, result
        )

    def test_no_colour_in_a_file(self):
        self.assertNotIn("\033[", self.launch("-n", 2, "sh", "-c", "exit 7").text)


class DryRun(Case):
    def test_prints_the_plan_and_starts_nothing(self):
        result = self.launch("-n", 2, "--dry-run", self.script("worker", "echo ran >ran"), "--lr", "0.1")
        self.assert_ends(result, 0)
        self.assertFalse((self.folder / "ran").exists(), "a dry run started the program")
        self.assertFalse(self.log.exists(), "a dry run made the log folder")
        self.assert_says(
            result,
            r"\bRANK\b.*1",
            r"PADDLE_TRAINER_ENDPOINTS",
            r"WORLD_SIZE.*2",
            r"\bCPU\b",
            r"worker --lr 0\.1",
            os.uname().nodename,
        )


if __name__ == "__main__":
    main()
