#!/usr/bin/env python3
"""headers_alone.py ROOT BUILD [HEADER ...]: fails when a header needs something included before it, and says which.

Each header of the modules is read as the first line of a file, with the options of its module's sources. The compiler
is stopped by an error behind the header: what would follow, the templates that <torch/torch.h> has ordered, takes
seconds a file and says nothing about the header. So that error must be the only one.

A header that leads to libtorch is read with the precompiled <torch/torch.h>, where a forgotten include of it would slip
by; hence the rule that a header which names torch, at or c10 leads to an include of theirs. All others do without.
"""
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

END = "the header ends here, and needs nothing before it"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
TORCH = re.compile(r"(torch|ATen|c10)/")
NAMES_TORCH = re.compile(r"(?<![\w:])(torch|at|c10|c10d)::")
COMMENT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')


def headers(root):
    """All but the tests' own and trireme.h, the sum of all, which the install test compiles."""
    return sorted(file.relative_to(root) for folder in ("trireme", "cli", "apps") for file in (root / folder).rglob("*.h")
                  if not file.name.startswith("test_") and file.parent != root / "trireme")


def leads_to_torch(root, header, seen=None):
    seen = set() if seen is None else seen
    seen.add(header)
    for name in INCLUDE.findall((root / header).read_text()):
        neighbours = [file for file in (Path(name), header.parent / name) if (root / file).is_file()]
        if TORCH.match(name) or any(leads_to_torch(root, file, seen) for file in neighbours if file not in seen):
            return True
    return False


def names_torch(text):
    return NAMES_TORCH.search(COMMENT.sub("", text)) is not None


def source_folder(root, build, file):
    """Of several sources compiled as one, CMake makes BUILD/FOLDER/CMakeFiles/…/Unity/x.cxx."""
    inside, made, _ = str(file).partition("/CMakeFiles/")
    return root / Path(inside).relative_to(build) if made else file.parent


def commands(root, build):
    """{folder: (directory, the compiler with its options)} of the folder's sources; with the precompiled header, if any."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        folder = source_folder(root, build, Path(entry["file"]))
        if "_test.dir/" not in entry["command"] and (folder not in found or "-include" in words):
            found[folder] = (entry["directory"], words[:words.index("-o")])
    return found


def command_for(known, folder):
    while folder not in known:
        if folder == folder.parent:
            return None
        folder = folder.parent
    return known[folder]


def without_precompiled(words):
    """g++ takes the header by -include, clang++ by -Xclang -include-pch; both stand at the end."""
    return words[:next((place for place, word in enumerate(words) if word in ("-include", "-Xclang")), len(words))]


def first_error(root, known, header):
    """What the compiler says about the header, or None."""
    text = (root / header).read_text()
    torch = leads_to_torch(root, header)
    if names_torch(text) and not torch:
        return f"{header}: names torch, at or c10, but includes no header of theirs"
    command = command_for(known, root / header.parent)
    if command is None:
        return f"{header}: no source in its folder or above tells how to compile it"
    words = command[1] if torch else without_precompiled(command[1])
    source = (f'#include "{header}"\nstruct TheEnd {{ static constexpr bool lies_ahead = false; }};\n'
              f'static_assert(::TheEnd::lies_ahead, "{END}");\n')
    done = subprocess.run([*words, "-w", "-fsyntax-only", "-Wfatal-errors", "-x", "c++", "-"], cwd=command[0], input=source,
                          capture_output=True, text=True, timeout=120)
    return None if END in done.stderr else f"{header}: does not compile alone\n{done.stderr}"


def main(root, build, names):
    known = commands(root, build)
    wanted = [Path(name) for name in names] or headers(root)
    with ThreadPoolExecutor(cpu_count()) as pool:
        found = [problem for problem in pool.map(lambda header: first_error(root, known, header), wanted) if problem]
    print("\n".join(found) or f"headers: each of {len(wanted)} compiles alone")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]))
