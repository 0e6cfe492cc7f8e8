#!/usr/bin/env python3
"""Rewrites versions.lock: resolves each section's request anew and writes down every wheel's hash.

The request of a section is the line `# [name] ...` in the lock itself; change a version there, run this script
(with Python 3.11, on Linux x86_64) and commit the result. Nothing is installed.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("versions.lock")
BASE = "3.11"  # the Python whose markers decide which packages are needed
PYTHONS = {"libtorch": [BASE], "cuda": [BASE], "openvino": [BASE], "peers": [BASE, "3.12", "3.13"],
           "client": [BASE, "3.12", "3.13"]}  # all but the peers and the client are for C++: any Python installs the same wheels
NO_DEPS = ["libtorch", "openvino"]
AARCH64 = [f"manylinux_2_{minor}_aarch64" for minor in (35, 34, 31, 28, 27, 25, 17)] + ["manylinux2014_aarch64"]


def resolve(requests, *options):
    """[(name, version, sha256)] of what pip would install."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-cache-dir",
                        "--only-binary", ":all:", "--target", scratch, "--report", report, *options, *requests], check=True)
        found = json.loads(report.read_text())["install"]
    return [(re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower(), package["metadata"]["version"],
             package["download_info"]["archive_info"]["hashes"]["sha256"]) for package in found]


def lock_section(name, requests):
    """{'package==version': {hashes}} over all the Pythons and processors that the section serves."""
    no_deps = ["--no-deps"] if name in NO_DEPS else []
    pins = [f"{package}=={version}" for package, version, _ in resolve(requests, *no_deps)]
    targets = [["--python-version", python] for python in PYTHONS[name]]
    if name in NO_DEPS:
        targets.append(["--python-version", BASE] + [word for platform in AARCH64 for word in ("--platform", platform)])
    hashes = {pin: set() for pin in pins}
    for target in targets:
        for package, version, sha256 in resolve(pins, "--no-deps", *target):
            hashes[f"{package}=={version}"].add(sha256)
    return hashes


def main():
    lines = []
    for line in LOCK.read_text().splitlines():
        section = re.match(r"# \[(\w+)\] (.*)", line)
        if section:
            lines += ["", line]
            for pin, hashes in sorted(lock_section(section[1], section[2].split()).items()):
                lines.append(" ".join([pin, *(f"--hash=sha256:{sha256}" for sha256 in sorted(hashes))]))
        elif line.startswith("#"):
            lines.append(line)
    LOCK.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
