"""One rank of PyTorch's FSDP2 with the language model of tests/support/gpt_stack.h, the same weights and the same tokens.

    trireme launch -n 2 fsdp_gpt.py parameters width=64 layers=2 steps=5 out=weights.safetensors

The first word: gradients (parameters stay after forward), parameters, or data_parallel (DistributedDataParallel). Rank 0
prints one line of key=value words; `out` gets the whole weights.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

SHAPE = {"width": 512, "layers": 4, "heads": 8, "words": 512, "length": 64}
DEFAULTS = {**SHAPE, "batch": 2, "steps": 10, "double": 0, "out": ""}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Stack(nn.Module):
    def __init__(self, settings):
        super().__init__()
        width = settings["width"]
        self.embed, self.head = nn.Embedding(settings["words"], width), nn.Linear(width, settings["words"])
        self.blocks = nn.ModuleList(Block(width, settings["heads"]) for _ in range(settings["layers"]))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "norm" not in name:
                    places = torch.arange(parameter.numel(), dtype=torch.double)
                    parameter.copy_((places * 0.7).sin().mul(0.03).view(parameter.shape))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tokens(settings, rows, step):
    places = torch.arange(rows * (settings["length"] + 1))
    return ((places * 7 + step * 13 + places.square() % 11) % settings["words"]).view(rows, -1)


def wrapped(net, mode):
    if mode == "data_parallel":
        return nn.parallel.DistributedDataParallel(net)
    for block in net.blocks:
        fully_shard(block, reshard_after_forward=mode == "parameters")
    return fully_shard(net, reshard_after_forward=mode == "parameters")


def train(model, settings):
    """The steps' milliseconds and the last loss."""
    rank, size, rows = dist.get_rank(), dist.get_world_size(), settings["batch"]
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    times = []
    for step in range(settings["steps"]):
        mine = tokens(settings, rows * size, step % 2)[rank * rows : (rank + 1) * rows]
        dist.barrier()
        start = time.perf_counter()
        logits = model(mine[:, : settings["length"]])
        loss = F.cross_entropy(logits.flatten(0, 1), mine[:, 1:].flatten())
        loss.backward()
        adam.step()
        adam.zero_grad()
        times.append(1000 * (time.perf_counter() - start))
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    return times, loss.item() / size


def status(key):
    """Of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1]) * 1024


def main(mode, *words):
    settings = dict(DEFAULTS)
    for word in words:
        key, value = word.split("=")
        settings[key] = value if key == "out" else int(value)
    dist.init_process_group("gloo")
    before = status("VmRSS")
    net = Stack(settings)
    if settings["double"]:
        net.double()
    parameters = sum(parameter.numel() for parameter in net.parameters())
    model = wrapped(net, mode)
    times, loss = train(model, settings) if settings["steps"] else ([0], 0)
    median = statistics.median(times[min(3, len(times) - 1) :])
    if dist.get_rank() == 0:
        print(
            f"mode={mode} ranks={dist.get_world_size()} parameters={parameters} step_ms={median:.2f} loss={loss:.6f} "
            f"resident={status('VmHWM') - before}",
            flush=True,
        )
    if settings["out"]:
        weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        if dist.get_rank() == 0:
            from safetensors.torch import save_file

            save_file({name: tensor.contiguous() for name, tensor in weights.items()}, settings["out"])
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # see torch_ddp.py


if __name__ == "__main__":
    main(*sys.argv[1:])
