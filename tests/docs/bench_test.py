"""The benchmarks notice when a promise is broken."""
import importlib.util

import pages
from trireme_test import Case, main


def load(path):
    spec = importlib.util.spec_from_file_location("bench", pages.ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class AllReduceBench(Case):
    bench = load("bench/allreduce/allreduce_bench.py")

    def broken(self, small="| 1024 | 60.0 | 10.0 | 6.0 | 0.10 | 0, 0 |",
               big="| 26214400 | 90000.0 | 9000.0 | 10.0 | 2.91 | 0, 0 |"):
        return list(self.bench.broken_promises(self.bench.rows(f"| bytes | ... |\n|---:|\n{small}\n{big}\n")))

    def test_kept(self):
        self.assertEqual(self.broken(), [])

    def test_a_wrong_element(self):
        self.assertEqual(self.broken(small="| 1024 | 60.0 | 10.0 | 6.0 | 0.10 | 0, 3 |"),
                         ["1024 bytes: 3 wrong elements"])

    def test_slower_than_gloo(self):
        self.assertEqual(self.broken(small="| 1024 | 9.0 | 10.0 | 0.9 | 0.10 | 0, 0 |"),
                         ["1024 bytes: 10.0 us, slower than Gloo's 9.0 us"])

    def test_too_little_gain(self):
        self.assertEqual(self.broken(big="| 26214400 | 36000.0 | 9000.0 | 4.0 | 2.91 | 0, 0 |"),
                         ["26214400 bytes: 4.0 times as fast as Gloo; the promise is 5"])

    def test_too_slow(self):
        self.assertEqual(self.broken(small="| 1024 | 60.0 | 21.0 | 2.9 | 0.05 | 0, 0 |"),
                         ["1024 bytes: 21.0 us; the promise is 20 us"])

    def test_the_published_table_keeps_the_promises(self):
        found = self.bench.rows(pages.page("docs/benchmarks.md").split("<!-- bench:allreduce -->")[1])
        self.assertTrue(found, "docs/benchmarks.md has no all_reduce table; run `make bench` on an idle machine")
        self.assertEqual(list(self.bench.broken_promises(found)), [])


if __name__ == "__main__":
    main()
