"""What `make package` makes, on a machine with nothing on it."""
import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import unittest
import zipfile
from pathlib import Path

import machines
from bare_debian import BareDebian
from trireme_test import ROOT, TRIREME

sys.path.insert(0, str(ROOT / "tests/docs"))
import pages  # noqa: E402

BUILD = Path(TRIREME).resolve().parents[1]
PACKAGES = BUILD / "packages"
JOB = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
"""
# Packages from /root, which apt's own user may not read; and no waiting for the disk after each file.
APT = "-o APT::Sandbox::User=root -o DPkg::Options::=--force-unsafe-io"
PREFIX = """
import sys
print("python of", sys.prefix)
"""
# Milliseconds of the fastest of ten runs.
STOPWATCH = """
import subprocess, sys, time
def run():
    start = time.perf_counter()
    subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start
print(f"{1000 * min(run() for _ in range(10)):.0f} ms for", *sys.argv[2:])
"""
# An interactive zsh: what it is told first, and then what is typed into it and must appear.
TYPIST = """
import os, pty, select, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp("zsh", ["zsh", "-f", "-i"])
def type_until(keys, words):
    os.write(terminal, keys.encode())
    seen = ""
    while words not in seen:
        if not select.select([terminal], [], [], 60)[0]:
            sys.exit(f"after {keys!r} no {words!r} in {seen!r}")
        seen += os.read(terminal, 4096).decode()
