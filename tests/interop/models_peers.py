"""models_peers.py NETWORK STEPS MODEL_DUMP: one network of torchvision against ours, with the same
weights on the same batch. Prints the differences as JSON: each is the largest |ours - theirs| / (atol + rtol |theirs|)
of its kind, so that 1 is the limit; the losses' are absolute, gradient_distance is a relative norm. Runs in the peers'
Python."""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file, save_file

CLASSES, BATCH, SIDE = 10, 4, 64
RATE, MOMENTUM, DECAY = 0.05, 0.9, 1e-4  # as in model_dump.cc
RTOL, ATOL = 1e-4, 1e-5


def original(name):
    """With statistics that are not 0 and 1, and weights in the last layer that are not tiny."""
    net = getattr(torchvision.models, name)(num_classes=CLASSES)
    for key, buffer in net.named_buffers():
        if key.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        elif key.endswith("running_var"):
            buffer.uniform_(0.8, 1.2)
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return net


def batch_of(side):
    return {"images": torch.randn(BATCH, 3, side, side), "labels": torch.randint(0, CLASSES, (BATCH,))}


def loss_of(net, batch):
    return torch.nn.functional.cross_entropy(net(batch["images"]), batch["labels"])


def theirs(net, batch, steps):
    with torch.no_grad():
        result = {"scores": net.eval()(batch["images"])}
    start = copy.deepcopy(net.state_dict())
    loss_of(net.train(), batch).backward()
    result |= {f"gradient.{name}": value.grad.clone() for name, value in net.named_parameters()}
    net.load_state_dict(start)
    sgd = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    losses = []
    for _ in range(steps):
        sgd.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result


def ours(dump, name, state, batch, steps):
    with tempfile.TemporaryDirectory() as folder:
        save_file(state, f"{folder}/weights.safetensors")
        save_file(batch, f"{folder}/batch.safetensors")
        subprocess.run([dump, name, str(CLASSES), str(steps), folder], check=True)
        return load_file(f"{folder}/result.safetensors")


def relative_distance(ours, theirs, names):
    """Of all these tensors together."""
    squares = [((ours[name] - theirs[name]).norm() ** 2, theirs[name].norm() ** 2) for name in names]
    return (sum(one for one, _ in squares) / sum(other for _, other in squares)).sqrt().item()


def scaled_difference(a, b):
    return ((a - b).abs() / (ATOL + RTOL * b.abs())).max().item()


def main():
    name, steps, dump = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(7)
    net, batch = original(name), batch_of(SIDE)
    our = ours(dump, name, net.state_dict(), batch, steps)
    their = theirs(net, batch, steps)
    gradients = {key: scaled_difference(our[key], their[key]) for key in their if key.startswith("gradient.")}
    print(json.dumps({
        "names": sorted(our.keys() ^ their.keys()),
        "same_bits": torch.equal(our["scores"], their["scores"]),
        "scores": scaled_difference(our["scores"], their["scores"]),
        "gradients": max(gradients.items(), key=lambda item: item[1]),
        "gradient_distance": relative_distance(our, their, gradients),
        "losses": (our["losses"] - their["losses"]).abs().max().item() if steps else 0.0,
        "first_and_last_loss": [their["losses"][0].item(), their["losses"][-1].item()] if steps else [],
        "spread": their["scores"].std().item(),
    }))


if __name__ == "__main__":
    main()
