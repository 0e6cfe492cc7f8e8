#!/usr/bin/env python3
"""check_layers.py ROOT: fails when a source breaks the structure of the project, and says where and how.

1. A module includes only what modules.txt allows it.
2. Environment variables are read in trireme/core/env.cc only.
3. Nobody sleeps: waits have a deadline and something to wait for. An exception carries, on its line or the one above,
   the comment `// layers: sleep ok, because ...`.
"""
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

TABLE = Path(__file__).with_name("modules.txt")
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep|sleep)\s*\(")
SLEEP_OK = "// layers: sleep ok, because "
TEST_LIBRARIES = ["gtest/*", "gmock/*", "benchmark/*"]


def read_table(path=TABLE):
    """{module: (modules, header patterns)}"""
    table = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, allowed = line.split(":", 1)
            modules, libraries = allowed.split("|")
            table[name] = (modules.split(), libraries.split())
    return table


def sources(root, *folders):
    found = (file for folder in folders for file in (root / folder).rglob("*"))
    return sorted(file for file in found if file.suffix in (".h", ".cc", ".cpp", ".cu", ".cuh"))


def code_of(line):
    """The line without comments at its end and without what is inside string literals."""
    return re.sub(r"//.*", "", re.sub(r'"(\\.|[^"\\])*"', '""', line))


def allowed_for(table, file, root):
    """(module, its modules, its own header patterns), or None for a folder the table does not know."""
    parts = file.relative_to(root).parent.parts
    parts = parts[1:] if parts[0] == "trireme" else parts
    if parts[0] not in table:
        return None
    entries = [table.get("/".join(parts[: depth + 1]), ([], [])) for depth in range(len(parts))]
    modules = sorted({module for entry in entries for module in entry[0]} | {parts[0]})
    libraries = [pattern for entry in entries for pattern in entry[1]]
    return parts[0], modules, libraries + (TEST_LIBRARIES if re.search("_test$|^test_", file.stem) else [])


def is_allowed(header, modules, libraries, file):
    parts = header.split("/")
    if parts[0] in ("trireme", "cli", "apps") and len(parts) > 1:
        return (parts[1] if parts[0] == "trireme" else parts[0]) in modules
    if "/" not in header and ("." not in header or (file.parent / header).exists()):
        return True  # C++'s own, or a neighbour
    return any(fnmatch(header, pattern) for pattern in libraries)


def check_includes(root, table):
    for file in sources(root, "trireme", "cli"):
        if file.parent == root / "trireme":
            continue  # trireme.h, the sum of all
        known = allowed_for(table, file, root)
        if known is None:
            yield f"{file}: its folder has no line in {TABLE.name}"
            continue
        module, modules, libraries = known
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            header = match and (match[1] or match[2])
            if header and not is_allowed(header, modules, libraries + table["any"][1], file):
                yield (f"{file}:{number}: {module} may not include {header}; it may include the modules "
                       f"{', '.join(modules)}, and besides C++, POSIX and fmt: {' '.join(libraries) or 'nothing'}")


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


def problems(root, table=None):
    return [*check_includes(root, table or read_table()), *check_calls(root)]


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "layers: all sources keep to the table")
    sys.exit(bool(found))
