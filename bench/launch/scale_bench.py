#!/usr/bin/env python3
"""What many ranks cost: jobs of 64, 256 and 1,024 ranks over four machines, which are network namespaces of this one.

    bench/launch/scale_bench.py [--write] [--ranks 64,256,1024]

Each size runs two jobs. One meets and does a single all_reduce (examples/01_allreduce.cc; every sum is checked): from the
command to the end, the most memory and descriptors of the launcher that hosts the job's store, and the memory that a rank
adds. In the other, of processes that only wait, one rank ends with exit code 3: how long until the last of the four
launchers has ended. All processors of the machine share the work, so that the time of the start is mostly that of starting
as many programs. A size whose programs would not fit into the memory is left out, with a line. Prints a Markdown table;
--write also puts it between the marks <!-- bench:scale --> and <!-- /bench:scale --> of docs/benchmarks.md. Exit 1 when a
result is wrong. Needs root, for the namespaces.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import ROOT, built, publish, signed, trireme  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/support"))
from machines import machines  # noqa: E402

NAMES = ("alpha", "beta", "gamma", "delta")
PATIENCE = 1500  # seconds for a job
LEAST_FREE = 2 << 30  # bytes that stay free
HEAD = """| ranks | meeting and one all_reduce, s | ms a rank | node 0's launcher, MB | its descriptors | a rank, MB | a failure until all have ended, s |
|---:|---:|---:|---:|---:|---:|---:|"""
# The rank in the middle fails when all others run, and writes down when.
FAILING = """
: >{folder}/here.$RANK
if [ "$RANK" = {rank} ]; then
  while [ "$(ls {folder} | grep -c ^here)" -lt {ranks} ]; do sleep 0.1; done
  date +%s.%N >{file}
  exit 3
fi
exec sleep 1000
"""


def available():
    return int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) << 10


class Watch:
    """The most memory and descriptors that a process has had, and the least memory that the machine had left."""

    def __init__(self, pid):
        self.megabytes = self.descriptors = 0
        self.least_available = available()
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        while not self._over.wait(0.2):
            self.least_available = min(self.least_available, available())
            with contextlib.suppress(OSError, TypeError):  # it has ended
                status = Path(f"/proc/{self._pid}/status").read_text()
                self.megabytes = max(self.megabytes, int(re.search(r"VmHWM:\s+(\d+)", status)[1]) >> 10)
                self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{self._pid}/fd")))

    def close(self):
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def started(hosts, folder, ranks, *program):
    """The launchers, which have ended afterwards."""
    addresses = ",".join(host.address for host in hosts)
    words = [trireme(), "launch", "--ips", addresses, "-n", ranks // len(hosts), "--hang_timeout", 0, *program]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    jobs = []
    for host in hosts:
        with open(folder / f"{host.name}.txt", "w") as said:
            command = [str(word) for word in host.command(folder, *words[:2], "--log_dir", folder / host.name, *words[2:])]
            jobs.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment))
    try:
        yield jobs
    finally:
        for job in jobs:
            job.terminate()
        for job in jobs:
            job.wait()


def said(hosts, folder):
    return "\n".join((folder / f"{host.name}.txt").read_text()[-2000:] for host in hosts)


def all_reduce(hosts, folder, ranks):
    """Seconds, and what Watch saw of node 0."""
    before, begin = available(), time.monotonic()
    with started(hosts, folder, ranks, built("example_allreduce")) as jobs:
        watch = Watch(jobs[0].pid)
        codes = [job.wait(PATIENCE) for job in jobs]
        seconds = time.monotonic() - begin
        watch.close()
    if any(codes):
        sys.exit(f"{ranks} ranks: exit codes {codes}\n{said(hosts, folder)}")
    total = ranks * (ranks + 1) // 2
    sums = [text for host in hosts for log in sorted((folder / host.name).glob("workerlog.*"))
            for text in re.findall(r"rank \d+ of \d+ by \w+: (.*)", log.read_text())]
    if sums != [f"{total} {total} {total}"] * ranks:
        sys.exit(f"{ranks} ranks: {len(sums)} sums, not all of them {total}")
    return seconds, watch, (before - watch.least_available) / ranks


def failure(hosts, folder, ranks):
    """Seconds from the end of one rank to the end of the last launcher."""
    when = folder / "when.txt"
    script = FAILING.format(rank=ranks // 2, ranks=ranks, folder=folder, file=when)
    with started(hosts, folder, ranks, "sh", "-c", script) as jobs:
        codes = [job.wait(PATIENCE) for job in jobs]
        ended = time.time()
    if codes != [3] * len(jobs) or not when.exists():
        sys.exit(f"{ranks} ranks of which one failed: exit codes {codes}\n{said(hosts, folder)}")
    return ended - float(when.read_text())


def measure(hosts, folder, sizes):
    rows, rank_bytes = [HEAD], 0
    for ranks in sizes:
        if available() < ranks * rank_bytes + LEAST_FREE:
            rows.append(f"| {ranks} | not run: {ranks * rank_bytes / 2**30:.0f} GB would be needed | | | | | |")
            continue
        place = Path(folder) / str(ranks)
        place.mkdir()
        seconds, watch, rank_bytes = all_reduce(hosts, place, ranks)
        (place / "failing").mkdir()
        propagation = failure(hosts, place / "failing", ranks)
        rows.append(f"| {ranks} | {seconds:.1f} | {1000 * seconds / ranks:.0f} | {watch.megabytes} | {watch.descriptors} | "
                    f"{rank_bytes / 2**20:.0f} | {propagation:.2f} |")
        print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parser.add_argument("--ranks", default="64,256,1024")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder, machines(NAMES, folder) as hosts:
        text = measure(hosts, folder, [int(size) for size in options.ranks.split(",")])
    publish("scale", signed(text, "bench/launch/scale_bench.py"), options.write)


if __name__ == "__main__":
    main()
