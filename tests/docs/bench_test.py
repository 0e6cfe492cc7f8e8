"""The benchmarks notice when a promise is broken."""
import importlib.util
import re
from array import array

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


class ParameterCheckBench(Case):
    bench = load("bench/parameter_check/parameter_check_bench.py")

    def broken(self, check):
        return list(self.bench.broken_promises(self.bench.table(f"| Net | 1.0 | 10.00 | {check} | 3.0 |\n")))

    def test_kept(self):
        self.assertEqual(self.broken("0.500"), [])

    def test_too_slow(self):
        self.assertEqual(self.broken("3.000"), ["Net: the comparison takes 0.150 %; the promise is 0.1 %"])

    def test_the_published_table_keeps_the_promise(self):
        text = pages.page("docs/benchmarks.md").split("<!-- bench:parameter_check -->")[1]
        self.assertEqual(list(self.bench.broken_promises(text)), [])


class InferenceBench(Case):
    bench = load("bench/inference/inference_bench.py")

    def broken(self, ours=10.0, ours_bf16=5.0, scores=(0.25, 0.75)):
        for case in ("fp32-ours", "fp32-openvino", "fp32-onnxruntime", "bf16-ours", "bf16-openvino"):
            own = scores if case == "fp32-ours" else (0.25, 0.75)
            (self.folder / f"Net-1-{case}.raw").write_bytes(array("f", own).tobytes())
        times = {("fp32", "ours"): ours, ("fp32", "openvino"): 10.0, ("fp32", "onnxruntime"): 11.0,
                 ("bf16", "ours"): ours_bf16, ("bf16", "openvino"): 5.0}
        return list(self.bench.broken_promises({("Net", 1): times}, self.folder))

    def test_kept(self):
        self.assertEqual(self.broken(), [])

    def test_wrong_scores(self):
        self.assertEqual(self.broken(scores=(0.25, 0.5)),
                         ["Net, batch 1, fp32: the scores of ours and OpenVINO differ by 0.2"])

    def test_scores_that_are_missing(self):
        with self.assertRaises(ValueError):
            self.broken(scores=(0.25,))

    def test_slower_than_openvino(self):
        self.assertEqual(self.broken(ours=12.0, ours_bf16=6.5),
                         ["Net, batch 1, fp32: 1.20 times OpenVINO's Python; the promise is 1.05",
                          "Net, batch 1, bf16: 1.30 times OpenVINO's Python; the promise is 1.05"])

    def test_the_published_table_keeps_the_promise(self):
        table = pages.page("docs/benchmarks.md").split("<!-- bench:inference -->")[1]
        found = re.findall(r"^\| (.*): Trireme, .* \| (\d+) \| (\w+) \| [\d.]+ \| ([\d.]+) \|$", table, re.M)
        cases = {(title, str(batch), precision) for title in self.bench.MODELS for batch in self.bench.BATCHES
                 for precision in self.bench.TOLERANCE}
        self.assertEqual({tuple(row[:3]) for row in found}, cases, "run `make bench` on an idle machine")
        self.assertEqual([row for row in found if float(row[3]) > self.bench.MOST], [])


if __name__ == "__main__":
    main()
