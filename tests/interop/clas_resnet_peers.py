"""clas_resnet_peers.py LAYERS FOLDER: writes FOLDER/weights.pdparams as PaddleClas' ResNet of so many layers has them, a
batch, and the scores that Paddle computes from both. The network is paddle.vision's with PaddleClas' names; its ResNet18
and 34 get the convolution on the first shortcut that PaddleClas' have. Runs in the peers' Python."""

import re
import sys

import numpy
import paddle
from safetensors.numpy import save_file

CLASSES, BATCH, SIDE = 10, 4, 64


def clas_name(name, blocks_before):
    """layer2.0.conv1.weight -> blocks.3.conv0.conv.weight"""
    name = re.sub(r"^(conv|bn)1\.", lambda found: f"stem.0.{found[1]}.", name)
    name = re.sub(r"^layer(\d)\.(\d+)\.", lambda found: f"blocks.{blocks_before[int(found[1]) - 1] + int(found[2])}.", name)
    name = re.sub(r"^(blocks\.\d+)\.(conv|bn)(\d)\.", lambda found: f"{found[1]}.conv{int(found[3]) - 1}.{found[2]}.", name)
    return name.replace("downsample.0.", "short.conv.").replace("downsample.1.", "short.bn.")


def network(layers):
    net = getattr(paddle.vision.models, f"resnet{layers}")(num_classes=CLASSES)
    if layers < 50:
        net.layer1[0].downsample = paddle.nn.Sequential(
            paddle.nn.Conv2D(64, 64, 1, bias_attr=False), paddle.nn.BatchNorm2D(64))
    for name, tensor in net.state_dict().items():
        if name.endswith("_mean"):
            tensor.set_value(paddle.normal(0, 0.1, tensor.shape))
        elif name.endswith("_variance"):
            tensor.set_value(paddle.uniform(tensor.shape, min=0.8, max=1.2))
    return net


def main():
    layers, folder = int(sys.argv[1]), sys.argv[2]
    paddle.seed(7)
    net = network(layers)
    stages = [len(stage) for stage in (net.layer1, net.layer2, net.layer3, net.layer4)]
    blocks_before = [sum(stages[:i]) for i in range(len(stages))]
    paddle.save({clas_name(name, blocks_before): tensor for name, tensor in net.state_dict().items()},
                f"{folder}/weights.pdparams")
    images = paddle.randn([BATCH, 3, SIDE, SIDE])
    net.eval()
    with paddle.no_grad():
        save_file({"scores": net(images).numpy()}, f"{folder}/theirs.safetensors")
    save_file({"images": images.numpy(), "labels": numpy.arange(BATCH, dtype="int64")}, f"{folder}/batch.safetensors")


if __name__ == "__main__":
    main()
