"""`trireme top` on a real terminal, which tmux draws."""

import json
import os
import signal
import subprocess

import trireme_test
from trireme_test import TRIREME, Case, read, wait_for

TRAINER = os.environ["FAKE_TRAINER"]
START = 30  # seconds, on a loaded machine
FOREVER = 1_000_000


class TopCase(Case):
    def begin(self, *options, ranks=2, trainer=(FOREVER, 20)):
        self.job = self.start("-n", ranks, "--job_id", "mnist", "--quiet", *options, TRAINER, *trainer)
        wait_for(self.all_train, START, lambda: f"steps of all ranks in live.json:\n{self.consoles()}")

    def all_train(self):
        ranks = json.loads(read(self.log / "live.json") or '{"ranks": []}')["ranks"]
        return ranks and all((rank["step"] or 0) > 1 and rank["samples_per_second"] for rank in ranks)

    def end(self):
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def top(self, *words):
        return self.start_command([TRIREME, "top", *words]).wait()


class Once(TopCase):
    def test_the_whole_table(self):
        self.begin()
        by_folder, by_pid = self.top("--once"), self.top(self.job.pid, "--once")
        for result in (by_folder, by_pid):
            self.assert_ends(result, 0)
            self.assert_says(result, r"^mnist: running for \d:\d\d:\d\d, 2 ranks on 1 node$",
                             r"^step \d+, [\d.]+ samples/s, loss ",
                             r"^rank +pid +state +host +device +step +samples/s +loss +comp +comm +data +CPU +memory +now$",
                             r"^ +1 +\d+ +\S.* +CPU +\d+ +[\d.]+ +[\d.]+ +\d+% +\d+% +\d+% .*iB")
            self.assertNotIn("\033", result.text, "for a file, not for a terminal")
        self.end()
        self.assert_says(self.top("--once"), "^the job has ended: interrupted, exit code 143$")

    def test_many_ranks(self):
        self.begin(ranks=24, trainer=(FOREVER, 500))
        self.assertEqual(len(self.top("--once").out.splitlines()), 4 + 24)
        self.end()

    def test_a_program_without_trireme(self):
        self.job = self.start("-n", 1, "--quiet", "sh", "-c", trireme_test.FOREVER)
        wait_for(lambda: "iB" in self.top("--once").out, START, "the memory of the rank")
        self.assert_says(self.top("--once"), "no step recorded", r"^ +0 +\d+ +\w+ +\S+ +CPU +- +- +- +- +- +-")
        self.end()

    def test_a_launcher_that_was_killed(self):
        self.begin()
        self.job.kill()
        self.assert_says(self.top(), "^the job has ended: its launcher was killed$")

    def test_no_such_job(self):
        self.assert_usage(self.top(), "log: not the log folder of a job")
        self.assert_usage(self.top(os.getpid()), f"process {os.getpid()} is not a launcher")


class Terminal(TopCase):
    """A shell in tmux, with `trireme top` typed into it."""

    def setUp(self):
        super().setUp()
        self.socket = self.folder / "tmux"
        self.addCleanup(self.tmux, "kill-server", check=False)

    def tmux(self, *words, check=True):
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *map(str, words)]
        environment = {**self.environment(), "LC_ALL": "C.UTF-8", "TERM": "xterm"}
        done = subprocess.run(command, env=environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=START)
        self.assertFalse(check and done.returncode, done.stdout)
        return done.stdout

    def open_top(self, columns, rows, job="log"):
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, "sh")
        self.tmux("send-keys", f"PS1='$ '; echo before; {TRIREME} top {job} --interval 100ms", "Enter")

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def flag(self, name):
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def wait_screen(self, condition):
        return wait_for(lambda: next(filter(condition, [self.screen()]), None), START,
                        lambda: f"another screen than\n{self.screen()}")

    def step(self):
        words = self.wait_screen(lambda text: "\nstep " in text).split("\nstep ")[1]
        return int(words.split(",")[0].split(";")[0].split()[0])

    def assert_left(self):
        """The shell is back as it was, with its cursor and its keyboard."""
        self.wait_screen(lambda text: "before" in text and "ranks on" not in text)
        self.assertEqual((self.flag("alternate_on"), self.flag("cursor_flag")), ("0", "1"))
        self.tmux("send-keys", "echo still $((6 * 7))", "Enter")
        self.wait_screen(lambda text: "still 42" in text and "echo still" in text)

    def test_a_moving_table(self):
        self.begin()
        self.open_top(130, 20)
        self.wait_screen(lambda text: "mnist: running" in text and " memory" in text and " now" in text)
        self.assertEqual((self.flag("alternate_on"), self.flag("cursor_flag")), ("1", "0"))
        first = self.step()
        wait_for(lambda: self.step() > first, START, "a step that moves")
        self.tmux("send-keys", "q")
        self.assert_left()
        self.end()

    def test_a_narrow_terminal_and_ctrl_c(self):
        self.begin()
        self.open_top(60, 12)
        text = self.wait_screen(lambda text: "mnist: running" in text and "loss" in text)
        for line in text.splitlines():
            self.assertLess(len(line), 60, "a line that is too long is cut, not wrapped")
        self.assertRegex(text, r"(?m)^rank .*host .*step .*loss")
        self.tmux("resize-window", "-x", 130, "-y", 12)
        self.wait_screen(lambda text: " memory" in text)
        self.tmux("send-keys", "C-c")
        self.assert_left()
        self.end()

    def test_more_ranks_than_lines(self):
        self.begin(ranks=24, trainer=(FOREVER, 500))
        self.open_top(100, 12)
        self.wait_screen(lambda text: "17 of 24 ranks are not shown; the worst are above" in text)
        self.tmux("send-keys", "q")
        self.end()

    def test_the_end_of_the_job(self):
        """The pid of its launcher is gone then."""
        self.begin()
        self.open_top(100, 12, job=self.job.pid)
        self.wait_screen(lambda text: "mnist: running" in text)
        self.end()
        self.wait_screen(lambda text: "the job has ended: interrupted, exit code 143" in text)
        self.assert_left()


if __name__ == "__main__":
    trireme_test.main()
