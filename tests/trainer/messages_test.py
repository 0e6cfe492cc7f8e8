"""What `trireme train` says when something cannot be: what is wrong, where, and what to do."""

from trainer_case import CONFIG, TrainerCase
from trireme_test import TRIREME, main


def line_of(text):
    return CONFIG[: CONFIG.index(text)].count("\n") + 1


class Messages(TrainerCase):
    def refused(self, *overrides, says, **options):
        result = self.train(*overrides, code=2, **options)
        self.assert_says(result, r"^trireme: error: ", *says)
        self.assert_silent_on(result, "internal error")
        return result

    def changed(self, old, new, says):
        """With another text in the file; the message names the line."""
        self.write("config.yaml", CONFIG.replace(old, new, 1))
        return self.refused(says=[rf"config\.yaml:{line_of(old)}: ", *says])

    def test_data(self):
        self.refused("DataLoader.Train.dataset.cls_label_path=no.txt",
                     says=["there is no list no.txt", "-o DataLoader.Train.dataset.cls_label_path=PATH"])
        self.refused("DataLoader.Train.dataset.image_root=nowhere",
                     says=["nowhere is not a folder", "-o DataLoader.Train.dataset.image_root=PATH"])
        self.write("data/empty.txt", "")
        self.refused("DataLoader.Train.dataset.cls_label_path=data/empty.txt", says=["data/empty.txt"])
        self.refused("Arch.class_num=3", says=[r"data/list\.txt:4: the label is 3.*class_num 3",
                                               "its largest label is 3: -o Arch.class_num=4"])
        self.delimiters()
        self.refused("DataLoader.Train.sampler.batch_size=100", "DataLoader.Train.sampler.drop_last=True",
                     says=["48 samples on 1 ranks make no batch of 100"])

    def test_a_list_of_another_editor(self):
        plain = (self.folder / "data/list.txt").read_bytes()
        (self.folder / "data/list.txt").write_bytes(b"\xef\xbb\xbf" + plain)
        self.assert_silent_on(self.train("Global.epochs=1"), "WARNING")

    def test_formats_that_are_not_read(self):
        heads = {"bmp": (b"BM" + bytes(60), "BMP"), "webp": (b"RIFF\x24\0\0\0WEBPVP8 ", "WebP"),
                 "tiff": (b"II*\0" + bytes(8), "TIFF"), "GIF": (b"GIF89a" + bytes(8), "GIF"), "heic": (b"\0\0\0\x18ftypheic" + bytes(8), "HEIC")}
        plain = (self.folder / "data/list.txt").read_text()
        for ending, (head, name) in heads.items():
            (self.folder / f"data/7.{ending}").write_bytes(head)
            self.write("data/list.txt", plain.replace("7.jpg", f"7.{ending}", 1))
            self.refused(says=[rf"data/7\.{ending} is a {name}, and only JPEG and PNG are read",
                               rf"convert the pictures of other formats \(\.{ending.lower()}: 1\), .* take them out"])

    def delimiters(self):
        plain = (self.folder / "data/list.txt").read_text()
        for character, shown in (("\t", "\\t"), (",", ",")):
            self.write("data/other.txt", plain.replace(" ", character))
            advice = f"-o 'DataLoader.Train.dataset.delimiter=\"{shown}\"' reads it"
            result = self.refused("DataLoader.Train.dataset.cls_label_path=data/other.txt", says=["data/other.txt:1"])
            self.assertIn(advice, result.err)
        self.train("DataLoader.Train.dataset.cls_label_path=data/other.txt", "Global.eval_during_train=False",
                   'DataLoader.Train.dataset.delimiter=","', "Global.epochs=1")

    def test_names(self):
        self.changed("  name: LeNet", "  name: LeNett", ["'LeNett' is not known", "did you mean 'LeNet'"])
        self.changed("        - RandFlipImage:", "        - RandFlipImag:", ["did you mean 'RandFlipImage'"])
        self.changed("    - CELoss: {weight: 1.0, e", "    - CELos: {weight: 1.0, e", ["did you mean 'CELoss'"])
        self.changed("    - TopkAcc:", "    - TopAcc:", ["'TopAcc'", "did you mean 'TopkAcc'"])
        self.changed("  name: Momentum", "  name: Momentun", ["'Momentun'", "did you mean 'Momentum'"])
        self.changed("  name: Momentum", "  name: Lamb", ["Lamb is not supported; AdamW"])
        self.changed("      name: ImageNetDataset", "      name: ImageNetDatset", ["did you mean 'ImageNetDataset'"])

    def test_keys_that_must_be_there(self):
        slips = {("Optimizer:", "Optimiser:"): r"Optimizer: missing; is 'Optimiser' \(config.yaml:17\) a slip",
                 ("DataLoader:", "DataLoder:"): r"no DataLoader.Train to train on; is 'DataLoder' \(config.yaml:\d+\) a slip",
                 ("  Train:\n    d", "  Trian:\n    d"): r"no DataLoader.Train to train on; is 'Trian' \(config.yaml:\d+\) a",
                 ("  name: LeNet", "  nam: LeNet"): r"Arch.name: missing; is 'nam' \(config.yaml:\d+\) a slip"}
        for (old, new), says in slips.items():
            self.write("config.yaml", CONFIG.replace(old, new, 1))
            self.refused(says=[says])

    def test_values(self):
        self.changed("  epochs: 2", "  epochs: two", ["Global.epochs: expected"])
        self.changed("        - RandCropImage: {size: 28", "        - RandCropImage: {size: big", ["size: expected"])
        self.write("config.yaml", CONFIG)
        self.refused("Global.use_multilabel=True", says=["several labels a picture are not supported"])
        result = self.train("Global.print_batch_stp=3", "Global.epochs=1", "Arch.in_chanels=3",
                            "DataLoader.Train.dataset.transform_ops.1.RandCropImage.ratios=3")
        self.assert_says(result, "WARNING: .*Global.print_batch_stp: unknown key.*did you mean 'print_batch_step'",
                         "WARNING: .*RandCropImage.ratios: unknown key.*did you mean 'ratio'",
                         "WARNING: .*Arch.in_chanels: LeNet has no such argument.*did you mean 'in_channels'")

    def test_weights_and_devices(self):
        self.refused("Arch.pretrained=True", says=["TRIREME_WEIGHTS", "-o Arch.pretrained=False"])
        self.refused("Arch.pretrained=True", env={"TRIREME_WEIGHTS": str(self.folder)},
                     says=[r"no .*/LeNet\.safetensors", "-o Arch.pretrained=False"])
        self.refused("Global.pretrained_model=nothing", says=["Global.pretrained_model=nothing: there is no such file"])
        self.refused("Global.device=gpu", env={"CUDA_VISIBLE_DEVICES": "-1"}, says=["-o Global.device=cpu"])
        result = self.evaluate(code=2)
        self.assert_says(result, "-o Global.pretrained_model=out/LeNet/best_model")

    def test_a_loss_that_is_no_number(self):
        """The step that broke is named with its rate, not the one in which it was seen."""
        rates = "Optimizer.lr={name: Piecewise, decay_epochs: [1], values: [1e30, 0.5], by_epoch: True}"
        result = self.train(rates, "Global.print_batch_step=100", code=None, ranks=2)
        self.assertNotEqual(result.code, 0)
        self.assert_says(result, r"\[Epoch 1/2\]\[Iter: [12]/3\] the loss of ranks? [01](, 1)? is (nan|inf) in step [23], "
                                 r"whose learning rate is 1e\+30", r"-o Optimizer.lr.values", "-o Optimizer.clip_norm=1.0")
        result = self.train("Optimizer.lr.learning_rate=1e30", code=2)
        self.assert_says(result, r"-o Optimizer\.lr\.learning_rate=1e\+29")

    def test_more_than_the_memory(self):
        huge = ("DataLoader.Train.dataset={name: Synthetic, samples: 16000000, image_shape: [3, 224, 224]}",
                "DataLoader.Train.sampler.batch_size=16000000")
        self.refused(*huge, says=[r"DataLoader.Train.sampler.batch_size: the 16000000 images of a batch need 8972\.2 GiB, "
                                  r"and this machine has [\d.]+ GiB; make it smaller \(-o DataLoader.Train.sampler"])
        self.refused("DataLoader.Train.sampler.batch_size=100000000", says=["100000000 is too large; expected at most"])

    def test_weights_of_another_network(self):
        self.train("Global.epochs=1")
        result = self.refused("Global.pretrained_model=out/LeNet/latest", "Arch.name=PPLCNet_x0_25",
                              says=["does not fit this model", "-o Global.pretrained_model=PATH, or change Arch.name"])
        self.assert_silent_on(result, "skip_mismatch")
        result = self.evaluate("Global.pretrained_model=out/LeNet/latest", "Arch.class_num=7", code=2)
        self.assert_says(result, "or change Arch.name or Arch.class_num")
        self.assert_silent_on(result, "skip_mismatch")
        result = self.refused("EMA.decay=0.9", more=["--resume", "auto"], says=["latest has no 'ema'"])
        self.assert_silent_on(result, r"restore\(\)")

    def test_images_that_do_not_fit(self):
        self.refused("Arch.in_channels=1", says=["the network cannot work on images of 8 x 3 x 28 x 28"])

    def test_the_command_line(self):
        wrong = {"-c": "-c needs a value", "--resum": "unknown option --resum; did you mean --resume"}
        for word, says in wrong.items():
            self.assert_usage(self.start_command([TRIREME, "train", word]).wait(), says)
        self.assert_usage(self.start_command([TRIREME, "train"]).wait(), "which configuration")
        self.assert_usage(self.start_command([TRIREME, "train", "-c", "."]).wait(),
                          "is a folder; name a file in it: config.yaml")
        self.assert_ends(self.start_command([TRIREME, "train", "--help"]).wait(), 0)


if __name__ == "__main__":
    main()
