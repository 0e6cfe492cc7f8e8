"""`trireme infer` from outside: answers, options, and everything that can be wrong with models and pictures."""

import json
import math
import os
import re
import shutil

from exported_model import NAMES, PLAIN, SECONDS
from infer_case import InferCase
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
        self.assert_says(result, r"skipped.*: 1 \(notes.txt\)")
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

    def test_scores_with_as_many_digits_as_asked_for(self):
        picture = ("--image", f"pictures/{self.names[0]}", "--topk", len(NAMES))
        [(_, short, _)] = self.answers(self.infer(*picture)).values()
        [(_, full, _)] = self.answers(self.infer(*picture, "--score-digits", 8)).values()
        self.assertRegex(full, r"^(\d\.\d{8}(, |$)){4}")
        self.assertEqual([f"{float(score):.2f}" for score in full.split(", ")], short.split(", "))
        self.assertAlmostEqual(sum(float(score) for score in full.split(", ")), 1, places=6)

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


class Inputs(AnswersCase):
    def paths(self, *words, **options):
        result = self.infer(*words, "--format", "jsonl", **options)
        return [json.loads(line)["image"] for line in result.out.splitlines()]

    def test_several_images_patterns_and_folders(self):
        first, second, *_ = (f"pictures/{name}" for name in self.names)
        self.assertEqual(self.paths("--image", second, "--image", first), [second, first])
        everything = [f"pictures/{name}" for name in self.names]
        self.assertEqual(self.paths("--image", "pictures/*"), everything)
        self.assertEqual(self.paths("--image", "pict*", "--image", first), [*everything, first])
        os.rename(self.folder / first, self.folder / "pictures/[a].png")
        self.assertEqual(self.paths("--image", "pictures/[a].png"), ["pictures/[a].png"], "a name, not a pattern")
        self.assert_says(self.infer("--image", "no*thing", code=1), r"there is no file or folder no\*thing, and none fits it as a pattern")

    def test_a_pattern_tells_pictures_of_one_name_apart(self):
        for folder in ("a", "b"):
            (self.folder / folder).mkdir()
            shutil.copy(self.folder / "pictures" / self.names[0], self.folder / folder / "one.png")
        self.assertEqual(list(self.answers(self.infer("--image", "[ab]/*.png"))), ["a/one.png", "b/one.png"])
        for folder in ("a", "a/", "./a//"):
            self.assertEqual(list(self.answers(self.infer("--image", folder))), ["one.png"])

    def test_a_file_that_has_the_name_of_standard_input(self):
        shutil.copy(self.folder / "pictures" / self.names[0], self.folder / "-")
        self.assertEqual(self.paths("--image", "[-]"), ["./-"])
        (self.folder / "list.txt").write_text("-\n")
        self.assertEqual(self.paths("--list", "list.txt"), ["./-"])

    def test_subfolders(self):
        deep = self.folder / "pictures/deep/er"
        deep.mkdir(parents=True)
        shutil.move(self.folder / "pictures" / self.names[0], deep)
        found = self.paths("--image", "pictures", "--recursive")
        self.assertEqual(sorted(found), sorted([f"pictures/deep/er/{self.names[0]}",
                                                *(f"pictures/{name}" for name in self.names[1:])]))
        text = self.infer("--image", "pictures", "--recursive")
        self.assertIn(f"pictures/deep/er/{self.names[0]}:\t", text.out)
        self.assert_says(self.infer("--image", "pictures"), r"skipped.*\(deep\)")

    def test_lists(self):
        names = [f"pictures/{name}" for name in self.names]
        (self.folder / "list.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*names, "", "gone.png"]).encode())
        result = self.infer("--list", "list.txt", "--format", "jsonl", code=1)
        lines = [json.loads(line) for line in result.out.splitlines()]
        self.assertEqual([line["image"] for line in lines], [*names, "gone.png"])
        self.assertRegex(lines[-1]["error"], "No such file")
        self.assert_says(result, f"1 of {len(names) + 1} pictures could not be answered")
        self.assert_says(self.infer("--list", "nowhere.txt", code=1), "cannot read the list nowhere.txt: No such file")

    def test_a_list_with_labels(self):
        (self.folder / "pictures/a 7").write_bytes((self.folder / "pictures" / self.names[0]).read_bytes())
        lines = [f"{self.names[0]} 3", f"{self.names[1]}\t0,1,0", "a 7", "gone.png 12"]
        (self.folder / "val_list.txt").write_text("\n".join(lines))
        paths = [f"pictures/{name}" for name in (*self.names[:2], "a 7", "gone.png")]
        for words in (("--list", "val_list.txt", "--image-root", "pictures"),
                      ("--list", "val_list.txt", "--image-root", self.folder / "pictures")):
            result = self.infer(*words, "--format", "jsonl", code=1)
            answers = [json.loads(line) for line in result.out.splitlines()]
            self.assertEqual([answer["image"].removeprefix(f"{self.folder}/") for answer in answers], paths)
            self.assertEqual(["error" in answer for answer in answers], [False, False, False, True])

    def test_standard_input(self):
        expected = self.infer("--image", f"pictures/{self.names[0]}").out.split(":", 1)[1]
        command = f"{TRIREME} infer --model-dir inference"
        for words, name in ((f"{command} --image - <pictures/{self.names[0]}", "-"),
                            (f"echo pictures/{self.names[0]} | {command} --list -", f"pictures/{self.names[0]}")):
            result = self.run_words("sh", "-c", words)
            self.assertEqual(result.out.split(":", 1), [name, expected])
        for source in ("--image", "--list"):
            words = f"head -c {(64 << 20) + 1} /dev/zero | {command} {source} -"
            self.assert_says(self.run_words("sh", "-c", words, code=1),
                             "standard input has more than the 67108864 bytes that are read")

    def test_json_lines(self):
        (self.folder / "pictures/zz.png").write_bytes(b"no picture")
        result = self.infer("--image", "pictures", "--format", "jsonl", "--topk", 2, code=1)
        *good, bad = [json.loads(line) for line in result.out.splitlines()]
        text = self.answers(self.infer("--image", "pictures", "--topk", 2, code=1))
        self.assertEqual([[str(number) for number in line["class_ids"]] for line in good],
                         [ids.split(", ") for ids, _, _ in text.values()])
        self.assertEqual(sorted(good[0]), ["class_ids", "image", "label_names", "scores"])
        self.assertEqual(sorted(bad), ["error", "image"])

    def test_progress_on_a_terminal(self):
        words = f"{TRIREME} infer --model-dir inference --image pictures >answers"
        for command, shown in ((["script", "-qec", words, "/dev/null"], True), (["sh", "-c", words], False)):
            result = self.run_words(*command)
            self.assertEqual(f"{len(self.names)} of {len(self.names)} pictures" in result.text, shown, result.text)
            self.assertEqual(len((self.folder / "answers").read_text().splitlines()), len(self.names))


class Wrong(AnswersCase):
    def test_bad_pictures_are_named_and_the_others_answered(self):
        good = self.answers(self.infer("--image", "pictures"))
        (self.folder / "pictures" / "0bad.jpg").write_bytes(b"\xff\xd8\xffno picture")
        (self.folder / "pictures" / "1empty.png").write_bytes(b"")
        (self.folder / "pictures" / "2gone.jpg").symlink_to("nowhere")
        result = self.infer("--image", "pictures", "--batch-size", 3, code=1)
        self.assertEqual(self.answers(result), good)
        self.assert_says(result, "pictures/0bad.jpg:", "pictures/1empty.png:", "pictures/2gone.jpg: cannot be read: No such file",
                         f"3 of {len(good) + 3} pictures could not be answered")

    def test_a_picture_that_is_too_large_is_not_cut(self):
        picture = self.folder / "pictures" / self.names[0]
        with open(picture, "ab") as file:
            file.truncate((64 << 20) + 1)
        result = self.infer("--image", "pictures", code=1)
        self.assert_says(result, "0.*has 67108865 bytes; at most 67108864 are read")
        self.assertEqual(list(self.answers(result)), self.names[1:])

    def test_no_name_reaches_the_terminal_as_it_is(self):
        folder = self.folder / "pictures"
        shutil.copy(folder / self.names[0], folder / "a\x1b[2J\t\\x.png")
        (folder / "b\x1b[2J.jpg").write_bytes(b"none")
        (folder / "c\x1b[2J").write_bytes(b"")
        os.rename(folder, self.folder / "p\x1b[2J")
        result = self.infer("--image", "p\x1b[2J", code=1)
        self.assertNotIn("\x1b[2J", result.text)
        self.assertIn("a\\x1b[2J\\t\\\\x.png", self.answers(result))
        for said in (self.infer("--image", "no\x1b[2J", code=1), self.run_words(
                TRIREME, "infer", "--model-dir", "no\x1b[2J", "--image", "p\x1b[2J", code=1)):
            self.assertNotIn("\x1b[2J", said.text)
            self.assert_says(said, r"there is no .* no\\x1b\[2J")

    def test_answers_that_cannot_be_written_are_an_error(self):
        for options in ("--model-dir inference --image pictures", "--help"):
            words = f"{TRIREME} infer {options} >/dev/full"
            result = self.start_command(["sh", "-c", words], env=PLAIN).wait(SECONDS)
            self.assert_ends(result, 71)
            self.assert_says(result, "cannot write to standard output: No space left on device")

    def test_a_pipe_is_no_picture(self):
        os.mkfifo(self.folder / "pictures/pipe.png")
        result = self.infer("--image", "pictures")
        self.assert_says(result, r"skipped.*\(pipe.png\)")
        self.assertEqual(list(self.answers(result)), self.names)
        self.assert_says(self.infer("--image", "pictures/pipe.png", code=1), "neither a file nor a folder")

    def test_without_an_onnx_file_libtorch_computes(self):
        expected = self.answers(self.infer("--image", "pictures"))
        (self.folder / "inference/inference.onnx").unlink()
        self.assertEqual(self.answers(self.infer("--image", "pictures")), expected)

    def test_networks_that_are_not_those_of_the_export(self):
        other = self.export("other", more=", in_channels: 3, infer_add_softmax: False")
        for file, engine in (("inference.onnx", "openvino"), ("inference.pt", "torch")):
            path = self.folder / "inference" / file
            whole = path.read_bytes()
            at = len(whole) // 2  # among the weights
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.refused(rf"inference/{file} is damaged: its CRC-32C is \d+, but inference.yml says \d+; one of them is of "
                         "another export, or was not copied whole: export again", "--engine", engine)
            path.write_bytes((other / file).read_bytes())
            self.refused(rf"inference/{file}.* inference.yml says \d+; .*of another export", "--engine", engine)
            path.write_bytes(whole[:-1])
            self.refused(f"{file} has {len(whole) - 1} bytes, but inference.yml says {len(whole)}", "--engine", engine)
            path.unlink()
            self.refused(f"there is no inference/{file}", "--engine", engine)
            path.mkdir()
            self.refused(f"inference/{file} is not a file", "--engine", engine)

    def unsealed(self):
        """inference.yml without its own checksum, as for whoever edits it."""
        return "".join((self.folder / "inference/inference.yml").read_text().splitlines(keepends=True)[1:-1])

    def test_a_changed_byte_of_the_description_is_an_error(self):
        path = self.folder / "inference/inference.yml"
        whole = path.read_bytes()
        for at in range(0, len(whole), len(whole) // 20):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.refused("inference/inference.yml was changed or damaged since it was exported")
        path.write_text(self.unsealed())
        self.assert_says(self.infer("--image", "pictures"), "inference.yml has no checksum")

    def forget_sums(self):
        path = self.folder / "inference/inference.yml"
        path.write_text(re.sub(r"^Files:\n(  .*\n)+", "", self.unsealed(), flags=re.M))
        self.assertNotIn("crc32c", path.read_text())

    def test_scores_that_are_not_finite(self):
        self.forget_sums()
        path = self.folder / "inference/inference.onnx"
        whole = path.read_bytes()
        at = len(whole) - 900  # in the last layer: a ReLU behind it would make zeros of them
        path.write_bytes(whole[:at] + b"\xff" * 64 + whole[at + 64:])  # NaN, wherever a float begins
        result = self.infer("--image", "pictures", code=1)
        self.assertEqual(result.out, "")
        self.assert_says(result, r"pictures/0.*: the network gives NaN as the score of class 1; export it again",
                         f"{len(self.names)} of {len(self.names)} pictures could not be answered")

    def test_damaged_networks_of_which_nothing_is_known(self):
        self.forget_sums()
        self.assertEqual(list(self.answers(self.infer("--image", "pictures"))), self.names)
        for file, engine in (("inference.onnx", "openvino"), ("inference.pt", "torch")):
            path = self.folder / "inference" / file
            whole = path.read_bytes()
            for content in (b"", b"garbage\n" * 9, whole[:len(whole) // 2]):
                path.write_bytes(content)
                self.refused(f"{file} is damaged or not a network", "--engine", engine)

    def test_wrong_descriptions(self):
        path = self.folder / "inference/inference.yml"
        text = self.unsealed()
        for old, new, words in (("class_num: 4", "class_num: 5", "4 labels for 5 classes"),
                                ("3, 28, 28", "3, 32, 32", r"reads \[\?,3,28,28\], but inference.yml says \[\?,3,32,32\]"),
                                ("CropImage", "CropImag", "did you mean 'CropImage'"),
                                ("crc32c: ", "crc32c: x", r"inference.yml:\d+: Files.inference.onnx.crc32c: expected a "
                                                           "whole number, got 'x"),
                                ("Input:", "Inputs:", r"Input: missing; is 'Inputs' .* a slip\?; write it there$")):
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
        for words, said in ((("--imag", "x"), "unknown option --imag; did you mean --image"),
                            (("--image",), "--image needs a value"),
                            (("--image", "--topk", "1"), "--image needs a value"),
                            (("--image", "x", "--gpu-id", "1"), "--gpu-id 1 has no effect on the CPU"),
                            (("--image", "x", "--topk", "0"), "--topk 0: must be a whole number from 1"), ((), "which image"),
                            (("--image", "x", "--engine", "tensorrt"), "auto, openvino, torch"),
                            (("--image", "x", "--use-gpu=perhaps"), "true or false"),
                            (("--image", "x", "--use-gpu", "--engine", "openvino"), "take --engine torch"),
                            (("--image", "x.png", "y.png"), "'y.png' belongs to no option; give each file its own --image"),
                            (("--image", "-", "--list", "-"), "standard input \\(-\\) is named 2 times"),
                            (("--image", "x", "--format", "xml"), "must be text or jsonl"),
                            (("--image", "x", "--score-digits", "10"), "from 0 to 9")):
            self.assert_says(self.infer(*words, code=2), said)
        self.assert_says(self.infer("--image", "nowhere.jpg", code=1), "there is no file or folder nowhere.jpg")
        self.assert_says(self.infer("--image", "pictures", "--use-gpu", "True", code=1), "there is no GPU 0")

    def test_the_model_is_missing(self):
        result = self.run_words(TRIREME, "infer", "--model-dir", "nowhere", "--image", "pictures", code=1)
        self.assert_says(result, "there is no folder nowhere; name one that `trireme export` has written")

    def test_without_plugins(self):
        result = self.infer("--image", "pictures", code=1, env={"TRIREME_PLUGIN_DIR": str(self.folder)})
        self.assert_says(result, "libtorch computes, because OpenVINO is not available", "the engine torch is absent",
                         "there is no libtrireme_torch.so")

    def test_help(self):
        self.assert_says(self.run_words(TRIREME, "infer", "--help"), "usage: trireme infer --model-dir DIR")


if __name__ == "__main__":
    main()
