"""Both engines give the same scores, whatever the batch, and the same as each other."""

from infer_case import InferCase, program
from trireme_test import main

BATCHES = (1, 2, 3, 5, 8, 1)  # more sizes than OpenVINO compiles for themselves


class EngineCase(InferCase):
    def scores(self, engine, precision="fp32", threads=1, batches=BATCHES):
        result = self.run_words(program("infer_scores"), "inference", engine, precision, threads, *batches)
        return [[float(word) for word in line.split()] for line in result.out.splitlines()]

    def assert_near(self, left, right, tolerance):
        self.assertEqual(len(left), len(right))
        for a, b in zip(left, right):
            self.assertEqual(len(a), len(b))
            self.assertLess(max(abs(x - y) for x, y in zip(a, b)), tolerance)

    def assert_same_in_every_batch(self, scores, tolerance):
        at = 0
        for size in BATCHES:
            self.assert_near(scores[at:at + size], scores[sum(BATCHES[:4]):][:size], tolerance)
            at += size
        self.assertEqual(at, len(scores))

    def compare(self):
        ours, torchs = self.scores("openvino"), self.scores("torch")
        self.assert_near(ours, torchs, 1e-4)
        self.assert_same_in_every_batch(ours, 1e-5)
        for row in ours:
            self.assertAlmostEqual(sum(row), 1, places=4)
        self.assertGreater(max(abs(a - b) for a, b in zip(ours[1], ours[2])), 1e-6, "the picture does not matter")


class LeNet(EngineCase):
    def test_scores(self):
        self.export()
        self.compare()

    def test_callers_at_the_same_time(self):
        self.export()
        alone = self.scores("openvino", batches=(2, 5))
        for engine in ("openvino", "torch"):
            self.assert_near(self.scores(engine, threads=4, batches=(2, 5)), alone, 1e-4)


class MobileNet(EngineCase):
    def test_scores(self):
        self.export(arch="MobileNetV3_small_x0_35", side=64, more="")
        self.compare()
        for engine in ("openvino", "torch"):
            for precision in ("bf16", "fp16"):
                self.assert_near(self.scores(engine, precision), self.scores(engine), 0.05)


if __name__ == "__main__":
    main()
