"""`trireme train` and `trireme eval` on one, two and three ranks, with small pictures.

By hand: trireme launch -n 2 trireme train -c config.yaml   (trainer_case.py has the configuration)
"""

import json
import re
import shutil
import signal
from array import array
from pathlib import Path

from trainer_case import CONFIG, DISTILLATION, PLAIN, SECONDS, TrainerCase
from trireme_test import TRIREME, main

STAMP = r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\] trireme INFO: "
NUMBER = r"\d+\.\d{5}"
TRAIN_LINE = (
    STAMP + r"\[Train\]\[Epoch (\d)/2\]\[Iter: (\d)/6\]lr\(ConstLR\): 0\.02000000, top1: {n}, top2: {n}, CELoss: {n}, "
    r"loss: {n}, batch_cost: {n}s, reader_cost: {n}, ips: {n} samples/s, eta: 0:00:\d\d, max_mem_resident: \d+ MB"
).replace("{n}", NUMBER)
EVAL_LINE = (
    STAMP + r"\[Eval\]\[Epoch 1\]\[Iter: 2/7\]CELoss: {n}, loss: {n}, top1: {n}, top2: {n}, batch_cost: {n}s, "
    r"reader_cost: {n}, ips: {n} images/sec"
).replace("{n}", NUMBER)


class Log(TrainerCase):
    def test_lines_files_and_falling_loss(self):
        result = self.train("Global.use_visualdl=True")
        lines = result.out.splitlines()
        found = [re.fullmatch(TRAIN_LINE, line) for line in lines if "[Train]" in line and "[Avg]" not in line]
        self.assertTrue(all(found), result)
        self.assertEqual([(m[1], m[2]) for m in found], [(e, i) for e in "12" for i in "024"], result)
        self.assertTrue(any(re.fullmatch(EVAL_LINE, line) for line in lines), result)
        first, last = self.numbers(result, "][Avg]")[0], self.numbers(result, "[Train][Epoch 2/2][Avg]")[-1]
        self.assertEqual(list(first), ["top1", "top2", "CELoss", "loss"])
        self.assertLess(last["loss"], first["loss"], result)
        self.assert_says(result, r"\[Eval\]\[Epoch 2\]\[best metric: 0\.\d{5}\]")
        self.assertEqual((self.folder / "out/LeNet/train.log").read_text(), result.out)
        for name in ("best_model", "latest", "epoch_1", "epoch_2"):
            files = sorted(path.name for path in (self.folder / "out/LeNet" / name).iterdir())
            self.assertEqual(files, ["manifest.json", "model.safetensors", "optimizer.safetensors", "rng.safetensors"])
        self.assertEqual(self.model("latest"), self.model("epoch_2"))
        self.assertTrue(list((self.folder / "out/LeNet/tensorboard").glob("events*")))
        self.assert_says(result, "the global batch is 8, .* 0.02 is for 32; in proportion .* 0.005, .*auto_scale=True")

    def test_the_file_is_complete_whatever_the_console_shows(self):
        result = self.train("Global.epochs=1", env={"TRIREME_LOG_LEVEL": "error"})
        self.assertEqual(result.out, "")
        log = (self.folder / "out/LeNet/train.log").read_text()
        self.assertRegex(log, r"\[Train\]\[Epoch 1/1\]\[Avg\]")
        self.assertRegex(log, r"\[Eval\]\[Epoch 1\]\[best metric: ")

    def test_scaled_rate(self):
        result = self.train("Optimizer.lr.auto_scale=True", "Global.epochs=1")
        self.assert_says(result, r"0\.005 is used", r"lr\(ConstLR\): 0\.00500000")


