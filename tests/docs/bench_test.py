"""The benchmarks notice when a promise is broken, and the page tells which of its figures break one."""
import importlib.util
import re
import sys
from array import array
from xml.etree import ElementTree

import pages
from trireme_test import Case, main


sys.path.insert(0, str(pages.ROOT / "bench/support"))
import report  # noqa: E402


def load(path):
    spec = importlib.util.spec_from_file_location("bench", pages.ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RecordedTables(Case):
    """What a table misses stands below it, and nothing else does."""

    def assert_says_what_it_misses(self, mark, script, promises="broken_promises"):
        recorded = report.section(mark)
        if recorded != report.NOT_YET:
            self.assertTrue(report.cells(recorded), f"{mark}: no table; run `make bench` on an idle machine")
            self.assertEqual(report.missed_in(recorded), list(getattr(load(script), promises)(recorded)), mark)

    def test_they_say_what_they_miss(self):
        for mark, script in (("launch", "launch/launch"), ("step", "step/step"), ("image", "image/image"),
                             ("speedup", "speedup/speedup"), ("gpu_step", "gpu/gpu_step"), ("hybrid", "hybrid/hybrid"),
                             ("scaling", "scaling/scaling"), ("loader", "loader/loader")):
            self.assert_says_what_it_misses(mark, f"bench/{script}_bench.py")
        self.assert_says_what_it_misses("between_hosts", "bench/scaling/scaling_bench.py", "slower_than_gloo")

    def test_every_bench_is_run_or_said_to_be_by_hand(self):
        everything = load("bench/run_all.py")
        named = {everything.script_of(name.split()[0]) for name in everything.BENCHES}
        named |= {everything.script_of(name) for name in everything.BY_HAND}
        self.assertEqual(named, set((pages.ROOT / "bench").glob("*/*_bench.py")))
        self.assertIn("\tbench/run_all.py --write\n", (pages.ROOT / "Makefile").read_text())

    def test_a_bench_that_fails_does_not_stop_the_others(self):
        after = self.folder / "after"
        failed = load("bench/run_all.py").run_all([["true"], ["sh", "-c", "exit 3"], ["touch", after]])
        self.assertEqual(failed, ["sh -c exit 3: exit 3"])
        self.assertTrue(after.exists())

    def test_the_plots_are_of_the_recorded_tables(self):
        plots = load("bench/run_all.py").plots()
        self.assertEqual({path.name for path in plots}, {path.name for path in report.PICTURES.glob("*.svg")})
        for path, text in plots.items():
            self.assertEqual(path.read_text(), text, f"{path.name} is out of date; run bench/run_all.py --plots")
            ElementTree.fromstring(text)
            self.assertIn(f"](pictures/{path.name})", pages.page("docs/benchmarks.md"))


class Promises(Case):
    """Tables that were made up, around the promise."""

    def broken(self, script, head, *rows):
        table = "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])
        return list(load(f"bench/{script}_bench.py").broken_promises(table))

    def step(self, times):
        return self.broken("step/step", "| network, batch | who | images/s | step, ms | first step after, s | ours is |",
                           f"| resnet50, 16 | PyTorch eager, channels last | 5.0 | 1 | 1.0 | {times} x |",
                           "| resnet50, 16 | Paddle | 2.0 | 1 | 1.0 | 3.10 x |", "| resnet50, 16 | Trireme | 6.2 | 1 | 1.0 |  |")

    def test_step(self):
        self.assertEqual(self.step("1.25"), [])
        self.assertEqual(self.step("1.17"), ["resnet50, 16: 1.17 x PyTorch eager, channels last, promised 1.25"])

    def gpu_step(self, images, first):
        return self.broken("gpu/gpu_step", "| network, batch | who | images/s | step, ms | first step after, s |",
                           "| resnet50, 256 | torch.compile | 8,100 | 1 | 50.0 |",
                           f"| resnet50, 256 | Trireme, fused layers | {images} | 1 | {first} |")

    def test_gpu_step(self):
        self.assertEqual(self.gpu_step("8,200", 4.9), [])
        self.assertEqual(self.gpu_step("7,990", 5.1),
                         ["resnet50, 256: 7,990 images/s, promised 8,000", "resnet50, 256: 7,990 images/s, PyTorch's best 8,100",
                          "resnet50, 256, Trireme, fused layers: first step after 5.1 s, promised 5"])

    def image(self, ours):
        titles = ("random crop 224, flip, normalise", "short side 256, middle 224, normalise")
        rows = [f"| {title}: {who} | {rate} | 1.0 |" for title in titles
                for who, rate in (("Trireme", ours), ("torchvision and Pillow", 100))]
        return self.broken("image/image", "| one thread | pictures/s | times torchvision |", *rows)

    def test_image(self):
        self.assertEqual(self.image(301), [])
        self.assertEqual(self.image(290)[0], "random crop 224, flip, normalise: 2.9 times torchvision, promised 3")

    def speedup(self, pair):
        return self.broken("speedup/speedup", "| n | b | 1 | 2 | s | e | apart | s | e |",
                           f"| Net | 8 | 10.0 | 10.0 | {pair} | 50% | 15.0 | 1.50 | 75% |")

    def test_speedup(self):
        self.assertEqual(self.speedup("1.01"), [])
        self.assertEqual(self.speedup("1.00"),
                         ["Net: two processes have 1.00 times the throughput of one process, promised more than 1"])

    def hybrid(self, optimizer, parameters):
        rows = [("DataParallel", 100.0), ("`Shard::optimizer`", optimizer), ("`Shard::gradients`", 100.0),
                ("`Shard::parameters`", parameters), ("FSDP2, parameters kept", 120.0), ("FSDP2", 125.0)]
        return self.broken("hybrid/hybrid", "| ranks | who | step, ms | of DataParallel | peak | grew |",
                           *(f"| 2 | {who} | {ms} | 1.00 | 1 | 1 |" for who, ms in rows))

    def test_hybrid(self):
        self.assertEqual(self.hybrid(105.0, 120.0), [])
        self.assertEqual(self.hybrid(106.0, 131.0), ["2 ranks, `Shard::optimizer`: 1.06 times DataParallel's step, promised 1.05",
                                                     "2 ranks, `Shard::parameters`: 1.31 times DataParallel's step, promised 1.3",
                                                     "2 ranks: `Shard::parameters` is slower than FSDP2"])

    def test_scaling(self):
        def broken(large, small):
            return self.broken("scaling/scaling", "| batch of a rank | who | 1 rank, images/s | 2 ranks, images/s | efficiency |",
                               f"| 32 | Trireme | 70.0 | 130.0 | {large} |", "| 32 | PyTorch | 60.0 | 90.0 | 0.750 |",
                               f"| 4 | Trireme | 50.0 | 90.0 | {small} |")
        self.assertEqual(broken("0.950", "0.920"), [])
        self.assertEqual(broken("0.949", "0.900"),
                         ["batch 32: an efficiency of 0.949, promised 0.95", "batch 4: an efficiency of 0.900, promised 0.92"])

    def loader(self, rate):
        return ("| pictures from | MB | workers | images/s | of a worker |\n|---|---:|---:|---:|---:|\n"
                f"| JPEG files | 33 | 1 | 1400 | 1400 |\n| JPEG files | 33 | 2 | {2 * rate} | {rate} |\n\n"
                "| one worker, one image | us |\n|---|---:|\n| JPEG files: normalise | 50.0 |\n")

    def test_loader(self):
        bench = load("bench/loader/loader_bench.py")
        self.assertEqual(list(bench.broken_promises(self.loader(1000))), [])
        self.assertEqual(list(bench.broken_promises(self.loader(999))),
                         ["JPEG files, 2 workers: 999 images/s of a worker, promised 1000"])
        self.assertEqual(bench.cores(self.loader(1100)),
                         ["A GPU that trains 8,000 images/s needs 8 cores of this machine for JPEG files."])

    def test_the_ablation_knows_every_lever_of_a_step(self):
        levers = re.search(r"kLeverNames\{(.*?)\}", (pages.ROOT / "trireme/core/levers.cc").read_text(), re.S)[1]
        named = {variables.get("TRIREME_WITHOUT") for variables, _ in load("bench/step/step_bench.py").LEVERS.values()}
        self.assertEqual(named - {None}, set(re.findall(r'"(\w+)"', levers)) - {"scaled_jpeg"})

    def launch(self, nothing):
        return self.broken("launch/launch", "| two processes | median ms | fastest ms | runs | times |",
                           f"| `trireme launch -n 2 true` | {nothing} | 8.0 | 20 | 1.0 |",
                           "| `trireme launch -n 2 tiny_job` | 600.0 | 500.0 | 20 | 1.0 |")

    def test_launch(self):
        self.assertEqual(self.launch(99.0), [])
        self.assertEqual(self.launch(101.0), ["`trireme launch -n 2 true` takes 101.0 ms, promised 100"])


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
                         ["26214400 bytes: 4.0 times as fast as Gloo, promised 5"])

    def test_too_slow(self):
        self.assertEqual(self.broken(small="| 1024 | 60.0 | 21.0 | 2.9 | 0.05 | 0, 0 |"),
                         ["1024 bytes: 21.0 us, promised 20 us"])

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
        self.assertEqual(self.broken("3.000"), ["Net: the comparison takes 0.150 %, promised 0.1 %"])

    def test_the_published_table_keeps_the_promise(self):
        text = pages.page("docs/benchmarks.md").split("<!-- bench:parameter_check -->")[1]
        self.assertEqual(list(self.bench.broken_promises(text)), [])


