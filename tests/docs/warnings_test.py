"""What the pages and the public headers show compiles without a warning under -Wall -Wextra, as in a user's project.

One file holds it all, since <torch/torch.h> takes most of the time: every program of the pages and of examples/ in a
namespace of its own, and every public option struct with one field named, as `spawn(f, {.nprocs = 2})` does. GCC's
-Wmissing-field-initializers speaks up where one of the other fields has no default.
"""
import json
import re
import shlex
import subprocess
from pathlib import Path

import pages
from trireme_test import TRIREME, Case, main

BUILD = Path(TRIREME).resolve().parents[1]
INCLUDE = re.compile(r'^#include [<"]([^>"]+)[>"].*\n', re.M)
STRUCT = re.compile(r"^struct (\w+) {\n(.*?)^};", re.M | re.S)
FIELD = re.compile(r"^  (?!using |static |return |friend )[\w:]+(?:<[^;=]*>)?\*? (\w+)(?: =[^;]*|{[^;]*})?;", re.M)
DESIGNATED = re.compile(r"\b([A-Z]\w+)(?: \w+)?{\.")


def programs():
    """{name: text} of all that is compiled as it is printed."""
    found = {file.name: file.read_text() for file in sorted(pages.ROOT.glob("examples/*.cc"))}
    for path in pages.all_pages():
        for block in pages.marked_blocks(path.read_text()):
            if block.kind == "file" and block.argument.endswith(".cc"):
                found[f"{pages.name_of(path)}:{block.line}"] = block.text
    return found


def public_headers():
    """Those that trireme.h names, and those that they include from the same folder."""
    listed = INCLUDE.findall(pages.page("trireme/trireme.h"))
    for header in [name for name in listed if name.startswith("trireme/")]:
        near = [name for name in INCLUDE.findall(pages.page(header)) if Path(name).parent == Path(header).parent]
        listed += [name for name in near if name not in listed]
    return [name for name in listed if name.startswith("trireme/") and not name.endswith("_impl.h")]


def shown_structs():
    """The names of structs that a page initialises by the names of their fields."""
    return set(DESIGNATED.findall("\n".join(path.read_text() for path in pages.all_pages())))


def option_structs():
    """(header, struct, its fields) of every struct that users write with designated initialisers."""
    headers = sorted({*public_headers(), *(str(path.relative_to(pages.ROOT)) for path in pages.ROOT.glob("trireme/**/*.h")
                                           if re.search(r"(?:struct) (?:%s) {" % "|".join(shown_structs()), path.read_text()))})
    for header in headers:
        text = pages.page(header)
        for name, body in STRUCT.findall(text):
            fields = FIELD.findall(re.sub(r"//.*", "", body))
            if len(fields) > 1 and (name.endswith("Options") or name in shown_structs()):
                space = re.findall(r"^namespace (trireme[\w:]*) {", text[:text.index(f"struct {name} {{")], re.M)[-1]
                yield header, f"{space}::{name}", fields


def structs_text():
    """Each struct with the first field named; options, of which none is required, also with the last."""
    lines = []
    for number, (header, name, fields) in enumerate(option_structs()):
        for field in {fields[0], fields[-1] if name.endswith("Options") else fields[0]}:
            lines.append(f"inline void use_{number}_{field}() {{ [[maybe_unused]] const {name} shown{{.{field} = {{}}}}; }}"
                         f"  // {header}")
    return "\n".join(lines)


def one_file():
    texts = programs()
    headers = {header: None for text in texts.values() for header in INCLUDE.findall(text)}
    headers |= {header: None for header, _, _ in option_structs()}
    parts = [f"#include <{header}>" for header in headers]
    for number, (name, text) in enumerate(texts.items()):
        parts.append(f"// {name}\nnamespace program_{number} {{\n{INCLUDE.sub('', text)}\n}}")
    return "\n".join([*parts, structs_text(), "int main() {}", ""])


def compiler():
    """(directory, words) with which an example is compiled, without the project's own choice of warnings."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if "/examples/" in entry["file"] and "-include" in words:
            return entry["directory"], [word for word in words[:words.index("-o")] if not word.startswith("-W")]
    raise AssertionError("no example is compiled in this build")


class Warnings(Case):
    def compile(self, text):
        directory, words = compiler()
        source = self.folder / "shown.cc"
        source.write_text(text)
        flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only"]
        return subprocess.run([*words, *flags, str(source)], cwd=directory, capture_output=True, text=True, timeout=300)

    def test_all_that_is_shown(self):
        self.assertGreaterEqual(len(programs()), 15)
        self.assertGreaterEqual(len(list(option_structs())), 25)
        done = self.compile(one_file())
        self.assertEqual(done.returncode, 0, done.stderr[:8000])

    def test_a_field_without_a_default_is_found(self):
        done = self.compile("#include <string>\nstruct O { int a = 1; std::string b; };\nint main() { O o{.a = 2}; return o.a; }\n")
        self.assertIn("missing initializer for member", done.stderr)


if __name__ == "__main__":
    main()
