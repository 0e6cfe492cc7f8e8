"""Where the workers' output goes: console, log files; and output that would choke a careless launcher."""

import fcntl
import os
import re
import subprocess
import time

from trireme_test import SANITIZED, TRIREME, Case, main, read, wait_for


class Logs(Case):
    TALK = 'echo "out of $RANK"; echo "err of $RANK" >&2'

    def test_every_rank_has_a_file_and_rank_0_the_console(self):
        result = self.launch("-n", 2, self.script("worker", self.TALK))
        self.assert_ends(result, 0)
        for rank in (0, 1):
            self.assertEqual(
                sorted(read(self.log / f"workerlog.{rank}").splitlines()), [f"err of {rank}", f"out of {rank}"], result
            )
        self.assert_says(result, r"^out of 0$", r"^err of 0$")
        self.assert_silent_on(result, r"of 1$")

    def test_log_dir(self):
        self.assert_ends(self.launch("--log_dir", "deep/er/logs", self.script("worker", self.TALK)), 0)
        self.assertIn("out of 0", read(self.folder / "deep/er/logs/workerlog.0"))
        self.assertTrue((self.folder / "deep/er/logs/result.json").exists())

    def test_a_second_run_appends_or_overwrites(self):
        worker = self.script("worker", self.TALK)
        self.launch(worker)
        self.launch(worker)
        self.assertEqual(read(self.log / "workerlog.0").count("out of 0"), 2)
        self.launch("--log_overwrite", worker)
        self.assertEqual(read(self.log / "workerlog.0").count("out of 0"), 1)

    def test_tee_all_has_prefixes(self):
        result = self.launch("-n", 3, "--tee", "all", self.script("worker", self.TALK))
        host = re.escape(os.uname().nodename)
        self.assert_says(result, r"^out of 0$")
        for rank in (1, 2):
            self.assert_says(result, rf"^{host}:{rank} out of {rank}$", rf"^{host}:{rank} err of {rank}$")

    def test_tee_list(self):
        result = self.launch("-n", 3, "--tee", "2", self.script("worker", self.TALK))
        self.assert_says(result, r"out of 2$")
        self.assert_silent_on(result, r"(out|err) of [01]$")

    def test_local_ranks_filter_is_tee(self):
        result = self.launch("-n", 2, "--local-ranks-filter", "1", self.script("worker", self.TALK))
        self.assert_says(result, r"out of 1$")
        self.assert_silent_on(result, r"out of 0$")

    def test_rank_0_is_seen_live(self):
        job = self.start(self.script("worker", "echo early; while [ ! -e go ]; do sleep 0.02; done"))
        job.wait_output(r"^early$")
        (self.folder / "go").touch()
        self.assert_ends(job.wait(), 0)

    def test_lines_are_never_mixed(self):
        body = 'i=0; while [ $i -lt 300 ]; do printf "%s" "$RANK-begin "; echo "$i end-$RANK"; i=$((i+1)); done'
        result = self.launch("-n", 4, "--tee", "all", self.script("worker", body))
        self.assert_ends(result, 0)
        lines = [line for line in result.out.splitlines() if "begin" in line]
        self.assertEqual(len(lines), 1200)
        for line in lines:
            self.assertRegex(line, r"(\d)-begin \d+ end-\1$")

    def test_rotation(self):
        self.launch(
            "-n",
            1,
            "sh",
            "-c",
            "seq -f 'line %.0f of a long log, padded to be long enough' 60000",
            env={"TRIREME_LOG_MAX_MB": "1"},
        )
        files = sorted(path.name for path in self.log.glob("workerlog.0*"))
        self.assertIn("workerlog.0.1", files)
        for name in files:
            self.assertLess((self.log / name).stat().st_size, 1.2 * 2**20, files)
        self.assertIn("line 60000 of", read(self.log / "workerlog.0"))

    def test_rotation_without_newlines(self):
        self.launch(
            "sh", "-c", 'head -c 20000000 /dev/zero | tr "\\0" x', env={"TRIREME_LOG_MAX_MB": "1"}, discard_stdout=True
        )
        sizes = {path.name: path.stat().st_size for path in self.log.glob("workerlog.0*")}
        self.assertLess(max(sizes.values()), 3 * 2**20, sizes)


