"""PaddleClas' own configurations, unedited, on generated JPEGs: alone and on two ranks, then evaluated.

Where ../shared/peer_data/paddleclas is, its files are taken as they are; else Trireme's configurations of the same
networks. Only what a user has to say is overridden (data, device, weights), and sizes, so that it takes seconds.
"""

from trainer_case import TrainerCase
from trireme_test import ROOT, main

THEIRS = ROOT.parent / "shared/peer_data/paddleclas"
OURS = ROOT / "configs/classification"


def config(name):
    theirs = THEIRS / f"{name}.yaml"
    return theirs if theirs.exists() else OURS / theirs.name


class PaddleClas(TrainerCase):
    def setUp(self):
        super().setUp()
        self.images("pictures", 16, 4, 72)

    def overrides(self, size):
        words = ["Global.device=cpu", "Global.epochs=1", "Global.print_batch_step=1", "Global.save_interval=-1",
                 "DataLoader.Train.dataset.transform_ops.1.RandCropImage.size=" + str(size),
                 "DataLoader.Eval.dataset.transform_ops.1.ResizeImage.resize_short=" + str(size),
                 "DataLoader.Eval.dataset.transform_ops.2.CropImage.size=" + str(size)]
        for part, batch in (("Train", 4), ("Eval", 8)):
            words += [f"DataLoader.{part}.dataset.image_root=pictures",
                      f"DataLoader.{part}.dataset.cls_label_path=pictures/list.txt",
                      f"DataLoader.{part}.sampler.batch_size={batch}", f"DataLoader.{part}.loader.num_workers=1"]
        return words

    def trains(self, name, *more, size=64):
        words = [*self.overrides(size), *more]
        path = config(name)
        self.assertTrue(path.exists(), path)
        alone = self.train(*words, "Global.output_dir=alone", config=path)
        both = self.train(*words, "Global.output_dir=both", config=path, ranks=2)
        for result, iters in ((alone, 4), (both, 2)):
            self.assert_says(result, rf"\[Train\]\[Epoch 1/1\]\[Iter: {iters - 1}/{iters}\]lr\(",
                             r"\[Train\]\[Epoch 1/1\]\[Avg\]", r"\[Eval\]\[Epoch 1\]\[Avg\].*top1: ")
        latest = next((self.folder / "alone").glob("*/latest"))
        weights = f"Global.pretrained_model={latest}"
        self.assertEqual(self.numbers(self.evaluate(*words, weights, config=path), "[Avg]"),
                         self.numbers(alone, "[Eval][Epoch 1][Avg]"))

    def test_resnet50(self):
        self.trains("ResNet50", "Arch.pretrained=False")

    def test_mobilenet_v3(self):
        self.trains("MobileNetV3_small_x1_0", "Arch.pretrained=False")

    def test_a_distillation(self):
        self.trains("PPLCNet_x1_0_ssld", "Arch.models.0.Teacher.pretrained=False")


if __name__ == "__main__":
    main()
