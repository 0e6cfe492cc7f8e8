"""`trireme tipc` on one machine, with scripts as programs."""

import contextlib
import os
import pty
import signal
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tipc_case import TipcCase, statuses
from trireme_test import FOREVER, TRIREME, main, read

GROUP = "norm_train_gpus_cpu2"
PASSED = "Run successfully"


class Good(TipcCase):
    def test_whole_chain(self):
        result = self.run_chain()
        self.assert_ends(result, 0)
        self.assertEqual(statuses(result.out), [PASSED] * 5)
        self.assert_says(result, r"Run successfully with command - CUDA_VISIBLE_DEVICES=-1 trireme launch -n 2 .*!$",
                         r"^epochs 2 of 0/2", r"5 steps: 5 passed, 0 failed, 0 skipped")
        self.assertIn("epochs 2 of 0/2", self.output(f"{GROUP}/train.log"))
        self.assertIn("eval weights", self.output(f"{GROUP}/eval.log"))
        self.assertIn("class id(s)", self.output(f"{GROUP}/cpp_infer_cpu_batchsize_4.log"))
        self.assertIn("epochs 2 of 1/2", self.output(f"{GROUP}/log/workerlog.1"))

    def test_results_and_junit(self):
        self.assert_ends(self.run_chain(), 0)
        lines = self.output("results_cpp.log").splitlines()
        self.assertEqual(len(lines), 5)
        for line in lines:
            self.assertRegex(line, rf"^Run successfully with command - tiny - .* - \./test_tipc/output/tiny/.*\.log!$")
        suite = ElementTree.fromstring(self.output("junit.xml"))
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("5", "0"))

    def test_no_colours_in_a_file(self):
        self.assertNotIn("\033", self.run_chain().text)

    def test_colours_on_a_terminal(self):
        terminal, end = pty.openpty()
        command = [TRIREME, "tipc", "run", self.config, "lite_train_lite_infer", "--quiet"]
        process = subprocess.Popen(command, stdout=end, cwd=self.folder, env=self.environment())
        os.close(end)
        text = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while part := os.read(terminal, 65536):
                text += part
        os.close(terminal)
        self.assertEqual(process.wait(), 0)
        self.assertEqual(text.count(b"\033[32mRun successfully"), 5, text)

    def test_quiet(self):
        result = self.run_chain("--quiet")
        self.assert_silent_on(result, "^epochs")
        self.assertEqual(statuses(result.out), [PASSED] * 5)

    def test_again_in_the_same_folder(self):
        self.assert_ends(self.run_chain(), 0)
        self.program("train", "true")  # trains nothing: what the first run left must not be taken for it
        result = self.run_chain()
        self.assert_ends(result, 1)
        self.assertIn("Run failed", statuses(result.out))
        folder = self.folder / "test_tipc/output/tiny/lite_train_lite_infer" / GROUP
        self.assertEqual(list(folder.glob("cpp_infer_*.log")), [])

    def test_two_chains_at_once(self):
        jobs = []
        for name in ("one", "two"):
            (self.folder / name).mkdir()
            jobs.append(self.start_tipc("run", self.config, "lite_train_lite_infer", cwd=self.folder / name))
        for name, job in zip(("one", "two"), jobs):
            self.assert_ends(job.wait(60), 0)
            self.assertEqual(len(self.output("results_cpp.log", folder=self.folder / name).splitlines()), 5)

    def test_dry_run_and_list_start_nothing(self):
        result = self.run_chain("--dry-run")
        self.assertEqual(len(result.out.splitlines()), 5)
        self.assert_ends(self.tipc("list", self.config, "whole_infer"), 0)
        self.assertFalse((self.folder / "test_tipc").exists())

    def test_the_run_is_the_dry_run(self):
        words = ("--set", "infer_device=True|False")
        shown = self.run_chain("--dry-run", *words).out.splitlines()
        self.assert_ends(self.run_chain(*words), 0)
        begin = {"Run successfully with command - tiny - ": "",
                 "Run skipped (gpu_list has the CPU only) with command - tiny - ":
                     "# skipped (gpu_list has the CPU only): "}
        run = []
        for line in self.output("results_cpp.log").splitlines():
            start = next(text for text in begin if line.startswith(text))
            run.append(begin[start] + line.removeprefix(start).rsplit(" - ", 1)[0])
        self.assertEqual(shown, run)
        self.assertEqual(len([line for line in shown if line.startswith("# skipped")]), 2)

    def test_a_dry_run_that_is_none(self):
        self.assert_ends(self.run_chain("--dry-run=False", "--quiet=False"), 0)
        self.assertTrue((self.folder / "test_tipc").exists())

    def test_a_dry_run_on_a_machine_outside(self):
        words = ("--set", "gpu_list=198.51.100.1,198.51.100.2;cpu:1")
        result = self.run_chain("--dry-run", *words)
        self.assert_ends(result, 0)
        self.assertEqual(len(result.out.splitlines()), 5)
        self.assertIn("none of 198.51.100.1, 198.51.100.2 is this machine", result.err)
        self.assert_usage(self.run_chain(*words), "none of 198.51.100.1, 198.51.100.2 is this machine")

    def test_python_before_scripts(self):
        (self.folder / "eval.py").write_text("print('by python')\n")
        result = self.run_chain("--set", f"eval={self.folder}/eval.py")
        self.assert_ends(result, 0)
        self.assert_says(result, "^by python", r"command - CUDA_VISIBLE_DEVICES=-1 python3 \S*/eval\.py ")

    def test_whole_infer(self):
        (self.folder / "weights").mkdir()
        (self.folder / "weights/latest").write_text("x")
        self.program("export", 'cp -r $(value --pretrained "$@") $(value --save-inference-dir "$@")')
        for words in ((), ("--set", "gpu_list=192.0.2.1,192.0.2.2;cpu:1")):  # nothing is launched: any machine will do
            result = self.run_chain(*words, mode="whole_infer")
            self.assert_ends(result, 0)
            self.assertEqual(statuses(result.out), [PASSED] * 3)


