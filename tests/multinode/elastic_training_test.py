"""A training with Checkpoint and Loader in a job whose nodes leave and join. The program is checkpoint_ranks.cc."""

import os
import signal
from collections import Counter
from pathlib import Path

from machines import MachineCase, main
from trireme_test import SANITIZED, read, wait_for

PROGRAM = os.environ.get("CHECKPOINT_RANKS", "checkpoint_ranks")
SECONDS = 200 if SANITIZED else 60
SAMPLES = 48


class Training(MachineCase):
    names = ("alpha", "beta", "gamma")

    def join(self, machine):
        command = ["--master", f"{self.alpha.address}:7100", "--nnodes", "2:3", "--elastic_timeout", 3, "-n", 1]
        command += [PROGRAM, "elastic", self.folder, "batch=1", f"samples={SAMPLES}", "every=20"]
        return self.start_on(machine, *command, env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"})

    def attempts(self):
        """{attempt: [(step, world size, epoch, samples)]} of those that made a step; an entry for each rank and step."""
        found = {}
        for path in sorted(self.folder.glob("samples.*")):
            attempt = int(path.name.split(".")[1])
            for line in read(path).split("\n")[:-1]:
                size, step, epoch, *samples = line.split()
                numbers = [int(float(number)) for number in samples]
                found.setdefault(attempt, []).append((int(step), int(size), int(epoch), numbers))
        return found

    def wait_steps(self, world_size):
        """A new attempt of that size that has trained for more than an epoch."""

        def found():
            attempts = self.attempts()
            newest = max(attempts, default=-1)
            if newest <= self.newest or attempts[newest][0][1] != world_size:
                return False
            steps = [step for step, *_ in attempts[newest]]
            return max(steps) - min(steps) > SAMPLES and [newest]

        (self.newest,) = wait_for(found, SECONDS, lambda: f"{world_size} ranks:\n{self.consoles()}")

    def committed(self):
        """{epoch: Counter(samples)}, without the steps that a later attempt took again, and the last epoch."""
        attempts = self.attempts()
        first_step = {attempt: min(step for step, *_ in steps) for attempt, steps in attempts.items()}
        epochs = {}
        for attempt, steps in attempts.items():
            end = min([first for other, first in first_step.items() if other > attempt], default=10**9)
            for step, _, epoch, samples in steps:
                if step < end:
                    epochs.setdefault(epoch, Counter()).update(samples)
        epochs.pop(max(epochs))
        return epochs

    def test_each_sample_is_used_once_an_epoch(self):
        self.newest = -1
        alpha, beta = self.join(self.alpha), self.join(self.beta)
        self.wait_steps(2)
        gamma = self.join(self.gamma)
        self.wait_steps(3)
        beta.signal(signal.SIGTERM)
        self.assert_ends(beta.wait(SECONDS), 143)
        self.wait_steps(2)
        beta = self.join(self.beta)
        self.wait_steps(3)
        gamma.signal(signal.SIGKILL)
        gamma.wait()
        self.wait_steps(2)
        Path(self.folder, "enough").touch()
        for job in (alpha, beta):
            self.assert_ends(job.wait(SECONDS), 0)
        epochs = self.committed()
        self.assertGreater(len(epochs), 5)
        for epoch, samples in epochs.items():
            self.assertEqual(set(samples), set(range(SAMPLES)), f"epoch {epoch}: {samples}")
            repeated = sum(samples.values()) - SAMPLES  # a number of samples that the ranks do not divide is padded
            self.assertLessEqual(repeated, 2, f"epoch {epoch}: {samples}")


if __name__ == "__main__":
    main()
