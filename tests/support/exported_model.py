"""Models with random weights that `trireme export` writes, for tests of inference and of serving.

    folder = exported_model(case, arch="LeNet", side=28)

A model is exported by whichever test asks for it first, and used by all.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from trireme_test import SANITIZED, TRIREME

SECONDS = 180 if SANITIZED else 60
PLAIN = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
CONFIG = """\
Global: {{output_dir: out, device: cpu, epochs: 1, image_shape: [3, {side}, {side}], save_inference_dir: model}}
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
NAMES = ["cat", "don't", "hen, a", "cow \\o/"]


def _export(case, config, work):
    Path(work, "names.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(NAMES)))
    Path(work, "config.yaml").write_text(config)
    case.assert_ends(case.start_command([TRIREME, "export", "-c", "config.yaml"], env=PLAIN, cwd=work).wait(SECONDS), 0)


def exported_model(case, arch="LeNet", side=28, more=", in_channels: 3"):
    """Its folder, which is not to be changed. `more` goes into the section Arch."""
    config = CONFIG.format(arch=arch, side=side, more=more)
    program = Path(TRIREME).resolve().parent / "trireme-export"
    folder = Path(TRIREME).resolve().parents[1] / "tests/models"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / hashlib.sha256((config + "".join(NAMES)).encode()).hexdigest()[:16]
    with open(f"{model}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = model / "inference.yml"
        if not made.exists() or made.stat().st_mtime < program.stat().st_mtime:
            with tempfile.TemporaryDirectory(dir=folder) as work:
                _export(case, config, work)
                shutil.rmtree(model, ignore_errors=True)
                os.rename(Path(work, "model"), model)
    return model