class Bad(TipcCase):
    def assert_statuses(self, result, *expected):
        self.assert_ends(result, 1)
        self.assertEqual(statuses(result.out), list(expected), result)

    def test_training_fails(self):
        self.program("train", "echo out of luck; exit 7")
        result = self.run_chain()
        skipped = "Run skipped (no train before it)"
        self.assert_statuses(result, "Run failed", skipped, skipped, "Run skipped (no export before it)",
                             "Run skipped (no export before it)")
        self.assert_says(result, r"^  exit 7 after .* s; all it said is in \S+/train\.log", r"out of luck",
                         r"0 passed, 1 failed, 4 skipped")
        failure = ElementTree.fromstring(self.output("junit.xml")).find("testcase/failure")
        self.assertEqual(failure.get("message"), "exit 7")

    def test_eval_fails(self):
        self.program("eval", "exit 1")
        self.assert_statuses(self.run_chain(), PASSED, "Run failed", PASSED, PASSED, PASSED)

    def test_infer_fails_once(self):
        self.program("infer", 'test "$(value --batch-size "$@")" = 1')
        self.assert_statuses(self.run_chain(), PASSED, PASSED, PASSED, PASSED, "Run failed")

    @unittest.skipIf(Path("/dev/nvidiactl").exists(), "a GPU is here")
    def test_a_gpu_that_is_not_here(self):
        result = self.run_chain("--set", "gpu_list=0")
        self.assert_statuses(result, "Run failed", *["Run skipped (no train before it)"] * 2,
                             *["Run skipped (no export before it)"] * 2)
        self.assert_says(result, "--gpus 0: no GPU is visible here")

    def test_program_is_missing(self):
        result = self.run_chain("--set", "eval=no-such-program -x")
        self.assert_statuses(result, PASSED, "Run failed", PASSED, PASSED, PASSED)
        self.assert_says(result, "cannot start no-such-program: No such file")

    def test_a_step_hangs(self):
        self.program("eval", f"echo here; {FOREVER}")
        result = self.run_chain("--timeout", "2s", timeout=60)
        self.assert_statuses(result, PASSED, "Run failed", PASSED, PASSED, PASSED)
        self.assert_says(result, r"stopped after 2 s, the time a step may take \(--timeout\)")
        self.assert_gone()

    def test_ctrl_c(self):
        self.program("train", f'echo $$ >pid.$RANK; {FOREVER}')
        job = self.start_tipc("run", self.config, "lite_train_lite_infer")
        self.worker_pids(2)
        job.signal(signal.SIGINT)
        result = job.wait(20)
        self.assert_ends(result, 130)
        self.assert_says(result, "stopped by signal 2", r"5 steps: 0 passed, 1 failed, 0 skipped, 4 not run")
        self.assertIn("Not run", self.output("results_cpp.log"))
        self.assertTrue(self.output("junit.xml"))
        self.assert_gone()

    def test_killed(self):
        """What is left of a chain that was killed goes with it."""
        self.program("train", f'echo $$ >pid.$RANK; {FOREVER}')
        job = self.start_tipc("run", self.config, "lite_train_lite_infer")
        self.worker_pids(2)
        job.signal(signal.SIGKILL)
        job.wait()
        self.assert_gone(15)

    def test_folder_that_cannot_be_made(self):
        (self.folder / "test_tipc").write_text("a file")
        result = self.run_chain()
        self.assert_ends(result, 71)
        self.assert_says(result, "cannot make the folder")


