"""The line at the bottom of the launcher's terminal: it moves, output scrolls above it, and it goes away."""

import os
import pty
import re
import select
import signal
import struct
import fcntl
import termios
import time

import trireme_test
from trireme_test import TRIREME, Case

TRAINER = os.environ["FAKE_TRAINER"]
PATIENCE = 60  # seconds, on a loaded machine
FOREVER = 1_000_000
LINE = r"epoch \d+/4, step \d+/\d+, [\d.]+ samples/s, loss [\d.]+, accuracy -?[\d.e-]+, ETA \d+:\d\d:\d\d"


def screen(text):
    """The lines that a terminal of endless height shows of this."""
    lines, column = [""], 0
    for part in re.findall(r"\033\[K|\r|\n|[^\r\n\033]+", text):
        if part == "\033[K":
            lines[-1] = lines[-1][:column]
        elif part == "\r":
            column = 0
        elif part == "\n":
            lines.append("")
            column = 0
        else:
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part):]
            column += len(part)
    return lines


class Terminal:
    """`trireme launch` on a terminal of its own."""

    def __init__(self, case, *arguments, columns=140):
        self.text = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(case.folder)
            os.execve(TRIREME, [str(TRIREME), "launch", *map(str, arguments)], case.environment())
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, until=None):
        """Reads on until the text matches, or to the end of the job."""
        deadline = time.monotonic() + PATIENCE
        while until is None or not re.search(until, self.text):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {PATIENCE} s still waiting for {until}:\n{self.text}")
            if not select.select([self.terminal], [], [], 1)[0]:
                continue
            try:
                self.text += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:
                break
        return self.text

    def end(self, number=signal.SIGTERM):
        os.kill(self.pid, number)
        return self.wait()

    def wait(self):
        self.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.terminal)
        return code


class OnATerminal(Case):
    def test_it_moves_below_the_output_and_goes_away(self):
        job = Terminal(self, "-n", 2, TRAINER, FOREVER, 20, "epochs=4")
        first = job.read(until=LINE)
        step = int(re.search(r"step (\d+)/", re.search(LINE, first)[0])[1])
        job.read(until=rf"\n.*rank 0 of 2 begins(?s:.*){LINE}")
        deadline = time.monotonic() + PATIENCE
        while max(map(int, re.findall(r", step (\d+)/", job.text))) <= step and time.monotonic() < deadline:
            job.read(until=rf"(?s:{re.escape(job.text)}.+)")
        self.assertGreater(max(map(int, re.findall(r", step (\d+)/", job.text))), step)
        job.read(until=rf"{LINE}[^\r\n]*\033\[K\Z")
        self.assertRegex(screen(job.text)[-1], rf"^(?:{LINE}.*)?$", "below all others")
        self.assertEqual(job.end(), 143)
        shown = screen(job.text)
        self.assertFalse([line for line in shown if "ETA" in line], "the line is gone")
        steps = [line for line in shown if re.search(r"step \d+ loss", line)]
        self.assertTrue(steps)
        for line in steps:
            self.assertRegex(line, r"^step \d+ loss [\d.]+$", "the worker's lines are whole")

    def test_of_a_job_that_ssh_started(self):
        job = Terminal(self, "--ssh", "--ips", "127.0.0.1", "-n", 2, TRAINER, FOREVER, 20, "epochs=4")
        job.read(until=rf"(?s){LINE}.*step \d+ loss.*{LINE}")
        self.assertEqual(job.end(), 143)
        self.assertNotIn("\x1e", job.text)
        self.assertFalse([line for line in screen(job.text) if "ETA" in line], "the line is gone")

    def test_a_narrow_terminal_cuts_it(self):
        job = Terminal(self, "-n", 1, TRAINER, FOREVER, 20, "epochs=4", columns=30)
        job.read(until=r"\repoch \d")
        job.read(until=r"\repoch \d[^\r\033]*\033\[K")
        job.end()
        for line in re.findall(r"\r(epoch \d[^\r\n\033]*)", job.text):
            self.assertLess(len(line), 30)

    def test_a_failure_screen_is_the_last_word(self):
        job = Terminal(self, "-n", 2, TRAINER, FOREVER, 20, "epochs=4", "die=1@150")
        self.assertEqual(job.wait(), 137)
        self.assertRegex(job.text, LINE)
        self.assertFalse([line for line in screen(job.text) if "ETA" in line])

    def test_quiet_and_off_show_nothing(self):
        for options in (["--quiet"], ["--progress", "off"]):
            job = Terminal(self, *options, "-n", 1, TRAINER, 150, 20, "epochs=3")
            self.assertEqual(job.wait(), 0)
            self.assertNotIn("epoch", job.text)

    def test_quiet_and_on_show_it(self):
        job = Terminal(self, "--quiet", "--progress", "on", "-n", 1, TRAINER, FOREVER, 20, "epochs=4")
        job.read(until=LINE)
        job.end()


class Elsewhere(Case):
    def test_nothing_where_there_is_no_terminal(self):
        result = self.launch("-n", 1, TRAINER, 150, 20, "epochs=3", timeout=PATIENCE)
        self.assert_ends(result, 0)
        self.assertNotIn("epoch", result.text)
        self.assertNotIn("\033", result.text)

    def test_on_says_plain_lines(self):
        job = self.start("-n", 1, "--progress", "on", TRAINER, FOREVER, 20, "epochs=4")
        job.wait_output(rf"^trireme: {LINE}", PATIENCE)
        job.signal(signal.SIGTERM)
        self.assertNotIn("\033", job.wait().text)

    def test_on_says_plain_lines_of_a_job_that_ssh_started(self):
        job = self.start("--ssh", "--ips", "127.0.0.1", "-n", 1, "--progress", "on", TRAINER, FOREVER, 20, "epochs=4")
        job.wait_output(rf"^trireme: {LINE}", PATIENCE)
        job.signal(signal.SIGTERM)
        self.assertNotIn("\x1e", job.wait().text)

    def test_a_wrong_word(self):
        self.assert_usage(self.launch("--progress", "maybe", "true"), "--progress maybe: must be auto, on or off")


if __name__ == "__main__":
    trireme_test.main()
