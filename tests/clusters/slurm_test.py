"""`trireme launch` under a real Slurm, with no option that names a machine."""

import re

import shown
from machines import main
from slurm import SlurmCase
from trireme_test import FOREVER, TRIREME, wait_for

SAY = 'echo "rank $RANK of $WORLD_SIZE on node $GROUP_RANK"'


class Slurm(SlurmCase):
    def test_one_launcher_a_machine(self):
        result = self.srun("--ntasks-per-node=1", TRIREME, "launch", "-n", 2, "--tee", "all", "sh", "-c", SAY)
        self.assert_ends(result, 0)
        said = sorted(re.findall(r"rank \d of \d on node \d", result.out))
        self.assertEqual(said, [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)], result)
        self.assert_says(result, r"SLURM_NODEID=1 is used as --rank")

    def test_several_launchers_on_a_machine(self):
        result = self.srun("--ntasks-per-node=2", TRIREME, "launch", "true")
        self.assert_ends(result, 2)
        self.assert_says(result, "srun has started 2 launchers on this machine.*srun --ntasks-per-node=1")

    def test_a_machine_alone(self):
        """A launcher of one of several steps does not wait for the others."""
        alone = self.script("alone", f"exec {TRIREME} launch --standalone --log_dir log.$SLURM_NODEID ./say")
        self.script("say", SAY)
        result = self.srun("--ntasks-per-node=1", alone)
        self.assert_ends(result, 0)
        self.assertEqual(re.findall(r"rank \d of \d on node \d", result.out), ["rank 0 of 1 on node 0"] * 2, result)

    def test_the_file_that_the_page_shows(self):
        """And what it is for: Slurm's warning before the time limit reaches every rank."""
        self.script("train", f"trap 'echo saved >saved.$RANK; exit 0' USR1; echo $$ >pid.$RANK; {FOREVER}")
        self.script("job.sh", shown.batch_file())
        job = self.command("sbatch", "--parsable", "job.sh", env={"PATH": shown.PATH}).wait()
        self.assert_ends(job, 0)
        self.worker_pids(4, 30)
        self.assert_ends(self.command("scancel", "--signal=USR1", job.out.strip()).wait(), 0)
        for rank in range(4):
            self.assertEqual(self.wait_file(f"saved.{rank}", 20), "saved\n")
        wait_for(lambda: not self.command("squeue", "--noheader").wait().out, 30, "the end of the job")


if __name__ == "__main__":
    main()
