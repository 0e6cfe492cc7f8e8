"""What the benchmarks share: the peers, facts about the machine, and tables in the pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"


def trireme():
    return Path(os.environ.get("TRIREME", ROOT / "build/bin/trireme"))


def built(name):
    """A program of bench/ beside `trireme`."""
    path = trireme().with_name(name)
    if not path.exists():
        sys.exit(f"no {path}; build it: cmake --build build --target trireme_benches")
    return path


def peers():
    """The folder of the Python peers."""
    asked = subprocess.run(
        ["bash", ROOT / "setup/setup.sh", "where", "peers"], stdout=subprocess.PIPE, text=True, check=True
    )
    folder = Path(asked.stdout.strip())
    if not (folder / "bin/python").exists():
        sys.exit(f"no Python peers in {folder}; run setup/setup.sh interop")
    return folder


def run(command, folder, **options):
    """Standard output of a command; one that fails ends the benchmark."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def machine_facts():
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    kernel = os.uname().release.split("-")[0]
    return f"{len(os.sched_getaffinity(0))} cores, {model[1] if model else 'unknown CPU'}, Linux {kernel}"


def signed(text, script):
    """The table with where and by what it was made."""
    return f"{text}\n\nMachine: {machine_facts()}. Made by `{script}`."


def replace(path, pattern, text):
    page, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.S)
    if count != 1:
        sys.exit(f"{path}: the place for the numbers is not there ({pattern})")
    path.write_text(page)


def write_table(mark, text):
    """Between <!-- bench:MARK --> and <!-- /bench:MARK --> of docs/benchmarks.md."""
    begin, end = f"<!-- bench:{mark} -->", f"<!-- /bench:{mark} -->"
    replace(PAGE, f"{begin}.*?{end}", f"{begin}\n{text}\n{end}")
