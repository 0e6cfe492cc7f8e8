#!/usr/bin/env python3
"""The check of headers must find what each lacks, and nothing in headers that stand alone."""
import json
import tempfile
import unittest
from pathlib import Path

import headers_alone


class HeadersAlone(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.write("trireme/proc/x.cc", "")
        command = f"c++ -std=c++20 -I{self.root} -o x.o -c {self.root}/trireme/proc/x.cc"
        entry = {"directory": str(self.root), "command": command, "file": f"{self.root}/trireme/proc/x.cc"}
        (self.root / "compile_commands.json").write_text(json.dumps([entry]))

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def problem(self, text, path="trireme/proc/x.h"):
        self.write(path, text)
        return headers_alone.first_error(self.root, headers_alone.commands(self.root, self.root), Path(path))

    def test_one_that_brings_all_it_needs(self):
        self.assertIsNone(self.problem("#pragma once\n#include <vector>\ninline std::vector<int> all;\n"))

    def test_sources_compiled_as_one(self):
        made = self.root / "build/trireme/proc/CMakeFiles/trireme_proc.dir/Unity/unity_0_cxx.cxx"
        self.assertEqual(headers_alone.source_folder(self.root, self.root / "build", made), self.root / "trireme/proc")

    def test_one_in_a_folder_below(self):
        self.assertIsNone(self.problem("int x();\n", "trireme/proc/below/y.h"))

    def test_a_forgotten_include(self):
        self.assertIn("vector", self.problem("#pragma once\ninline std::vector<int> all;\n"))

    def test_an_open_namespace(self):
        self.assertIn("does not compile alone", self.problem("namespace trireme {\nint x();\n"))

    def test_an_open_class(self):
        self.assertIn("does not compile alone", self.problem("struct X {\nint x();\n"))

    def test_a_missing_file(self):
        self.assertIn("nowhere.h", self.problem('#include "nowhere.h"\n'))

    def test_a_module_that_is_not_built(self):
        self.assertIn("tells how to compile", self.problem("int x();\n", "trireme/other/x.h"))

    def test_torch_named_but_not_included(self):
        self.assertIn("names torch", self.problem("void f(const torch::Tensor&);\n"))
        self.assertIsNone(self.problem("int x();  // like torch::sum\n"))

    def test_torch_may_come_by_another_header(self):
        self.write("trireme/proc/tensors.h", "#include <torch/types.h>\n")
        self.write("trireme/proc/x.h", '#include "trireme/proc/tensors.h"\nvoid f(const torch::Tensor&);\n')
        self.assertTrue(headers_alone.leads_to_torch(self.root, Path("trireme/proc/x.h")))


if __name__ == "__main__":
    unittest.main()
