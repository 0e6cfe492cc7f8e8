#!/usr/bin/env python3
"""How much faster training is on two processes and on two machines: `trireme tipc run … benchmark_train`.

    bench/speedup/speedup_bench.py [--steps 20] [--write]

The machines are two network namespaces of this one, a process on each, which meet over a virtual switch: it is the same
two cores in both cases, and what differs is the way between the processes. Prints a Markdown table in the form of the
documents of the original chain; --write also puts it between the marks <!-- bench:speedup --> and <!-- /bench:speedup -->
of docs/benchmarks.md. Exit 1 when two processes are no faster than one. Needs root, for the namespaces.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from report import ROOT, cells, publish, run, signed, trireme  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/support"))
from machines import machines  # noqa: E402

NETWORKS = {"MobileNetV3_small_x1_0": 32, "PPLCNet_x0_25": 32, "ResNet50": 8}  # and the batch of each process
LEAST = 1.0
MODE = "benchmark_train"
CONFIG = """\
Global: {{output_dir: out, device: cpu, epochs: 1, print_batch_step: 1, image_shape: [3, 224, 224], eval_during_train: False, seed: 1}}
Arch: {{name: {name}, class_num: 1000, pretrained: False}}
Loss: {{Train: [CELoss: {{weight: 1.0}}]}}
Optimizer: {{name: Momentum, momentum: 0.9, lr: {{name: Constant, learning_rate: 0.01}}}}
DataLoader:
  Train:
    dataset: {{name: Synthetic, samples: {samples}}}
    sampler: {{name: DistributedBatchSampler, batch_size: {batch}, drop_last: True, shuffle: True}}
"""
SECTION = "===========train_benchmark_params==========\nbatch_size:{batch}\nfp_items:fp32\nepoch:1\n"


def make_case(name, batch, samples, folder):
    """The network's case for several machines, with numbers for pictures, so that no disk is measured."""
    (folder / "config.yaml").write_text(CONFIG.format(name=name, batch=batch, samples=samples))
    text = (ROOT / f"test_tipc/configs/{name}/train_fleet_infer_cpp.txt").read_text()
    (folder / "case.txt").write_text(text + SECTION.format(batch=batch))


def chain(devices):
    return [trireme(), "tipc", "run", "case.txt", MODE, "--quiet", "--set", f"gpu_list={devices}", "--set",
            "fleet_train=trireme train -c config.yaml"]


def throughput(name, devices, folder):
    """Samples a second of all processes together."""
    [file] = folder.glob(f"test_tipc/output/{name}/{MODE}/bs*_fp32_DP_{devices}.json")
    return json.loads(file.read_text())["ips"]


def measure_two_machines(folder, hosts):
    commands = [machine.command(folder / machine.name, *map(str, chain(f"{','.join(m.address for m in hosts)};cpu:1")))
                for machine in hosts]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands]
    said = [job.communicate(timeout=600)[0] for job in jobs]
    for job, text in zip(jobs, said):
        if job.returncode:
            sys.exit(f"exit {job.returncode}\n{text}")


def measure(name, batch, samples, folder):
    """Throughput of one process, of two, and of one on each of two machines."""
    with machines(("alpha", "beta"), folder) as hosts:
        for place in ("one", *(machine.name for machine in hosts)):
            (folder / place).mkdir()
            make_case(name, batch, samples, folder / place)
        run(chain("cpu:1|cpu:2"), folder / "one", timeout=600)
        measure_two_machines(folder, hosts)
    return (throughput(name, "N1C1", folder / "one"), throughput(name, "N1C2", folder / "one"),
            throughput(name, "N2C*", folder / "alpha"))


def broken_promises(text):
    for name, _, _, _, pair, _, _, apart, _ in cells(text):
        for what, value in (("two processes", pair), ("two machines", apart)):
            if float(value) <= LEAST:
                yield f"{name}: {what} have {value} times the throughput of one process, promised more than {LEAST:g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="of two processes; one alone has twice as many")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    os.environ["PATH"] = f"{trireme().parent}:{os.environ['PATH']}"
    rows = ["| network | batch of a process | 1 process, samples/s | 2 processes, samples/s | speed-up | efficiency "
            "| 2 machines with 1 process, samples/s | speed-up | efficiency |", "|---|" + "---:|" * 8]
    for name, batch in NETWORKS.items():
        with tempfile.TemporaryDirectory(prefix="trireme-bench-") as scratch:
            one, two, apart = measure(name, batch, 2 * batch * options.steps, Path(scratch))
        rows.append(f"| {name} | {batch} | {one:.1f} | {two:.1f} | {two / one:.2f} | {two / one / 2:.0%} "
                    f"| {apart:.1f} | {apart / one:.2f} | {apart / one / 2:.0%} |")
    missed = list(broken_promises("\n".join(rows)))
    publish("speedup", signed("\n".join(rows), "bench/speedup/speedup_bench.py", missed), options.write, missed)


if __name__ == "__main__":
    main()
