"""A rank on one machine ends with exit code 0 while ranks on both wait for it: both launchers name it at once."""

import os

from machines import MachineCase, main
from trireme_test import read, wait_for

PROGRAM = os.environ["EARLY_EXIT_RANKS"]
START = 90  # seconds; libtorch on a busy machine
DEADLINE = 10  # from the end of the rank to the end of the job


class EarlyExit(MachineCase):
    """alpha has the first ranks, beta the others."""

    def leave(self, per_machine, case, leaver):
        jobs = self.start_everywhere("--ips", self.ips, "-n", per_machine, PROGRAM, case, leaver)
        left = [self.folder_of(machine) / "left" for machine in self.machines]
        wait_for(lambda: any(read(path) for path in left), START, lambda: f"a rank to leave:\n{self.consoles()}")
        results = [job.wait(DEADLINE) for job in jobs]
        for path in left:
            path.unlink(missing_ok=True)
        return results

    def assert_blames(self, results, leaver, host, operation):
        for machine, result in zip(self.machines, results):
            self.assert_ends(result, 75)
            self.assert_says(
                result,
                rf"^Rank {leaver} on {host} ended with exit code 0 while ranks? [\d, -]+ waited for it in {operation}$",
            )
            found = self.result_json(self.log_of(machine))
            culprit = found["culprit"]
            self.assertEqual((found["exit_code"], culprit["rank"], culprit["host"]), (75, leaver, host), found)
            self.assertEqual((culprit["cause"], culprit["awaited_in"]), ("ended_early", operation), found)

    def test_one_rank_on_each(self):
        for case in ("init_parallel_env", "new_group", "all_reduce"):
            with self.subTest(case=case):
                self.assert_blames(self.leave(1, case, 1), 1, "beta", case)

    def test_two_ranks_on_each(self):
        for case, leaver, host in (("new_group", 3, "beta"), ("all_reduce", 3, "beta"), ("all_reduce", 0, "alpha")):
            with self.subTest(case=case, leaver=leaver):
                self.assert_blames(self.leave(2, case, leaver), leaver, host, case)

    def test_a_rank_goes_on_alone(self):
        first, second = self.leave(2, "alone", 0)
        self.assert_ends(first, 0), self.assert_ends(second, 0)
        self.assert_says(first, "rank 0 has worked alone")


if __name__ == "__main__":
    main()
