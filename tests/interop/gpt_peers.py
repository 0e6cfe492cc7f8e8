"""gpt_peers.py make|train|compare FOLDER: a GPT by PyTorch's tensor parallelism, for comparison with ours (gpt_dump.cc).

make: weights.safetensors with our names, and text.safetensors. train, on every rank of a job: theirs.safetensors, the
whole parameters after as many steps as there are texts, and the losses. compare: the largest differences as JSON."""

import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

WORDS, CONTEXT, WIDTH, HEADS, LAYERS = 32, 16, 32, 4, 2  # as in gpt_dump.cc
RATE, MOMENTUM, STEPS, BATCH = 0.1, 0.9, 10, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.project = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.attention_norm(x)
        q, k, v = (f(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def our_name(name):
    for theirs, ours in (("tokens.", "embedding.tokens."), ("positions", "embedding.positions"), ("norm.", "head.norm.")):
        if name.startswith(theirs):
            return ours + name[len(theirs):]
    return name.replace("blocks.", "block")


def joined(state):
    """With queries, keys and values of each head together, as in our blocks: of a state with our names, or a part of it."""
    result = dict(state)
    for layer in {name.partition(".")[0] for name in state if ".q." in name}:
        for kind in ("weight", "bias"):
            parts = [result.pop(f"{layer}.{one}.{kind}").unflatten(0, (HEADS, -1)) for one in "qkv"]
            result[f"{layer}.qkv.{kind}"] = torch.stack(parts, 1).flatten(0, 2).contiguous()
    return result


def ours_of(state):
    return joined({our_name(name): value for name, value in state.items()})


def theirs_of(state):
    result = {}
    for name in Gpt().state_dict():
        ours = our_name(name)
        layer, _, rest = ours.partition(".")
        one, _, kind = rest.partition(".")
        if one in ("q", "k", "v"):
            whole = state[f"{layer}.qkv.{kind}"].unflatten(0, (HEADS, 3, -1))
            result[name] = whole[:, "qkv".index(one)].flatten(0, 1).contiguous()
        else:
            result[name] = state[ours]
    return result


def make(folder):
    torch.manual_seed(1)
    net = Gpt().double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0, 0.2)
    save_file(ours_of({name: value.detach() for name, value in net.named_parameters()}), f"{folder}/weights.safetensors")
    save_file({"tokens": torch.randint(WORDS, (STEPS, BATCH, CONTEXT + 1))}, f"{folder}/text.safetensors")


def parallel(net):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net.blocks:
        columns = {one: ColwiseParallel() for one in ("q", "k", "v", "up")}
        parallelize_module(block, mesh, columns | {one: RowwiseParallel() for one in ("project", "down")})
    return net


def train(folder):
    dist.init_process_group("gloo")
    net = Gpt().double()
    net.load_state_dict(theirs_of(load_file(f"{folder}/weights.safetensors")))
    parallel(net)
    sgd = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, foreach=False)
    losses = []
    for tokens in load_file(f"{folder}/text.safetensors")["tokens"]:
        sgd.zero_grad()
        loss = F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    whole = {name: value.full_tensor() if hasattr(value, "full_tensor") else value
             for name, value in net.state_dict().items()}
    if dist.get_rank() == 0:
        result = ours_of(whole) | {"losses": torch.tensor(losses, dtype=torch.float64)}
        save_file({name: value.contiguous() for name, value in result.items()}, f"{folder}/theirs.safetensors")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # see torch_ddp.py


def compare(folder):
    ours, theirs = (load_file(f"{folder}/{name}.safetensors") for name in ("ours", "theirs"))
    start = load_file(f"{folder}/weights.safetensors")
    differences = {name: ((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max()).item() for name in theirs}
    moved = min((theirs[name] - start[name]).abs().max().item() for name in start)
    print(json.dumps({"names": sorted(ours.keys() ^ theirs.keys()), "largest": max(differences.values()),
                      "moved": moved, "losses": theirs["losses"].tolist()}))


if __name__ == "__main__":
    {"make": make, "train": train, "compare": compare}[sys.argv[1]](sys.argv[2])
