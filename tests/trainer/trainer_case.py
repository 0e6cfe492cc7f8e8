"""A small training to run `trireme train` on: 48 pictures in 4 classes, LeNet, two epochs of a second each."""

import re
from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case

SECONDS = 300 if SANITIZED else 60
PLAIN = {"OMP_NUM_THREADS": "1", "PADDLE_PG_TIMEOUT": "60000"}

CONFIG = """\
Global:
  output_dir: out
  device: cpu
  epochs: 2
  print_batch_step: 2
  image_shape: [3, 28, 28]
Arch:
  name: LeNet
  class_num: 4
  in_channels: 3
  pretrained: False
Loss:
  Train:
    - CELoss: {weight: 1.0, epsilon: 0.1}
  Eval:
    - CELoss: {weight: 1.0}
Optimizer:
  name: Momentum
  momentum: 0.9
  lr: {name: Constant, learning_rate: 0.02}
  regularizer: {name: L2, coeff: 1e-4}
DataLoader:
  Train:
    dataset:
      name: ImageNetDataset
      image_root: data
      cls_label_path: data/list.txt
      transform_ops:
        - DecodeImage: {to_rgb: True, channel_first: False}
        - RandCropImage: {size: 28, scale: [0.5, 1.0]}
        - RandFlipImage: {flip_code: 1}
        - NormalizeImage: {scale: 1.0/255.0, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5], order: ''}
    sampler: {name: DistributedBatchSampler, batch_size: 8, drop_last: False, shuffle: True}
    loader: {num_workers: 1}
  Eval:
    dataset:
      name: ImageNetDataset
      image_root: data
      cls_label_path: data/list.txt
      transform_ops:
        - DecodeImage:
        - ResizeImage: {resize_short: 32}
        - CropImage: {size: 28}
        - NormalizeImage: {scale: 1.0/255.0, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5], order: ''}
    sampler: {name: DistributedBatchSampler, batch_size: 7, drop_last: False, shuffle: False}
    loader: {num_workers: 1}
Metric:
  Train:
    - TopkAcc: {topk: [1, 2]}
  Eval:
    - TopkAcc: {topk: [1, 2]}
"""

DISTILLATION = CONFIG.replace(
    "Arch:\n  name: LeNet\n  class_num: 4\n  in_channels: 3\n  pretrained: False\n",
    """Arch:
  name: DistillationModel
  class_num: &class_num 4
  freeze_params_list: [True, False]
  infer_model_name: Student
  models:
    - Teacher: {name: LeNet, class_num: *class_num, in_channels: 3, pretrained: out/LeNet/latest}
    - Student: {name: LeNet, class_num: *class_num, in_channels: 3, pretrained: False}
""",
).replace("    - CELoss: {weight: 1.0, epsilon: 0.1}\n",
          "    - DistillationDMLLoss: {weight: 1.0, model_name_pairs: [[Student, Teacher]]}\n"
).replace("    - TopkAcc: {topk: [1, 2]}", "    - DistillationTopkAcc: {model_key: Student, topk: [1, 2]}")


class TrainerCase(Case):
    def setUp(self):
        super().setUp()
        self.write("config.yaml", CONFIG)
        self.images("data", 48, 4, 40)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def images(self, folder, count, classes, size):
        program = Path(TRIREME).parent / "make_images"
        self.assert_ends(self.start_command([program, folder, count, classes, size]).wait(), 0)

    def run_program(self, name, *overrides, ranks=0, more=(), config="config.yaml", code=0, env=None):
        """`trireme NAME -c CONFIG -o …`, alone or on so many ranks."""
        words = [TRIREME, name, "-c", config, *more, *(word for one in overrides for word in ("-o", one))]
        if ranks:
            words = [TRIREME, "launch", "-n", ranks, *words]
        result = self.start_command(words, env={**PLAIN, **(env or {})}).wait(SECONDS)
        if code is not None:
            self.assert_ends(result, code)
        return result

    def train(self, *overrides, **options):
        return self.run_program("train", *overrides, **options)

    def evaluate(self, *overrides, **options):
        return self.run_program("eval", *overrides, **options)

    def numbers(self, result, line):
        """[{name: value}] of the log lines that contain `line`."""
        found = [text for text in result.out.splitlines() if line in text]
        return [{name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", text.rpartition("]")[2])}
                for text in found]

    def model(self, checkpoint, out="out/LeNet"):
        return (self.folder / out / checkpoint / "model.safetensors").read_bytes()