class WatchBench(Case):
    bench = load("bench/watch/watch_bench.py")

    def broken(self, cost="0.50", kept="99.50"):
        return list(self.bench.broken_promises(
            f"{self.bench.RECORDS}\n| a step | 8700.00 | 8690.00 | {cost} |\n| an all_reduce | 10.10 | 10.00 | 5.00 |\n\n"
            f"{self.bench.COMPARISON}\n| 1024 | 90.0 | 60.0 | 30.0 |\n\n"
            f"{self.bench.DASHBOARD}\n| a step | 8700.00 | 8690.00 | {kept} |\n"))

    def test_kept(self):
        self.assertEqual(self.broken(), [])
        self.assertEqual(self.broken(cost="-0.20", kept="100.30"), [])

    def test_recording_is_too_slow(self):
        self.assertEqual(self.broken(cost="1.00"), ["a step: recording costs 1.00 %; the promise is less than 1 %"])

    def test_the_dashboard_is_too_slow(self):
        self.assertEqual(self.broken(kept="98.90"),
                         ["with a dashboard a job keeps 98.90 % of its speed; the promise is 99 %"])

    def test_a_missing_row(self):
        self.assertEqual(list(self.bench.broken_promises("")), ["a row is missing"])

    def test_the_published_tables_keep_the_promises(self):
        text = pages.page("docs/benchmarks.md").split("<!-- bench:watch -->")[1]
        if self.bench.RECORDS in text:  # an idle machine has not been there yet
            self.assertEqual(list(self.bench.broken_promises(text)), [])


