"""The Python side of io_test.py: run by the Python that has torch, safetensors, tensorboard and paddle.

    io_peers.py COMMAND PATH...         each command is a function of this file; a failed check ends with an error
"""

import json
import pickle
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

# Names of C++'s scalar types and Python's.
DTYPES = {
    "Double": torch.float64, "Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Float8_e4m3fn": torch.float8_e4m3fn, "Float8_e5m2": torch.float8_e5m2, "Float8_e8m0fnu": torch.float8_e8m0fnu,
    "ComplexFloat": torch.complex64, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8,
    "UInt64": torch.uint64, "UInt32": torch.uint32, "UInt16": torch.uint16, "Byte": torch.uint8,
}


def every_dtype():
    """What `io_dump make` writes."""
    numbers = torch.arange(48, dtype=torch.uint8).view(2, 24)
    tensors = {name: numbers.clone().view(dtype) for name, dtype in DTYPES.items()}
    tensors["Bool"] = (numbers % 2).to(torch.bool)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["nothing"] = torch.empty(0, 3)
    return tensors


def assert_same(found, expected):
    assert found.keys() == expected.keys(), set(found) ^ set(expected)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (found[name], tensor))
        assert torch.equal(a, b), name


def check_every_dtype(path):
    assert_same(load_file(path), every_dtype())
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"made by": "io_dump"}, file.metadata()


def write_every_dtype(path):
    save_file(every_dtype(), path, metadata={"format": "pt"})


def check_same(one, other):
    assert_same(load_file(one), load_file(other))


def write_pth(plain, wrapped, evil):
    """A ResNet-18's weights as they come from a hub, as from a training program under DataParallel, and a trap."""
    import torchvision
    tensors = torchvision.models.resnet18(weights=None).state_dict()
    torch.save(tensors, plain)
    torch.save({"epoch": 3, "state_dict": {f"module.{name}": tensor for name, tensor in tensors.items()}}, wrapped)
    with open(evil, "wb") as file:
        pickle.dump(Trap(), file)


class Trap:
    def __reduce__(self):
        return print, ("the trap was sprung",)


def check_resnet(pth, path):
    import torchvision
    tensors = load_file(path)
    assert_same(tensors, torch.load(pth, weights_only=True))
    torchvision.models.resnet18(weights=None).load_state_dict(tensors, strict=True)


def write_pdparams(params, outputs, evil):
    import paddle
    paddle.seed(3)
    net = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm2D(4), paddle.nn.Flatten(),
                               paddle.nn.Linear(64, 7))
    x = paddle.rand([2, 3, 6, 6])
    net(x)  # moves the statistics
    net.eval()
    state = net.state_dict()
    state["table.weight"] = paddle.nn.Embedding(5, 3).state_dict()["weight"]
    state["half"] = paddle.to_tensor([1.5, -2.0]).astype("bfloat16")
    paddle.save(state, params)
    save_file({"x": torch.from_numpy(x.numpy()), "y": torch.from_numpy(net(x).numpy()),
               "table": torch.from_numpy(state["table.weight"].numpy())}, outputs)
    with open(evil, "wb") as file:
        pickle.dump({"w": Trap()}, file)


def check_pdparams(path, outputs):
    """torch computes what Paddle did."""
    tensors, expected = load_file(path), load_file(outputs)
    assert torch.equal(tensors.pop("half"), torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert torch.equal(tensors.pop("table.weight"), expected["table"]), "an embedding stays as it is"
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
                              torch.nn.Linear(64, 7))
    net.load_state_dict(tensors, strict=True)
    torch.testing.assert_close(net.eval()(expected["x"]), expected["y"], rtol=1e-5, atol=1e-5)


def print_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()
    scalars = {tag: events.Scalars(tag) for tag in tags["scalars"]}
    print(json.dumps({
        "others": [kind for kind, found in tags.items() if kind != "scalars" and found],
        "scalars": {tag: [(event.step, event.value) for event in found] for tag, found in scalars.items()},
        "wall_time": next(iter(scalars.values()))[0].wall_time,
    }))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
