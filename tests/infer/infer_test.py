"""`trireme infer` from outside: answers, options, and everything that can be wrong with models and pictures."""

import math
import os
import re

from infer_case import NAMES, PLAIN, SECONDS, InferCase
from trireme_test import TRIREME, main

LINE = re.compile(r"^(.+):\tclass id\(s\): \[([\d, ]+)\], score\(s\): \[([-\d., ]+)\], label_name\(s\): \[(.*)\]$")


class AnswersCase(InferCase):
    def setUp(self):
        super().setUp()
        self.export()
        self.names = self.pictures()

    def answers(self, result):
        """{file: (ids, scores, labels)}"""
        found = {}
        for line in result.out.splitlines():
            match = LINE.match(line)
            self.assertTrue(match, line)
            found[match[1]] = (match[2], match[3], match[4])
        return found


class Answers(AnswersCase):
    def test_a_folder_in_its_order(self):
        (self.folder / "pictures/notes.txt").write_text("none")
        result = self.infer("--image", "pictures", "--batch_size=2")
        answers = self.answers(result)
        self.assertEqual(list(answers), self.names)
        self.assert_says(result, r"left out.*: 1 \(notes.txt\)")
        for ids, scores, labels in answers.values():
            self.assertEqual(len(ids.split(", ")), 3)
            self.assertRegex(scores, r"^\d\.\d\d, \d\.\d\d, \d\.\d\d$")
            shown = [repr(NAMES[int(i)]) for i in ids.split(", ")]
            self.assertEqual(labels, ", ".join(shown))

    def test_batch_and_engine_do_not_matter(self):
        expected = self.answers(self.infer("--image", "pictures"))
        for words in (("--batch-size", 4), ("--engine", "torch"), ("--engine=torch", "--batch-size=5"),
                      ("--cpu-threads", 1), ("--engine", "openvino", "--use-gpu", "False")):
            self.assertEqual(self.answers(self.infer("--image", "pictures", *words)), expected, words)

    def test_one_file_and_topk(self):
        answers = self.answers(self.infer("--image", f"pictures/{self.names[0]}", "--topk", 1))
        self.assertEqual([len(ids.split(",")) for ids, _, _ in answers.values()], [1])

    def test_scores_without_softmax_are_left_as_they_are(self):
        words = ("--image", f"pictures/{self.names[0]}", "--topk", len(NAMES))
        [(ids, scores, _)] = self.answers(self.infer(*words)).values()
        self.export(more=", in_channels: 3, infer_add_softmax: False")
        self.assertIn("activation: none", (self.folder / "inference/inference.yml").read_text())
        [(same_ids, raw, _)] = self.answers(self.infer(*words)).values()
        self.assertEqual(same_ids, ids)
        powers = [math.exp(float(score)) for score in raw.split(", ")]
        for power, score in zip(powers, scores.split(", "), strict=True):
            self.assertAlmostEqual(power / sum(powers), float(score), delta=0.02)
        self.assertNotEqual(raw, scores)

    def test_benchmark(self):
        result = self.infer("--image", f"pictures/{self.names[0]}", "--benchmark", "True", "--batch-size", 2)
        self.assertRegex(result.out, r"preprocess_time\(ms\): [\d.]+, inference_time\(ms\): [\d.]+, "
                                     r"postprocess_time\(ms\): [\d.]+")
        self.assertRegex(result.out, r"latency\(ms\).*p50: [\d.]+, p90: [\d.]+, p95: [\d.]+, p99: [\d.]+")
        self.assertRegex(result.out, r"throughput\(images/s\): [\d.]+")


