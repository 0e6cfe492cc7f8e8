"""What OpenCV and Pillow make of a picture, for image_test.py: `image_peers.py FOLDER`.

Writes pictures into FOLDER, one line for image_dump per case into FOLDER/cases, and the expected pixels of case n into
FOLDER/n.npy. A case line is `TOLERANCE SHARE` (how far a value may be off, and what share of the values may be off at
all) and what image_dump reads.
"""

import io
import random
import struct
import sys
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageEnhance, ImageOps

SIZES = [(64, 48), (37, 91), (224, 224), (300, 75), (7, 5), (1, 1), (128, 96)]
CV2 = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
PIL = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
FILL = (124, 116, 104)


def picture(width, height, seed):
    """Waves, edges and noise together."""
    draw = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / 9.0) * 60 + 128, np.cos(y / 7.0) * 60 + 128, np.sin((x + y) / 13.0) * 60 + 128], -1)
    waves[height // 4: height // 2, width // 4: width // 2] = draw.randint(0, 256, 3)
    return np.clip(waves + draw.normal(0, 25, waves.shape), 0, 255).astype(np.uint8)


def imdecode(data):
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]


def encoded(image, **options):
    data = io.BytesIO()
    image.save(data, **options)
    return data.getvalue()


def with_orientation(jpeg, orientation):
    exif = b"Exif\0\0MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def files():
    """{name: bytes}: every kind of file there is to decode."""
    rgb = Image.fromarray(picture(101, 67, 5))
    found = {}
    for sampling in (0, 1, 2):
        for progressive in (False, True):
            found[f"s{sampling}p{progressive:d}.jpg"] = encoded(rgb, format="JPEG", quality=90, subsampling=sampling,
                                                                 progressive=progressive)
    found["grey.jpg"] = encoded(rgb.convert("L"), format="JPEG")
    found["cmyk.jpg"] = encoded(rgb.convert("CMYK"), format="JPEG", quality=95)
    for orientation in range(1, 9):
        found[f"turned{orientation}.jpg"] = with_orientation(found["s0p0.jpg"], orientation)
    for mode in ("RGB", "L", "1", "P", "LA", "RGBA"):
        found[f"{mode}.png"] = encoded(rgb.convert(mode), format="PNG")
    deep = np.random.RandomState(1).randint(0, 65536, (31, 43), dtype=np.uint16)
    found["deep.png"] = encoded(Image.fromarray(deep), format="PNG")
    found["deep_rgb.png"] = cv2.imencode(".png", np.random.RandomState(2).randint(0, 65536, (31, 43, 3), np.uint16))[
        1].tobytes()
    return found


def decode_cases(folder):
    for name, data in files().items():
        (folder / name).write_bytes(data)
        # Other versions of libjpeg-turbo round a few values of their transforms otherwise.
        yield (1, 0.02) if name.endswith(".jpg") else (0, 0), folder / name, "decode", imdecode(data)


