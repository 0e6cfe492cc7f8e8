"""Training steps of a network by a peer, with the pictures, labels and optimizer of step_bench.cc.

    step_peers.py weights mobilenet_v3_small out.safetensors       # torchvision's first weights
    step_peers.py eager|compile|paddle NETWORK BATCH STEPS WEIGHTS
    torchrun --nproc-per-node 2 step_peers.py ddp NETWORK BATCH STEPS WEIGHTS

Prints one line of key=value words.
"""

import os
import statistics
import sys
import time


def report(times, first, losses, batch):
    if os.environ.get("RANK", "0") != "0":
        return
    median = statistics.median(times[len(times) // 4 :])
    print(f"step_ms={median:.2f} images={1000 * batch / median:.2f} first_ms={first:.0f} loss0={losses[0]:.8f} "
          f"loss4={losses[min(4, len(losses) - 1)]:.8f}", flush=True)


def measure(step, steps, batch, start):
    """Calls step() and reports; it returns the loss as a number."""
    times, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(step())
        times.append(1000 * (time.perf_counter() - begin))
        if len(times) == 1:
            first = 1000 * (time.perf_counter() - start)
    report(times, first, losses, batch)


def torch_steps(network, batch, steps, weights, mode):
    start = time.perf_counter()
    import torch
    import torchvision
    from safetensors.torch import load_file

    net = getattr(torchvision.models, network)()
    net.load_state_dict(load_file(weights))
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    net = net.to(memory_format=torch.channels_last).train()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    model = torch.compile(net) if mode == "compile" else net
    if mode == "ddp":
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(net)
    places = torch.arange(batch * 3 * 224 * 224, dtype=torch.double)
    x = (places * 0.37).sin().float().view(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    y = torch.arange(batch) % 10

    def step():
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        return loss.item()

    measure(step, steps, batch, start)
    if mode == "ddp":
        torch.distributed.destroy_process_group()


def paddle_steps(network, batch, steps):
    start = time.perf_counter()
    import numpy
    import paddle

    net = getattr(paddle.vision.models, network)()
    net.train()
    momentum = paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9, parameters=net.parameters())
    places = numpy.arange(batch * 3 * 224 * 224, dtype=numpy.float64)
    x = paddle.to_tensor(numpy.sin(places * 0.37).astype(numpy.float32).reshape(batch, 3, 224, 224))
    y = paddle.to_tensor(numpy.arange(batch) % 10)

    def step():
        loss = paddle.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        momentum.step()
        momentum.clear_grad()
        return float(loss)

    measure(step, steps, batch, start)


def write_weights(network, path):
    import torch
    import torchvision
    from safetensors.torch import save_file

    torch.manual_seed(1)
    save_file(getattr(torchvision.models, network)().state_dict(), path)


def main(mode, network, *words):
    if mode == "weights":
        return write_weights(network, words[0])
    batch, steps = int(words[0]), int(words[1])
    if mode == "paddle":
        return paddle_steps(network, batch, steps)
    return torch_steps(network, batch, steps, words[2], mode)


if __name__ == "__main__":
    main(*sys.argv[1:])
