#!/usr/bin/env python3
"""What it costs to watch a job: the records of each rank, the comparison of calls between hosts, an open dashboard.

    bench/watch/watch_bench.py [--write] [--rounds N] [--calls N]

Each is measured with and without, in turns, several times, on the processors of this machine; the best median of each
counts. The hosts are network namespaces, which need root. Prints Markdown tables; --write also puts them between the marks
<!-- bench:watch --> and <!-- /bench:watch --> of docs/benchmarks.md. Exit 1 when a promise is not kept.
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
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from report import ROOT, built, publish, run, signed, trireme  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/support"))
from machines import machines  # noqa: E402

MOST_RECORDING, LEAST_SPEED = 1.0, 99.0  # percent
WITHOUT_RECORDS = ("env", "-u", "TRIREME_WATCH_FD")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
PAGES = ("/api/state", "/api/curves", "/api/timeline?ranks=0,1")  # what the page asks for, again and again
CALLS = {"step": 500, "reduce": 20_000, "sizes": 50, "dashboard": 1500}
RECORDS = """| two ranks | recorded, us | not recorded, us | cost, % |
|---|---:|---:|---:|"""
COMPARISON = """| all_reduce between two hosts, bytes | compared, us | not compared, us | cost, us |
|---:|---:|---:|---:|"""
DASHBOARD = """| two ranks | plain, us | with a dashboard and a reader, us | speed kept, % |
|---|---:|---:|---:|"""


def times(text):
    """{name: microseconds} of what watch_bench prints."""
    found = {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", text, re.M)}
    if not found:
        sys.exit(f"watch_bench printed no times:\n{text}")
    return found


def best_in_turns(rounds, *ways):
    """The least time of each name, for each of the ways (functions that measure)."""
    best = [{} for _ in ways]
    for number in range(rounds):
        for least, way in zip(best, ways):
            for name, value in way().items():
                least[name] = min(value, least.get(name, value))
        print(f"round {number + 1} of {rounds}: {best}", file=sys.stderr, flush=True)
    return best


def local(scratch, what, calls, wrap=()):
    command = [trireme(), "launch", "-n", 2, *wrap, built("watch_bench"), what, calls]
    return times(run(command, scratch, env=ENVIRONMENT, timeout=900))


def records_table(rounds, calls, scratch):
    names = {"step": "a step of a LeNet, batch 64", "1024": "an all_reduce of 1 KB, again and again"}
    lines = [RECORDS]
    for what in ("step", "reduce"):
        on, off = best_in_turns(rounds, lambda: local(scratch, what, calls[what]),
                                lambda: local(scratch, what, calls[what], WITHOUT_RECORDS))
        lines += [f"| {names[name]} | {on[name]:.2f} | {off[name]:.2f} | {100 * (on[name] / off[name] - 1):.2f} |"
                  for name in on]
    return "\n".join(lines)


def between_hosts(hosts, scratch, calls, check):
    """One rank on each host; what rank 0 prints."""
    words = [trireme(), "launch", "--ips", ",".join(host.address for host in hosts), "-n", "1", "--log_dir", scratch]
    environment = {**ENVIRONMENT, **check}
    jobs = [subprocess.Popen([str(word) for word in host.command(scratch, *words, built("watch_bench"), "sizes", calls)],
                             env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for host in hosts]
    said = [job.communicate(timeout=900) for job in jobs]
    if any(job.returncode for job in jobs):
        sys.exit(f"a job on two hosts has failed: {said}")
    return times(said[0][0])


def comparison_table(rounds, calls, scratch):
    with machines(("alpha", "beta"), scratch) as hosts:
        on, off = best_in_turns(rounds, lambda: between_hosts(hosts, scratch, calls["sizes"], {}),
                                lambda: between_hosts(hosts, scratch, calls["sizes"], {"TRIREME_CHECK": "0"}))
    return "\n".join([COMPARISON] + [f"| {size} | {on[size]:.1f} | {off[size]:.1f} | {on[size] - off[size]:.1f} |"
                                     for size in on])


def read_every_second(url_file, over):
    """What a browser with the open page asks for; returns the number of answers."""
    answers = 0
    while not over.wait(1):
        if url_file.exists():
            for path in PAGES:
                with contextlib.suppress(OSError), urllib.request.urlopen(url_file.read_text().strip().rstrip("/") + path) as page:
                    answers += bool(page.read())
    return answers


def with_dashboard(scratch, calls):
    over, answers = threading.Event(), []
    url_file = Path(scratch) / "log/dashboard.url"
    reader = threading.Thread(target=lambda: answers.append(read_every_second(url_file, over)))
    reader.start()
    try:
        command = [trireme(), "launch", "-n", 2, "--dashboard", 0, built("watch_bench"), "step", calls]
        found = times(run(command, scratch, env=ENVIRONMENT, timeout=900))
    finally:
        over.set()
        reader.join()
    if not answers[0]:
        sys.exit("nobody has read the dashboard: the job was too short")
    return found


def dashboard_table(rounds, calls, scratch):
    plain, read = best_in_turns(rounds, lambda: local(scratch, "step", calls["dashboard"]),
                                lambda: with_dashboard(scratch, calls["dashboard"]))
    kept = 100 * plain["step"] / read["step"]
    return f"{DASHBOARD}\n| a step of a LeNet, batch 64 | {plain['step']:.2f} | {read['step']:.2f} | {kept:.2f} |"


def broken_promises(text):
    costs = dict(re.findall(r"^\| (.*) \| [\d.]+ \| [\d.]+ \| (-?[\d.]+) \|$", text.split(COMPARISON)[0], re.M))
    speed = re.findall(r"^\| .* \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|$", text.split(DASHBOARD)[-1], re.M)
    if len(costs) != 2 or len(speed) != 1:
        yield "a row is missing"
    for name, cost in costs.items():
        if "step" in name and float(cost) >= MOST_RECORDING:
            yield f"{name}: recording costs {cost} %; the promise is less than {MOST_RECORDING:g} %"
    for kept in speed:
        if float(kept) < LEAST_SPEED:
            yield f"with a dashboard a job keeps {kept} % of its speed; the promise is {LEAST_SPEED:g} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, help="of each kind, for a short try")
    arguments = parser.parse_args()
    calls = {name: arguments.calls or usual for name, usual in CALLS.items()}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        tables = [make(arguments.rounds, calls, scratch) for make in (records_table, comparison_table, dashboard_table)]
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    text = "\n\n".join(tables)
    missed = list(broken_promises(text))
    publish("watch", signed(text, "bench/watch/watch_bench.py", missed), arguments.write, missed)


if __name__ == "__main__":
    main()
