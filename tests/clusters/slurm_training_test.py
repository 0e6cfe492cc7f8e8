"""Slurm signals a training to save and requeues it; the second run continues from the saved step.

The job file is that of docs/clusters.md, the program is checkpoint_ranks.
"""

import json
import re
from pathlib import Path

import shown
from machines import main
from slurm import SlurmCase
from trireme_test import TRIREME, read, wait_for

PROGRAM = Path(TRIREME).parent / "checkpoint_ranks"
RANKS = 4
START = 60  # seconds; libtorch on a busy machine
LIMIT = 60  # the time limit; Slurm counts in minutes


class PreemptionCase(SlurmCase):
    def preempt_and_requeue(self, *options, announce):
        """The first run gets SIGUSR1 from announce(), or from Slurm because of the options; the second from scancel."""
        self.script("train", f"exec {PROGRAM} wait out")
        self.script("job.sh", shown.batch_file())
        env = {"PATH": shown.PATH, "OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": -1}
        submitted = self.command("sbatch", "--parsable", *options, "job.sh", env=env).wait()
        self.assert_ends(submitted, 0)
        job = submitted.out.strip()
        first = self.wait_for_run(job, announce, starts="0")
        for rank in range(RANKS):
            (self.folder / f"pid.{rank}").unlink()
        self.assert_ends(self.command("scontrol", "requeue", job).wait(), 0)
        # By itself Slurm waits two minutes. In the second in which the first run ended a node refuses the job as killed.
        self.assert_ends(self.command("scontrol", "update", f"JobId={job}", "StartTime=now+3").wait(), 0)
        second = self.wait_for_run(job, self.scancel, starts=first)
        self.assertGreater(int(second), int(first))

    def wait_for_run(self, job, announce, starts):
        """All ranks begin at this step; returns the step at which all have ended, and which is saved."""
        self.worker_pids(RANKS, START)  # they train
        announce(job)
        ends = wait_for(lambda: self.ends_after(starts), LIMIT, self.words)
        self.assertEqual(len(set(ends)), 1, f"each rank has a step of its own: {self.words()}")
        manifest = json.loads(read(self.folder / f"out/step_{int(ends[0]):09}/manifest.json"))
        self.assertEqual(manifest["content"]["world_size"], RANKS)
        wait_for(lambda: not self.command("squeue", "--noheader", "--states=R,CG").wait().out, 30, self.words)
        return ends[0]

    def ends_after(self, start):
        """The last steps of the ranks that began at this one; [] while there are not all."""
        found = re.findall(rf"^rank (\d) starts at {start}\n(?:.*\n)*?rank \1 ends at (\d+)$", self.logs_of_workers(), re.M)
        return [end for _, end in found] if len(found) == RANKS else []

    def logs_of_workers(self):
        return "".join(read(path) for path in sorted(self.folder.glob("log/node*/workerlog.*")))

    def words(self):
        return f"{self.logs_of_workers()}\n{''.join(map(read, self.folder.glob('slurm-*.out')))}\n{self.logs()}"

    def scancel(self, job):
        self.assert_ends(self.command("scancel", "--signal=USR1", job).wait(), 0)


class Preemption(PreemptionCase):
    def test_scancel_announces_the_end(self):
        self.preempt_and_requeue(announce=self.scancel)


class TimeLimit(PreemptionCase):
    def test_slurm_announces_the_end(self):
        """Slurm looks at time limits every 30 s, so that the signal comes between 15 and 45 s after the start."""
        self.preempt_and_requeue("--time=1", "--signal=USR1@15", announce=lambda job: None)


if __name__ == "__main__":
    main()
