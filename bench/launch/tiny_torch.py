"""As tiny_job.cc, by PyTorch: two linear layers, ten steps, DistributedDataParallel on Gloo."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    torch.nn.functional.mse_loss(model(torch.randn(10, 10)), torch.randn(10, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
os._exit(0)  # PyTorch 2.11 may abort in Python's shutdown after Gloo (pytorch/pytorch#179291); this is quicker besides