class Silence(Case):
    FAILS = 'echo "out of $RANK"; exit 7'

    def test_off_writes_nothing(self):
        for words, env in (
            (["--log_level", "off"], {}), ([], {"TRIREME_LOG_LEVEL": "off"}), ([], {"PADDLE_LOG_LEVEL": "OFF"})
        ):
            result = self.launch("-n", 2, *words, "sh", "-c", "echo out of $RANK", env=env)
            self.assert_ends(result, 0)
            self.assertEqual((result.out, result.err), ("out of 0\n", ""), words)
        result = self.launch("-n", 1, "--log_level", "off", "sh", "-c", self.FAILS)
        self.assert_ends(result, 7)
        self.assertEqual((result.out, result.err), ("out of 0\n", ""))
        self.assertEqual(self.result_json()["exit_code"], 7)

    def test_quiet_shows_failures_only(self):
        result = self.launch("-n", 2, "--quiet", "sh", "-c", "echo out of $RANK", env={"PADDLE_LOG_LEVEL": "DEBUG"})
        self.assert_ends(result, 0)
        self.assertEqual((result.out, result.err), ("out of 0\n", ""))
        result = self.launch("-n", 1, "--quiet", "sh", "-c", self.FAILS)
        self.assert_ends(result, 7)
        self.assert_says(result, r"^Rank 0 on .* failed first: exit 7")
        self.assert_silent_on(result, r"launch train|Local start")

    def test_a_level_that_is_none(self):
        self.assert_usage(self.launch("true", env={"TRIREME_LOG_LEVEL": "loud"}), "TRIREME_LOG_LEVEL=loud", "warning")


class OneFolder(Case):
    WAITS = "echo mine; while [ ! -e go ]; do sleep 0.02; done"

    def test_a_second_job_is_refused_while_the_first_runs(self):
        first = self.start(self.script("worker", self.WAITS))
        first.wait_output("^mine$")
        second = self.launch("sh", "-c", "echo other")
        self.assert_usage(second, r"the log folder \S*/log is in use: process \d+ on ", "--log_dir")
        self.assertIn(f"process {first.pid} ", second.err)
        self.assert_silent_on(second, "^other|launch train")
        self.assert_ends(self.launch("--log_dir", "log2", "sh", "-c", "echo other"), 0)
        (self.folder / "go").touch()
        self.assert_ends(first.wait(), 0)
        self.assertEqual(read(self.log / "workerlog.0"), "mine\n")
        self.assertEqual(self.result_json()["exit_code"], 0)
        self.assert_ends(self.launch("sh", "-c", "echo third"), 0)
        self.assertEqual(read(self.log / "workerlog.0"), "mine\nthird\n")

    def test_a_refused_job_leaves_the_result_of_the_other(self):
        self.assert_ends(self.launch("sh", "-c", "exit 7"), 7)
        with open(self.log / ".launch.lock", "r+", encoding="utf-8") as lock:  # as while the page is shown on
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assert_usage(self.launch("true"), r"the log folder \S*/log is in use")
        self.assertEqual(self.result_json()["exit_code"], 7)

    def test_a_killed_job_leaves_the_folder_free(self):
        first = self.start(self.script("worker", self.WAITS))
        first.wait_output("^mine$")
        first.kill()
        self.assert_ends(self.launch("true"), 0)

    def test_a_launcher_in_a_worker_has_a_folder_of_its_own(self):
        worker = self.script("worker", f"OUTER=$RANK exec {TRIREME} launch -n 1 sh -c 'echo inner of $OUTER'")
        self.assert_ends(self.launch("-n", 2, worker), 0)
        for rank in (0, 1):
            log = self.log / f"nested.{rank}"
            self.assertEqual(read(log / "workerlog.0"), f"inner of {rank}\n")
            self.assertEqual(self.result_json(log)["exit_code"], 0)


