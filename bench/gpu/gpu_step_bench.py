#!/usr/bin/env python3
"""Training steps on a GPU, in bfloat16: ours, with and without each of its levers, and PyTorch, in one run.

    bench/gpu/gpu_step_bench.py [--write] [--only NETWORK] [--who WHO[,WHO…]]

Needs a GPU, and a python3 with torch and torchvision (PEER_PYTHON names another). Prints a Markdown table; --write also
puts it between the marks <!-- bench:gpu_step --> and <!-- /bench:gpu_step --> of docs/benchmarks.md. Exit 1 when a loss
differs or a promise is not kept.
"""

import argparse
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import plots  # noqa: E402
from report import ROOT, built, cells, publish, run, signed  # noqa: E402

# images a second
PROMISES = {("resnet50", 256): 8000, ("resnet50", 64): 6500, ("mobilenet_v3_small", 256): 36000, ("mobilenet_v3_small", 64): 20000}
MOST_FIRST_S = 5  # from the start to the end of the first step
STEPS = 60
OURS = {
    "plain": ("Trireme, layer by layer", {"TRIREME_FUSED": "0"}, []),
    "graphed": ("Trireme, layer by layer, in a graph", {"TRIREME_FUSED": "0"}, ["graph"]),
    "fused": ("Trireme, fused layers", {}, []),
    "both": ("Trireme, fused layers, in a graph", {}, ["graph"]),
    "O2": ("Trireme, the same, weights in bfloat16 (O2)", {}, ["graph", "O2"]),
}
PEERS = {
    "eager": "PyTorch eager, channels last, fused SGD",
    "graph": "PyTorch, CUDA graph",
    "compile": "torch.compile",
    "reduce-overhead": "torch.compile, reduce-overhead",
}
HEAD = "| network, batch | who | images/s | step, ms | first step after, s |\n|---|---|---:|---:|---:|"


def measure(who, network, batch):
    """The words of one run."""
    if who in OURS:
        _, variables, words = OURS[who]
        command = [built("gpu_step"), network, batch, STEPS, *words]
    else:
        variables = {}
        command = [os.environ.get("PEER_PYTHON", "python3"), HERE / "gpu_step_peers.py", who, network, batch, STEPS]
    text = run(command, ROOT, timeout=600, env={**os.environ, **variables})
    line = next(line for line in text.splitlines() if line.startswith("images="))
    return {key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", line)}


def is_ours(who):
    return who.startswith("Trireme")


def figures(text):
    """{(network, batch): [(who, images a second, seconds to the first step)]}"""
    found = {}
    for place, who, images, _, first in cells(text):
        network, batch = place.split(", ")
        found.setdefault((network, int(batch)), []).append((who, float(images.replace(",", "")), float(first)))
    return found


def broken_promises(text):
    for (network, batch), rows in figures(text).items():
        best = max(images for who, images, _ in rows if is_ours(who))
        rival = max((images for who, images, _ in rows if not is_ours(who)), default=0)
        if best < PROMISES[network, batch]:
            yield f"{network}, {batch}: {best:,.0f} images/s, promised {PROMISES[network, batch]:,}"
        if best < rival:
            yield f"{network}, {batch}: {best:,.0f} images/s, PyTorch's best {rival:,.0f}"
        for who, _, first in rows:
            if is_ours(who) and first > MOST_FIRST_S:
                yield f"{network}, {batch}, {who}: first step after {first} s, promised {MOST_FIRST_S}"


def plot(text):
    return plots.bars("Training on one GPU, bfloat16: images a second",
                      {f"{network}, batch {batch}": [(who, images, is_ours(who)) for who, images, _ in rows]
                       for (network, batch), rows in figures(text).items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--only", help="one network")
    parser.add_argument("--who", default=",".join([*PEERS, *OURS]), help="which of " + ", ".join([*PEERS, *OURS]))
    options = parser.parse_args()
    rows, wrong = [], []
    for network, batch in PROMISES:
        if options.only not in (None, network):
            continue
        found = {who: measure(who, network, batch) for who in options.who.split(",")}
        for who, numbers in found.items():
            name = OURS[who][0] if who in OURS else PEERS[who]
            rows.append(f"| {network}, {batch} | {name} | {numbers['images']:,.0f} | {numbers['step_ms']:.2f} | {numbers['first_s']:.1f} |")
            print(rows[-1], file=sys.stderr, flush=True)
        ours = [numbers for who, numbers in found.items() if who in OURS]
        if ours and max(n["loss0"] for n in ours) - min(n["loss0"] for n in ours) > 0.02:
            wrong.append(f"{network}, {batch}: the first losses differ: {[n['loss0'] for n in ours]}")
    gpu = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], ROOT).splitlines()[0]
    table = "\n".join([HEAD, *rows])
    missed = list(broken_promises(table)) if set(options.who.split(",")) & set(OURS) else []
    machine = f"{gpu.replace(', ', ', driver ')}, {len(os.sched_getaffinity(0))} cores"
    text = signed(table, "bench/gpu/gpu_step_bench.py", missed, machine)
    publish("gpu_step", text, options.write, wrong + missed, plot)


if __name__ == "__main__":
    main()
