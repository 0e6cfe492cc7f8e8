"""What a training leaves behind, and what the next one makes of it: rates, the best one, damage, signals, the lock."""

import re
import signal

from trainer_case import DISTILLATION, PLAIN, SECONDS, TrainerCase
from trireme_test import TRIREME, main

AUTO = ["--resume", "auto"]


class Going(TrainerCase):
    def test_the_rate_goes_by_epochs_on_another_number_of_ranks(self):
        linear = ("Optimizer.lr={name: Linear, learning_rate: 0.04}", "Global.print_batch_step=1")
        self.train(*linear, "Global.epochs=1")
        result = self.train(*linear, "Global.epochs=4", ranks=2, more=AUTO)
        self.assert_says(result, r"\[Epoch 2/4\]\[Iter: 0/3\]lr\(PolynomialDecay\): 0\.03000000",
                         r"\[Epoch 4/4\]\[Iter: 2/3\]lr\(PolynomialDecay\): 0\.00333333")

    def test_another_configuration_is_told(self):
        self.train("Global.epochs=1")
        result = self.train("Global.print_batch_step=1", more=AUTO)
        self.assert_silent_on(result, "WARNING")
        result = self.train("Global.epochs=3", "DataLoader.Train.sampler.batch_size=4", "Global.seed=7", more=AUTO)
        self.assert_says(result, r"WARNING: latest was saved with another configuration: "
                                 r"DataLoader\.Train\.sampler\.batch_size: 8, now 4; Global\.seed: nothing, now 7$")

    def test_an_epoch_is_saved_before_it_is_evaluated(self):
        result = self.train("Global.epochs=1")
        steps = ("saved out/LeNet/latest", "[Eval][Epoch 1]", "saved out/LeNet/best_model")
        places = [result.out.index(step) for step in steps]
        self.assertEqual(places, sorted(places), result)
        best = self.numbers(result, "[Eval][Epoch 1][Avg]")[0]["top1"]
        result = self.train("Optimizer.lr.learning_rate=0.0", more=AUTO)
        self.assert_says(result, rf"\[Eval\]\[Epoch 2\]\[best metric: {best:.5f}\]")
        self.assert_silent_on(result, "saved out/LeNet/best_model")

    def test_a_best_value_that_is_no_number_counts_for_none(self):
        self.train("Global.epochs=1", "Global.eval_during_train=False")
        path = self.folder / "out/LeNet/latest/manifest.json"
        path.write_text(path.read_text().replace('"extra.best": "none"', '"extra.best": "nan"'))
        named = ["--resume", "out/LeNet/latest"]
        refused = self.train(code=2, more=named)
        right, written = re.search(r"its checksum is (\w+), but it says (\w+)", refused.text).groups()
        path.write_text(path.read_text().replace(written, right))
        result = self.train(more=named)
        self.assert_says(result, r"resumed from out/LeNet/latest", r"\[Eval\]\[Epoch 2\]\[best metric: 0\.\d{5}\]")

    def test_the_best_one_is_not_what_goes_on(self):
        self.train("Global.epochs=1", "Global.save_interval=-1", "EMA.decay=0.5")
        (self.folder / "out/LeNet/latest").rename(self.folder / "kept")
        result = self.train("Global.epochs=1", "Global.save_interval=-1", "EMA.decay=0.5", more=AUTO)
        self.assert_says(result, "no checkpoint in out/LeNet yet; training starts with the first epoch")


class Choosing(TrainerCase):
    """What --resume is told when it is not the name of a checkpoint."""

    def test_folders(self):
        self.train("Global.save_interval=1")
        for name in ("out/LeNet", "out", "out/LeNet/epoch_7"):
            result = self.train(code=2, more=["--resume", name])
            self.assert_says(result, rf"{name} is not a checkpoint; out/LeNet has .*latest \(2 epochs done\)",
                             r"epoch_1 \(1 epoch done\)", r"Name one of them: --resume out/LeNet/(latest|epoch_2), or --resume auto")
        result = self.train(code=2, more=["--resume", "data"])
        self.assert_says(result, "data is not a checkpoint .* there is none in it")

    def test_classes_of_a_distillation(self):
        self.write("config.yaml", DISTILLATION)
        result = self.train("Arch.class_num=6", "Arch.models.0.Teacher.pretrained=False", "Global.epochs=1")
        self.assert_says(result, r"-o Arch.class_num=6: also for Arch.models.0.Teacher.class_num, which had '4'",
                         r"also for Arch.models.1.Student.class_num")