class Ranks(TrainerCase):
    def test_two_ranks_are_one_process_with_batches_twice_as_large(self):
        alone = self.train("DataLoader.Train.sampler.batch_size=16", "Global.output_dir=one")
        both = self.train(ranks=2)
        for line in ("[Train][Epoch 2/2][Avg]", "[Eval][Epoch 2][Avg]"):
            one, two = self.numbers(alone, line)[0], self.numbers(both, line)[0]
            self.assertEqual(one.keys(), two.keys())
            for name, value in one.items():
                self.assertAlmostEqual(two[name], value, delta=2e-4, msg=f"{name} {alone} {both}")
        self.assert_says(both, "10 gradient tensors")
        self.assertEqual(both.out.count("[Train][Epoch 2/2][Avg]"), 1, both)

    def test_evaluation_is_the_same_on_any_number_of_ranks(self):
        trained = self.train("Global.epochs=1")
        weights = "Global.pretrained_model=out/LeNet/best_model"
        alone = self.numbers(self.evaluate(weights), "[Eval][Epoch 0][Avg]")
        self.assertEqual(alone, self.numbers(trained, "[Eval][Epoch 1][Avg]"))
        self.assertEqual(list(alone[0]), ["CELoss", "loss", "top1", "top2"])
        for ranks in (2, 3):
            self.assertEqual(self.numbers(self.evaluate(weights, ranks=ranks), "[Eval][Epoch 0][Avg]"), alone)

    def test_accumulation(self):
        alone = self.train("DataLoader.Train.sampler.batch_size=16", "Global.output_dir=one")
        result = self.train("DataLoader.Train.sampler.batch_size=4", "Global.update_freq=2", ranks=2)
        line = "[Eval][Epoch 2][Avg]"
        self.assertAlmostEqual(self.numbers(alone, line)[0]["loss"], self.numbers(result, line)[0]["loss"], delta=2e-4)

    def test_datasets_of_other_sizes_are_named_on_every_rank(self):
        lines = (self.folder / "data/list.txt").read_text().splitlines(keepends=True)
        train = CONFIG[CONFIG.index("  Train:\n    dataset"):CONFIG.index("  Eval:\n    dataset")]
        self.write("unlabelled.yaml", CONFIG.replace(train, train + train.replace("  Train:", "  UnLabelTrain:")))
        self.write("data/short.txt", "".join(lines[:40]))
        program = Path(TRIREME).parent / "trainer_ranks"
        for loader, config in (("Train", "config.yaml"), ("Eval", "config.yaml"), ("UnLabelTrain", "unlabelled.yaml")):
            result = self.launch("-n", 2, "--tee", "all", program, "uneven", config, loader, "data/short.txt",
                                 env=PLAIN, timeout=SECONDS)
            self.assert_ends(result, 0)
            for rank in range(2):
                self.assert_says(result, rf"rank {rank}: DataLoader.{loader}: .* 40 samples on rank 1 and 48 on rank 0")

    def test_overflow_on_one_rank_leaves_the_step_out_on_all(self):
        program = Path(TRIREME).parent / "trainer_ranks"
        result = self.launch("-n", 2, "--tee", "all", program, "overflow", "config.yaml", env=PLAIN, timeout=SECONDS)
        self.assert_ends(result, 0)
        for rank in range(2):
            self.assert_says(result, rf"rank {rank}: stepped 1, then 0; changed 1, then 0; scale 128, then 64")