class Wrong(AnswersCase):
    def test_bad_pictures_are_named_and_the_others_answered(self):
        good = self.answers(self.infer("--image", "pictures"))
        (self.folder / "pictures" / "0bad.jpg").write_bytes(b"\xff\xd8\xffno picture")
        (self.folder / "pictures" / "1empty.png").write_bytes(b"")
        (self.folder / "pictures" / "2gone.jpg").symlink_to("nowhere")
        result = self.infer("--image", "pictures", "--batch-size", 3, code=1)
        self.assertEqual(self.answers(result), good)
        self.assert_says(result, "pictures/0bad.jpg:", "pictures/1empty.png:", "pictures/2gone.jpg: cannot be read",
                         f"3 of {len(good) + 3} pictures could not be answered")

    def test_answers_that_cannot_be_written_are_an_error(self):
        words = f"{TRIREME} infer --model-dir inference --image pictures >/dev/full"
        result = self.start_command(["sh", "-c", words], env=PLAIN).wait(SECONDS)
        self.assert_ends(result, 71)
        self.assert_says(result, "cannot write to standard output: No space left on device")

    def test_a_pipe_is_no_picture(self):
        os.mkfifo(self.folder / "pictures/pipe.png")
        result = self.infer("--image", "pictures")
        self.assert_says(result, r"left out.*\(pipe.png\)")
        self.assertEqual(list(self.answers(result)), self.names)
        self.assert_says(self.infer("--image", "pictures/pipe.png", code=1), "neither a file nor a folder")

    def test_without_an_onnx_file_libtorch_computes(self):
        expected = self.answers(self.infer("--image", "pictures"))
        (self.folder / "inference/inference.onnx").unlink()
        self.assertEqual(self.answers(self.infer("--image", "pictures")), expected)

    def test_damaged_networks(self):
        for file, engine in (("inference.onnx", "openvino"), ("inference.pt", "torch")):
            path = self.folder / "inference" / file
            whole = path.read_bytes()
            for content in (b"", b"garbage\n" * 9, whole[:len(whole) // 2]):
                path.write_bytes(content)
                self.refused(f"{file} is damaged or no network", "--engine", engine)
            path.unlink()
            self.refused(f"there is no inference/{file}", "--engine", engine)

    def test_wrong_descriptions(self):
        path = self.folder / "inference/inference.yml"
        text = path.read_text()
        for old, new, words in (("class_num: 4", "class_num: 5", "4 labels for 5 classes"),
                                ("3, 28, 28", "3, 32, 32", r"reads \[\?,3,28,28\], but inference.yml says \[\?,3,32,32\]"),
                                ("CropImage", "CropImag", "did you mean 'CropImage'"),
                                ("Input:", "Inputs:", "Input")):
            self.assertIn(old, text)
            path.write_text(text.replace(old, new))
            self.refused(words)
        path.write_text(re.sub(r"      label_list:.*\n|    label_list:.*\n", "", text).replace("class_num: 4", "class_num: 5"))
        for engine in ("openvino", "torch"):
            self.refused("says 5 classes", "--engine", engine)
        path.unlink()
        self.refused("cannot read inference/inference.yml")

    def refused(self, words, *options):
        result = self.infer("--image", f"pictures/{self.names[0]}", *options, code=1)
        self.assert_says(result, words)
        self.assertEqual(result.out, "")

    def test_wrong_options(self):
        for words, said in ((("--imag", "x"), "did you mean '--image'"), (("--image",), "--image needs a value"),
                            (("--image", "x", "--topk", "0"), "--topk '0'"), ((), "which image"),
                            (("--image", "x", "--engine", "tensorrt"), "auto, openvino, torch"),
                            (("--image", "x", "--use-gpu=perhaps"), "True or False")):
            self.assert_says(self.infer(*words, code=2), said)
        self.assert_says(self.infer("--image", "nowhere.jpg", code=1), "there is no file or folder nowhere.jpg")
        self.assert_says(self.infer("--image", "pictures", "--use-gpu", "True", code=1), "there is no GPU 0")
        self.assert_says(self.infer("--image", "pictures", "--use-gpu", "--engine", "openvino", code=1), "engine torch")

    def test_without_plugins(self):
        result = self.infer("--image", "pictures", code=1, env={"TRIREME_PLUGIN_DIR": str(self.folder)})
        self.assert_says(result, "libtorch computes, as OpenVINO is absent", "the engine torch is absent",
                         "there is no libtrireme_torch.so")

    def test_help(self):
        self.assert_says(self.run_words(TRIREME, "infer", "--help"), "usage: trireme infer --model-dir DIR")


if __name__ == "__main__":
    main()