type_until(sys.argv[1] + "; PS1=rea'dy>'\\n", "ready>")
type_until("trireme la\\t", "trireme launch ")
type_until("--nno\\t", "--nnodes")
"""


def only(pattern):
    found = sorted(PACKAGES.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"one {pattern} expected in {PACKAGES}, found {found}")
    return found[0]


class PackageCase(unittest.TestCase):
    maxDiff = None

    def bare_machine(self):
        debian = BareDebian(self)
        (debian.root / "root/job.py").write_text(JOB)
        return debian

    def check_launch(self, debian, program):
        text = debian.run(program, "launch", "-n", 2, "--tee", "all", "--log_dir", "/root/log", "/root/job.py")
        self.assertRegex(text, r"(?m)^rank 0 of 2$")
        self.assertRegex(text, r"(?m)rank 1 of 2$")

    def check_manual(self, file):
        """groff understands every line of a page."""
        done = subprocess.run(["groff", "-Kutf8", "-man", "-ww", "-Tutf8", "-P-cbu", file],  # plain text
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        self.assertIn("NAME", done.stdout)


class Wheel(PackageCase):
    def test_pip_installs_a_launcher(self):
        debian = self.bare_machine()
        debian.take(only("*.whl"), "/root")
        debian.shell("python3 -m venv /root/venv")
        before = debian.files()
        debian.shell("/root/venv/bin/pip install --no-index --disable-pip-version-check /root/*.whl")
        self.check_launch(debian, "/root/venv/bin/trireme")
        self.assertIn("trireme 0.", debian.run("/root/venv/bin/trireme", "version"))
        self.assertIn("it is built with libtorch", debian.run("/root/venv/bin/trireme", "train", code=2))
        self.check_python(debian, "/root/venv")
        self.record_times(debian, "/root/venv/bin/trireme")
        debian.shell("/root/venv/bin/pip uninstall --yes trireme; rm -r /root/log")
        self.assertEqual(debian.files() - before, set())

    def check_python(self, debian, environment):
        """A script finds what pip has installed beside the launcher: nobody has activated the environment."""
        (debian.root / "root/prefix.py").write_text(PREFIX)
        text = debian.run(f"{environment}/bin/trireme", "launch", "-n", 2, "--log_dir", "/root/log", "/root/prefix.py")
        self.assertIn(f"python of {environment}\n", text)
        (debian.root / "root/prefix.py").unlink()

    def record_times(self, debian, program):
        """For those who read the log of the test: how long the installed program takes."""
        for words in (("version",), ("launch", "-n", 2, "--log_dir", "/root/log", "true")):
            print(debian.run("python3", "-c", STOPWATCH, program, *words).splitlines()[-1])

    def test_its_record_is_right(self):
        with zipfile.ZipFile(only("*.whl")) as wheel:
            names = wheel.namelist()
            record = next(name for name in names if name.endswith("/RECORD"))
            lines = [line.rsplit(",", 2) for line in wheel.read(record).decode().splitlines()]
            self.assertEqual(sorted(name for name, _, _ in lines), sorted(names))
            for name, digest, size in lines:
                if name == record:
                    continue
                content = wheel.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, int(size)), (f"sha256={expected}", len(content)), name)

    def test_it_needs_nothing_of_the_system_but_libc(self):
        with zipfile.ZipFile(only("*.whl")) as wheel:
            brought = {Path(name).name for name in wheel.namelist() if "/lib/trireme/system/" in name}
        needed = subprocess.run(["readelf", "-d", TRIREME], capture_output=True, text=True, check=True).stdout
        missing = set(re.findall(r"NEEDED.*\[(.*)\]", needed)) - brought
        self.assertLessEqual(missing, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})

    def test_the_same_files_make_the_same_wheel(self):
        first = only("*.whl").read_bytes()
        subprocess.run(["cmake", "--build", BUILD, "--target", "trireme_wheel"], stdout=subprocess.DEVNULL, check=True)
        self.assertEqual(only("*.whl").read_bytes(), first)


class Tarball(PackageCase):
    def test_it_runs_where_it_is_unpacked(self):
        debian = self.bare_machine()
        opt = debian.root / "opt"
        with tarfile.open(only("trireme-*.tar.gz")) as archive:
            archive.extractall(opt)
        folder = next(opt.iterdir())
        folder.rename(opt / "moved")
        self.check_launch(debian, "/opt/moved/bin/trireme")
        for program in sorted((opt / "moved/bin").glob("trireme-*")):
            self.assertIn("usage:", debian.run(f"/opt/moved/bin/{program.name}", "--help"))
        debian.take(ROOT / "examples/data/fashion-mnist/ankle_boot.png", "/root")
        debian.shell("""
            cd /root
            export CUDA_VISIBLE_DEVICES=-1
            lenet=/opt/moved/share/trireme/configs/classification/LeNet_fashion_mnist.yaml
            trireme=/opt/moved/bin/trireme
            $trireme launch -n 2 --log_dir /root/log $trireme train -c $lenet -o Global.epochs=1 Global.output_dir=/root/output
            $trireme export -c $lenet -o Global.pretrained_model=/root/output/LeNet/best_model Global.save_inference_dir=/root/bundle
            """)
        for engine in ("openvino", "torch"):
            answer = debian.run("/opt/moved/bin/trireme", "infer", "--model-dir", "/root/bundle", "--image",
                                "/root/ankle_boot.png", "--engine", engine)
            self.assertRegex(answer, "class id.*ankle_boot|ankle_boot.*class id")


class DebianPackages(PackageCase):
    def install(self, debian, *patterns):
        """Installs the packages with what they need, from the machine's Debian; returns the files that were there before."""
        for pattern in patterns:
            debian.take(only(pattern), "/root")
        debian.shell("apt-get -qq update")
        before = debian.files()
        files = " ".join(f"/root/{pattern}" for pattern in patterns)
        debian.shell(f"apt-get -qq -y {APT} install --no-install-recommends {files}")
        return before

    def check_completion_by_zsh(self, debian):
        """By the line of docs/install.md; tests/launch/completion_test.py has bash."""
        debian.shell(f"apt-get -qq -y {APT} install --no-install-recommends zsh")
        line = re.search(r"`(autoload -U compinit [^`]*)`", pages.page("docs/install.md"))[1].replace("<prefix>", "/usr")
        debian.run("python3", "-c", TYPIST, line)

    def check_removal(self, debian, before, *packages):
        debian.shell(f"apt-get -qq -y autoremove --purge {' '.join(packages)}; rm -r /root/log")
        left = {str(path.relative_to(debian.root)) for path in debian.files() - before}
        self.assertEqual({path for path in left if "trireme" in path}, set())

    def test_apt_installs_and_removes_the_launcher(self):
        debian = self.bare_machine()
        before = self.install(debian, "trireme-launcher_*.deb")
        self.check_launch(debian, "trireme")
        self.check_completion_by_zsh(debian)
        listed = debian.run("dpkg", "--listfiles", "trireme-launcher")
        for file in ("/usr/bin/trireme", "/usr/share/man/man1/trireme-launch.1",
                     "/usr/share/bash-completion/completions/trireme", "/usr/share/doc/trireme/LICENSE"):
            self.assertIn(file, listed)
        self.assertNotIn("/system/", listed)
        self.check_removal(debian, before, "trireme-launcher")

    def test_apt_installs_and_removes_the_library(self):
        """With it a machine that had nothing compiles the program of README, and runs one that needs libtorch."""
        debian = self.bare_machine()
        before = self.install(debian, "trireme-launcher_*.deb", "trireme_*.deb")
        self.compile_hello(debian)
        text = debian.run("trireme", "launch", "-n", 2, "--tee", "all", "--log_dir", "/root/log", "/root/hello")
        self.assertEqual(len(re.findall(r"rank [01] of 2 starts with seed 42$", text, re.M)), 2, text)
        self.assertIn("usage:", debian.run("trireme", "train", "--help"))
        self.assertEqual(debian.run("pkg-config", "--modversion", "trireme").strip(),
                         debian.run("dpkg-query", "-W", "-f", "${Version}", "trireme").strip())
        self.check_removal(debian, before, "trireme", "trireme-launcher")

    def compile_hello(self, debian):
        """And link with all libraries, each of which must be there."""
        debian.shell("echo 'int main() {}' | g++ -x c++ - $(pkg-config --libs trireme) -o /root/empty && /root/empty")
        blocks = pages.marked_blocks(pages.page("README.md"))
        (program,) = (block.text for block in blocks if block.argument == "hello.cc")
        (debian.root / "root/hello.cc").write_text(program)
        debian.shell("g++ -std=c++20 /root/hello.cc $(pkg-config --cflags --libs trireme-job) -o /root/hello")

    def test_the_library_names_what_it_needs(self):
        file = only("trireme_*.deb")
        depends = subprocess.run(["dpkg-deb", "--field", file, "Depends"], capture_output=True, text=True, check=True).stdout
        for name in ("trireme-launcher", "libspdlog-dev", "libjpeg-dev", "g++"):
            self.assertIn(name, depends)
        self.assertNotIn("gtest", depends)
        content = subprocess.run(["dpkg-deb", "--contents", file], capture_output=True, text=True, check=True).stdout
        for name in ("./usr/bin/trireme-train", "./usr/include/trireme/trireme.h", "./usr/lib/trireme/torch/lib/libtorch_cpu.so"):
            self.assertIn(f" {name}\n", content)
        self.assertNotIn("./usr/bin/trireme\n", content)


