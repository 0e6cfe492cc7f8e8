"""What the benchmarks share: the peers, facts about the machine, and tables in the pages."""

import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"
PICTURES = ROOT / "docs/pictures"
MISSED = "Missed:"
NOT_YET = "No run on an idle machine is recorded yet."


def trireme():
    return Path(os.environ.get("TRIREME", ROOT / "build/bin/trireme"))


def built(name):
    """A program of bench/ beside `trireme`."""
    path = trireme().with_name(name)
    if not path.exists():
        sys.exit(f"no {path}; build it: cmake --build build --target {name}")
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


def signed(text, script, missed=(), machine=None):
    """The table with the promises that it does not keep, and where and by what it was made."""
    notes = ["\n".join([MISSED, "", *(f"- {miss}" for miss in missed)])] if missed else []
    return "\n\n".join([text, *notes, f"Machine: {machine or machine_facts()}. Made by `{script}` on {date.today()}{of_commit()}."])


def of_commit():
    """Of which state of the sources, where git knows."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return f", commit {asked.stdout.strip()}" if asked.returncode == 0 else ""


def section(mark):
    """What docs/benchmarks.md has between the marks."""
    return PAGE.read_text().split(f"<!-- bench:{mark} -->\n")[1].split(f"\n<!-- /bench:{mark} -->")[0]


def missed_in(text):
    """The promises that a signed table admits not to keep."""
    _, _, behind = text.partition(f"\n{MISSED}\n")
    return re.findall(r"^- (.*)$", behind, re.M)


def cells(text):
    """The rows of the Markdown tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    is_rule = [set(line) <= set("|-: ") for line in lines] + [False]
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for i, line in enumerate(lines) if not is_rule[i] and not is_rule[i + 1]]


def replace(path, pattern, text):
    page, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.S)
    if count != 1:
        sys.exit(f"{path}: the place for the numbers is not there ({pattern})")
    path.write_text(page)


def write_table(mark, text):
    """Between <!-- bench:MARK --> and <!-- /bench:MARK --> of docs/benchmarks.md."""
    begin, end = f"<!-- bench:{mark} -->", f"<!-- /bench:{mark} -->"
    replace(PAGE, f"{begin}.*?{end}", f"{begin}\n{text}\n{end}")


def publish(mark, text, write, missed=(), plot=None):
    """Prints a signed table; when asked to, puts it and its plot into the pages. Ends with 1 for what was missed."""
    print(text)
    if write:
        write_table(mark, text)
        if plot:
            (PICTURES / f"{mark}.svg").write_text(plot(text))
    if missed:
        sys.exit("\n".join(missed))
