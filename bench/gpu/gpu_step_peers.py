"""Training steps of a network by PyTorch on a GPU, in bfloat16, with the pictures, labels and optimizer of gpu_step.cc.

    gpu_step_peers.py eager|graph|compile|reduce-overhead NETWORK BATCH STEPS

Prints one line of key=value words.
"""

import sys
import time


def main():
    start = time.perf_counter()
    who, network, batch, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    import torch
    import torchvision

    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    net = getattr(torchvision.models, network)()
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    net = net.cuda().to(memory_format=torch.channels_last).train()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    modes = {"compile": None, "reduce-overhead": "reduce-overhead"}
    model = torch.compile(net, mode=modes[who]) if who in modes else net
    places = torch.arange(batch * 3 * 224 * 224, dtype=torch.double, device="cuda")
    x = (places * 0.37).sin().float().view(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    y = torch.arange(batch, device="cuda") % 10

    def plain():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        return loss

    first_loss = plain().item()
    first = time.perf_counter() - start
    step = plain
    if who == "graph":
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                plain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plain()
        step = graph.replay
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / steps
    print(f"images={batch / seconds:.0f} step_ms={1000 * seconds:.2f} first_s={first:.2f} loss0={first_loss:.6f} loss10=0")


main()