class BubbleBench(Case):
    bench = load("bench/hybrid/bubble_bench.py")

    def broken(self, bubble):
        return list(self.bench.broken_promises(f"| `zero_bubble` | 4 | 1 | 8 | 1100.6 | {bubble} | 11.1 |\n"))

    def test_kept(self):
        self.assertEqual(self.broken("12.0"), [])

    def test_too_far(self):
        self.assertEqual(self.broken("13.1"),
                         ["zero_bubble, 8 micro-batches: a bubble of 13.1 %; the formula says 11.1 %"])

    def test_the_published_table_keeps_the_promise(self):
        text = pages.page("docs/benchmarks.md").split("<!-- bench:bubble -->")[1]
        self.assertIn("`zero_bubble`", text, "docs/benchmarks.md has no table; run bench/hybrid/bubble_bench.py --write")
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
                         ["Net, batch 1, fp32: 1.20 times OpenVINO's Python, promised 1.05",
                          "Net, batch 1, bf16: 1.30 times OpenVINO's Python, promised 1.05"])

    def test_the_published_table_keeps_the_promise(self):
        table = pages.page("docs/benchmarks.md").split("<!-- bench:inference -->")[1]
        found = re.findall(r"^\| (.*): Trireme, .* \| (\d+) \| (\w+) \| [\d.]+ \| ([\d.]+) \|$", table, re.M)
        cases = {(title, str(batch), precision) for title in self.bench.MODELS for batch in self.bench.BATCHES
                 for precision in self.bench.TOLERANCE}
        self.assertEqual({tuple(row[:3]) for row in found}, cases, "run `make bench` on an idle machine")
        self.assertEqual([row for row in found if float(row[3]) > self.bench.MOST], [])


if __name__ == "__main__":
    main()