class Words(TipcCase):
    """The command line and the files."""

    def test_usage(self):
        self.assert_usage(self.tipc(), "usage: trireme tipc")
        self.assert_usage(self.tipc("rnu", self.config), "did you mean run")
        self.assert_usage(self.tipc("run"), "CONFIG")
        self.assert_usage(self.tipc("run", self.config, "lite"), "no mode 'lite'", "whole_infer")
        self.assert_usage(self.tipc("run", self.config, "--dryrun"), "did you mean --dry-run")
        self.assert_usage(self.tipc("run", self.config, "--set"), "needs a value")
        self.assert_usage(self.tipc("run", self.config, "--set", "gpulist=0"), "did you mean gpu_list")
        self.assert_usage(self.tipc("run", self.config, "--timeout", "soon"), "--timeout soon")
        self.assert_usage(self.tipc("run", self.folder / "none.txt"), "cannot read the test case")
        self.assert_usage(self.tipc("run", self.config, "--dry-run=maybe"), "--dry-run maybe")

    def test_each_subcommand_explains_itself(self):
        everything = self.tipc("--help")
        self.assert_ends(everything, 0)
        for name in ("prepare", "run", "list", "compare"):
            result = self.tipc(name, "--help")
            self.assert_ends(result, 0)
            self.assertTrue(result.out.startswith(f"usage: trireme tipc {name} "), result)
            self.assertIn(result.out.splitlines()[0], everything.out)
            self.assertEqual(self.start_command([TRIREME, "help", "tipc", name]).wait().out, result.out)

    def test_options_of_other_subcommands(self):
        self.assert_usage(self.tipc("prepare", self.config, "--dry-run"), "belongs to trireme tipc run")
        self.assertFalse((self.folder / "lite_data").exists())
        self.assert_usage(self.tipc("run", self.config, "--atol", "1"), "belongs to trireme tipc compare")
        self.assert_usage(self.tipc("list", "--quiet"), "trireme tipc list has no option '--quiet'")
        self.assert_usage(self.tipc("compare", "--set", "a=b"), "trireme tipc compare has no option '--set'")

    def test_list_beside_a_folder_that_cannot_be_read(self):
        configs = self.folder / "test_tipc/configs"
        for name in "abc":
            (configs / name).mkdir(parents=True)
            (configs / name / "case.txt").write_text(self.config.read_text())
        (configs / "b").chmod(0)
        as_others = [] if os.geteuid() else ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
        result = self.start_command([*as_others, TRIREME, "tipc", "list"]).wait()
        (configs / "b").chmod(0o755)
        self.assert_ends(result, 0)
        self.assertEqual([line.split()[0] for line in result.out.splitlines()],
                         [f"test_tipc/configs/{name}/case.txt" for name in "ac"])

    def test_damaged_files_name_line_and_key(self):
        lines = self.config.read_bytes().splitlines(keepends=True)
        shifted = lines[:5] + lines[6:]
        blank = lines[:9] + [b"\n"] + lines[9:]
        twice = lines[:3] + lines[2:]
        for damaged, *words in (
            (shifted, ":6:", "epoch", "--output-dir"),
            (blank, ":10:", "train_model_name", "blank line"),
            (twice, ":4:", "gpu_list", "'python' .line 3 has that key already"),
            ([lines[0], b"model_name tiny\n", *lines[2:]], ":2:", "model_name", "no ':'"),
            ([*lines[:3], b"gpu_list:0,x\n", *lines[4:]], ":4: gpu_list", "'x'"),
            ([*lines[:3], b"gpu_list:0||1\n", *lines[4:]], ":4: gpu_list", "empty alternative"),
            ([*lines[:3], b"gpu_list:cpu:1|cpu:1\n", *lines[4:]], ":4: gpu_list", "twice"),
            ([*lines[:5], b"--epochs:2|3\n", *lines[6:]], ":6: --epochs", "every mode"),
            ([*lines[:28], b"--batch-size:1|/../..\n", *lines[29:]], ":29: --batch-size", "'/../..'"),
            ([*lines[:5], b"--epochs:lite=5\n", *lines[6:]], ":6: --epochs", "no mode 'lite'"),
            ([*lines[:13], b"norm_train:\xff\n", *lines[14:]], ":14:", "UTF-8"),
            (lines[:20], ":20:", "ends here", "export_weights"),
            ([], "is empty"),
        ):
            self.config.write_bytes(b"".join(damaged))
            self.assert_usage(self.run_chain(), *words)
            self.assertFalse((self.folder / "test_tipc").exists())

    def test_crlf_is_no_damage(self):
        self.config.write_bytes(self.config.read_bytes().replace(b"\n", b"\r\n"))
        self.assert_ends(self.run_chain(), 0)


