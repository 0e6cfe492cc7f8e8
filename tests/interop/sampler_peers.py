"""As sampler_dump.cc, by Paddle's and PyTorch's own samplers. Run by the peers' Python."""

import sys

from paddle.io import DistributedBatchSampler
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler


def paddle(samples, batch_size, ranks, rank, shuffle, drop_last, pad, seed, epoch):
    assert pad and seed == 0, "Paddle always pads, and seeds by the epoch alone"
    batches = DistributedBatchSampler(range(samples), batch_size, ranks, rank, shuffle, drop_last)
    batches.set_epoch(epoch)
    return batches


def torch(samples, batch_size, ranks, rank, shuffle, drop_last, pad, seed, epoch):
    numbers = DistributedSampler(range(samples), ranks, rank, shuffle, seed, drop_last=not pad)
    numbers.set_epoch(epoch)
    return BatchSampler(numbers, batch_size, drop_last)  # what DataLoader(drop_last=...) makes


def main():
    for number, line in enumerate(sys.stdin):
        order, *words = line.split()
        samples, batch_size, ranks, shuffle, drop_last, pad, seed, epoch = map(int, words)
        for rank in range(ranks):
            batches = globals()[order](
                samples, batch_size, ranks, rank, bool(shuffle), bool(drop_last), bool(pad), seed, epoch
            )
            print(number, rank, "has", len(batches))
            for batch in batches:
                print(f"{number} {rank}:", *batch)


main()
