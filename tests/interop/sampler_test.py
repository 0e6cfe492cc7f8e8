"""The samplers' batches: number for number those of Paddle's DistributedBatchSampler and torch's DistributedSampler."""

import os
import random
import subprocess
import unittest
from pathlib import Path

from stock_scripts_test import peers

HERE = Path(__file__).resolve().parent
DUMP = os.environ.get("SAMPLER_DUMP", str(HERE.parents[1] / "build/bin/sampler_dump"))
CASES = 1000
LARGE = 50_000  # samples in the last case of each order


def random_cases(order, seed):
    """Cases for sampler_dump: small numbers, where edges are frequent, and one large one."""
    draw = random.Random(seed)
    for _ in range(CASES - 1):
        samples = draw.choice([draw.randint(1, 12), draw.randint(1, 120), draw.randint(1, 700)])
        case = [order, samples, draw.choice([draw.randint(1, 5), draw.randint(1, 64)]), draw.randint(1, 9),
                draw.randint(0, 1), draw.randint(0, 1), draw.randint(0, 2**40) if order == "torch" else 0,
                draw.choice([draw.randint(0, 100), draw.randint(0, 2**31)])]
        for pad in (1, 0) if order == "torch" else (1,):  # only torch's sampler can cut
            yield *case[:6], pad, *case[6:]
    yield order, 103, 7, 3, 1, 1, 1, 0, 5
    yield order, LARGE, 64, 4, 1, 0, 1, 0, 3


def output_of(command, cases):
    text = "".join(" ".join(map(str, case)) + "\n" for case in cases)
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=250).stdout


class SamplerCase(unittest.TestCase):
    def compare(self, order):
        cases = list(random_cases(order, seed=20))
        ours = output_of([DUMP], cases).splitlines()
        theirs = output_of([peers() / "bin/python", HERE / "sampler_peers.py"], cases).splitlines()
        self.assertGreater(len(theirs), 10 * CASES)
        for our_line, their_line in zip(ours, theirs):
            self.assertEqual(our_line, their_line, f"case {cases[int(their_line.split()[0])]}")
        self.assertEqual(len(ours), len(theirs))


class Paddle(SamplerCase):
    def test_the_same_batches(self):
        self.compare("paddle")


class Torch(SamplerCase):
    def test_the_same_batches(self):
        self.compare("torch")


if __name__ == "__main__":
    unittest.main(verbosity=2)