class Prepare(TipcCase):
    def test_who_forgot_it_is_told(self):
        note = "note: there is no data in ./lite_data; to make some: trireme tipc prepare"
        self.assertIn(note, self.run_chain().out)
        self.assertNotIn(note, self.run_chain("--dry-run").out)
        failed = self.run_chain("--set", "train_command=false")
        self.assertEqual(failed.out.count(note), 2, "said again below what failed")
        self.tipc("prepare", self.config, "lite_train_lite_infer")
        self.assertNotIn(note, self.run_chain().out)

    def test_lite_data(self):
        result = self.tipc("prepare", self.config, "lite_train_lite_infer")
        self.assert_ends(result, 0)
        for split in ("train", "val"):
            lines = read(self.folder / f"lite_data/{split}_list.txt").splitlines()
            self.assertEqual(len(lines), 16)
            for line in lines:
                picture, label = line.split()
                self.assertTrue((self.folder / "lite_data" / picture).read_bytes().startswith(b"\x89PNG"))
                self.assertIn(int(label), range(4))
        self.assert_ends(self.tipc("prepare", self.config, "lite_train_lite_infer"), 0)

    def test_own_data_is_left_alone(self):
        (self.folder / "lite_data").mkdir()
        (self.folder / "lite_data/mine").write_text("x")
        self.assert_usage(self.tipc("prepare", self.config, "lite_train_lite_infer"), "left alone")
        self.assert_ends(self.tipc("prepare", self.config, "whole_train_whole_infer"), 0)

    def test_data_copied_over_lite_data(self):
        self.assert_ends(self.tipc("prepare", self.config, "lite_train_lite_infer"), 0)
        real = self.folder / "lite_data/train_list.txt"
        real.write_text("n01440764/n01440764_10026.JPEG 0\n")
        result = self.tipc("prepare", self.config, "benchmark_train")
        self.assert_usage(result, "lite_data/train_list.txt is not what", "remove \\S*lite_data/made_by_trireme_tipc")
        self.assertIn("n01440764", real.read_text())

    def test_lite_data_is_none_for_a_whole_training(self):
        self.tipc("prepare", self.config, "lite_train_lite_infer")
        self.assert_usage(self.tipc("prepare", self.config, "whole_train_whole_infer"), "put your data set there",
                          r"remove \S*made_by_trireme_tipc")


