#!/usr/bin/env python3
"""check_layers.py ROOT: fails when a source breaks the structure of the project, and says where and how.

1. A part includes only what modules.txt allows it, and the table itself names only folders that exist.
2. Environment variables are read in trireme/core/env.cc only.
3. Nobody sleeps, not with poll or select on no descriptor either: waits have a deadline and something to wait for. An
   exception carries, on its line or the one above, the comment `// layers: sleep ok, because ...`.
4. A source that uses int64_t and the like includes <cstdint>, itself or through a header of ours or of libtorch: other
   standard headers bring it in with some compilers only (not with libstdc++ 13).
5. No two files or folders differ only in case: a file system without case would keep one of them.
"""
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

TABLE = Path(__file__).with_name("modules.txt")
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep|sleep)\s*\("
                   r"|\bp?poll\s*\(\s*(nullptr|NULL|0)\s*,|\bp?select\s*\(\s*0\s*,\s*(nullptr|NULL|0)\s*,")
INTEGER = re.compile(r"\bu?int(?:8|16|32|64)_t\b")
BRINGS_INTEGERS = re.compile(r"(cstdint|stdint\.h|(torch|ATen|c10)/.*)$")
SLEEP_OK = "// layers: sleep ok, because "
TEST_LIBRARIES = ["gtest/*", "gmock/*", "benchmark/*"]


def read_table(path=TABLE):
    """{part: (parts, header patterns)}, in the order of the file"""
    table = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, allowed = line.split(":", 1)
            parts, libraries = allowed.split("|")
            table[name] = (parts.split(), libraries.split())
    return table


def sources(root, *folders):
    found = (file for folder in folders for file in (root / folder).rglob("*"))
    return sorted(file for file in found if file.suffix in (".h", ".cc", ".cpp", ".cu", ".cuh"))


def code_of(line):
    """The line without comments at its end and without what is inside string literals."""
    return re.sub(r"//.*", "", re.sub(r'"(\\.|[^"\\])*"', '""', line))


def part_of(table, folder):
    """The deepest part whose folder holds this one, or None. `folder` is relative to the root."""
    words = folder.parts[1:] if folder.parts[0] == "trireme" else folder.parts
    names = ("/".join(words[:depth]) for depth in range(len(words), 0, -1))
    return next((name for name in names if name in table), None)


def more_libraries(table, folder):
    """What the lines with a + allow this folder."""
    return table.get("/".join(folder.parts[1:]) + "+", ([], []))[1]


def is_allowed(table, header, parts, libraries, file):
    if header.split("/")[0] in ("trireme", "cli", "apps") and "/" in header:
        return part_of(table, Path(header).parent) in parts
    if "/" not in header and ("." not in header or (file.parent / header).exists()):
        return True  # C++'s own, or a neighbour
    return any(fnmatch(header, pattern) for pattern in libraries)


def check_includes(root, table):
    for file in sources(root, "trireme", "cli", "apps"):
        if file.parent == root / "trireme":
            continue  # trireme.h, the sum of all
        part = part_of(table, file.parent.relative_to(root))
        if part is None:
            yield f"{file}: its folder has no line in {TABLE.name}"
            continue
        parts = [part, *table[part][0]]
        libraries = table[part][1] + more_libraries(table, file.parent.relative_to(root))
        tests = TEST_LIBRARIES if re.search("_test$|^test_", file.stem) else []
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            header = match and (match[1] or match[2])
            if header and not is_allowed(table, header, parts, libraries + tests + table["any"][1], file):
                yield (f"{file}:{number}: {part} may not include {header}; it may include the parts "
                       f"{', '.join(sorted(parts))}, and besides C++, POSIX and fmt: {' '.join(libraries) or 'nothing'}")


def check_table(root, table):
    """A line for a folder that is gone, or one that lists a part below itself, permits what nobody meant."""
    above = ["any"]
    for part, (parts, _) in table.items():
        folder = part.rstrip("+")
        home = root / folder if folder in ("cli", "apps") else root / "trireme" / folder
        if part != "any" and not home.is_dir():
            yield f"{TABLE.name}: {part}: there is no such folder"
        for name in parts:
            if name not in above:
                yield f"{TABLE.name}: {part}: {name} does not stand above it"
        above.append(part)


def check_calls(root):
    for file in sources(root, "trireme", "cli", "apps", "examples", "tests"):
        previous = ""
        ours = file.is_relative_to(root / "trireme") or file.is_relative_to(root / "cli")
        for number, line in enumerate(file.read_text().splitlines(), 1):
            code = code_of(line)
            if ours and ENVIRONMENT.search(code) and file != root / "trireme/core/env.cc":
                yield f"{file}:{number}: reads the environment; only trireme/core/env.cc may: use trireme::env"
            if SLEEP.search(code) and SLEEP_OK not in previous + line:
                yield f"{file}:{number}: sleeps; wait for the event with a deadline, or say '{SLEEP_OK}...'"
            previous = line


def project_files(root):
    """The paths that git tracks; without git all files but hidden ones and those of build folders."""
    if (root / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], stdout=subprocess.PIPE, text=True, check=False)
        if listed.returncode == 0:
            return [Path(name) for name in listed.stdout.split("\0") if name]
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [path for path in files if not re.match(r"\.|build", path.parts[0])]


def check_case(root):
    """Of names that are equal without case, each pair of neighbours."""
    spellings = {}
    for file in project_files(root):
        for path in (file, *file.parents):
            spellings.setdefault(str(path).lower(), set()).add(str(path))
    for names in spellings.values():
        for first, second in zip(sorted(names), sorted(names)[1:]):
            if Path(first).parent == Path(second).parent:
                yield f"{root / first}: differs from {second} only in case; rename one of them"


def brings_integers(root, file, seen):
    """Whether the file includes what defines int64_t, itself or through our headers."""
    seen.add(file)
    names = [match[1] or match[2] for line in file.read_text().splitlines() if (match := INCLUDE.match(line))]
    if any(BRINGS_INTEGERS.match(name) for name in names):
        return True
    ours = [path for name in names for path in (root / name, file.parent / name) if path.is_file()]
    return any(brings_integers(root, path, seen) for path in ours if path not in seen)


def check_integers(root):
    for file in sources(root, "trireme", "cli", "apps", "examples", "tests"):
        used = any(INTEGER.search(code_of(line)) for line in file.read_text().splitlines())
        if used and not brings_integers(root, file, set()):
            yield f"{file}: uses integers of a fixed width without <cstdint>; include it"


def problems(root, table=None):
    return [*check_includes(root, table or read_table()), *check_calls(root), *check_integers(root), *check_case(root)]


if __name__ == "__main__":
    project = Path(sys.argv[1]).resolve()
    found = [*problems(project), *check_table(project, read_table())]
    print("\n".join(found) or "layers: all sources keep to the table")
    sys.exit(bool(found))
