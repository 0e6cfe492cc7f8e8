#!/usr/bin/env python3
"""What the pages' programs are compiled against: an installed copy in BUILD/docs, made once for all pages.

<trireme/trireme.h> is precompiled beside it, with the options of the pages' g++ commands: a program then compiles in half
the time, and many programs include it. A program with another include first reads the installed header.
"""
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

WARNINGS = ("-Wall", "-Wextra", "-Werror")  # none may come from a page or from our headers
LINKED = "-pthread"  # of `pkg-config --libs trireme`: it defines a macro, and the precompiled header must know that


def prefix(build):
    return Path(build) / "docs" / "installed"


def precompiled(build):
    """The folder to name first among the include folders."""
    return Path(build) / "docs" / "precompiled"


def pkg_config_path(build):
    return next(prefix(build).rglob("trireme.pc")).parent


def install(build):
    shutil.rmtree(prefix(build), ignore_errors=True)
    subprocess.run(["cmake", "--install", build, "--prefix", prefix(build)], env={**os.environ, "DESTDIR": ""},
                   stdout=subprocess.DEVNULL, check=True, umask=0o077)  # it is for every user all the same


def precompile(build):
    flags = subprocess.run(["pkg-config", "--cflags", "trireme"], capture_output=True, text=True, check=True,
                           env={**os.environ, "PKG_CONFIG_PATH": str(pkg_config_path(build))}).stdout
    header = precompiled(build) / "trireme" / "trireme.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(f'#include "{prefix(build)}/include/trireme/trireme.h"\n')
    subprocess.run(["g++", "-std=c++20", *WARNINGS, LINKED, *shlex.split(flags), "-x", "c++-header", header, "-o",
                    f"{header}.gch"], check=True)


if __name__ == "__main__":
    install(sys.argv[1])
    precompile(sys.argv[1])
