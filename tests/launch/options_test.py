"""What the command line takes, and what it refuses with which words."""

import os
import re
from pathlib import Path

from trireme_test import TRIREME, Case, main, read


class WrongOptions(Case):
    def refused(self, *args, says, env=None):
        with self.subTest(args=args):
            result = self.launch(*args, "sh", "-c", "echo ran >ran", env=env)
            self.assert_usage(result, *says)
            self.assert_within(5, result)
            self.assertFalse((self.folder / "ran").exists(), result)

    def test_spelling_hint(self):
        self.refused("--nproc_per_nod", "2", says=[r"--nproc_per_nod\b", r"did you mean.*--nproc_per_node"])
        self.refused("--log-dri=x", says=[r"did you mean.*--log[-_]dir"])
        self.refused("--complete-nonsense-qqq", says=[r"--complete-nonsense-qqq"])

    def test_unknown_subcommand(self):
        result = self.start_command([TRIREME, "lanch", "true"]).wait()
        self.assert_usage(result, r"lanch", r"did you mean.*launch")

    def test_missing_value(self):
        self.assert_usage(self.launch("--job_id"), r"--job_id")

    def test_not_supported_with_the_reason(self):
        for args in (
            ["--servers", "127.0.0.1:1"],
            ["--server_num", "1"],
            ["--run_mode", "ps"],
            ["--auto_tuner_json", "x"],
            ["--legacy", "true"],
        ):
            self.refused(*args, says=[r"not supported", r"because"])

    def test_process_count(self):
        self.refused("-n", "0", says=[r"\b0\b", r"at least 1|1 to|positive"])
        self.refused("-n", "-3", says=[r"-3"])
        self.refused("-n", "two", says=[r"two", r"number"])
        self.refused("-n", "1000000", says=[r"1000000"])
        self.refused("-n", "99999999999999999999", says=[r"99999999999999999999"])
        self.refused("-n", "", says=[r"nproc_per_node|-n"])

    def test_gpus(self):
        for args, words in (
            (["--gpus", "9"], r"\b9\b"),
            (["--gpus", "zero"], r"zero"),
            (["--gpus", "0,0"], r"twice|repeated|more than once|duplicate"),
            (["--gpus", ""], r"empty|missing"),
            (["--gpus", "0,,1"], r"empty|missing"),
            (["--gpus", "-1"], r"-1"),
        ):
            self.refused(*args, says=[words, r"--(gpus|devices)"], env={"CUDA_VISIBLE_DEVICES": ""})

    def test_nnodes(self):
        self.refused("--nnodes", "3:2", says=[r"3:2", r"--nnodes"])
        self.refused("--nnodes", "0", says=[r"--nnodes", r"\b0\b"])
        self.refused("--nnodes", "many", says=[r"many"])
        self.refused("--nnodes", "2:3:4", says=[r"2:3:4"])

    def test_ips(self):
        self.refused("--ips", "", says=[r"--ips", r"empty|missing"])
        self.refused("--ips", "127.0.0.1,,127.0.0.2", says=[r"--ips", r"empty|missing"])
        self.refused("--ips", "127.0.0.1,127.0.0.1", says=[r"127\.0\.0\.1", r"twice|repeated|more than once"])
        self.refused("--ips", "300.300.300.300", says=[r"300\.300\.300\.300"])

    def test_ports(self):
        for port in ("0", "65536", "-1", "http", "70000"):
            self.refused("--start_port", port, says=[port, r"--start_port", r"65535|number"])
        self.refused("-n", "4", "--start_port", "65533", says=[r"65533", r"65535|65536"])
        self.refused("--nnodes", "2", "--master", "127.0.0.1:99999", says=[r"99999"])
        self.refused("--nnodes", "2", "--master", "127.0.0.1:", says=[r"--master"])
        self.refused("-n", "1", says=[r"FLAGS_START_PORT", r"99999"], env={"FLAGS_START_PORT": "99999"})

    def test_numbers(self):
        for args in (
            ["--max_restart", "x"],
            ["--max_restart", "-1"],
            ["--grace", "soon"],
            ["--grace", "-1"],
            ["--join_timeout", "x"],
            ["--rank", "first"],
            ["--log_level", "loud"],
            ["--bind", "elbow"],
            ["--tee", "x"],
            ["--wrap", "gdb"],
        ):
            self.refused(*args, says=[args[0].replace("_", "[-_]"), args[1]])

    def test_rank_outside_nnodes(self):
        self.refused("--nnodes", "2", "--master", "127.0.0.1:7777", "--rank", "2", says=[r"--rank", r"\b2\b"])

    def test_hostfile(self):
        self.refused("--hostfile", "no-such-file", says=[r"no-such-file"])
        (self.folder / "hosts").write_text("# nothing\n\n")
        self.refused("--hostfile", "hosts", says=[r"hosts", r"no host|empty"])
        (self.folder / "hosts").write_text("alpha slots=2\nbeta slots=many\n")
        self.refused("--hostfile", "hosts", says=[r"hosts:2|line 2", r"many"])