class Compare(TipcCase):
    def compare(self, expected, *words):
        (self.folder / "gt_fp32.txt").write_text(expected)
        return self.tipc("compare", "--gt", "gt_*.txt", "--log", "log*.txt", *words)

    def setUp(self):
        super().setUp()
        (self.folder / "log.txt").write_text(
            "noise\na.png:\tclass id(s): [1, 2], score(s): [0.75, 0.25], label_name(s): []\n")

    def test_same(self):
        result = self.compare('a.png\t{"class_ids": [1, 2], "scores": [0.7501, 0.25]}\n')
        self.assert_ends(result, 0)
        self.assert_says(result, r"^log\.txt: 1 pictures, 4 numbers compared with gt_fp32\.txt$",
                         r"^note: log\.txt: its numbers have 2 digits .* --atol is 0\.001",
                         r"Assert allclose passed! The results of log\.txt and gt_fp32\.txt are consistent!")

    def test_different(self):
        expected = 'a.png\t{"class_ids": [1, 2], "scores": [0.76, 0.25]}\n'
        result = self.compare(expected)
        self.assert_ends(result, 1)
        self.assert_says(result, "are inconsistent!", r"a\.png: number 3 is 0\.75, expected 0\.76; off by 0\.01")
        self.assert_ends(self.compare(expected, "--atol", "0.1"), 0)

    def test_an_image_is_missing(self):
        result = self.compare("b.png\t[1]\n")
        self.assert_ends(result, 1)
        self.assert_says(result, "0 pictures, 0 numbers", r"gt_fp32\.txt:1: b\.png: no answer for it in log\.txt",
                         r"log\.txt:2: a\.png: no answer for it in gt_fp32\.txt")

    def test_what_is_no_answer(self):
        (self.folder / "log.txt").write_text("a.png:\tclass id(s): [1, 2], score(s): [nan, 0.25], label_name(s): []\n")
        result = self.compare("a.png\t[1, 2, 0.75, 0.25]\na.png\t[1, 2, 0.75, 0.25]\n")
        self.assert_ends(result, 1)
        self.assert_says(result, r"log\.txt:1: a\.png: .*nan", r"gt_fp32\.txt:2: a\.png: line 1 has an answer")

    def test_no_file_for_the_precision(self):
        (self.folder / "gt_bf16.txt").write_text("a.png\t[1]\n")
        result = self.tipc("compare", "--gt", "gt_bf16.txt", "--log", "log.txt")
        self.assert_usage(result, "log.txt needs a file for fp32, or one without a precision", "only gt_bf16.txt")

    def test_only_one_precision(self):
        expected = 'a.png\t{"class_ids": [1, 2], "scores": [0.75, 0.25]}\n'
        self.assert_usage(self.compare(expected, "--precision", "fp16"), "--precision fp16: no log has it in its name")
        (self.folder / "log_fp16.txt").write_text(expected)
        result = self.compare(expected, "--precision", "fp16")
        self.assert_ends(result, 0)
        self.assert_says(result, r"^log_fp16\.txt: 1 pictures")
        self.assert_silent_on(result, r"log\.txt")

    def test_an_expected_log_is_missing(self):
        expected = 'a.png\t{"class_ids": [1, 2], "scores": [0.75, 0.25]}\n'
        (self.folder / "gt_bf16.txt").write_text(expected)
        result = self.compare(expected)
        self.assert_ends(result, 1)
        self.assert_says(result, r"^gt_bf16\.txt: no log was compared with it")
        self.assert_silent_on(result, r"^gt_fp32\.txt: no log")
        (self.folder / "log_bf16.txt").write_text(expected)
        self.assert_ends(self.compare(expected), 0)
        (self.folder / "log.txt").unlink()
        self.assert_ends(self.compare(expected, "--precision", "bf16"), 0)

    def test_pictures_that_cannot_be_told_apart(self):
        same = "a.png\t[0.50]\nb.png\t[0.50]\n"
        (self.folder / "log.txt").write_text(same)
        result = self.compare(same)
        self.assert_ends(result, 0)
        self.assert_says(result, r"^note: log\.txt: all 2 pictures have the same answer")
        result = self.compare(same, "--distinct")
        self.assert_ends(result, 1)
        self.assert_says(result, "are inconsistent!", r"^  log\.txt: all 2 pictures have the same answer")
        (self.folder / "log.txt").write_text(same.replace("a.png\t[0.50]", "a.png\t[0.75]"))
        self.assert_ends(self.compare(same.replace("a.png\t[0.50]", "a.png\t[0.75]"), "--distinct"), 0)

    def test_two_files_for_a_precision(self):
        (self.folder / "gt_other_fp32.txt").write_text("a.png\t[1]\n")
        self.assert_usage(self.compare("a.png\t[1]\n"), "gt_fp32.txt and gt_other_fp32.txt are both for fp32")

    def test_file_names_are_shown_safely(self):
        (self.folder / "log\033[31m.txt").write_text("a.png\t[1]\n")
        result = self.compare("a.png\t[1]\n")
        self.assertNotIn("\033", result.text)

    def test_usage(self):
        for value in ("inf", "nan", "-1"):
            self.assert_usage(self.compare("a.png\t[1]\n", "--atol", value), f"--atol {value}: must be a number")
        self.assert_usage(self.compare("nothing\n"), "gt_fp32.txt has no answers")
        self.assert_usage(self.compare("a.png\t[1]\n", "--atol", "x"), "--atol x")
        self.assert_usage(self.tipc("compare", "--gt", "none.txt", "--log", "log.txt"), "no such file")
        self.assert_usage(self.tipc("compare", "--gt", "log.txt"), "--log")
        self.assert_usage(self.tipc("compare", "--gt", "log.txt", "--log", "a", "b"), "takes no 'b'")


