"""--wrap on a terminal: the wrapped rank has the keyboard, as a debugger needs it."""

import os
import pty
import select
import time

from trireme_test import TRIREME, Case, main


class Terminal(Case):
    def typed(self, arguments, when, text):
        """What appears on a terminal where `text` is typed once `when` is shown, and the exit code."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execv(TRIREME, [str(TRIREME), "launch", *arguments])
        shown, asked, deadline = b"", False, time.monotonic() + 20
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                break
            if not asked and when in shown:
                os.write(terminal, text)
                asked = True
        return shown.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_a_wrapped_rank_has_the_keyboard(self):
        wrap = """0:sh -c 'echo ready; read line; echo got $line; exec "$@"' wrapper"""
        shown, code = self.typed(["-n", "2", "--wrap", wrap, "sh", "-c", "echo rank $RANK"], b"ready", b"hello\n")
        self.assertEqual(code, 0, shown)
        self.assertIn("got hello", shown)
        self.assertIn("rank 0", shown)

    def test_without_a_wrap_nobody_has_it(self):
        shown, code = self.typed(["-n", "1", "sh", "-c", "read line || echo no input"], b"never", b"")
        self.assertEqual(code, 0, shown)
        self.assertIn("no input", shown)

    def test_ctrl_c_on_the_terminal_reaches_the_job(self):
        worker = "trap 'echo saved; exit 0' INT; echo up; while :; do sleep 0.05; done"
        shown, code = self.typed(["-n", "1", "sh", "-c", worker], b"up", b"\x03")
        self.assertEqual(code, 130, shown)
        self.assertIn("saved", shown)


if __name__ == "__main__":
    main()
