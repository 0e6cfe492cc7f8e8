"""What a training leaves behind, and what the next one makes of it: rates, the best one, damage, signals, the lock."""

import re
import signal

from trainer_case import PLAIN, SECONDS, TrainerCase
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
        self.assert_says(result, "no checkpoint in out/LeNet yet; training begins anew")


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
    def start(self):
        """A training that would take long."""
        words = [TRIREME, "train", "-c", "config.yaml", "-o", "Global.epochs=10000", "-o",
                 "Global.eval_during_train=False", "-o", "Global.save_interval=-1"]
        job = self.start_command(words, env=PLAIN)
        job.wait_output(r"\[Train\]\[Epoch 2/")
        return job

    def test_a_folder_in_use(self):
        first = self.start()
        result = self.train(code=2)
        self.assert_says(result, r"out/LeNet is in use: process \d+ on \S+ trains into it", "-o Global.output_dir=")
        self.train("Global.output_dir=other", "Global.epochs=1")
        first.signal(signal.SIGKILL)
        first.wait(SECONDS)
        self.train("Global.epochs=1")

    def test_sigterm_without_launcher_is_told_by_the_exit_code(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGUSR1, 0)):
            job = self.start()
            job.signal(number)
            result = job.wait(SECONDS)
            self.assert_says(result, "stopped by a signal")
            self.assert_ends(result, code)


if __name__ == "__main__":
    main()