class Limits(Case):
    """The number of open files that the shell allows."""

    def launch_limited(self, limits, *args):
        return self.start_command(["sh", "-c", f'{limits}; exec "$@"', "sh", TRIREME, "launch", *args]).wait()

    def test_soft_limit_is_raised(self):
        self.assert_ends(self.launch_limited("ulimit -S -n 64", "-n", 40, "true"), 0)

    def test_hard_limit_is_named_at_once(self):
        result = self.launch_limited("ulimit -n 4096", "-n", 5000, "true")
        self.assertNotEqual(result.code, 0, result)
        self.assert_within(5, result)
        self.assert_says(result, r"\b4096\b", r"ulimit -n")


class Help(Case):
    def test_fits_a_screen(self):
        result = self.start_command([TRIREME, "launch", "--help"]).wait()
        self.assert_ends(result, 0)
        self.assertLessEqual(len(result.out.splitlines()), 60, result)
        self.assert_says(result, r"trireme launch \[options\] PROGRAM", r"--nproc_per_node", r"--ips", r"--gpus",
                         r"--dashboard")

    def test_bare_program(self):
        result = self.start_command([TRIREME]).wait()
        self.assert_says(result, r"trireme launch")

    def test_version(self):
        result = self.start_command([TRIREME, "version"]).wait()
        self.assert_ends(result, 0)
        self.assert_says(result, r"\d+\.\d+\.\d+")


