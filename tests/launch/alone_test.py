"""Ranks that never join their job: one line, and only for programs that train with Trireme."""

import os

from trireme_test import TRIREME, Case, main

TRAINER = os.environ["LONELY_TRAINER"]
LINE = r"2 processes ran side by side without init_parallel_env: each trained alone; call init_parallel_env\(\)"


class Alone(Case):
    def test_a_trainer_that_does_not_join(self):
        result = self.launch("-n", 2, TRAINER)
        self.assert_ends(result, 0)
        self.assert_says(result, LINE)

    def test_a_trainer_that_joins(self):
        result = self.launch("-n", 2, TRAINER, "join")
        self.assert_ends(result, 0)
        self.assert_silent_on(result, "side by side")

    def test_one_process(self):
        self.assert_silent_on(self.launch("-n", 1, TRAINER), "side by side")

    def test_other_programs(self):
        """They may do without the job's store, and a launcher does not train."""
        script = self.folder / "worker.py"
        script.write_text("print('hello')\n")
        for program in (["true"], ["sh", "-c", "exit 0"], [script], [TRIREME, "version"]):
            with self.subTest(program=program):
                result = self.launch("-n", 2, *program)
                self.assert_ends(result, 0)
                self.assert_silent_on(result, "side by side")


if __name__ == "__main__":
    main()
