"""trireme.h is the public API and nothing else, and the calls that the pages show compile without a warning."""
import json
import re
import shlex
import subprocess
from pathlib import Path

import fragments
import pages
import public_names
from trireme_test import TRIREME, Case, main

BUILD = Path(TRIREME).resolve().parents[1]
INDEX = "docs/api.md"
UNLISTED = {"detail"}  # the namespace of what templates in headers need


def words(cell):
    return re.findall(r"`([\w/.]+)`", cell)


class PublicNames(Case):
    """What trireme.h brings into namespace trireme is what docs/api.md lists."""

    def listed(self):
        """{header: names}"""
        found = {}
        for header, names, _ in pages.table_under(pages.page(INDEX), "Names")[1:]:
            found.setdefault(f"trireme/{words(header)[0]}", set()).update(words(names) or self.fail(header))
        return found

    def declared(self):
        """{header: (names, namespaces)}"""
        return {header: public_names.names_of(pages.page(header)) for header in public_names.headers(pages.ROOT)}

    def test_every_name_is_listed(self):
        known = {name for names in self.listed().values() for name in names} - {"_async"}
        self.assertGreater(len(known), 80)
        includers = public_names.headers(pages.ROOT)
        leaks = [f"{name} of {header}, included by {includers[header]}"
                 for header, (names, _) in self.declared().items() for name in sorted(names - known)]
        self.assertFalse(leaks, f"trireme.h brings these names into namespace trireme, and {INDEX} does not list them. "
                                "Include their header in the .cc file only, move them into the namespace of their "
                                "room, or document them")

    def test_every_listed_name_is_there(self):
        declared = self.declared()
        for header, names in self.listed().items():
            self.assertTrue(header in declared, f"{INDEX}: trireme.h does not lead to {header}")
            self.assertEqual(names - {"_async"} - declared[header][0], set(), f"{INDEX}: not declared in {header}")

    def test_namespaces_are_listed(self):
        listed = {words(row[0])[0] for row in pages.table_under(pages.page(INDEX), "Namespaces")[1:]}
        declared = {inner for _, namespaces in self.declared().values() for inner in namespaces}
        self.assertEqual(declared - UNLISTED, listed)


class TheReader(Case):
    """public_names.py reads the declarations of our headers."""

    def names(self, text):
        return public_names.names_of(f"namespace trireme {{\n{text}\n}}  // namespace trireme\n")[0]

    def test_declarations(self):
        for text, name in (("struct A { int b = 0; void f() { g(); } };", "A"), ("class A;", "A"),
                           ("class A : public B<C> {};", "A"), ("enum class A : uint8_t { b, c };", "A"),
                           ("using A = std::map<int, B>;", "A"), ("using deploy::A;", "A"),
                           ("template <typename T>\nconcept A = requires(T t) { t.f(); };", "A"),
                           ("inline constexpr int kA = 5;", "kA"), ("inline constexpr B kA[] = {B::c, B::d};", "kA"),
                           ("void f(int a = g(), const B& b = {});", "f"), ("std::function<void()> f(int);", "f"),
                           ("inline int f() { return 1'000; }", "f"), ("[[nodiscard]] const char* f(B b);", "f"),
                           ("template <typename... A>\nvoid f(fmt::format_string<A...> b, A&&... a) { g(); }", "f"),
                           ('inline std::string f() { return "} // {"; }', "f"),
                           ("inline char f() { return '}'; }  // {", "f")):
            self.assertEqual(self.names(text), {name}, text)

    def test_what_brings_no_name(self):
        for text in ("// class A;", "#define A(x) class x;", "bool operator==(const A&, const B&);", "static_assert(1 < 2);",
                     "namespace detail {\nclass A;\n}"):
            self.assertEqual(self.names(text), set(), text)

    def test_what_follows_is_read(self):
        self.assertEqual(self.names('class A { };\nB f() { return {"//"}; }\nint g();\n'), {"A", "f", "g"})

    def test_namespaces(self):
        self.assertEqual(public_names.names_of("namespace trireme::data {\nclass A;\n}\nnamespace other { int b; }"),
                         (set(), {"data"}))

    def test_what_it_cannot_read_is_an_error(self):
        with self.assertRaises(ValueError):
            self.names("+;")

    def test_includes_are_followed(self):
        (self.folder / "trireme").mkdir()
        (self.folder / "trireme/trireme.h").write_text('#include "trireme/a.h"\n#include <vector>\n')
        (self.folder / "trireme/a.h").write_text('#include "trireme/b.h"\n')
        (self.folder / "trireme/b.h").write_text('#include "trireme/a.h"\n')
        self.assertEqual(public_names.headers(self.folder), {"trireme/trireme.h": None, "trireme/a.h": "trireme/trireme.h",
                                                             "trireme/b.h": "trireme/a.h"})


class OptionStructs(Case):
    """A call that leaves out an option without a default value has a warning from -Wextra."""

    def structs(self):
        """(header, name, body) of what is passed as {.name = value}."""
        pattern = re.compile(r"^( *)struct (\w*Options) {\n(.*?)^\1};", re.M | re.S)
        return [(header, match[2], match[3]) for header in public_names.headers(pages.ROOT)
                for match in pattern.finditer(public_names.code_of(pages.page(header)))]

    def test_every_option_has_a_default(self):
        self.assertGreater(len(self.structs()), 20)
        for header, name, body in self.structs():
            for field in body.split(";"):
                plain = public_names.without_template(public_names.normal(field))
                self.assertFalse(re.fullmatch(r"[\w:*& ]+", plain), f"{header}: {name}: no default value: {plain}")


class ShownCalls(Case):
    """Whole programs are compiled by run_test.py."""

    def command(self):
        """Of a source that uses libtorch, without its warnings."""
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        entry = next(one for one in commands if "/trireme_parallel.dir/" in one["command"])
        options = shlex.split(entry["command"])
        return [word for word in options[:options.index("-o")] if not word.startswith("-W")], entry["directory"]

    def test_fragments_compile_without_warnings(self):
        command, folder = self.command()
        done = subprocess.run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-"], cwd=folder,
                              input=fragments.source(), capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    main()
