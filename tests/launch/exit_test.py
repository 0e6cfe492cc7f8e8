"""How the launcher ends: exit codes, programs that cannot start, restarts, result.json."""

import json
import os
import signal

from trireme_test import Case, main, read


class ExitCode(Case):
    def test_success(self):
        result = self.launch("-n", 2, "true")
        self.assert_ends(result, 0)
        self.assert_says(result, r"launch train in CPU mode")

    def test_arguments_pass_untouched(self):
        worker = self.script("worker", 'for word; do printf "<%s>" "$word"; done; echo')
        result = self.launch(worker, "-n", "5", "--gpus=x", "two words", "", "--", "-h", "*")
        self.assert_ends(result, 0)
        self.assertIn("<-n><5><--gpus=x><two words><><--><-h><*>", result.out, result)

    def test_culprits_code_not_the_victims(self):
        result = self.launch(
            "-n", 2, "sh", "-c", 'if [ "$RANK" = 1 ]; then exit 7; fi; trap "exit 3" TERM; while :; do sleep 0.05; done'
        )
        self.assert_ends(result, 7)
        self.assert_says(result, r"rank 1\b.*exit(ed with)?( code| status)? 7", r"rank 0\b.*stopped because of")
        self.assert_within(5, result)

    def test_both_ranks_succeed_at_different_times(self):
        worker = self.script(
            "worker", 'if [ "$RANK" = 1 ]; then while [ ! -e go ]; do sleep 0.02; done; fi; echo done >done.$RANK'
        )
        job = self.start("-n", 2, worker)
        self.wait_file("done.0")
        self.assertEqual(read(self.folder / "done.1"), "", "rank 1 ended before it was allowed to")
        (self.folder / "go").touch()
        self.assert_ends(job.wait(), 0)
        self.assertTrue(read(self.folder / "done.1"))

    def test_python_script_runs_with_python3_unbuffered(self):
        worker = self.folder / "worker.py"
        worker.write_text("import sys\nprint('unbuffered', sys.stdout.write_through, sys.argv[1:])\n")
        result = self.launch(worker, "--flag")
        self.assert_ends(result, 0)
        self.assert_says(result, r"unbuffered True \['--flag'\]")

    def test_last_lines_and_log_path_are_shown(self):
        result = self.launch(
            "-n", 2, "sh", "-c", 'if [ "$RANK" = 1 ]; then seq -f "line %g of rank 1" 100; exit 9; fi; sleep 60'
        )
        self.assert_ends(result, 9)
        self.assert_says(result, r"line 100 of rank 1", r"line 71 of rank 1", r"workerlog\.1")
        self.assert_silent_on(result, r"line 70 of rank 1")


class Program(Case):
    def test_none_given(self):
        self.assert_usage(self.launch("-n", 2), "program")

    def test_missing(self):
        result = self.launch("-n", 2, "./no-such-program")
        self.assert_ends(result, 127)
        self.assert_says(result, r"no-such-program")

    def test_missing_in_path(self):
        result = self.launch("no-such-program-in-path")
        self.assert_ends(result, 127)
        self.assert_says(result, r"no-such-program-in-path.*(not found|no such)")

    def test_missing_python_script(self):
        result = self.launch("no_such_script.py")
        self.assert_ends(result, 127)
        self.assert_says(result, r"no_such_script\.py")

    def test_not_executable(self):
        result = self.launch("-n", 2, self.script("worker", "true", mode=0o644))
        self.assert_ends(result, 126)
        self.assert_says(result, r"worker.*(not executable|permission denied)", r"chmod \+x")

    def test_directory(self):
        result = self.launch(self.folder)
        self.assert_ends(result, 126)
        self.assert_says(result, r"directory")

    def test_wrong_interpreter(self):
        result = self.launch("-n", 2, self.script("worker", "#!/no/such/interpreter\n"))
        self.assertIn(result.code, (126, 127), result)
        self.assert_says(result, r"/no/such/interpreter")

    def test_not_a_program(self):
        path = self.folder / "noise"
        path.write_bytes(b"\x00\x01\x02 no program at all\n")
        path.chmod(0o755)
        result = self.launch(path)
        self.assert_ends(result, 126)
        self.assert_says(result, r"noise")