class Manuals(PackageCase):
    def test_groff_understands_them(self):
        pages = sorted((BUILD / "man").glob("*.1"))
        self.assertEqual(sorted(page.stem for page in pages),
                         ["trireme", "trireme-doctor", "trireme-eval", "trireme-export", "trireme-infer", "trireme-launch",
                          "trireme-pack", "trireme-report", "trireme-serve", "trireme-tipc", "trireme-top", "trireme-train"])
        for page in pages:
            with self.subTest(page=page.name):
                self.check_manual(page)

    def test_every_option_has_its_place(self):
        for page in sorted((BUILD / "man").glob("trireme-*.1")):
            command = page.stem.removeprefix("trireme-")
            if command == "doctor":  # its options are those of launch, in a table
                continue
            table = subprocess.run([TRIREME, "help", command, "--markdown"], capture_output=True, text=True, check=True).stdout
            text = page.read_text().replace("\\-", "-")
            rows = [row for row in table.splitlines() if row.startswith("| `-") and not re.search(r"\| (Ignored|Refused)", row)]
            self.assertTrue(rows, command)
            for row in rows:
                self.assertIn(f"\\fB{re.match(r'[|] `([^`]*)`', row)[1]}\\fR", text, page)


if __name__ == "__main__":
    machines.main()
