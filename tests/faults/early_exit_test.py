"""A rank ends with exit code 0 while others wait for it: the job ends at once, and that rank is the culprit."""

import os

from trireme_test import Case, main

PROGRAM = os.environ["EARLY_EXIT_RANKS"]
START = 60  # seconds; libtorch on a busy machine
DEADLINE = 10  # from the end of the rank to the end of the job


class EarlyExitCase(Case):
    """Jobs on one machine."""

    backend = "shm"

    def leave(self, case, ranks=2, leaver=1):
        job = self.start("-n", ranks, PROGRAM, case, leaver, env={"TRIREME_BACKEND": self.backend})
        self.wait_file("left", START)
        return job.wait(DEADLINE)

    def assert_blames(self, result, leaver, operation):
        self.assert_ends(result, 75)
        self.assert_says(
            result,
            rf"^Rank {leaver} on \S+ ended with exit code 0 while ranks? [\d, -]+ waited for it in {operation}$",
            "All ranks must make the same calls",
            "^Exit code 75$",
        )
        found = self.result_json()
        self.assertEqual((found["outcome"], found["exit_code"]), ("failure", 75), found)
        culprit = found["culprit"]
        self.assertEqual((culprit["rank"], culprit["cause"], culprit["exit_code"]), (leaver, "ended_early", 0), found)
        self.assertRegex(culprit["awaited_in"], f"^{operation}$", found)
        self.assertTrue(culprit["awaited_by"], found)
        self.assertNotIn(leaver, culprit["awaited_by"], found)


class SharedMemory(EarlyExitCase):
    def test_before_each_call(self):
        for case, operation in {
            "init_parallel_env": "init_parallel_env",
            "new_group": "new_group",
            "uncaught": "new_group",
            "split": "all_gather",
            "data_parallel": r"\w+",
            "checkpoint": r"\w+",
            "all_reduce": "all_reduce",
            "send": "send",
        }.items():
            with self.subTest(case=case):
                (self.folder / "left").unlink(missing_ok=True)
                self.assert_blames(self.leave(case), 1, operation)

    def test_rank_0_is_the_culprit(self):
        for case in ("init_parallel_env", "all_reduce"):
            with self.subTest(case=case):
                (self.folder / "left").unlink(missing_ok=True)
                self.assert_blames(self.leave(case, ranks=3, leaver=0), 0, case)


class Gloo(EarlyExitCase):
    backend = "gloo"

    def test_before_each_call(self):
        for case in ("new_group", "all_reduce"):
            with self.subTest(case=case):
                (self.folder / "left").unlink(missing_ok=True)
                self.assert_blames(self.leave(case, ranks=3, leaver=2), 2, case)


class Harmless(EarlyExitCase):
    def test_a_rank_goes_on_alone(self):
        """Rank 0 may save for minutes after the others have ended."""
        result = self.leave("alone", ranks=3, leaver=0)
        self.assert_ends(result, 0)
        self.assert_says(result, "rank 0 has worked alone")

    def test_ranks_that_never_join(self):
        result = self.leave("forgotten")
        self.assert_ends(result, 0)
        self.assert_says(
            result,
            "this job has 2 ranks, and each of them reads all 10 samples; pass the world as the third argument",
            "2 processes ran side by side without init_parallel_env: each trained alone",
        )


if __name__ == "__main__":
    main()
