"""The launcher is not felt."""

from trireme_test import Case, main


class Speed(Case):
    def test_two_processes_in_100_ms(self):
        seconds = sorted(self.launch("-n", 2, "true").seconds for _ in range(11))
        self.assertLess(seconds[5], 0.1, f"median of 11 runs; all: {seconds}")


if __name__ == "__main__":
    main()