class Sharded(TrainerCase):
    """Global.parallel: what is split over the ranks, and what is saved, are the same training."""

    def weights(self, out):
        """{name: its numbers}"""
        data = self.model("latest", f"{out}/LeNet")
        size = int.from_bytes(data[:8], "little")
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        return {name: array("f", body[slice(*entry["data_offsets"])])
                for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}

    def assert_same_weights(self, one, other):
        first, second = self.weights(one), self.weights(other)
        self.assertEqual(first.keys(), second.keys())
        self.assertGreater(len(first), 5)
        for name, numbers in first.items():
            self.assertEqual(len(numbers), len(second[name]), name)
            furthest = max(abs(a - b) for a, b in zip(numbers, second[name]))
            self.assertLess(furthest, 1e-5, name)

    def test_every_level_trains_the_same(self):
        options = ["Optimizer.clip_norm=0.5", "EMA.decay=0.9", "Global.update_freq=2"]
        plain = self.train("Global.output_dir=plain", *options, ranks=2)
        for shard in ("optimizer", "gradients", "parameters"):
            result = self.train(f"Global.output_dir={shard}", f"Global.parallel.shard={shard}", *options, ranks=2)
            self.assert_says(result, "split over 2 ranks")
            self.assert_same_weights(shard, "plain")
            for line in ("[Avg]", "[EMA][Avg]"):
                losses, wanted = ([numbers["loss"] for numbers in self.numbers(one, line)] for one in (result, plain))
                self.assertEqual(len(losses), len(wanted), result)
                for loss, other in zip(losses, wanted):
                    self.assertAlmostEqual(loss, other, places=4)

    def test_going_on_with_another_layout(self):
        self.train("Global.output_dir=plain", "Global.epochs=3", ranks=2)
        for epochs, shard in ((1, "parameters"), (2, "none"), (3, "gradients")):
            self.train("Global.output_dir=mixed", f"Global.epochs={epochs}", f"Global.parallel.shard={shard}", ranks=2,
                       more=["--resume", "auto"])
        self.assert_same_weights("mixed", "plain")

    def test_mixed_precision(self):
        options = ["AMP.use_amp=True", "AMP.level=O2", "AMP.dtype=bfloat16", "Global.epochs=8"]
        result = self.train(*options, "Global.parallel.shard=parameters", ranks=2)
        losses = [numbers["loss"] for numbers in self.numbers(result, "[Train][Epoch") if "loss" in numbers]
        self.assertLess(losses[-1], losses[0], result)

    def test_what_cannot_be(self):
        for override, *words in (
            ("data=3", "Global.parallel.data", "3 ranks", "2 were started"),
            ("data=0", "Global.parallel.data", "-1 for all"),
            ("pipe=2", "Global.parallel.pipe", "LeNet", "resnet_layers"),
            ("model=2", "Global.parallel.model", "LeNet", "parts of layers"),
            ("shard=all", "Global.parallel.shard", "optimizer, gradients, parameters"),
        ):
            result = self.train(f"Global.parallel.{override}", ranks=2, code=None)
            self.assertNotEqual(result.code, 0, result)
            self.assert_says(result, *words)


class ThreeWays(TrainerCase):
    def test_trainer_model_and_loop_give_the_same_bits(self):
        """With clipping, an average, uneven batches and accumulation."""
        program = Path(TRIREME).parent / "trainer_ranks"
        for ranks in (1, 2):
            result = self.launch("-n", ranks, "--tee", "all", program, "three_ways", "config.yaml", env=PLAIN, timeout=SECONDS)
            self.assert_ends(result, 0)
            found = re.findall(r"rank \d (trainer|model|loop): (\w+)$", result.out, re.M)
            self.assertEqual(sorted(way for way, _ in found), sorted(["trainer", "model", "loop"] * ranks), result)
            self.assertEqual(len({checksum for _, checksum in found}), 1, result)
            shutil.rmtree(self.folder / "three")


class Resume(TrainerCase):
    def test_going_on_is_bit_for_bit_an_unbroken_run(self):
        for ranks in (0, 2):
            out = f"Global.output_dir=whole{ranks}"
            self.train(out, ranks=ranks)
            out = f"Global.output_dir=parts{ranks}"
            self.train(out, "Global.epochs=1", ranks=ranks, more=["--resume", "auto"])
            rest = self.train(out, ranks=ranks, more=["--resume", "auto"])
            self.assert_says(rest, "resumed from .*latest", "resumed: 1 of 2 epochs are done")
            self.assert_silent_on(rest, "Epoch 1/2")
            self.assertEqual(self.model("latest", f"parts{ranks}/LeNet"), self.model("latest", f"whole{ranks}/LeNet"))
        self.assert_says(self.train("Global.output_dir=whole0", more=["--resume", "auto"]), "nothing left to do")

    def test_rmsprop_with_l1_goes_on_as_well(self):
        common = ("Optimizer.name=RMSProp", "Optimizer.lr.learning_rate=0.001", "Optimizer.regularizer.name=L1")
        whole = self.train(*common, "Global.output_dir=whole")
        self.train(*common, "Global.epochs=1")
        self.train(*common, more=["--resume", "auto"])
        self.assertEqual(self.model("latest"), self.model("latest", "whole/LeNet"))
        first, last = self.numbers(whole, "][Avg]top1")
        self.assertLess(last["loss"], first["loss"], whole)

    def test_a_named_checkpoint(self):
        self.train()
        result = self.train("Global.checkpoints=out/LeNet/epoch_1", "Global.output_dir=other")
        self.assert_says(result, r"resumed from out/LeNet/epoch_1", r"\[Train\]\[Epoch 2/2\]")
        self.assertEqual(self.model("latest", "other/LeNet"), self.model("latest"))
        result = self.train("Global.checkpoints=out/LeNet/epoch_7", code=2)
        self.assert_says(result, "epoch_7")