def resize_cases(folder):
    draw = random.Random(3)
    for seed, (width, height) in enumerate([(200, 150), (97, 211), (500, 375), (5, 9), (1, 1), (2, 3)]):
        source = picture(width, height, seed)
        path = folder / f"source{seed}.png"
        Image.fromarray(source).save(path)
        sizes = [*SIZES, (width, height), (width * 2, height * 2), (max(1, width // 2), max(1, height // 2))]
        sizes += [(draw.randint(1, 300), draw.randint(1, 300)) for _ in range(4)]
        for size in sizes:
            for name, method in CV2.items():
                bound = (0, 0) if name in ("nearest", "bilinear") else (1, 0.06)
                yield bound, path, f"resize {size[0]} {size[1]} {name} cv2", cv2.resize(source, size, interpolation=method)
            for name, method in PIL.items():
                # Across and then down: Pillow 13 chooses the order by the sizes, the versions before did it so always.
                across = Image.fromarray(source).resize((size[0], height), method)
                expected = np.asarray(across.resize(size, method))
                yield (0, 0), path, f"resize {size[0]} {size[1]} {name} pil", expected


def colour_cases(path, image):
    yield "auto_contrast", ImageOps.autocontrast(image)
    yield "equalize", ImageOps.equalize(image)
    yield "invert", ImageOps.invert(image)
    for bits in range(1, 9):
        yield f"posterize {bits}", ImageOps.posterize(image, bits)
    for threshold in (0, 1, 100.5, 255, 256):
        yield f"solarize {threshold}", ImageOps.solarize(image, threshold)
    for factor in (0, 0.1, 0.55, 1, 1.45, 1.9):
        yield f"color {factor}", ImageEnhance.Color(image).enhance(factor)
        yield f"contrast {factor}", ImageEnhance.Contrast(image).enhance(factor)
        yield f"brightness {factor}", ImageEnhance.Brightness(image).enhance(factor)
        yield f"sharpness {factor}", ImageEnhance.Sharpness(image).enhance(factor)
    for share in (-0.5, -0.2, 0, 0.1, 0.5):
        hue, saturation, value = image.convert("HSV").split()
        turned = np.asarray(hue) + np.array(share * 255).astype(np.int32).astype(np.uint8)
        yield f"hue {share}", Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def form_cases(path, image):
    for name in ("nearest", "bilinear", "bicubic"):
        for matrix in [(1, 0.3, 0, 0, 1, 0), (1, -0.21, 0, 0, 1, 0), (1, 0, 0, 0.13, 1, 0), (1, 0, 17.25, 0, 1, 0),
                       (1, 0, 0, 0, 1, -40.5)]:
            expected = image.transform(image.size, Image.AFFINE, matrix, PIL[name], fillcolor=FILL)
            yield f"affine {name} {' '.join(map(str, matrix))}", expected
        for angle in (-30, -7.3, 0, 12, 30):
            yield f"rotate {name} {angle}", image.rotate(angle, PIL[name], fillcolor=FILL)


def enhance_cases(folder):
    for seed, (width, height) in enumerate([(97, 61), (64, 64), (3, 2)]):
        path = folder / f"colour{seed}.png"
        image = Image.fromarray(picture(width, height, 20 + seed))
        image.save(path)
        for command, expected in colour_cases(path, image):
            yield (0, 0), path, command, np.asarray(expected)
        for command, expected in form_cases(path, image):
            # Nearest: Pillow steps in 1/65536 of a pixel, so that a pixel on the edge may fall to the other side.
            nearest = (255, 0.01) if "nearest" in command else (1, 0.001)
            yield nearest, path, command, np.asarray(expected)


def normalize_case(folder):
    path = folder / "normalize.png"
    pixels = picture(50, 40, 9)
    Image.fromarray(pixels).save(path)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    yield (0, 0), path, "normalize", ((pixels.astype("float32") * np.float32(1 / 255) - mean) / std).transpose(2, 0, 1)


def main():
    folder = Path(sys.argv[1])
    lines = []
    for make in (decode_cases, resize_cases, enhance_cases, normalize_case):
        for bound, path, command, expected in make(folder):
            number = len(lines)
            np.save(folder / f"{number}.npy", expected)
            lines.append(f"{bound[0]} {bound[1]} {path} {folder}/{number}.out {command}\n")
    (folder / "cases").write_text("".join(lines))


def compare():
    """`image_peers.py FOLDER compare`: one line per case that is off."""
    folder = Path(sys.argv[1])
    worst = {}
    for number, line in enumerate((folder / "cases").read_text().splitlines()):
        tolerance, share, path, _, command = line.split(maxsplit=4)
        expected = np.load(folder / f"{number}.npy").astype(np.float64)
        data = (folder / f"{number}.out").read_bytes()
        if command == "normalize":
            ours = np.frombuffer(data, np.float32).reshape(expected.shape).astype(np.float64)
        else:
            header, pixels = data.split(b"\n", 1)
            width, height = map(int, header.split()[1:3])
            ours = np.frombuffer(pixels, np.uint8).reshape(height, width, 3).astype(np.float64)
        name = f"{Path(path).name} {command}"
        if ours.shape != expected.shape:
            print(f"{name}: {ours.shape}, expected {expected.shape}")
            continue
        off = np.abs(ours - expected)
        found = (off.max(), (off > 0).mean())
        kind = " ".join(word for word in command.split() if word[0].isalpha()) or path
        worst[kind] = tuple(map(max, worst.get(kind, (0, 0)), found))
        if found[0] > float(tolerance) or found[1] > float(share):
            print(f"{name}: off by {found[0]} in {found[1]:.4%} of the values; allowed {tolerance} in {float(share):.2%}")
    print("compared", number + 1, file=sys.stderr)
    if "--worst" in sys.argv:
        for kind, (most, part) in sorted(worst.items()):
            print(f"{kind:30} {most:6.0f} {part:9.4%}", file=sys.stderr)


if __name__ == "__main__":
    compare() if "compare" in sys.argv else main()