class HostileOutput(Case):
    def test_1_gb_without_newline(self):
        result = self.launch(
            "-n", 1, "sh", "-c", 'head -c 1073741824 /dev/zero | tr "\\0" x', discard_stdout=True, timeout=100
        )
        self.assert_ends(result, 0)
        self.assertLess(result.memory_kb, (1000 if SANITIZED else 100) * 1024, result)

    def test_worker_closes_stdout(self):
        body = "exec >&- 2>&-; while [ ! -e go ]; do sleep 0.02; done; echo $$ >done.$RANK"
        job = self.start("-n", 2, self.script("worker", "echo started >started.$RANK; " + body))
        self.wait_file("started.0"), self.wait_file("started.1")
        used = self.cpu_seconds_while_idle(job)
        (self.folder / "go").touch()
        result = job.wait()
        self.assert_ends(result, 0)
        self.assertTrue(read(self.folder / "done.0") and read(self.folder / "done.1"), result)
        self.assertLess(used, 0.1, "the launcher spins on a closed pipe")

    def cpu_seconds_while_idle(self, job):
        """Processor time the launcher uses in half a second: this pause measures, it does not synchronise."""

        def used():
            fields = read(f"/proc/{job.pid}/stat").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        before = used()
        time.sleep(0.5)
        return used() - before

    def test_binary_output(self):
        noise = bytes(range(256)) * 64
        (self.folder / "noise").write_bytes(noise)
        result = self.launch("-n", 2, "sh", "-c", "cat noise; exit 3")
        self.assert_ends(result, 3)
        self.assertEqual((self.log / "workerlog.0").read_bytes(), noise, "the log is not what the worker wrote")

    def test_failure_screen_does_not_carry_escape_codes(self):
        result = self.launch(
            "-n",
            2,
            "sh",
            "-c",
            r'if [ "$RANK" = 1 ]; then printf "\033]0;title\007\033[2Jwiped\n"; exit 3; fi; sleep 60',
        )
        self.assert_ends(result, 3)
        self.assertNotIn("\033[2J", result.text)
        self.assertIn("wiped", result.text)

    def test_last_line_without_newline(self):
        result = self.launch("sh", "-c", "printf unfinished")
        self.assertIn("unfinished", result.out, result)
        self.assertEqual(read(self.log / "workerlog.0").rstrip("\n"), "unfinished")

    def test_console_closed_early(self):
        """`trireme launch ... | head -1` must not stop the training."""
        done = subprocess.run(
            ["bash", "-c", f"'{TRIREME}' launch -n 1 sh -c 'seq 100000; echo end >ended' | head -1"],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=20,
        )
        self.assertEqual(read(self.folder / "ended"), "end\n", done.stderr)

    def test_background_child_keeps_the_pipe(self):
        """A grandchild that holds stdout open does not hold up the end."""
        result = self.launch("-n", 2, "sh", "-c", "sleep 60 & exit 0")
        self.assert_ends(result, 0)
        self.assert_within(8, result)


class LogTrouble(Case):
    TALK = """
        [ -z "$PADDLE_BACKUP_ENV_PATH" ] || [ -s "$PADDLE_BACKUP_ENV_PATH" ] || exit 3  # Paddle would not start
        seq -f "line %.0f of a log that will not fit" 20000; echo done >done.$RANK"""

    def assert_job_went_on(self, result, words):
        self.assert_ends(result, 0)
        self.assertTrue(read(self.folder / "done.0") and read(self.folder / "done.1"), result)
        self.assert_says(result, words)
        self.assertEqual(len(re.findall(words, result.err)), 1, f"said more than once:{result}")

    def test_log_dir_cannot_be_made(self):
        (self.folder / "file").write_text("no folder")
        result = self.launch("-n", 2, "--log_dir", "file/log", self.script("worker", self.TALK))
        self.assert_job_went_on(result, r"log folder \S*file/log: Not a directory")
        self.assert_says(result, r"line 20000 of")

    def test_disk_full(self):
        job = self.start_on_small_disk("256k", "-n", 2, self.script("worker", self.TALK))
        result = job.wait()
        self.assert_job_went_on(result, r"workerlog\.\d: No space left on device")
        self.assert_says(result, r"no result\.json of this job:.*No space left on device")

    def test_disk_full_from_the_start(self):
        job = self.start_on_small_disk(
            "4k", "-n", 2, self.script("worker", self.TALK), prepare="cat /dev/zero >log/filler; true;"
        )
        result = job.wait()
        self.assert_job_went_on(result, r"workerlog\.\d: No space left on device")
        self.assert_says(result, r"no result\.json of this job:.*No space left on device")

    def test_a_removed_folder_is_noticed_and_made_again(self):
        job = self.start("-n", 1, "sh", "-c", "echo early; while [ ! -e go ]; do sleep 0.02; done; echo late")
        wait_for(lambda: "early" in read(self.log / "workerlog.0"), 10, "the first line")
        self.log.rename(self.folder / "removed")  # at once: the launcher writes into it every second
        job.wait_output(rf"log files in {self.log} were removed")
        (self.folder / "go").touch()
        self.assert_ends(job.wait(), 0)
        self.assertEqual(read(self.log / "workerlog.0"), "late\n")
        self.assertEqual(self.result_json()["exit_code"], 0)

    def start_on_small_disk(self, size, *args, prepare=""):
        """./log is a file system of that size, in a mount namespace of the launcher."""
        self.log.mkdir()
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        mount = (
            f'mount -t tmpfs -o size={size} small log && {{ {prepare} }} 2>/dev/null; exec "$@"'
            if prepare
            else f'mount -t tmpfs -o size={size} small log && exec "$@"'
        )
        return self.start_command(["unshare", *user, "--mount", "sh", "-c", mount, "sh", TRIREME, "launch", *args])


if __name__ == "__main__":
    main()
