"""`trireme export` from outside: what it writes, from which weights, and what it says when something is wrong."""

import os

from trainer_case import TrainerCase
from trireme_test import main

TRAINED = "Global.pretrained_model=out/LeNet/best_model"
FILES = ["inference.onnx", "inference.pt", "inference.yml"]


class ExportCase(TrainerCase):
    def export(self, *overrides, **options):
        return self.run_program("export", *overrides, **options)

    def files(self, folder="inference"):
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def description(self, folder="inference"):
        return (self.folder / folder / "inference.yml").read_text()


class Exported(ExportCase):
    def test_weights_of_a_checkpoint(self):
        self.train("Global.epochs=1")
        result = self.export(TRAINED, "Global.save_inference_dir=deep/down")
        self.assert_says(result, "weights from out/LeNet/best_model/model.safetensors",
                         "LeNet is exported to deep/down: inference.pt, inference.onnx, inference.yml")
        self.assert_silent_on(result, "WARNING")
        self.assertEqual(self.files("deep/down"), FILES)
        for words in ("CropImage", "resize_short: 32", "class_num: 4", "3, 28, 28", "softmax"):
            self.assertIn(words, self.description("deep/down").replace("\n      - ", ", "))

    def test_on_several_ranks_one_writes(self):
        result = self.export("Global.save_inference_dir=both", ranks=2)
        self.assertEqual(result.text.count("is exported to both"), 1, result)
        self.assertEqual(self.files("both"), FILES)

    def test_a_gpu_is_not_needed(self):
        self.export("Global.device=gpu")
        self.assertEqual(self.files(), FILES)

    def test_transforms_and_labels_of_infer(self):
        self.write("names.txt", "0 cat\n1 dog\n2 hen\n3 cow\n")
        transforms = "[DecodeImage: null, ResizeImage: {size: 28}, NormalizeImage: null]"
        self.export(f"Infer={{transforms: {transforms}, PostProcess: {{topk: 9, class_id_map_file: names.txt}}}}")
        description = self.description()
        self.assertIn("hen", description)
        self.assertNotIn("CropImage", description)
        self.assertIn("topk: 4", description)

    def test_the_student_of_a_distillation(self):
        models = ("[Teacher: {name: LeNet, class_num: 4, in_channels: 3}, "
                  "Student: {name: MnistPerceptron, class_num: 4, in_channels: 3}]")
        self.export("Arch={name: DistillationModel, class_num: 4, infer_model_name: Student, pretrained_list: null, "
                    f"freeze_params_list: [True, False], models: {models}}}")
        self.assertIn("MnistPerceptron", self.description())


class Refused(ExportCase):
    def test_random_weights_are_a_warning(self):
        self.assert_says(self.export(), r"WARNING: no weights are named, so these are RANDOM ones",
                         "-o Global.pretrained_model=out/LeNet/best_model")

    def test_weights_that_are_not_there(self):
        self.assert_says(self.export(TRAINED, code=2), "Global.pretrained_model=out/LeNet/best_model: there is no")
        self.assertFalse((self.folder / "inference").exists())

    def test_a_checkpoint_of_another_network(self):
        self.train("Global.epochs=1")
        result = self.export(TRAINED, "Arch.name=MnistPerceptron", code=2)
        self.assert_says(result, "model.safetensors does not fit this model", "4 missing there", "10 unknown here")
        result = self.export(TRAINED, "Arch.class_num=5", code=2)
        self.assert_says(result, "fc.2.bias")
        self.assertFalse((self.folder / "inference").exists())

    def test_shapes_that_do_not_fit(self):
        result = self.export("Global.image_shape=[3, 32, 32]", code=2)
        self.assert_says(result, "config.yaml:", "transform_ops", "3x28x28", "3x32x32")

    def test_names_for_other_classes(self):
        self.write("names.txt", "0 cat\n1 dog\n")
        result = self.export("Infer={PostProcess: {class_id_map_file: names.txt}}", code=2)
        self.assert_says(result, "has 2 names, but LeNet has 4 classes", "class_id_map_file=None")
        result = self.export("Infer={PostProcess: {class_id_map_file: none_such.txt}}")
        self.assert_says(result, "WARNING: .*there is no none_such.txt")

    def test_a_folder_that_cannot_be_written(self):
        self.write("file", "")
        result = self.export("Global.save_inference_dir=file", code=71)
        self.assert_says(result, "cannot make the folder file")
        self.assertTrue(os.path.isfile(self.folder / "file"))


if __name__ == "__main__":
    main()
