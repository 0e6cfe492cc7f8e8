"""`trireme export` from outside: what it writes, from which weights, and what it says when something is wrong."""

import os

from trainer_case import PLAIN, SECONDS, TrainerCase
from trireme_test import TRIREME, main

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
                         "inference.pt differs from the network by .* is allowed",
                         "inference.onnx differs from the network by .* is allowed",
                         "LeNet is exported to deep/down: inference.pt, inference.onnx, inference.yml",
                         "try: trireme infer --model-dir deep/down ")
        self.assert_silent_on(result, "WARNING")
        self.assertEqual(self.files("deep/down"), FILES)
        for words in ("CropImage", "resize_short: 32", "class_num: 4", "3, 28, 28", "softmax"):
            self.assertIn(words, self.description("deep/down").replace("\n      - ", ", "))

    def test_nothing_else_is_written(self):
        """In /proc nobody can make a file."""
        self.train("Global.epochs=1")
        keys = [f"Global.pretrained_model={self.folder}/out/LeNet/best_model",
                f"Global.save_inference_dir={self.folder}/inference",
                f"DataLoader.Eval.dataset.image_root={self.folder}/data",
                f"DataLoader.Eval.dataset.cls_label_path={self.folder}/data/list.txt"]
        for name in ("export", "eval"):
            words = [TRIREME, name, "-c", self.folder / "config.yaml", "-o", *keys]
            self.assert_ends(self.start_command(words, env=PLAIN, cwd="/proc").wait(SECONDS), 0)
        self.assertEqual(self.files(), FILES)

    def test_messages_never_end_up_in_files(self):
        """The numbers of closed streams are those that the next opened files get."""
        script = f'exec "{TRIREME}" export -c config.yaml -o Global.save_inference_dir=closed <&- >&- 2>&-'
        self.assert_ends(self.start_command(["sh", "-c", script], env=PLAIN).wait(SECONDS), 0)
        self.export("Global.save_inference_dir=open")
        for name in FILES:
            self.assertEqual(*((self.folder / folder / name).stat().st_size for folder in ("closed", "open")), name)

    def test_the_next_step_can_be_pasted(self):
        result = self.export("Global.save_inference_dir=it's mine", "Global.output_dir=a b")
        self.assertIn(r"try: trireme infer --model-dir 'it'\''s mine' --image", result.out)
        self.assertIn("add -o 'Global.pretrained_model=a b/LeNet/best_model'", result.out)

    def test_onnx_that_could_not_be_run_is_told(self):
        result = self.export(env={"TRIREME_PLUGIN_DIR": str(self.folder)})
        self.assert_says(result, "WARNING: inference.onnx is written without having been run, as OpenVINO is absent: .*"
                         "libtrireme_openvino.so")
        self.assert_silent_on(result, "inference.onnx differs")
        self.assertEqual(self.files(), FILES)

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

    def test_labels_beside_the_file_that_names_them(self):
        (self.folder / "own").mkdir()
        self.write("own/names.txt", "0 cat\n1 dog\n2 hen\n3 cow\n")
        self.write("own/config.yaml", "base: ../config.yaml\nInfer: {PostProcess: {class_id_map_file: names.txt}}\n")
        self.assert_silent_on(self.export(config="own/config.yaml"), "there is no")
        self.assertIn("hen", self.description())

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

    def test_a_folder_without_a_name(self):
        for nothing in ("", "None", "''"):
            result = self.export(f"Global.save_inference_dir={nothing}", code=2)
            self.assert_says(result, "-o Global.save_inference_dir=.*: names no folder", r"leave the key out for \./inference")
        self.assertFalse((self.folder / "inference").exists())

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

    def test_more_than_the_memory(self):
        result = self.export("Arch.class_num=100000000000", code=2)
        self.assert_says(result, "there is not enough memory: ", "This machine has ")
        self.assertNotIn("batch", result.err)

    def test_names_for_other_classes(self):
        self.write("names.txt", "0 cat\n1 dog\n")
        result = self.export("Infer={PostProcess: {class_id_map_file: names.txt}}", code=2)
        self.assert_says(result, "has 2 names, but LeNet has 4 classes", "class_id_map_file=None")
        # A file may name one of PaddleClas' own, which need not be here; an option names what is meant.
        self.write("own.yaml", "base: config.yaml\nInfer: {PostProcess: {class_id_map_file: none_such.txt}}\n")
        self.assert_says(self.export(config="own.yaml"), "WARNING: .*there is no none_such.txt")
        result = self.export("Infer.PostProcess.class_id_map_file=nosuch.txt", code=2)
        self.assert_says(result, "there is no nosuch.txt")

    def test_a_folder_that_cannot_be_written(self):
        self.write("file", "")
        result = self.export("Global.save_inference_dir=file", code=71)
        self.assert_says(result, "cannot make the folder file")
        self.assertTrue(os.path.isfile(self.folder / "file"))


if __name__ == "__main__":
    main()
