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
        self.refused("Arch.class_num=3", says=[r"data/list\.txt:4: the label is 3.*class_num 3"])
        self.refused("DataLoader.Train.sampler.batch_size=100", "DataLoader.Train.sampler.drop_last=True",
                     says=["48 samples on 1 ranks make no batch of 100"])

    def test_names(self):
        self.changed("  name: LeNet", "  name: LeNett", ["'LeNett' is not known", "did you mean 'LeNet'"])
        self.changed("        - RandFlipImage:", "        - RandFlipImag:", ["did you mean 'RandFlipImage'"])
        self.changed("    - CELoss: {weight: 1.0, e", "    - CELos: {weight: 1.0, e", ["did you mean 'CELoss'"])
        self.changed("    - TopkAcc:", "    - TopAcc:", ["'TopAcc'", "did you mean 'TopkAcc'"])
        self.changed("  name: Momentum", "  name: Momentun", ["'Momentun'", "did you mean 'Momentum'"])
        self.changed("  name: Momentum", "  name: Lamb", ["'Lamb' is not known; expected SGD, Momentum, Adam, AdamW"])
        self.changed("      name: ImageNetDataset", "      name: ImageNetDatset", ["did you mean 'ImageNetDataset'"])

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
        result = self.train("Optimizer.lr.learning_rate=1e30", code=None, ranks=2)
        self.assertNotEqual(result.code, 0)
        self.assert_says(result, r"\[Train\]\[Epoch 1/2\]\[Iter: \d/3\] the loss of rank \d is (nan|inf)", "lower rate")

    def test_images_that_do_not_fit(self):
        self.refused("Arch.in_channels=1", says=["the network cannot work on images of 8 x 3 x 28 x 28"])

    def test_the_command_line(self):
        wrong = {"-c": "-c needs a value", "--resum": "no option '--resum'"}
        for word, says in wrong.items():
            self.assert_usage(self.start_command([TRIREME, "train", word]).wait(), says)
        self.assert_usage(self.start_command([TRIREME, "train"]).wait(), "which configuration")
        self.assert_ends(self.start_command([TRIREME, "train", "--help"]).wait(), 0)


if __name__ == "__main__":
    main()
