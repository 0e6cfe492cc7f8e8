"""What a training keeps: the better weights of two, an epoch that was not evaluated, saves within an epoch, curves."""

import os
import re
import shutil
import signal

from trainer_case import PLAIN, SECONDS, TrainerCase
from trireme_test import TRIREME, main, orphans, wait_for

AUTO = ["--resume", "auto"]


class Averages(TrainerCase):
    """Both the raw and the averaged weights are evaluated; best_model holds the better ones of all epochs."""

    def top1(self, result, line):
        return [numbers["top1"] for numbers in self.numbers(result, line)]

    def raw_and_averaged(self, result):
        return self.top1(result, "][Avg]CELoss"), self.top1(result, "[EMA][Avg]")

    def evaluated(self, weights, says):
        result = self.evaluate(f"Global.pretrained_model={weights}")
        self.assert_says(result, says)
        return self.top1(result, "[Eval][Epoch 0][Avg]")[0]

    def test_a_slow_average_does_not_hide_the_raw_weights(self):
        result = self.train("EMA.decay=0.9999", "Global.epochs=4")
        both, averaged = self.raw_and_averaged(result)
        self.assertEqual((len(both), len(averaged)), (8, 4), result)
        raw = both[0::2]
        self.assertGreater(max(raw), max(averaged), result)
        best = self.evaluated("out/LeNet/best_model", r"weights from out/LeNet/best_model/model\.safetensors \(raw weights\)")
        self.assertEqual(best, max(raw), result)
        self.assert_says(result, rf"\[best metric: {max(raw):.5f}\]")

    def test_the_average_is_kept_where_it_is_better(self):
        self.train("Global.epochs=4", "Global.output_dir=first")
        result = self.train("Global.pretrained_model=first/LeNet/best_model", "EMA.decay=0.999", "Global.epochs=1",
                            "Optimizer.lr.learning_rate=0.3")
        both, averaged = self.raw_and_averaged(result)
        self.assertGreater(averaged[0], both[0], result)
        self.assert_says(result, r"saved out/LeNet/best_model \(averaged weights\)", rf"\[best metric: {averaged[0]:.5f}\]")
        self.assertEqual(self.evaluated("out/LeNet/best_model", r"\(averaged weights\)"), averaged[0])
        self.assertEqual(self.evaluated("out/LeNet/latest", r"\(raw weights\)"), both[0])
        self.assertEqual(self.evaluated("out/LeNet/latest/ema.safetensors", "latest/ema.safetensors"), averaged[0])


class Killed(TrainerCase):
    def start_training(self, overrides, ranks=0):
        words = [TRIREME, "train", "-c", "config.yaml", *(word for one in overrides for word in ("-o", one)), *AUTO]
        return self.start_command([TRIREME, "launch", "-n", ranks, *words] if ranks else words, env=PLAIN)

    def kill(self, job, ranks):
        """No process gets a chance to save."""
        if not ranks:
            job.signal(signal.SIGKILL)
        for pid, command in orphans(self.mark).items():
            if "launch" not in command:
                os.kill(pid, signal.SIGKILL)
        result = job.wait(SECONDS)
        self.assertNotEqual(result.code, 0)
        return result

    def test_in_an_evaluation_which_the_next_run_repeats(self):
        slow = ("DataLoader.Eval.dataset={name: Synthetic, samples: 4000, image_shape: [3, 28, 28]}",
                "DataLoader.Eval.sampler.batch_size=1", "Global.print_batch_step=1", "Global.epochs=2")
        self.train("Global.output_dir=whole", *slow)
        for epoch in (1, 2):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            job = self.start_training(slow)
            job.wait_output(rf"\[Eval\]\[Epoch {epoch}\]\[Iter: 1/", SECONDS)
            self.kill(job, 0)
            rest = self.train(*slow, more=AUTO)
            self.assert_says(rest, rf"resumed: {epoch} of 2 epochs are done; the last of them is evaluated first",
                             rf"\[Eval\]\[Epoch {epoch}\]\[Avg\]", r"\[Eval\]\[Epoch 2\]\[best metric")
            for name in ("best_model", "latest"):
                self.assertEqual(self.model(name), self.model(name, "whole/LeNet"), name)
        self.assert_says(self.train(*slow, more=AUTO), "resumed: 2 of 2 epochs are done; there is nothing left to do")

    def test_within_an_epoch_costs_a_few_steps(self):
        """The run that goes on from such a save ends with the bits of an unbroken one."""
        common = ("DataLoader.Train.sampler.batch_size=1", "Global.epochs=20", "Global.eval_during_train=False",
                  "Optimizer.lr.learning_rate=0.001", "Global.save_interval=-1", "Global.print_batch_step=1")
        for ranks in (0, 2):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            self.train(f"Global.output_dir=whole{ranks}", *common, ranks=ranks)
            job = self.start_training((*common, "Global.save_steps=5"), ranks)
            job.wait_output(r"\[Train\]\[Epoch 2/20\]\[Iter: 17/", SECONDS)
            killed = self.kill(job, ranks)
            rest = self.train(*common, ranks=ranks, more=AUTO)
            lost = self.steps(killed)[-1] + 1 - self.steps(rest)[0]
            self.assertIn(lost, range(6), (killed, rest))
            self.assert_silent_on(rest, "WARNING")
            for name in ("model", "optimizer", "rng"):
                here, there = (self.folder / folder / f"LeNet/latest/{name}.safetensors" for folder in ("out", f"whole{ranks}"))
                self.assertEqual(here.read_bytes(), there.read_bytes(), (ranks, name))

    def steps(self, result):
        """The steps that were printed, counted over all epochs."""
        found = re.findall(r"\[Epoch (\d+)/\d+\]\[Iter: (\d+)/(\d+)\]", result.out)
        return [(int(epoch) - 1) * int(steps) + int(step) for epoch, step, steps in found]

    def test_by_the_clock_of_rank_0(self):
        result = self.train("Global.epochs=1", "Global.save_minutes=0.00001", "Global.output_dir=often", ranks=2)
        self.assertEqual(result.out.count("saved often/LeNet/latest"), 3, result)
        self.train("Global.epochs=1", "Global.save_minutes=0", ranks=2)
        self.assertEqual(self.model("latest", "often/LeNet"), self.model("latest"))


