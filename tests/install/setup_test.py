"""What setup/setup.sh promises, with a dpkg, an apt and a Python that only write down what they are asked for."""

import os
import pty
import re
import select
import shutil
import subprocess

import machines
from trireme_test import ROOT, Case, wait_for

SECONDS = 60  # until a line about the progress: off a terminal there is one every 20 s
USUAL = ("bash", "cat", "chmod", "comm", "cut", "dirname", "du", "echo", "flock", "grep", "id", "mkdir", "rm", "rmdir",
         "sed", "sha256sum", "sort", "tail", "touch", "xargs")  # what setup.sh calls besides
STUBS = {
    # Knows the packages that apt-get has "installed".
    "dpkg-query": 'sed "s/^/ii  /" "$STUBS/installed" 2>/dev/null || true',
    "apt-cache": "exit 0",
    "apt-get": """
        echo "apt-get $*" >>"$STUBS/calls"
        case " $* " in *" install "*) ;; *) exit 0 ;; esac
        for word; do case $word in -*|install|*=*) ;; *) echo "$word" >>"$STUBS/installed" ;; esac; done
        [ ! -x /usr/sbin/policy-rc.d ] || { /usr/sbin/policy-rc.d etcd start || echo "policy $?" >>"$STUBS/calls"; }
        """,
    "mmdebstrap": 'for word; do case $word in *.tar) touch "$word" ;; esac; done',
    # `python3 -m venv DIR`, and DIR/bin/python -m pip install --target DIR; the first wheel waits at the gate, if there is one.
    "python3": """
        echo "python3 $*" >>"$STUBS/calls"
        if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$STUBS/bin/python3" "$3/bin/python"; exit; fi
        target=$(echo "$*" | sed 's/.*--target \\([^ ]*\\).*/\\1/')
        head -c 3000000 /dev/zero >"$target/wheel"
        [ ! -p "$STUBS/gate" ] || { cat "$STUBS/gate" >/dev/null; rm "$STUBS/gate"; }
        """,
}


class SetupCase(Case):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name, text in STUBS.items():
            self.script(f"bin/{name}", text)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "STUBS": self.folder, "XDG_CACHE_HOME": self.folder / "cache",
                    "TRIREME_LIBTORCH": "cpu"}

    def be(self, user):
        self.script("bin/id", f"echo {user}")

    def command(self, what):
        """In a mount namespace with an empty /usr/sbin: the machine's own policy for daemons is not touched."""
        (self.folder / "sbin").mkdir(exist_ok=True)
        return ["unshare", "--mount", "sh", "-ec", 'mount --bind "$0/sbin" /usr/sbin; exec "$1" "$2"', self.folder,
                ROOT / "setup/setup.sh", what]

    def set_up(self, what="build", code=0):
        result = self.start_command(self.command(what), env=self.env).wait(SECONDS)
        self.assert_ends(result, code)
        return result

    def calls(self):
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def packages(self, *lists):
        """The names without a question mark, from setup/packages-*.txt."""
        lines = [line.split() for name in lists for line in (ROOT / f"setup/packages-{name}.txt").read_text().splitlines()]
        return {words[0] for words in lines if words and not words[0].startswith("#") and not words[0].endswith("?")}


