"""A stock PyTorch training script: gloo, DistributedDataParallel, a few steps."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(rank):
    """A few steps on data of this rank's own; the parameters afterwards."""
    torch.manual_seed(rank)  # different weights and data on every rank; DDP must make the weights equal
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(model(torch.randn(4, 8)), torch.randn(4, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def check(mine, rank, size):
    everyone = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(everyone, mine)
    assert all(torch.equal(mine, other) for other in everyone), "parameters differ"
    print(f"rank {rank} of {size}: parameters are equal, sum {mine.sum():.6f}", flush=True)


def main():
    dist.init_process_group("gloo")
    check(train(dist.get_rank()), dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
    # Gloo's threads outlive the group once DDP has used it. One that still holds a tensor when Python shuts down aborts
    # PyTorch 2.11, in one run of ten here, whoever launched it (pytorch/pytorch#179291): leave without that shutdown.
    os._exit(0)


if __name__ == "__main__":
    main()