class Preemption(TrainerCase):
    def stopped_and_resumed(self, ranks, number):
        """Told to go in the middle of an epoch; then on to the end. The weights are those of an unbroken run."""
        common = ("DataLoader.Train.sampler.batch_size=1", "Global.epochs=20", "Global.eval_during_train=False",
                  "Optimizer.lr.learning_rate=0.001", "Global.save_interval=-1")
        self.train("Global.output_dir=whole", *common, ranks=ranks)
        words = [TRIREME, "train", "-c", "config.yaml", *(w for o in common for w in ("-o", o)), "--resume", "auto"]
        if ranks:
            words = [TRIREME, "launch", "-n", ranks, *words]
        job = self.start_command(words, env=PLAIN)
        job.wait_output(r"\[Train\]\[Epoch 3/20\]\[Iter: 4/")
        job.signal(number)
        first = job.wait(SECONDS)
        self.assert_says(first, r"\]\[Iter: \d+/\d+\]stopped by SIG")
        self.assert_silent_on(first, "Epoch 20/20")
        shutil.copytree(self.folder / "out", self.folder / "copy")
        rest = self.start_command(words, env=PLAIN).wait(SECONDS)
        self.assert_ends(rest, 0)
        self.assert_silent_on(rest, "Epoch 2/20")
        self.assertEqual(self.model("latest"), self.model("latest", "whole/LeNet"))
        self.on_another_number_of_ranks(common, ranks)
        return first

    def on_another_number_of_ranks(self, common, ranks):
        """What is left of the epoch is dealt out again, to the same last batch."""
        result = self.train(*common, "Global.output_dir=copy", ranks=0 if ranks else 2, more=["--resume", "auto"])
        steps = 48 if ranks else 24
        self.assert_says(result, "dealt out again", rf"Epoch \d+/20\]\[Iter: {steps - 2}/{steps}\]")

    def test_alone(self):
        self.assert_ends(self.stopped_and_resumed(0, signal.SIGUSR1), 0)

    def test_two_ranks(self):
        self.stopped_and_resumed(2, signal.SIGTERM)


class Distillation(TrainerCase):
    def test_only_the_student_learns(self):
        adam = ("Optimizer.name=Adam", "Optimizer.lr.learning_rate=0.003", "Global.epochs=3")
        self.train(*adam)
        teacher = self.model("latest")
        self.write("config.yaml", DISTILLATION)
        result = self.train(*adam, ranks=2)
        self.assert_says(result, "10 gradient tensors", r"DistillationDMLLoss: \d")
        losses = [line["loss"] for line in self.numbers(result, "][Avg]top1")]
        self.assertLess(losses[-1], losses[0], result)
        self.assertEqual(self.model("latest"), teacher)
        student = self.model("latest", "out/DistillationModel")
        self.assertLess(len(student), len(teacher) * 1.1)
        self.assertNotIn(b"Teacher", student)
        line = self.numbers(self.evaluate("Global.pretrained_model=out/DistillationModel/latest"), "[Avg]")
        self.assertEqual(line, self.numbers(result, "[Eval][Epoch 3][Avg]"))

    def test_an_evaluation_needs_the_students_weights(self):
        self.train("Global.epochs=1")
        self.write("config.yaml", DISTILLATION)
        result = self.evaluate("Arch.models.1.Student.pretrained=out/LeNet/latest")
        self.assert_says(result, "weights from out/LeNet/latest/model.safetensors")
        result = self.evaluate("Arch.pretrained=True", code=2)
        self.assert_says(result, r"WARNING: -o Arch\.pretrained=True: Arch\.pretrained: 'True' is ignored: each of",
                         "which weights are to be evaluated")

    def test_unlabelled_pictures(self):
        self.train("Global.epochs=1")
        self.write("data/unlabelled.txt", "".join(f"{i}.jpg\n" for i in range(10)))
        train = DISTILLATION[DISTILLATION.index("  Train:\n    dataset"):DISTILLATION.index("  Eval:\n    dataset")]
        more = train.replace("  Train:", "  UnLabelTrain:").replace("list.txt", "unlabelled.txt")
        self.write("config.yaml", DISTILLATION.replace(train, train + more).replace(
            "model_name_pairs: [[Student, Teacher]]}\n",
            "model_name_pairs: [[Student, Teacher]]}\n    - DistillationGTCELoss: {model_names: [Student]}\n"))
        result = self.train("Global.epochs=1")
        self.assert_says(result, r"top1: .*DistillationDMLLoss: .*DistillationGTCELoss: .*loss: ")


