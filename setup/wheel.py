#!/usr/bin/env python3
"""Makes a Python wheel of an installed launcher: wheel.py PREFIX VERSION FOLDER

pip puts bin/ beside its python and the rest below the same prefix, so that relative paths stay as they are.
"""
import base64
import hashlib
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

NAME = "trireme"
METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Launcher for distributed training: starts PyTorch, Paddle and C++ programs on many devices and machines
License: Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

`trireme launch -n 2 train.py` starts a script as two processes with the variables of torchrun and of Paddle's launcher,
names the first process that fails, and leaves nothing behind. The library for C++ is not part of this package.
"""
WHEEL = """Wheel-Version: 1.0
Generator: {name} {version}
Root-Is-Purelib: false
Tag: {tag}
"""


def glibc_needed(files):
    """The newest version of glibc's symbols in these programs and libraries: (2, 34)."""
    found = [(2, 17)]
    for file in files:
        if file.read_bytes()[:4] != b"\x7fELF":
            continue
        symbols = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
        found += [(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)]
    return max(found)


def tag_of(files):
    machine = sysconfig.get_platform().split("-")[-1]
    return "py3-none-manylinux_{}_{}_{}".format(*glibc_needed(files), machine)


def place_of(path, data):
    """Where a file of the prefix lies in the wheel."""
    if path.parts[0] == "bin":
        return f"{data}/scripts/{path.name}"
    return f"{data}/data/{path.as_posix()}"


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def add(wheel, name, content, mode):
    """With a fixed time: the same files make the same wheel."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o100000 | mode) << 16
    wheel.writestr(info, content)


def files_of(prefix):
    """A wheel has no links: a library that a link points to lies in it under the name of the link, by which it is found."""
    linked = {path.resolve() for path in prefix.rglob("*") if path.is_symlink()}
    return sorted(path for path in prefix.rglob("*") if path.is_file() and (path.is_symlink() or path not in linked))


def make(prefix, version, folder):
    files = files_of(prefix)
    tag = tag_of(files)
    data, about = f"{NAME}-{version}.data", f"{NAME}-{version}.dist-info"
    texts = {"METADATA": METADATA, "WHEEL": WHEEL}
    content = {place_of(path.relative_to(prefix), data): (path.read_bytes(), path.stat().st_mode & 0o777) for path in files}
    for name, text in texts.items():
        content[f"{about}/{name}"] = (text.format(name=NAME, version=version, tag=tag).encode(), 0o644)
    record = "".join(record_line(name, content) for name, (content, _) in content.items()) + f"{about}/RECORD,,\n"
    content[f"{about}/RECORD"] = (record.encode(), 0o644)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{NAME}-*.whl"):
        old.unlink()
    with zipfile.ZipFile(folder / f"{NAME}-{version}-{tag}.whl", "w") as wheel:
        for name, (text, mode) in content.items():
            add(wheel, name, text, mode)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3]))
