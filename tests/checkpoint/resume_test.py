"""Training that breaks off and goes on. The program is checkpoint_ranks.cc.

By hand: trireme launch -n 2 --max_restart 1 build/bin/checkpoint_ranks train out kill_rank=1 kill_step=20
"""

import json
import os
import random
import re
import shutil
import signal
from collections import Counter
from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case, main, read

PROGRAM = Path(TRIREME).parent / "checkpoint_ranks"
SECONDS = 300 if SANITIZED else 60
PLAIN = {"OMP_NUM_THREADS": "1", "PADDLE_PG_TIMEOUT": "60000", "CUDA_VISIBLE_DEVICES": "-1"}


class ResumeCase(Case):
    def ranks(self, number, *words, options=(), code=0, cwd=None, backend="auto"):
        env = PLAIN | {"TRIREME_BACKEND": backend}
        result = self.launch("-n", number, "--tee", "all", *options, PROGRAM, *words, env=env, cwd=cwd, timeout=SECONDS)
        self.assert_ends(result, code)
        return result

    @staticmethod
    def learnt(result):
        """What the ranks say at the end of each run; a run that was over before the break says it twice."""
        return sorted(set(re.findall(r"rank \d \w+ step \d+ learnt .*", result.out)))


class Killed(ResumeCase):
    def test_a_resumed_run_has_the_bits_of_an_unbroken_one(self):
        unbroken = self.learnt(self.ranks(2, "train", self.folder / "unbroken"))
        self.assertEqual(len(unbroken), 4)
        for seed in range(4):
            with self.subTest(seed=seed):
                dice = random.Random(seed)
                # A run has 24 steps: one in each half of either run.
                step, rank = dice.randrange(12 * seed + 4, 12 * seed + 13), dice.randrange(2)
                where = self.folder / f"out{seed}"
                words = ("train", where, f"kill_rank={rank}", f"kill_step={step}")
                result = self.ranks(2, *words, options=("--max_restart", 1))
                self.assert_says(result, r"starts at 0 from ''", r"starts at [1-9]\d* from 'step_\d+'")
                self.assertEqual(self.learnt(result), unbroken, result)
                for name in ("adam", "momentum"):
                    self.assertEqual(len(list((where / name).iterdir())), 2, "two are kept, and no leftovers")

    def test_over_the_network(self):
        """Three ranks, whose sums gloo adds up in an order of its own."""
        unbroken = self.learnt(self.ranks(3, "train", self.folder / "unbroken", backend="gloo"))
        self.assertEqual(len(unbroken), 6)
        words = ("train", self.folder / "out", "kill_rank=2", "kill_step=22")
        result = self.ranks(3, *words, options=("--max_restart", 1), backend="gloo")
        self.assert_says(result, r"adam starts at 15 from", "backend gloo")
        self.assertEqual(self.learnt(result), unbroken, result)


class OtherNumbers(ResumeCase):
    def used(self, folder, first, last):
        """{epoch: Counter(samples)} of Adam's steps from `first` to `last`."""
        epochs = {}
        for path in folder.glob("samples.*"):
            for line in read(path).splitlines():
                name, step, epoch, *numbers = line.split()
                if name == "adam" and first <= int(step) <= last:
                    epochs.setdefault(int(epoch), Counter()).update(map(float, numbers))
        return epochs

    def test_each_sample_is_used_once_an_epoch(self):
        """Two ranks break in the second epoch after 24 of its 48 samples; one rank and three ranks go on."""
        first = self.folder / "first"
        first.mkdir()
        result = self.ranks(2, "train", "out", "kill_rank=1", "kill_step=11", cwd=first, code=137)
        self.assert_silent_on(result, "learnt")
        saved = 9
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                then = self.folder / f"then{ranks}"
                then.mkdir()
                shutil.copytree(first / "out", then / "out")
                result = self.ranks(ranks, "train", "out", "epochs=3", cwd=then)
                self.assert_says(result, f"starts at {saved} from", f"saved by 2 ranks, now there are {ranks}")
                before, after = self.used(first, 1, saved), self.used(then, saved + 1, 10**9)
                self.assertEqual([sum(before[epoch].values()) for epoch in (0, 1)], [48, 24])
                self.assertEqual(before[0], Counter(range(48)))
                self.assertEqual(before[1] + after[1], Counter(range(48)))
                self.assertEqual(after[2], Counter(range(48)))


class Preempted(ResumeCase):
    def start_waiting(self, *options):
        job = self.start("-n", 2, "--tee", "all", *options, PROGRAM, "wait", "out", env=PLAIN)
        return job, self.worker_pids(2, timeout=SECONDS)

    def check(self, result, start):
        self.assertEqual(len(re.findall(rf"rank \d starts at {start}$", result.out, re.M)), 2, result)
        ends = re.findall(r"rank (\d) ends at (\d+)", result.out)
        self.assertEqual(sorted(rank for rank, _ in ends), ["0", "1"], result)
        self.assertEqual(ends[0][1], ends[1][1], result)
        manifest = self.folder / f"out/step_{int(ends[0][1]):09}/manifest.json"
        self.assertEqual(json.loads(read(manifest))["content"]["world_size"], 2)
        return ends[0][1]

    def test_all_save_the_same_step(self):
        """SIGTERM to the launcher goes to all ranks; SIGUSR1 here to one of them alone."""
        job, _ = self.start_waiting()
        job.signal(signal.SIGTERM)
        result = job.wait(SECONDS)
        self.assert_ends(result, 143)
        step = self.check(result, 0)
        for rank in range(2):
            (self.folder / f"pid.{rank}").unlink()
        job, pids = self.start_waiting()
        os.kill(pids[1], signal.SIGUSR1)
        result = job.wait(SECONDS)
        self.assert_ends(result, 0)
        self.assertGreater(int(self.check(result, step)), int(step))


class Refused(ResumeCase):
    def test_an_error_of_rank_0_is_everyones(self):
        result = self.ranks(2, "refuse", "out")
        for rank, who in ((0, ""), (1, "rank 0: ")):
            self.assert_says(
                result,
                rf"rank {rank} step: usage {who}Checkpoint: rank 1 saves at step 4 of epoch 0, but rank 0 at step 3",
                rf"rank {rank} model: usage .*step_0+2 does not fit .*weight \(here .*\[17, 4\], there .*\[16, 4\]",
                rf"rank {rank} type: usage {who}tensor 'spectrum' has dtype ComplexDouble, which",
                rf"rank {rank} disk: system 27 {who}.*checkpoint step_000000002 is kept.*: File too large$",
                rf"rank {rank} later: system 27 {who}.*checkpoint step_000000002 is kept.*: File too large$",
                rf"rank {rank} falls back to step_000000001",
                rf"rank {rank} damaged: usage {who}.*none of the 2 checkpoints.*step_000000002/.*step_000000001/",
                rf"rank {rank} goes on with 2 ranks",
            )
        self.assert_says(result, r"warning.*step_000000002 is skipped: .*model.safetensors is damaged")
        self.assertEqual(result.text.count("File too large"), 4, result)


if __name__ == "__main__":
    main()
