#!/usr/bin/env python3
"""Turns a PyTorch checkpoint (.pth, .pt) into a safetensors file that Trireme and Python load by name.

    pth_to_safetensors.py resnet50.pth resnet50.safetensors
    pth_to_safetensors.py checkpoint.pth teacher.safetensors --key ema --prefix teacher.

Needs torch and safetensors. The file is read with weights_only: code inside of it is not run.
"""
import argparse
import sys

import torch
from safetensors.torch import save_file

WRAPPERS = ("state_dict", "model", "model_state_dict", "net")  # where training programs put the weights


def state_dict_of(content, key):
    """The names and tensors, out of what training programs wrap around them."""
    if key:
        if not isinstance(content, dict) or key not in content:
            raise SystemExit(f"no entry '{key}'; there are {sorted(map(str, content))[:20]}")
        content = content[key]
    else:
        for wrapper in WRAPPERS:
            if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
                content = content[wrapper]
    tensors = {name: value for name, value in dict(content).items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise SystemExit("no tensors in it; name the entry that holds the weights by --key")
    return tensors


def renamed(tensors, prefix):
    """Only what begins with `prefix`, without it. DataParallel's "module." goes by itself."""
    if not prefix and all(name.startswith("module.") for name in tensors):
        prefix = "module."
    kept = {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not kept:
        raise SystemExit(f"no name begins with '{prefix}'; there are {list(tensors)[:5]} ...")
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--key", help="entry that holds the weights, e.g. state_dict")
    parser.add_argument("--prefix", default="", help="take only names that begin so, and cut it off")
    arguments = parser.parse_args()
    content = torch.load(arguments.input, map_location="cpu", weights_only=True)
    tensors = renamed(state_dict_of(content, arguments.key), arguments.prefix)
    # Tied weights share memory, which the format cannot express: each name gets a copy.
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, arguments.output,
              metadata={"format": "pt"})
    print(f"{arguments.output}: {len(tensors)} tensors")


if __name__ == "__main__":
    sys.exit(main())
