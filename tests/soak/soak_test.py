"""The scripts behind `make soak`: a command beside busy loops, and a command repeated until it fails."""
from pathlib import Path

from trireme_test import Case, main

HERE = Path(__file__).resolve().parent
COUNT_CHILDREN = "set -- $(cat /proc/$PPID/task/$PPID/children); echo $#"


class UnderLoad(Case):
    def under_load(self, loops, script):
        return self.start_command([HERE / "under_load.sh", loops, "sh", "-c", script]).wait(30)

    def test_the_loops_run_beside_the_command(self):
        result = self.under_load(3, COUNT_CHILDREN)
        self.assert_ends(result, 0)
        self.assertEqual(result.out.strip(), "4", result)  # three loops and the command itself

    def test_the_command_is_told(self):
        self.assertEqual(self.under_load(1, "echo $TRIREME_TEST_LOADED").out.strip(), "1")

    def test_the_exit_code_is_the_commands(self):
        self.assert_ends(self.under_load(1, "exit 7"), 7)


class Repeat(Case):
    def repeat(self, times, script):
        return self.start_command([HERE / "repeat.sh", times, "sh", "-c", script]).wait(30)

    def test_all_runs_pass(self):
        result = self.repeat(3, "echo passed")
        self.assert_ends(result, 0)
        self.assertEqual(result.out.count("passed"), 3, result)

    def test_the_first_failure_ends_it(self):
        result = self.repeat(5, f"echo run >>{self.folder}/runs; [ $(wc -l <{self.folder}/runs) -lt 2 ] || exit 6")
        self.assert_ends(result, 6)
        self.assert_says(result, r"failed in run 2 of 5 \(exit 6\)")


if __name__ == "__main__":
    main()