class BadPictures(TrainerCase):
    def test_all_ranks_are_counted_and_evaluation_leaves_them_out(self):
        for i in range(3):
            (self.folder / f"data/{i}.jpg").write_bytes(b"no picture")
        good = [line for line in (self.folder / "data/list.txt").read_text().splitlines() if int(line.split(".")[0]) > 2]
        self.write("data/good.txt", "\n".join(good) + "\n")
        result = self.train("Global.epochs=1", ranks=2)
        self.assertEqual(len(re.findall(r"DataLoader.Train: 3 of 48 samples could not be used", result.out)), 1, result)
        self.assertEqual(len(re.findall(r"DataLoader.Eval: 3 of 48 samples could not be used", result.out)), 1, result)
        weights = "Global.pretrained_model=out/LeNet/latest"
        bad = self.numbers(self.evaluate(weights), "][Avg]")[0]
        without = self.numbers(self.evaluate(weights, "DataLoader.Eval.dataset.cls_label_path=data/good.txt"), "][Avg]")[0]
        self.assertEqual(bad["top1"], without["top1"])
        self.assertAlmostEqual(bad["loss"], without["loss"], delta=2e-5)

    def test_the_limit_is_of_all_ranks_together(self):
        """Ten are allowed; each of two ranks meets six of twelve."""
        for i in range(12):
            (self.folder / f"data/{i}.jpg").write_bytes(b"no picture")
        result = self.train("Global.epochs=1", "Global.eval_during_train=False", ranks=2, code=None)
        self.assertNotEqual(result.code, 0)
        self.assert_says(result, "12 of 48 (samples|pictures) could not be used.* 10 are allowed "
                                 r"\(bad_share and bad_at_least of the dataset\)")

    def test_the_limit_can_be_set(self):
        for i in range(12):
            (self.folder / f"data/{i}.jpg").write_bytes(b"no picture")
        short = ("Global.epochs=1", "Global.eval_during_train=False")
        result = self.train(*short, "DataLoader.Train.dataset.bad_at_least=12")
        self.assert_silent_on(result, "unknown key")
        self.train(*short, "DataLoader.Train.dataset.bad_share=0.25")
        result = self.train(*short, "DataLoader.Train.dataset.bad_share=1.5", code=2)
        self.assert_says(result, "DataLoader.Train.dataset.bad_share: 1.5 is too large")


class Damage(TrainerCase):
    def test_weights_of_a_damaged_checkpoint_are_refused(self):
        self.train("Global.epochs=1")
        path = self.folder / "out/LeNet/best_model/model.safetensors"
        content = bytearray(path.read_bytes())
        content[-100] ^= 1
        path.write_bytes(content)
        for name in ("out/LeNet/best_model", "out/LeNet/best_model/", "out/LeNet/best_model/model.safetensors"):
            result = self.evaluate(f"Global.pretrained_model={name}", code=2)
            self.assert_says(result, "model.safetensors is damaged: its CRC-32C")
        result = self.train("Global.pretrained_model=out/LeNet/best_model", "Global.output_dir=other", code=2)
        self.assert_says(result, "model.safetensors is damaged: its CRC-32C")


class Process(TrainerCase):
    def start(self, ranks=0, more=("Global.eval_during_train=False",), until=r"\[Train\]\[Epoch 2/"):
        """A training that would take long."""
        words = [TRIREME, "launch", "-n", ranks] if ranks else []
        words += [TRIREME, "train", "-c", "config.yaml"]
        for option in ("Global.epochs=10000", *more, "Global.save_interval=-1"):
            words += ["-o", option]
        job = self.start_command(words, env=PLAIN)
        job.wait_output(until)
        return job

    def test_a_folder_in_use(self):
        first = self.start()
        result = self.train(code=2)
        self.assert_says(result, r"out/LeNet is in use: process \d+ on \S+ trains into it", "-o Global.output_dir=")
        self.train("Global.output_dir=other", "Global.epochs=1")
        first.signal(signal.SIGKILL)
        first.wait(SECONDS)
        self.train("Global.epochs=1")

    def test_a_signal_saves_and_is_told_by_the_exit_code(self):
        names = {signal.SIGINT: ("Ctrl-C", 130), signal.SIGTERM: ("SIGTERM", 143), signal.SIGUSR1: ("SIGUSR1", 0)}
        for number, (name, code) in names.items():
            job = self.start()
            job.signal(number)
            result = job.wait(SECONDS)
            self.assert_says(result, rf"stopped by {name}.*; out/LeNet/latest is saved. To go on: trireme train -c "
                                     r"config.yaml -o Global.epochs=10000 .*--resume auto$")
            self.assert_ends(result, code)
        result = self.train("Global.epochs=1", more=AUTO)
        self.assert_says(result, "resumed from out/LeNet/latest")

    def test_a_signal_during_an_evaluation(self):
        """It is finished first, and no step of the next epoch is taken."""
        slow = ("DataLoader.Eval.dataset={name: Synthetic, samples: 4000, image_shape: [3, 28, 28]}",
                "DataLoader.Eval.sampler.batch_size=1", "Global.print_batch_step=1")
        job = self.start(more=slow, until=r"\[Eval\]\[Epoch 1\]\[Iter: 1/")
        job.signal(signal.SIGTERM)
        result = job.wait(SECONDS)
        self.assert_says(result, "this evaluation is finished first", r"\[Eval\].*\[Avg\]", "stopped by SIGTERM")
        self.assert_silent_on(result, r"\[Train\]\[Epoch 2/")
        self.assert_ends(result, 143)

    def test_a_signal_to_the_launcher(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            job = self.start(ranks=2)
            job.signal(number)
            result = job.wait(SECONDS)
            self.assert_ends(result, code)
            self.assert_says(result, r"out/LeNet/latest is saved. To go on: trireme launch … trireme train -c config.yaml")
        self.assertEqual(result.out.count("is saved. To go on"), 1, result)


if __name__ == "__main__":
    main()