class Commands(Case):
    """Every command follows the same rules, the programs beside `trireme` too."""

    OPTION_AS_VALUE = {
        "launch": ["--host", "--rank", "1", "true"],
        "doctor": ["--host", "--rank", "1"],
        "top": ["--interval", "--once"],
        "report": ["--output", "--help"],
        "tipc prepare": ["x", "--set", "--set=a=b"],
        "tipc run": ["x", "--timeout", "--quiet"],
        "tipc list": ["--set", "--set=a=b"],
        "tipc compare": ["--gt", "--log", "x"],
        "train": ["-c", "--resume", "auto"],
        "eval": ["-c", "-o", "A.b=1"],
        "export": ["--config", "--override", "A.b=1"],
        "infer": ["--image", "--topk", "1"],
        "pack": ["--list", "--output", "x"],
        "serve": ["--host", "--port", "80"],
    }
    APART = ("train", "eval", "export", "infer", "pack", "serve")  # programs of their own; not in a build without libtorch

    def commands(self):
        there = {name for name in self.APART if Path(TRIREME).with_name(f"trireme-{name}").exists()}
        return [name for name in self.OPTION_AS_VALUE if name not in self.APART or name in there]

    def run_words(self, *words):
        return self.start_command([TRIREME, *words]).wait()

    def test_help_has_three_spellings_and_one_text(self):
        for name in [*self.commands(), "tipc", "version"]:
            with self.subTest(command=name):
                result = self.run_words(*name.split(), "--help")
                self.assert_ends(result, 0)
                self.assertTrue(result.out.startswith(f"usage: trireme {name}"), result)
                self.assertLessEqual(len(result.out.splitlines()), 45, result)
                self.assertEqual(self.run_words(*name.split(), "-h").out, result.out)
                self.assertEqual(self.run_words("help", *name.split()).out, result.out)

    def test_every_help_has_examples(self):
        listed = re.findall(r"^  (\w+) ", self.run_words("help").out.partition("COMMAND")[2].partition("\nexamples")[0], re.M)
        self.assertLessEqual({"launch", "doctor", "top", "report", "tipc"}, set(listed))
        not_there = set(self.APART) - set(self.commands())
        for name in {*listed, *self.commands()} - {"version", *not_there}:  # the former takes nothing
            with self.subTest(command=name):
                text = self.run_words("help", *name.split()).out
                examples = re.search(r"^examples:?\n((?:  \S.*\n)+)", text, re.M)
                self.assertTrue(examples, text)
                self.assertRegex(examples[1], rf"(?m)^  trireme {'launch' if name == 'help' else name}\b", text)

    def test_an_option_is_not_a_value(self):
        for name in self.commands():
            option, *rest = self.OPTION_AS_VALUE[name]
            if name.startswith("tipc") and not option.startswith("-"):
                option = rest[0]
            with self.subTest(command=name):
                result = self.run_words(*name.split(), *self.OPTION_AS_VALUE[name])
                self.assert_usage(result, rf"error: {option} needs a value: {option} \S+ \(\S+ is an option")

    def test_spelling_hints(self):
        for name in self.commands():
            with self.subTest(command=name):
                see = rf"\(see: trireme {name} --help\)"
                self.assert_usage(self.run_words(*name.split(), "--hepl"), rf"--hepl; did you mean --help\? {see}")

    def test_help_on_nothing(self):
        self.assert_usage(self.run_words("help", "lanch"), "did you mean.*launch")
        self.assert_usage(self.run_words("help", "tipc", "rnu"), "did you mean run")
        self.assert_usage(self.run_words("version", "now"), "'now' belongs to no option")
        self.assert_usage(self.run_words("doctor", "--ips", "a,b", "./train"), "doctor takes no program")


class Aliases(Case):
    """The names that users of Paddle, torchrun and Horovod have in their fingers."""

    def world(self, *options):
        result = self.launch(*options, "sh", "-c", 'echo "$RANK/$WORLD_SIZE $TORCHELASTIC_RUN_ID" >>world')
        self.assert_ends(result, 0)
        lines = sorted(read(self.folder / "world").split("\n")[:-1])
        (self.folder / "world").unlink()
        return lines

    def test_torchrun(self):
        self.assertEqual(
            self.world(
                "--standalone", "--nproc-per-node=2", "--rdzv-id", "seven", "--max-restarts", "0", "--no-python"
            ),
            ["0/2 seven", "1/2 seven"],
        )
        self.assertEqual(
            self.world(
                "--nproc-per-node",
                "2",
                "--nnodes=1",
                "--node-rank=0",
                "--master-addr=127.0.0.1",
                "--master-port=29577",
                "--rdzv-backend=c10d",
            ),
            ["0/2 default", "1/2 default"],
        )

    def test_horovod(self):
        self.assertEqual(self.world("-np", "2"), ["0/2 default", "1/2 default"])
        self.assertEqual(self.world("-np", "2", "-H", "localhost:2"), ["0/2 default", "1/2 default"])

    def test_paddle(self):
        self.assertEqual(
            self.world("--nproc_per_node", "2", "--job_id", "seven", "--run_mode", "collective"),
            ["0/2 seven", "1/2 seven"],
        )
        self.assertEqual(self.world("--ips", "127.0.0.1", "--nproc_per_node=2"), ["0/2 default", "1/2 default"])

    def test_process_count_in_words(self):
        self.assertEqual(len(self.world("-n", "cpu")), len(os.sched_getaffinity(0)))
        self.assert_usage(self.launch("-n", "gpu", "true", env={"CUDA_VISIBLE_DEVICES": ""}), r"gpu")

    def test_default_is_one_process(self):
        self.assertEqual(self.world(), ["0/1 default"])


if __name__ == "__main__":
    main()