class Parts(TrainerCase):
    """Each on by a key, all in a few runs."""

    def test_mixed_precision_average_and_clipping(self):
        for level in ("O1", "O2"):
            result = self.train(
                "AMP.use_amp=True", f"AMP.level={level}", "EMA.decay=0.5", "Optimizer.clip_norm=1.0",
                "Optimizer.name=AdamW", "Optimizer.lr.learning_rate=0.002", f"Global.output_dir={level}", ranks=2)
            first, last = self.numbers(result, "][Avg]top1")
            self.assertLess(last["loss"], first["loss"])
            folder = self.folder / level / "LeNet"
            self.assertTrue((folder / "latest/ema.safetensors").exists())
            self.assert_says(result, r"\[Eval\]\[Epoch 2\]\[Avg\]", r"\[Eval\]\[Epoch 2\]\[EMA\]\[Avg\]")
            self.assertEqual((folder / "latest/masters.safetensors").exists(), level == "O2")

    def test_sizes_mixing_and_norms(self):
        """Images of changing size, Mixup and CutMix, batch normalisation over all ranks, a folder for each class."""
        for i in range(48):
            path = self.folder / f"folders/{i % 4}"
            path.mkdir(parents=True, exist_ok=True)
            (self.folder / f"data/{i}.jpg").rename(path / f"{i}.jpg")
        self.write("config.yaml", CONFIG.replace("name: ImageNetDataset", "name: ImageFolder")
                   .replace("image_root: data", "image_root: folders")
                   .replace("  name: LeNet", "  name: PPLCNet_x0_25\n  use_sync_bn: True")
                   .replace("  in_channels: 3\n", "")
                   .replace("      cls_label_path: data/list.txt\n", "")
                   .replace("name: DistributedBatchSampler, batch_size: 8, drop_last: False, shuffle: True",
                            "name: MultiScaleSampler, scales: [32, 64], first_bs: 12")
                   .replace("    sampler: {name: Multi", """      batch_transform_ops:
        - OpSampler:
            MixupOperator: {alpha: 0.2, prob: 0.5}
            CutmixOperator: {alpha: 1.0, prob: 0.5}
    sampler: {name: Multi"""))
        result = self.train("Global.epochs=1", ranks=2)
        self.assert_says(result, "92 gradient tensors", r"\[Epoch 1/1\]\[Avg\]top1", r"\[Eval\]\[Epoch 1\]\[Avg\]")
        self.assert_silent_on(result, "WARNING")

    def test_weights_by_name_for_other_classes(self):
        self.train("Global.epochs=1")
        (self.folder / "weights").mkdir()
        (self.folder / "weights/LeNet.safetensors").write_bytes(self.model("latest"))
        result = self.train("Arch.pretrained=True", "Arch.class_num=5", "Global.epochs=1", "Global.output_dir=other",
                            env={"TRIREME_WEIGHTS": "weights"})
        self.assert_says(result, "weights from weights/LeNet.safetensors", "2 of another shape keep their random start")

    def test_fashion_mnist_and_synthetic(self):
        common = ("Arch.in_channels=1", "Arch.class_num=10", "Global.image_shape=[1, 28, 28]", "Global.epochs=1",
                  "Global.iter_per_epoch=3", "Global.eval_during_train=False")
        norm = "DataLoader.Train.dataset.transform_ops=[NormalizeImage: {mean: [0.286], std: [0.353]}]"
        dataset = "DataLoader.Train.dataset"
        self.train(f"{dataset}.name=FashionMnist", f"{dataset}.image_root=null", norm, *common)
        self.train(f"{dataset}.name=Synthetic", *common)


if __name__ == "__main__":
    main()
