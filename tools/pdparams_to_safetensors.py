#!/usr/bin/env python3
"""Turns Paddle's weights (.pdparams) into a safetensors file with torch's layouts and names.

    pdparams_to_safetensors.py PPLCNet_x1_0.pdparams PPLCNet_x1_0.safetensors
    pdparams_to_safetensors.py latest.pdparams student.safetensors --prefix Student.

Needs numpy only, no Paddle. A .pdparams file is a pickle; nothing but numbers and dictionaries is taken from it, so
code inside of it is not run. Paddle keeps weights of Linear as [in, out], torch as [out, in]: these are transposed.
Statistics of batch normalisation are renamed (_mean, _variance: running_mean, running_var). All else stays.
"""
import argparse
import json
import pickle
import struct
import sys

import numpy

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16",
          "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
          "uint16": "BF16"}  # numpy has no bfloat16: Paddle pickles its bits
NAMES_OF_LAYERS = "StructuredToParameterName@@"  # "fc.weight": "linear_0.w_0"
CUT_TENSORS = "UnpackBigParamInfor@@"
STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}
ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"), ("collections", "OrderedDict"), ("builtins", "tuple"),
           ("_codecs", "encode")}
ALLOWED |= {(f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")}


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise SystemExit(f"refused: the file wants {module}.{name}, which is no part of weights")
        return super().find_class(module, name)


def read(path):
    try:
        with open(path, "rb") as file:
            content = Unpickler(file, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise SystemExit(f"{path}: not a .pdparams file, or cut off: {error}")
    if not isinstance(content, dict):
        raise SystemExit(f"{path}: it holds a {type(content).__name__}, not names and tensors")
    if CUT_TENSORS in content:
        raise SystemExit(f"{path}: its large tensors are cut into parts; save it again by paddle.save(..., protocol=4)")
    return content


def array_of(value):
    """The array, also of the pair (name, array) that paddle.save() makes of a tensor outside of a state_dict."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    return value if isinstance(value, numpy.ndarray) else None


def is_linear(name, array, layers):
    """Without the layer's name every matrix named weight is taken for Linear's; embeddings have one to tell them."""
    layer = layers.get(name, "linear")
    return array.ndim == 2 and name.split(".")[-1] == "weight" and not layer.startswith("embedding")


def converted(content, prefix):
    layers = content.get(NAMES_OF_LAYERS, {})
    tensors = {}
    for name, value in content.items():
        array = array_of(value)
        if array is None or not name.startswith(prefix):
            continue
        if array.dtype.name not in DTYPES:
            raise SystemExit(f"'{name}' has dtype {array.dtype}; known are {', '.join(DTYPES)}")
        parts = name[len(prefix):].split(".")
        parts[-1] = STATISTICS.get(parts[-1], parts[-1])
        tensors[".".join(parts)] = numpy.ascontiguousarray(array.T) if is_linear(name, array, layers) else array
    if not tensors:
        raise SystemExit(f"no tensor whose name begins with '{prefix}'; there are {list(content)[:5]} ...")
    return tensors


def write(path, tensors):
    # Large elements first: every tensor begins at a multiple of its element's size.
    order = sorted(tensors.items(), key=lambda item: -item[1].itemsize)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, array in order:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in order:
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--prefix", default="", help="take only names that begin so (Student.), and cut it off")
    arguments = parser.parse_args()
    tensors = converted(read(arguments.input), arguments.prefix)
    write(arguments.output, tensors)
    print(f"{arguments.output}: {len(tensors)} tensors")


if __name__ == "__main__":
    sys.exit(main())
