"""Keys of PaddleClas' files that change the rate or the network, and those that Trireme does not act upon."""

import json
import struct

from trainer_case import CONFIG, TrainerCase
from trireme_test import main

PIECES = "Optimizer.lr={name: Piecewise, learning_rate: 0.02, decay_epochs: [30], values: [0.02, 0.002]}"
LCNET = ("Arch={name: PPLCNet_x0_25, class_num: 4}", "Global.epochs=1", "Global.eval_during_train=False")


class Rates(TrainerCase):
    def test_the_learning_rate_of_piecewise(self):
        """It wins over `values`, as in PaddleClas, and auto_scale scales it."""
        self.assert_says(self.train("Global.epochs=1", PIECES), r"lr\(PiecewiseDecay\): 0\.02000000")
        result = self.train("Global.epochs=1", PIECES, "Optimizer.lr.learning_rate=0.0001")
        self.assert_says(result, r"lr\(PiecewiseDecay\): 0\.00010000", r"WARNING: .*Optimizer\.lr\.values: .* is ignored")
        scaled = self.train("Global.epochs=1", PIECES, "Optimizer.lr.learning_rate=0.004", "Optimizer.lr.auto_scale=True")
        self.assert_says(scaled, r"lr\(PiecewiseDecay\): 0\.00100000")  # a fourth: one rank instead of four

    def test_other_forms(self):
        for lr in ("{name: ConstLR, learning_rate: 0.02}", "{name: Piecewise, learning_rate: 0.02}",
                   "{name: Step, learning_rate: 0.02, step_size: 2.4, gamma: 0.97}"):
            self.assert_says(self.train("Global.epochs=1", "Optimizer.lr=" + lr), r"lr\(\w+\): 0\.02000000")


class Networks(TrainerCase):
    def weights(self, checkpoint, out):
        """{name: bytes} of a safetensors file."""
        content = self.model(checkpoint, out)
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + size])
        return {name: content[8 + size:][slice(*entry["data_offsets"])] for name, entry in header.items()
                if name != "__metadata__"}

    def trained(self, out, *overrides):
        self.train(*LCNET, f"Global.output_dir={out}", *overrides)
        return self.weights("latest", f"{out}/PPLCNet_x0_25")

    def test_stages_have_their_rates(self):
        start = self.trained("start", "Optimizer.lr.learning_rate=0")
        there = self.trained("factors", "Arch.lr_mult_list=[0, 1, 1, 1, 0, 0]")
        moved = {name.split(".")[0] for name in start
                 if start[name] != there[name] and not name.endswith(("running_mean", "running_var", "tracked"))}
        self.assertEqual(moved, {"blocks2", "blocks3", "blocks4", "last_conv", "fc"})

    def test_strides(self):
        first = [self.numbers(self.train(*LCNET, *more), "[Iter: 0/6]")[0]["loss"]
                 for more in ((), ("Arch.stride_list=[2, 2, 2, 2, 2]",), ("Arch.stride_list=[1, 2, 2, 1, 1]",))]
        self.assertEqual(first[0], first[1])
        self.assertNotEqual(first[0], first[2])
        result = self.train(*LCNET, "Arch.stride_list=[2, 2]", code=2)
        self.assert_says(result, "stride_list has 2 numbers; it must have 5")
        self.assert_says(self.train("Arch.stride_list=[2, 2]", code=2), "LeNet: stride_list is not an option")
        self.assert_says(self.train("Arch.layer_type=DiverseBranchBlock", code=2), "'DiverseBranchBlock' is not known")

    def test_weights_of_the_other_author(self):
        small = ("Global.epochs=1", "Global.eval_during_train=False", "Optimizer.lr.learning_rate=0")
        for name, other, author in (("resnet18", "ResNet18", "torchvision's"), ("ResNet18", "resnet18", "PaddleClas'")):
            self.train(f"Arch={{name: {name}, class_num: 4}}", *small)
            result = self.train(f"Arch={{name: {other}, class_num: 4}}", *small,
                                f"Global.pretrained_model=out/{name}/latest", code=2)
            self.assert_says(result, f"The file has {author} names: they are those of Arch.name {name}")
        self.assertIn("blocks.0.short.conv.weight", self.weights("latest", "out/ResNet18"))
        self.assertNotIn("layer1.0.downsample.0.weight", self.weights("latest", "out/resnet18"))


class Ignored(TrainerCase):
    def test_is_said_once(self):
        text = CONFIG.replace("  epochs: 2\n", "  epochs: 1\n  use_dali: True\n")
        self.write("config.yaml", text.replace("DecodeImage: {to", "DecodeImage: {backend: pil, to", 1))
        line = text[: text.index("use_dali")].count("\n") + 1
        result = self.train()
        for says in (rf"WARNING: config\.yaml:{line}: Global\.use_dali: 'True' is ignored: ",
                     r"WARNING: .*Train\.dataset\.transform_ops\.0\.DecodeImage\.backend: 'pil' is ignored: "):
            self.assert_says(result, says)
        self.assertEqual(result.out.count("is ignored: "), 2, result.out)

    def test_keys_of_the_data(self):
        """How an evaluation reads is fixed, and datasets do not have each other's keys."""
        result = self.train(
            "Global.epochs=1", "DataLoader.Eval.sampler.drop_last=True", "DataLoader.Eval.sampler.shuffle=True",
            "DataLoader.Eval.dataset.name=Synthetic", "DataLoader.Eval.dataset.samples=16",
            "DataLoader.Train.dataset.mode=train", "DataLoader.Train.dataset.batch_transform_ops="
            "[OpSampler: {class_num: 1000, MixupOperator: {alpha: 0.2}}]")
        for key, why in ((r"Eval\.sampler\.drop_last: 'True'", "every picture is evaluated once"),
                         (r"Eval\.sampler\.shuffle: 'True'", "pictures are evaluated in the order of the list"),
                         (r"Eval\.dataset\.image_root: 'data'", "it is a key of .*, not of Synthetic"),
                         (r"Eval\.dataset\.cls_label_path: .*", "it is a key of .*, not of Synthetic"),
                         (r"Eval\.dataset\.transform_ops: .*", "it is a key of .*, not of Synthetic"),
                         (r"Train\.dataset\.mode: 'train'", "it is a key of FashionMnist, Mnist, not of ImageNet"),
                         (r"OpSampler\.class_num: '1000'", "labels have Arch.class_num = 4 classes")):
            self.assert_says(result, rf"WARNING: .*{key} is ignored: {why}")
        self.assertEqual(result.out.count("is ignored: "), 7, result.out)

    def test_weights_of_another_recipe(self):
        """use_ssld, but there are only the plain weights."""
        self.train("Global.epochs=1")
        (self.folder / "LeNet.safetensors").write_bytes(self.model("latest"))
        result = self.train("Global.epochs=1", "Arch.pretrained=True", "Arch.use_ssld=True", "Global.output_dir=ssld",
                            env={"TRIREME_WEIGHTS": str(self.folder)})
        self.assert_says(result, r"Arch\.use_ssld: 'True' is ignored: there is no .*/LeNet_ssld\.safetensors; LeNet\.safet")


if __name__ == "__main__":
    main()