class Grown(TrainerCase):
    def grow(self):
        lines = (self.folder / "data/list.txt").read_text().splitlines(keepends=True)
        self.write("data/list.txt", "".join(lines + lines[:8]))

    def stop_within_an_epoch(self):
        """The signal may come at an epoch's end; then the next run is stopped."""
        words = [TRIREME, "train", "-c", "config.yaml", "-o", "Global.epochs=10000", "-o", "Global.eval_during_train=False",
                 "-o", "Global.save_interval=-1", "-o", "Global.print_batch_step=1", *AUTO]
        for _ in range(20):
            job = self.start_command(words, env=PLAIN)
            job.wait_output(r"\[Iter: 2/", SECONDS)
            job.signal(signal.SIGUSR1)
            done = re.findall(r"\[Iter: (\d+)/6\]", job.wait(SECONDS).out)
            if done[-1] != "5":
                return
        self.fail("twenty runs stopped at the end of an epoch")

    def test_between_two_epochs(self):
        self.train("Global.epochs=1")
        self.grow()
        result = self.train(more=AUTO)
        self.assert_says(result, "WARNING: Loader: the dataset had 48 samples and now has 56; epoch 1 begins with all of them",
                         r"\[Train\]\[Epoch 2/2\]\[Iter: 6/7\]")

    def test_within_an_epoch_is_refused_with_the_way_on(self):
        self.train("Global.epochs=1")
        self.stop_within_an_epoch()
        self.grow()
        result = self.train("Global.epochs=10000", code=2, more=AUTO)
        self.assert_says(result, r"a dataset of 48 samples, this one has 56, and epoch \d+ has consumed \d+ of them",
                         r"resume from a checkpoint of the end of an epoch \(of `trireme train`: --resume .../epoch_N\)")
        result = self.train(more=["--resume", "out/LeNet/epoch_1"])
        self.assert_says(result, r"\[Train\]\[Epoch 2/2\]\[Iter: 6/7\]")


class Curves(TrainerCase):
    def test_a_point_at_every_print_step_and_at_the_end_of_an_epoch(self):
        self.train("Global.use_visualdl=True", "EMA.decay=0.5")
        events = b"".join(path.read_bytes() for path in (self.folder / "out/LeNet/tensorboard").glob("events*"))
        for name, points in ((b"train/loss", 8), (b"train/lr", 8), (b"eval/top1", 2), (b"eval_ema/top1", 2)):
            self.assertEqual(events.count(name), points, name)
        shutil.rmtree(self.folder / "out")
        self.train("Global.use_visualdl=True", "Global.print_batch_step=1")
        events = b"".join(path.read_bytes() for path in (self.folder / "out/LeNet/tensorboard").glob("events*"))
        self.assertEqual(events.count(b"train/loss"), 12)


class Blocked(TrainerCase):
    def test_a_second_sigterm_ends_a_read_that_blocks_for_ever(self):
        (self.folder / "data/47.jpg").unlink()
        os.mkfifo(self.folder / "data/47.jpg")
        job = self.start_command(
            [TRIREME, "train", "-c", "config.yaml", "-o", "DataLoader.Train.sampler.shuffle=False", "-o",
             "Global.eval_during_train=False", "-o", "Global.save_steps=5"], env=PLAIN)
        job.wait_output("saved out/LeNet/latest", SECONDS)  # the sixth batch is the one that never comes
        job.signal(signal.SIGTERM)
        with self.assertRaises(AssertionError):
            wait_for(lambda: not orphans(self.mark), 3.5, "the first signal to end it")
        job.signal(signal.SIGTERM)
        self.assert_ends(job.wait(5), -signal.SIGTERM)


if __name__ == "__main__":
    main()
