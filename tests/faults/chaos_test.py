"""Random ranks and launchers are killed while a training runs on two machines. It ends with the bits of a quiet run.

    TRIREME_CHAOS_SECONDS=300 TRIREME_CHAOS_SEED=7 PYTHONPATH=tests/support python3 tests/faults/chaos_test.py

The ranks are `checkpoint_ranks chaos`. A killed rank restarts the job; a killed launcher is a machine that was lost, and
the same machine joins again. Half of the kills come while the job is still gathering or starting.
"""

import os
import random
import re
import signal
import time
from pathlib import Path

from machines import MachineCase, main
from trireme_test import TRIREME, alive, orphans, wait_for

PROGRAM = Path(TRIREME).parent / "checkpoint_ranks"
SECONDS = float(os.environ.get("TRIREME_CHAOS_SECONDS", 20))  # of kills; 300 in `make soak`
SEED = int(os.environ.get("TRIREME_CHAOS_SEED", 1))
PER_NODE = 2
START = 90  # seconds for a restart; libtorch on a busy machine, after up to 30 s of --max_restart's waiting
RESTARTS = 10_000
TRAINING = ("batch=4", "samples=48", "every=10")
STEPS_PER_EPOCH = 3  # 48 samples, 4 ranks, batches of 4


class Chaos(MachineCase):
    def test_the_bits_of_a_quiet_run(self):
        self.dice = random.Random(SEED)
        self.out = self.folder / "out"
        jobs = {machine: self.join(machine) for machine in self.machines}
        killed = self.kill_at_random(jobs)
        self.wait_for_checkpoint(jobs)  # so every launcher takes part
        (self.out / "enough").touch()
        learnt, steps = self.learnt(jobs.values())
        self.assertGreater(steps, len(killed), f"hardly a step was taken between {killed}; {self.words()}")

        self.out = self.folder / "quiet"
        quiet = [self.join(machine, f"epochs={steps // STEPS_PER_EPOCH}") for machine in self.machines]
        self.assertEqual((learnt, steps), self.learnt(quiet), f"after {killed}; {self.words()}")

    def join(self, machine, epochs="epochs=1000000000"):
        """A launcher of the job, on this machine; alpha hosts the store."""
        meeting = ("--master", f"{self.alpha.address}:7100", "--nnodes", 2, "--max_restart", RESTARTS)
        return self.start_on(machine, *meeting, "-n", PER_NODE, "--tee", "all", PROGRAM, "chaos", self.out, *TRAINING,
                             epochs, env={"OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": -1})

    # --- kills

    def kill_at_random(self, jobs):
        """For SECONDS, and until each kind has had its turn; returns what was killed, in order."""
        end, killed = time.monotonic() + SECONDS, []
        for victim in self.victims():
            if time.monotonic() > end and set(killed) == {"rank", *self.machines}:
                return [getattr(victim, "name", victim) for victim in killed]
            self.wait_for_a_moment(jobs)
            self.kill_rank(jobs) if victim == "rank" else self.kill_launcher(jobs, victim)
            killed.append(victim)

    def victims(self):
        while True:
            yield from self.dice.sample(["rank", "rank", *self.machines], 4)

    def wait_for_a_moment(self, jobs):
        """Any moment, or one while the job trains."""
        if self.dice.random() < 0.5:
            self.wait_for_checkpoint(jobs)
        moment = time.monotonic() + self.dice.uniform(0, 1)
        wait_for(lambda: time.monotonic() > moment, 2, "a random moment")

    def wait_for_checkpoint(self, jobs):
        before = self.saved()
        self.wait_for_job(jobs, lambda: self.saved() - before, "a checkpoint")

    def saved(self):
        return {path.name for path in (self.out / "chaos").glob("step_*")}

    def kill_rank(self, jobs):
        victim = self.dice.choice(self.wait_for_job(jobs, self.rank_pids, "a running rank"))
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # it ended by itself, because of the kill before
            pass

    def rank_pids(self):
        return sorted(pid for pid, command in orphans(self.mark).items() if command.startswith(str(PROGRAM)))

    def kill_launcher(self, jobs, machine):
        jobs[machine].signal(signal.SIGKILL)
        jobs[machine].wait()
        jobs[machine] = self.join(machine)

    def wait_for_job(self, jobs, condition, what):
        return wait_for(lambda: self.check_launchers(jobs) or condition(), START, lambda: f"{what}; {self.words()}")

    def check_launchers(self, jobs):
        """None may end by itself, but for one that is still joining when node 0 goes: docs/launch.md says to start it
        again."""
        for machine, job in jobs.items():
            if not alive(job.pid):
                self.assertNotIn("launch train in", job.output(), f"{machine.name} has ended; {self.words()}")
                self.assertIn("did its launcher end?", job.output(), f"{machine.name} has ended; {self.words()}")
                job.wait()
                jobs[machine] = self.join(machine)

    # --- the end

    def learnt(self, jobs):
        """What the ranks say at the end of a run, and its number of steps."""
        results = [job.wait(SECONDS + START) for job in jobs]
        for result in results:
            self.assertEqual(result.code, 0, self.words())
        lines = sorted(line for result in results for line in re.findall(r"rank \d chaos step \d+ learnt .*", result.out))
        self.assertEqual(len(lines), len(self.machines) * PER_NODE, self.words())
        return lines, int(re.search(r"step (\d+)", lines[0])[1])

    def words(self):
        return f"TRIREME_CHAOS_SEED={SEED}; consoles:\n{self.consoles()}"


if __name__ == "__main__":
    main()
