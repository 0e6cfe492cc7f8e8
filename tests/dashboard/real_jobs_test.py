"""What the launcher records of real trainings: `trireme train`, a Model program, and a loop over DataParallel."""

import json
import signal
import sys
from pathlib import Path

import trace_check
from trireme_test import ROOT, TRIREME, Case, main, read, wait_for

sys.path.append(str(ROOT / "tests/trainer"))
from trainer_case import CONFIG, PLAIN  # noqa: E402

BIN = Path(TRIREME).parent
SECONDS = 60
FOREVER = 100_000  # epochs or steps: the test ends the job
TRACED = {3, 4, 5}
MAIN_LANE = 1  # of a trace: the main thread's; collectives beside it have lanes of their own


class RealJobCase(Case):
    def watch(self, *program, endless=True):
        """Runs a job of two ranks to its end, or until it has a speed and a trace; reads what it has left."""
        env = {**PLAIN, "TRIREME_DATA_DIR": ROOT / "examples/data"}
        job = self.start("-n", 2, "--quiet", "--trace", "steps=3:6", *program, env=env)
        if endless:
            wait_for(lambda: self.progress().get("samples_per_second") and read(self.log / "trace.json"), SECONDS,
                     lambda: f"a speed and a trace: {self.progress()}\n{self.consoles()}")
            job.signal(signal.SIGTERM)
        result = job.wait(SECONDS)
        if not endless:
            self.assert_ends(result, 0)
        history = json.loads(read(self.log / "history.json"))
        self.curves, self.state = history["curves"], history["state"]
        trace = json.loads(read(self.log / "trace.json"))
        self.assertEqual(trace_check.problems(trace), [])
        self.events = [event for event in trace["traceEvents"] if event["ph"] == "X"]

    def progress(self):
        text = read(self.log / "progress.json")
        return json.loads(text) if text else {}

    def spans(self, rank, name, beside=None):
        """[(begin, end)] of what a rank did under this name, on its main lane or, as `beside` says, on one beside it."""
        return [(event["ts"], event["ts"] + event["dur"]) for event in self.events
                if event["pid"] == rank and event["name"] == name and beside in (None, event["tid"] > MAIN_LANE)]

    def assert_phases(self, *names):
        for rank in (0, 1):
            for name in names:
                self.assertTrue(self.spans(rank, name), f"no {name} of rank {rank}")

    def assert_communication_beside_backward(self, buckets):
        for rank in (0, 1):
            backwards = self.spans(rank, "backward")
            self.assertEqual(len(backwards), len(TRACED))
            inside = [call for call in self.spans(rank, "all_reduce", beside=True)
                      if any(begin <= call[0] and call[1] <= end for begin, end in backwards)]
            self.assertGreaterEqual(len(inside), buckets * len(TRACED))


class RealJobs(RealJobCase):
    def test_trireme_train(self):
        (self.folder / "config.yaml").write_text(CONFIG)
        self.assert_ends(self.start_command([BIN / "make_images", "data", 48, 4, 40]).wait(), 0)
        self.watch(TRIREME, "train", "-c", "config.yaml", "-o", f"Global.epochs={FOREVER}", "-o",
                   "Global.print_batch_step=1")
        self.assertLessEqual({"loss", "top1", "lr", "samples/s", "eval/loss", "eval/top1"}, set(self.curves))
        self.assertEqual(self.curves["lr"]["points"][0][2], 0.02)
        self.assert_phases("data", "forward", "backward", "optimizer")
        self.assertIn("all_reduce", [operation["name"] for operation in self.state["operations"]])
        self.assert_communication_beside_backward(1)

    def test_a_model_program(self):
        self.watch(BIN / "example_model", endless=False)
        self.assertLessEqual({"loss", "acc", "lr", "eval/loss", "eval/acc"}, set(self.curves))
        self.assertEqual({point[2] for point in self.curves["lr"]["points"]}, {1e-3})
        self.assertEqual(self.state["totals"]["step"], 120)
        self.assert_phases("data", "forward", "backward", "optimizer")
        self.assert_communication_beside_backward(1)

    def test_a_loop_over_data_parallel(self):
        self.watch(BIN / "train_ranks", "own_loop", FOREVER)
        self.assertLessEqual({"loss", "samples/s"}, set(self.curves))
        steps = [point[0] for point in self.curves["loss"]["points"]]
        self.assertEqual(steps, sorted(set(steps)))
        self.assert_phases("data", "forward", "backward", "optimizer")
        self.assert_communication_beside_backward(2)


if __name__ == "__main__":
    main()
