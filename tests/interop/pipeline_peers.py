"""pipeline_peers.py make|compare FOLDER, or train FOLDER SCHEDULE: the GPT of gpt_peers.py as a pipeline of
torch.distributed.pipelining, for comparison with ours (pipeline_dump.cc).

make: weights.safetensors with our names, and text.safetensors. train, on both ranks of a job: theirs.RANK.safetensors,
the parameters of this rank's stages after as many steps as there are texts; the last rank adds `micro_losses`, [steps,
micro-batches]. compare: the layers of each rank and the largest difference as JSON."""

import copy
import json
import math
import os
import sys
from collections import OrderedDict

import gpt_peers
import torch
import torch.distributed as dist
import torch.nn.functional as F
from gpt_peers import MOMENTUM, RATE, Gpt, joined, theirs_of
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

MICRO_BATCHES = 4  # as in pipeline_dump.cc
SCHEDULES = {"fill_drain": ScheduleGPipe, "one_f_one_b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Embedding(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.tokens, self.positions = net.tokens, net.positions

    def forward(self, tokens):
        return self.tokens(tokens) + self.positions[: tokens.shape[1]]


class Head(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.norm, self.tokens = net.norm, copy.deepcopy(net.tokens)

    def forward(self, x):
        return F.linear(self.norm(x), self.tokens.weight)


def make(folder):
    gpt_peers.make(folder)
    weights = load_file(f"{folder}/weights.safetensors")
    weights["head.tokens.weight"] = weights["embedding.tokens.weight"].clone()  # the last stage has a copy
    save_file(weights, f"{folder}/weights.safetensors")


def layers_of(net):
    """By our names, in the order of the pipeline."""
    blocks = {f"block{i}": block for i, block in enumerate(net.blocks)}
    return {"embedding": Embedding(net), **blocks, "head": Head(net)}


def stages_of(layers, schedule):
    """This rank's: every second one, as many layers in each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    count = size * (2 if schedule == "interleaved" else 1)
    length = len(layers) // count
    stages = []
    for stage in range(rank, count, size):
        part = OrderedDict(list(layers.items())[stage * length : (stage + 1) * length])
        stages.append(PipelineStage(nn.Sequential(part), stage, count, torch.device("cpu")))
    return stages


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run(pipe, tokens):
    """One forward and backward. The micro-batches' losses on the last rank, nothing on the first."""
    losses = []
    if dist.get_rank() == 0:
        pipe.step(tokens[:, :-1].contiguous())  # as the first stage expects it
    else:
        pipe.step(target=tokens[:, 1:], losses=losses)
    return [loss.item() for loss in losses]


def train(folder, schedule):
    dist.init_process_group("gloo")
    net = Gpt().double()
    net.load_state_dict(theirs_of(load_file(f"{folder}/weights.safetensors")))
    stages = stages_of(layers_of(net), schedule)
    pipe = SCHEDULES[schedule](stages if schedule == "interleaved" else stages[0], MICRO_BATCHES, loss_fn=loss_of)
    mine = {name: value for stage in stages for name, value in stage.submod.named_parameters()}
    (tied,) = (value for name, value in mine.items() if name.endswith(".tokens.weight"))
    sgd = torch.optim.SGD(mine.values(), lr=RATE, momentum=MOMENTUM, foreach=False)
    losses = []
    for tokens in load_file(f"{folder}/text.safetensors")["tokens"]:
        sgd.zero_grad()
        losses.append(run(pipe, tokens))
        dist.all_reduce(tied.grad)  # pipelining does not know tied weights
        sgd.step()
    result = joined({name: value.detach() for name, value in mine.items()})
    if stages[-1].is_last:
        result["micro_losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file(result, f"{folder}/theirs.{dist.get_rank()}.safetensors")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # see torch_ddp.py


def difference(ours, theirs):
    if ours.shape != theirs.shape:
        return math.inf
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def compare(folder):
    start = load_file(f"{folder}/weights.safetensors")
    ours, theirs = ([load_file(f"{folder}/{who}.{rank}.safetensors") for rank in (0, 1)] for who in ("ours", "theirs"))
    micro_batches = [list(one[1]["micro_losses"].shape) for one in (ours, theirs)]
    for rank in (0, 1):  # ours has them on every rank
        theirs[rank]["losses"] = theirs[1]["micro_losses"].mean(1)
    names = [sorted(a.keys() ^ b.keys()) for a, b in zip(ours, theirs)]
    layers = [[sorted({name.split(".")[0] for name in one if name in start}) for one in who] for who in (ours, theirs)]
    pairs = [(a[name], b[name]) for a, b in zip(ours, theirs) for name in a.keys() & b.keys()]
    moved = [(one[name] - start[name]).abs().max() for one in theirs for name in one.keys() & start.keys()]
    print(json.dumps({"names": names, "layers": layers, "micro_batches": micro_batches,
                      "largest": torch.tensor([difference(a, b) for a, b in pairs]).max().item(),
                      "moved": min(moved).item(), "losses": theirs[1]["losses"].tolist()}))


if __name__ == "__main__":
    {"make": make, "train": train, "compare": compare}[sys.argv[1]](*sys.argv[2:])
