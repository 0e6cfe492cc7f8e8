#!/usr/bin/env python3
"""How long a new user waits on a Debian 12 with nothing on it, from the first command on:

  tests/install/bare_machine.py demo          make demo
  tests/install/bare_machine.py test          make test
  tests/install/bare_machine.py dockerfile    the Dockerfile's steps, then its ENTRYPOINT
  tests/install/bare_machine.py wheel         make wheel, pip install of it and of PyTorch, then two processes of it

By hand, as root, with a network: nothing of this machine's caches is used, so that it takes from one minute to an hour. It
prints each step, its seconds and the end of its output, and ends with 1 when one fails.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/docs")]
import bare_debian  # noqa: E402
import pages  # noqa: E402

LONGEST = 2 * 3600  # seconds of a step


class Steps:
    """Of one machine, which is gone afterwards, also when a step has failed."""

    def __enter__(self):
        self.case = unittest.TestCase()
        self.debian = bare_debian.BareDebian(self.case)
        self.start = time.monotonic()
        return self

    def __exit__(self, *_):
        print(f"=== {time.monotonic() - self.start:.0f} s in all", flush=True)
        self.case.doCleanups()

    def step(self, text):
        print(f"--- {text}", flush=True)
        before = time.monotonic()
        try:
            output = self.debian.run("sh", "-ec", text, patience=LONGEST)
        except AssertionError as failure:
            sys.exit(str(failure))
        print("\n".join(output.splitlines()[-12:]) + f"\n    {time.monotonic() - before:.0f} s", flush=True)

    def clone(self, folder):
        subprocess.run(["git", "clone", "--quiet", ROOT, self.debian.root / folder.lstrip("/")], check=True)


def packages_before():
    """What README tells the owner of a bare machine to install."""
    return re.search(r"first needs `apt-get install ([\w -]+)`", " ".join(pages.page("README.md").split()))[1]


def make(steps, target):
    steps.step(f"apt-get -qq update && apt-get -qq -y install {packages_before()} >/dev/null")
    steps.clone("/root/trireme")
    steps.step(f"make -C /root/trireme {target}")


def make_alone(target):
    with Steps() as steps:
        make(steps, target)


def instructions(text):
    """[(NAME, what follows)] of a Dockerfile."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]  # also between continued lines
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def exec_form(rest):
    """["a", "b"] as the shell reads it."""
    return shlex.join(json.loads(rest))


def docker_steps(text):
    """The shell commands that a Dockerfile stands for, its context in /context; the last is what a container runs."""
    steps, variables, entry = [], {}, ""
    for name, rest in instructions(text):
        if name in ("ARG", "ENV"):
            key, value = rest.split("=", 1)
            variables[key] = variables[value[1:]] if value.startswith("$") else value
        elif name == "COPY":
            source, target = rest.split()
            steps.append(f"mkdir -p {target} && cp -r /context/{source}/. {target}")
        elif name == "RUN":
            steps.append("".join(f"export {key}={shlex.quote(value)}; " for key, value in variables.items()) + rest)
        elif name == "ENTRYPOINT":
            entry = exec_form(rest)
        elif name == "CMD":
            steps.append(f"{entry} {exec_form(rest)}".strip())
        elif name != "FROM":  # a bare Debian 12
            raise ValueError(f"Dockerfile: {name} is not known to {__file__}")
    return steps


def dockerfile():
    with Steps() as steps:
        steps.clone("/context")
        for text in docker_steps(pages.page("Dockerfile")):
            steps.step(text)


def wheel():
    with Steps() as steps:
        make(steps, "wheel")
        steps.debian.take(ROOT / "tests/interop/torch_ddp.py", "/root")
        steps.step("python3 -m venv /root/venv && /root/venv/bin/pip install --quiet /root/trireme/build-wheel/packages/*.whl")
        steps.step("/root/venv/bin/pip install --quiet torch numpy")
        steps.step("cd /root && /root/venv/bin/trireme launch -n 2 --tee all torch_ddp.py")


if __name__ == "__main__":
    known = {"demo": lambda: make_alone("demo"), "test": lambda: make_alone("test"), "dockerfile": dockerfile, "wheel": wheel}
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        sys.exit(__doc__)
    if os.geteuid():
        sys.exit("bare_machine.py: needs root, as apt does")
    known[sys.argv[1]]()