class Benchmark(TipcCase):
    def add_section(self):
        section = "===========train_benchmark_params==========\nbatch_size:8\nfp_items:fp32\nepoch:1\n"
        self.config.write_text(self.config.read_text() + section)

    def test_nothing_measured(self):
        self.add_section()
        result = self.run_chain(mode="benchmark_train")
        self.assert_ends(result, 1)
        self.assert_says(result, r"no line with `ips:` in its log after .*/train\.log", "0 passed, 2 failed")
        self.assertEqual(self.output("results_cpp.log", mode="benchmark_train").count("Run failed with command"), 2)

    def test_a_large_log(self):
        self.add_section()
        # Not printed: the launcher leaves out what comes faster than the chain, on a busy machine, takes it.
        log = '$(value --output-dir "$@")/train.log'
        self.program("train", f"truncate -s 70M {log}; echo 'loss: 2.5, ips: 5.0 samples/s'")
        result = self.run_chain("--quiet", "--set", "gpu_list=cpu:1", mode="benchmark_train")
        self.assert_ends(result, 0)
        self.assert_says(result, r"^\| 1 CPU \| 1 \| 8 \| fp32 \| 5\.00 ")
        [written] = self.folder.glob("test_tipc/output/tiny/benchmark_train/*/train.log")
        self.assertGreater(written.stat().st_size, 64 << 20)

    def test_speed_up(self):
        self.add_section()
        self.program("train", 'for i in 1 2 3 4; do echo "loss: 2.5, ips: $((100 - 10 * WORLD_SIZE)).0 samples/s, eta"; done')
        result = self.run_chain("--quiet", mode="benchmark_train")
        self.assert_ends(result, 0)
        self.assert_says(result, r'"ips": 160\.0', r"^\| 1 CPU \| 1 \| 8 \| fp32 \| 90\.00 \| 1 \| 1\.00 \| 100 % \|$",
                         r"^\| 2 CPU \| 1 \| 8 \| fp32 \| 160\.00 \| 1 \| 1\.78 \| 89 % \|$",
                         "bs8_fp32_DP_N1C2: the mean of 2 only")
        self.assertIn('"device_num": "N1C2"', self.output("bs8_fp32_DP_N1C2.json", mode="benchmark_train"))

    def test_without_its_section(self):
        self.assert_usage(self.run_chain(mode="benchmark_train"), "train_benchmark_params")


if __name__ == "__main__":
    main()
