"""Exported models with random weights, and pictures, for tests of inference."""

from pathlib import Path

from trireme_test import SANITIZED, TRIREME, Case

SECONDS = 180 if SANITIZED else 60
PLAIN = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
CONFIG = """\
Global: {{output_dir: out, device: cpu, epochs: 1, image_shape: [3, {side}, {side}], save_inference_dir: {folder}}}
Arch: {{name: {arch}, class_num: 4, pretrained: False{more}}}
Loss: {{Eval: [CELoss: {{weight: 1.0}}]}}
DataLoader:
  Eval:
    dataset:
      name: ImageNetDataset
      image_root: data
      cls_label_path: data/list.txt
      transform_ops:
        - DecodeImage: {{to_rgb: True, channel_first: False}}
        - ResizeImage: {{resize_short: {side}}}
        - CropImage: {{size: {side}}}
        - NormalizeImage: {{scale: 1.0/255.0, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5], order: ''}}
    sampler: {{name: DistributedBatchSampler, batch_size: 4, drop_last: False, shuffle: False}}
Infer:
  PostProcess: {{name: Topk, topk: 3, class_id_map_file: names.txt}}
"""
NAMES = ["cat", "don't", "hen, a", "cow"]


def program(name):
    return Path(TRIREME).parent / name


class InferCase(Case):
    """The engine openvino is built wherever set-up has fetched OpenVINO, which it does."""

    def run_words(self, *words, code=0, env=None):
        result = self.start_command([str(word) for word in words], env={**PLAIN, **(env or {})}).wait(SECONDS)
        self.assert_ends(result, code)
        return result

    def export(self, folder="inference", arch="LeNet", side=28, more=", in_channels: 3"):
        (self.folder / "names.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(NAMES)))
        (self.folder / "config.yaml").write_text(CONFIG.format(folder=folder, arch=arch, side=side, more=more))
        self.run_words(TRIREME, "export", "-c", "config.yaml")
        return self.folder / folder

    def pictures(self, count=5, folder="pictures"):
        """The files' names, in the order in which they are answered."""
        self.run_words(program("make_images"), folder, count, 2, 40)
        (self.folder / folder / "list.txt").unlink(missing_ok=True)
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def infer(self, *words, **options):
        return self.run_words(TRIREME, "infer", "--model-dir", "inference", *words, **options)
