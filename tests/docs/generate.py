#!/usr/bin/env python3
"""Rewrites the generated parts of the pages: tests/docs/generate.py [PROGRAM, by default build/bin/trireme]"""
import subprocess
import sys

import pages


def output_of(command, program):
    words = command.split()
    if words[0] != "trireme":
        raise ValueError(f"only trireme generates text, not: {command}")
    return subprocess.run([program, *words[1:]], stdout=subprocess.PIPE, text=True, check=True).stdout


def regenerated(text, program):
    return pages.GENERATED.sub(lambda match: match[1] + output_of(match[2], program) + match[4], text)


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else pages.ROOT / "build/bin/trireme"
    for path in pages.all_pages():
        before = path.read_text()
        after = regenerated(before, program)
        if after != before:
            path.write_text(after)
            print("wrote", pages.name_of(path))


if __name__ == "__main__":
    main()