class Packages(SetupCase):
    def test_without_root_it_names_the_packages(self):
        self.be(1000)
        (self.folder / "installed").write_text("make\ncmake\n")
        result = self.set_up("test", code=1)
        self.assert_says(result, "packages are missing and this is not root", "try again")
        command = re.search(r"^ +sudo apt-get install --no-install-recommends (.*)$", result.err, re.M)
        self.assertTrue(command, result)
        self.assertEqual(set(command[1].split()), self.packages("build", "package", "test") - {"make", "cmake"})
        self.assertEqual(self.calls(), [], "it has tried nothing")

    def test_without_apt_it_names_what_to_install(self):
        (self.bin / "apt-get").unlink()
        for name in USUAL:
            (self.bin / name).symlink_to(shutil.which(name))
        result = self.start_command([shutil.which("bash"), ROOT / "setup/setup.sh", "build"],
                                    env={**self.env, "PATH": self.bin}).wait()
        self.assert_ends(result, 1)
        names = re.search(r"no apt here. Install the equivalents of: (.*)$", result.err, re.M)
        self.assertTrue(names, result)
        self.assertEqual(set(names[1].split()), self.packages("build"))
        self.assert_says(result, "run again with TRIREME_SKIP_PACKAGES=1")
        self.env["TRIREME_SKIP_PACKAGES"] = "1"
        self.set_up()
        self.assertEqual([call for call in self.calls() if "apt" in call], [])

    def test_daemons_are_not_started(self):
        """The policy says no (exit 101) while packages are installed, and is gone afterwards."""
        self.be(0)
        self.set_up("test")
        self.assertIn("policy 101", self.calls())
        self.assertEqual(list((self.folder / "sbin").iterdir()), [])

    def test_a_policy_of_the_machine_stays(self):
        self.be(0)
        (self.folder / "sbin").mkdir()
        own = self.script("sbin/policy-rc.d", "exit 7")
        before = own.read_text()
        self.set_up()
        self.assertIn("policy 7", self.calls())
        self.assertEqual(own.read_text(), before)

    def test_a_second_set_up_does_nothing(self):
        self.be(0)
        first = self.set_up()
        self.assert_says(first, "installing packages: .*ninja-build", "fetching libtorch", "fetching OpenVINO", "done in")
        self.assertEqual(len([call for call in self.calls() if "pip install" in call]), 2)
        (self.folder / "calls").unlink()
        self.assertEqual(self.set_up().text, "")
        self.assertEqual(self.calls(), [])


    def test_the_wheel_needs_no_libtorch(self):
        self.be(0)
        self.assert_says(self.set_up("wheel"), "installing packages: .*patchelf")
        self.assertEqual([call for call in self.calls() if "pip install" in call], [])


class Progress(SetupCase):
    """What is seen while a wheel comes slowly."""

    LINE = r"setup: libtorch \(.*\): [1-9]\d* MB after \d+ s"

    def setUp(self):
        super().setUp()
        self.env["TRIREME_SKIP_PACKAGES"] = "1"
        os.mkfifo(self.folder / "gate")

    def open_gate(self):
        with open(self.folder / "gate", "w"):
            pass  # the end of what the stub reads

    def test_lines_off_a_terminal(self):
        job = self.start_command(self.command("build"), env=self.env)
        job.wait_output(rf"^{self.LINE}$", SECONDS)
        self.assertNotIn("\r", job.output())
        self.open_gate()
        self.assert_ends(job.wait(SECONDS), 0)

    def test_one_line_on_a_terminal(self):
        main, side = pty.openpty()
        job = subprocess.Popen([str(word) for word in self.command("build")], stdin=side, stdout=side, stderr=side,
                               env=self.environment(self.env))
        os.close(side)
        self.addCleanup(os.close, main)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.seen = ""
        wait_for(lambda: re.search(rf"\r\x1b\[K{self.LINE}(?=\r)", self.read_on(main)), SECONDS, lambda: repr(self.seen))
        self.open_gate()
        wait_for(lambda: len(re.findall(r"\r\x1b\[Ksetup: done in \d+ s", self.read_on(main))) == 2, SECONDS,
                 lambda: repr(self.seen))
        self.assertEqual(job.wait(SECONDS), 0)

    def read_on(self, terminal):
        """All that the terminal has shown."""
        while select.select([terminal], [], [], 0)[0]:
            try:
                self.seen += os.read(terminal, 4096).decode()
            except OSError:  # nobody writes any more
                break
        return self.seen


if __name__ == "__main__":
    machines.main()
