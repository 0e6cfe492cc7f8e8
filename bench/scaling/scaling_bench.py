#!/usr/bin/env python3
"""What a second rank costs: weak scaling of two ranks of one thread, and short all_reduce between two hosts.

    bench/scaling/scaling_bench.py [--write] [--rounds N] [--steps N]

Ours and PyTorch's DistributedDataParallel take turns, with one rank and with two, on the same pictures; the fastest median
of each counts. The hosts are network namespaces of this machine, with two ranks on each. Prints two Markdown tables;
--write also puts them between the marks bench:scaling and bench:between_hosts of docs/benchmarks.md. Exit 1 when a result
is wrong or a promise is not kept. Needs root, for the namespaces.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import ROOT, built, cells, peers, publish, run, signed, trireme  # noqa: E402

sys.path += [str(ROOT / "tests/support"), str(HERE.parent / "allreduce")]
import allreduce_bench  # noqa: E402
from machines import machines  # noqa: E402

NETWORK = "mobilenet_v3_small"
LEAST = {32: 0.95, 4: 0.92}  # efficiency at this batch of a rank
OURS, THEIRS = "Trireme", "PyTorch, DistributedDataParallel (Gloo)"
PEERS_PROGRAM = HERE.parent / "step/step_peers.py"
MOST_BYTES = 64 << 10
HEAD = "| batch of a rank | who | 1 rank, images/s | 2 ranks, images/s | efficiency |\n|---:|---|---:|---:|---:|"
HOSTS_HEAD = "| bytes | Gloo, us | Trireme (hierarchical), us | times faster | wrong |\n|---:|---:|---:|---:|---:|"


def step_ms(who, ranks, batch, options, weights, folder):
    if who == OURS:
        command = [trireme(), "launch", "-n", ranks, built("step_bench"), NETWORK, batch, options.steps, weights]
    else:
        command = [peers() / "bin/torchrun", "--nproc-per-node", ranks, PEERS_PROGRAM, "ddp", NETWORK, batch, options.steps, weights]
    text = run(command, folder, timeout=1200, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return float(re.search(r"step_ms=(\S+)", text)[1])


def measure(options, folder):
    """{(batch, who, ranks): ms of a step}"""
    weights = Path(folder) / "weights.safetensors"
    run([peers() / "bin/python", PEERS_PROGRAM, "weights", NETWORK, weights], folder, timeout=300)
    best = {}
    for _ in range(options.rounds):
        for batch in LEAST:
            for who in (OURS, THEIRS):
                for ranks in (1, 2):
                    ms = step_ms(who, ranks, batch, options, weights, folder)
                    best[batch, who, ranks] = min(ms, best.get((batch, who, ranks), ms))
                    print(f"batch {batch}, {who}, {ranks} ranks: {ms:.1f} ms", file=sys.stderr, flush=True)
    return best


def table(best):
    lines = [HEAD]
    for batch in LEAST:
        for who in (OURS, THEIRS):
            one, two = best[batch, who, 1], best[batch, who, 2]
            lines.append(f"| {batch} | {who} | {1000 * batch / one:.1f} | {2000 * batch / two:.1f} | {one / two:.3f} |")
    return "\n".join(lines)


def broken_promises(text):
    for batch, who, _, _, efficiency in cells(text):
        if who == OURS and float(efficiency) < LEAST[int(batch)]:
            yield f"batch {batch}: an efficiency of {efficiency}, promised {LEAST[int(batch)]}"


def between_hosts(folder):
    """{bytes: (Gloo's microseconds, ours, wrong elements)} of two ranks on each of two hosts."""
    with machines(("alpha", "beta"), folder) as hosts:
        for machine in hosts:
            (folder / machine.name).mkdir(exist_ok=True)
        addresses = ",".join(machine.address for machine in hosts)
        words = [trireme(), "launch", "--ips", addresses, "-n", 2, built("allreduce_bench"), MOST_BYTES]
        commands = [machine.command(folder / machine.name, *map(str, words)) for machine in hosts]
        jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
        said = [job.communicate(timeout=600) for job in jobs]
    for job, (out, errors) in zip(jobs, said):
        if job.returncode:
            sys.exit(f"exit {job.returncode}\n{out}{errors}")
    return allreduce_bench.rows("\n".join(out for out, _ in said))


def hosts_table(rounds):
    lines = [HOSTS_HEAD]
    for size in rounds[0]:
        gloo, ours = (statistics.median(found[size][i] for found in rounds) for i in (0, 1))
        lines.append(f"| {size} | {gloo:.1f} | {ours:.1f} | {gloo / ours:.1f} | {sum(found[size][2] for found in rounds)} |")
    return "\n".join(lines)


def wrong_elements(text):
    for size, _, _, _, wrong in cells(text):
        if wrong != "0":
            yield f"{size} bytes between hosts: {wrong} wrong elements"


def slower_than_gloo(text):
    for size, gloo, ours, _, _ in cells(text):
        if float(ours) > float(gloo):
            yield f"{size} bytes between hosts: {ours} us, Gloo {gloo} us"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
        hosts = hosts_table([between_hosts(Path(scratch)) for _ in range(options.rounds)])
        text = table(measure(options, scratch))
    slower, missed = list(slower_than_gloo(hosts)), list(broken_promises(text))
    publish("between_hosts", signed(hosts, "bench/scaling/scaling_bench.py", slower), options.write)
    publish("scaling", signed(text, "bench/scaling/scaling_bench.py", missed), options.write,
            [*wrong_elements(hosts), *slower, *missed])


if __name__ == "__main__":
    main()
