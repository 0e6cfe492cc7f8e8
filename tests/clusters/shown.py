"""The job files that docs/clusters.md shows: they are the ones that are tested."""

import re

from trireme_test import ROOT, TRIREME, read

PATH = f"{TRIREME.rpartition('/')[0]}:/usr/bin:/bin"  # so that they find `trireme`


def batch_file():
    """Slurm's."""
    return _block("sh", r"#!/bin/sh\n#SBATCH")


def mpirun_command():
    return _block("sh", "mpirun ").strip()


def indexed_job():
    """Of Kubernetes."""
    return _block("yaml", r"apiVersion: batch/v1\nkind: Job\n")


def pytorch_job():
    """Of Kubeflow."""
    return _block("yaml", r"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n")


def field(text, name):
    """The value of a field, "x" of `name: "x"  # as said above`; also the first inside of braces."""
    return re.search(rf"\b{name}: *([^#\n}}]*[^#\n}} ])", text)[1].strip('"')


def command(text):
    """The words of `command: [trireme, launch, ./train]`."""
    return [word.strip().strip('"') for word in field(text, "command").strip("[]").split(",")]


def section(text, name):
    """What is indented below the line `name:`."""
    return re.search(rf"^( *){name}:\n((?:\1 +.*\n)+)", text, re.M)[2]


def _block(language, start):
    return re.search(rf"^```{language}\n({start}.*?)^```$", read(ROOT / "docs/clusters.md"), re.M | re.S)[1]