class Restart(Case):
    FAILS_ONCE = """
        echo "$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS" >>counts.$RANK
        [ "$TORCHELASTIC_RESTART_COUNT" -ge 1 ]"""

    def test_second_try_succeeds(self):
        result = self.launch("-n", 2, "--max_restart", 3, self.script("worker", self.FAILS_ONCE))
        self.assert_ends(result, 0)
        self.assertEqual(read(self.folder / "counts.0").split("\n")[-2], "1 of 3", result)
        self.assertEqual(read(self.folder / "counts.1").split("\n")[-2], "1 of 3", result)
        self.assert_says(result, r"restart")

    def test_a_job_that_keeps_failing_waits_longer(self):
        """Restart 1 is immediate, restart 2 comes a second later."""
        result = self.launch("--max_restart", 2, "sh", "-c", "date +%s%N >>starts; exit 4")
        self.assert_ends(result, 4)
        starts = [int(line) for line in read(self.folder / "starts").split()]
        self.assertEqual(len(starts), 3, result)
        self.assertGreater(starts[2] - starts[1], 0.99e9, result)
        self.assert_says(result, r"restart 2 of 2, in 1 s")

    def test_ctrl_c_ends_the_wait_for_a_restart(self):
        job = self.start("--max_restart", 9, "sh", "-c", "echo x >>starts; exit 4")
        job.wait_output(r"restart 3 of 9, in 2 s")
        job.signal(signal.SIGINT)
        result = job.wait()
        self.assert_ends(result, 130)
        self.assertEqual(read(self.folder / "starts"), "x\n" * 3, result)

    def test_a_program_that_cannot_be_run_is_not_restarted(self):
        for code in (126, 127):
            result = self.launch("--max_restart", 3, "sh", "-c", f"echo {code} >>ran; exit {code}")
            self.assert_ends(result, code)
            self.assert_says(result, rf"not restarted: exit code {code} means")
        self.assertEqual(read(self.folder / "ran"), "126\n127\n")

    def test_no_restart_by_default(self):
        self.assert_ends(self.launch(self.script("worker", self.FAILS_ONCE)), 1)
        self.assertEqual(read(self.folder / "counts.0"), "0 of 0\n")

    def test_restarts_are_counted(self):
        result = self.launch("--max_restarts", 2, "sh", "-c", "echo x >>starts; exit 4")
        self.assert_ends(result, 4)
        self.assertEqual(read(self.folder / "starts"), "x\n" * 3, result)


class ResultFile(Case):
    def test_success(self):
        self.assert_ends(self.launch("-n", 2, "--job_id", "seven", "true"), 0)
        found = self.result_json()
        self.assertEqual(found["exit_code"], 0, found)
        self.assertIn("seven", json.dumps(found))

    def test_failure_names_the_culprit(self):
        self.launch("-n", 2, "sh", "-c", '[ "$RANK" = 0 ] && exec sleep 60; echo "last words"; exit 7')
        found = self.result_json()
        self.assertEqual(found["exit_code"], 7, found)
        culprit = found["culprit"]
        self.assertEqual(culprit["rank"], 1, found)
        self.assertEqual(culprit["exit_code"], 7, found)
        self.assertEqual(culprit["host"], os.uname().nodename, found)
        self.assertIn("workerlog.1", culprit["log"], found)

    def test_signal(self):
        self.launch("sh", "-c", "kill -SEGV $$")
        found = self.result_json()
        self.assertEqual(found["exit_code"], 139, found)
        self.assertIn("segmentation fault", json.dumps(found).lower())

    def test_hostile_output_stays_valid_json(self):
        self.launch("sh", "-c", r'printf "\377\376 \"quoted\" \\ \001\033[31m\n"; exit 5')
        self.assertEqual(self.result_json()["exit_code"], 5)


if __name__ == "__main__":
    main()
