"""What image_bench.py compares with, and its pictures.

    image_peers.py make COUNT FOLDER
    image_peers.py SECONDS {cv2,torchvision}-{train,eval,pphgnet} RESULT FILE…

Prints `pictures seconds`; cv2 writes the tensor of the first file, evaluated, into RESULT.
"""

import io
import math
import random
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torchvision import transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def make(count, folder):
    """Waves with grain: 65 KB at quality 90."""
    for seed in range(count):
        draw = np.random.RandomState(seed)
        y, x = np.mgrid[0:375, 0:500]
        waves = np.stack([np.sin(x / 40 + seed) * 80, np.cos(y / 30) * 80, np.sin((x + y) / 50) * 80], -1) + 128
        pixels = np.clip(waves + draw.normal(0, 10, waves.shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(f"{folder}/{seed:03}.jpg", quality=90)


def decoded(data):
    return cv2.imdecode(np.frombuffer(data, np.uint8), 1)[:, :, ::-1]


def normalized(image):
    scaled = image.astype("float32") * np.float32(1 / 255)
    return ((scaled - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1)


def cv2_train(data):
    image = decoded(data)
    height, width = image.shape[:2]
    aspect = math.sqrt(random.uniform(3 / 4, 4 / 3))
    bound = min(width / height / aspect**2, height / width * aspect**2)
    side = math.sqrt(width * height * random.uniform(min(0.08, bound), min(1, bound)))
    w, h = int(side * aspect), int(side / aspect)
    x, y = random.randint(0, width - w), random.randint(0, height - h)
    image = cv2.resize(image[y:y + h, x:x + w], (224, 224))
    if random.randint(0, 1):
        image = cv2.flip(image, 1)
    return np.ascontiguousarray(normalized(image))


def cv2_eval(data):
    image = decoded(data)
    factor = 256 / min(image.shape[:2])
    width, height = round(image.shape[1] * factor), round(image.shape[0] * factor)
    image = cv2.resize(image, (width, height))
    x, y = (width - 224) // 2, (height - 224) // 2
    return np.ascontiguousarray(normalized(image[y:y + 224, x:x + 224]))


def torchvision_of(what):
    """As in PyTorch's ImageNet example; for PPHGNet its nearest relatives."""
    end = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    bicubic = transforms.InterpolationMode.BICUBIC
    steps = {
        "train": [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *end],
        "eval": [transforms.Resize(256), transforms.CenterCrop(224), *end],
        "pphgnet": [transforms.RandomResizedCrop(224, interpolation=bicubic), transforms.RandomHorizontalFlip(),
                    transforms.RandAugment(2, 7, interpolation=bicubic), *end,
                    transforms.RandomErasing(0.25, (0.02, 1 / 3), value="random")],
    }
    chain = transforms.Compose(steps[what])
    return lambda data: chain(Image.open(io.BytesIO(data)).convert("RGB"))


def main():
    seconds, name, result, *paths = sys.argv[1:]
    who, what = name.split("-")
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    files = [Path(path).read_bytes() for path in paths]
    step = torchvision_of(what) if who == "torchvision" else {"train": cv2_train, "eval": cv2_eval}[what]
    for data in files:
        step(data)
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < float(seconds):
        for data in files:
            step(data)
        done += len(files)
    print(done, time.perf_counter() - begin)
    if who == "cv2":
        Path(result).write_bytes(cv2_eval(files[0]).tobytes())


if __name__ == "__main__":
    make(int(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "make" else main()
