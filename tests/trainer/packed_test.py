"""`trireme pack`, and a training that reads what it wrote."""

import shutil

from trainer_case import TrainerCase
from trireme_test import TRIREME, main

PACKED = ("DataLoader.Train.dataset.packed_file=train.pack", "DataLoader.Eval.dataset.packed_file=train.pack")


class Packed(TrainerCase):
    def pack(self, *words, code=0):
        result = self.start_command([TRIREME, "pack", *words]).wait()
        self.assert_ends(result, code)
        return result

    def test_trains_to_the_same_weights_without_the_files(self):
        self.pack("--list", "data/list.txt", "--root", "data", "--output", "train.pack", "--threads", 2)
        self.train()
        expected = self.model("latest")
        shutil.rmtree(self.folder / "out")
        shutil.move(self.folder / "data/list.txt", self.folder / "list.txt")
        shutil.rmtree(self.folder / "data")
        lists = [f"DataLoader.{role}.dataset.cls_label_path=list.txt" for role in ("Train", "Eval")]
        self.train(*PACKED, *lists)
        self.assertEqual(self.model("latest"), expected)

    def test_pixels_train_too(self):
        said = self.pack("--list", "data/list.txt", "--root", "data", "--output", "train.pack", "--short-side", 32)
        self.assert_says(said, r"train\.pack: 48 pictures \(0 could not be read\), 0\.1 MB")  # 48 x 32 x 32 x 3 bytes
        losses = self.numbers(self.train(*PACKED), "][Avg]")
        self.assertTrue(losses)

    def test_another_list_is_refused_with_the_key(self):
        self.pack("--root", "data", "--list", "data/list.txt", "--output", "train.pack")
        lines = (self.folder / "data/list.txt").read_text().splitlines()
        self.write("data/list.txt", "\n".join(lines[:-1]) + "\n")
        result = self.train(*PACKED, code=2)
        self.assert_says(result, r"DataLoader\.Train\.dataset\.packed_file: train\.pack was made of another list: of data/list\.txt, "
                                 r"with 48 pictures .* has 47")

    def test_a_folder_of_classes(self):
        for name in ("cats", "dogs"):
            (self.folder / f"tree/{name}").mkdir(parents=True)
            shutil.copy(self.folder / "data/0.jpg", self.folder / f"tree/{name}/0.jpg")
        self.assert_says(self.pack("--root", "tree", "--output", "tree.pack"), "tree.pack: 2 pictures")

    def test_what_is_missing_is_said(self):
        self.assert_says(self.pack("--list", "data/list.txt", code=2), "--output is missing")
        self.assert_says(self.pack("--output", "train.pack", code=2), "--list and --root are missing")
        result = self.pack("--list", "data/list.txt", "--root", "nowhere", "--output", "train.pack", code=2)
        self.assert_says(result, "nowhere is not a folder; the list's pictures, such as 0.jpg, are looked for there")


if __name__ == "__main__":
    main()
