#!/usr/bin/env python3
"""The layer check must find each kind of offence, at its line, and nothing in clean code."""
import tempfile
import unittest
from pathlib import Path

import check_layers


class CheckLayers(unittest.TestCase):
    def problems(self, path, text):
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            file = root / path
            file.parent.mkdir(parents=True)
            file.write_text(text)
            return [problem.replace(scratch + "/", "") for problem in check_layers.problems(root)]

    def assert_one(self, path, text, *words):
        found = self.problems(path, text)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_clean_code_passes(self):
        text = '#include "trireme/proc/x.h"\n#include <fmt/core.h>\n#include <poll.h>\n#include <vector>\n#include "trireme/core/fd.h"\n'
        self.assertEqual(self.problems("trireme/proc/x.cc", text), [])

    def test_a_layer_above_is_refused(self):
        self.assert_one("trireme/proc/x.cc", '\n#include "trireme/launch/plan.h"\n', "proc/x.cc:2:", "trireme/launch/plan.h", "parts core, proc")

    def test_torch_is_refused_in_the_launcher(self):
        self.assert_one("trireme/launch/x.h", "#include <torch/torch.h>\n", "x.h:1:", "torch/torch.h", "hwloc.h")

    def test_a_library_without_a_folder_is_refused(self):
        self.assert_one("trireme/proc/x.cc", "#include <httplib.h>\n", "httplib.h")

    def test_gloo_only_in_the_backends(self):
        self.assertEqual(self.problems("trireme/comm/backends/x.cc", "#include <gloo/barrier.h>\n"), [])
        self.assert_one("trireme/comm/x.cc", "#include <gloo/barrier.h>\n", "gloo/barrier.h")

    def test_gtest_only_in_tests(self):
        for file in ("x_test.cc", "test_support.h"):
            self.assertEqual(self.problems("trireme/core/" + file, "#include <gtest/gtest.h>\n"), [])
        self.assert_one("trireme/core/x.cc", "#include <gtest/gtest.h>\n", "gtest/gtest.h")

    def test_nobody_includes_the_program(self):
        self.assertEqual(self.problems("cli/x.cc", '#include "cli/commands.h"\n'), [])
        self.assert_one("trireme/launch/x.cc", '#include "cli/commands.h"\n', "cli/commands.h")

    def test_an_unknown_module_is_refused(self):
        self.assert_one("trireme/misc/x.h", "int x;\n", "misc/x.h", "no line in modules.txt")

    def names(self, *names):
        with tempfile.TemporaryDirectory() as scratch:
            for name in names:
                file = Path(scratch, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("")
            return [problem.replace(scratch + "/", "") for problem in check_layers.check_case(Path(scratch))]

    def test_names_that_differ_only_in_case(self):
        self.assertEqual(self.names("a/x.txt", "b/X.txt", "a/y.txt"), [])
        self.assertEqual(self.names("a/x.txt", "a/X.txt"),
                         ["a/X.txt: differs from a/x.txt only in case; rename one of them"])
        self.assertEqual(self.names("c/ResNet/x.txt", "c/resnet/x.txt", "c/resnet/y.txt"),
                         ["c/ResNet: differs from c/resnet only in case; rename one of them"])
        self.assertEqual(self.names("build/x", "build/X", "build-tsan/y", "build-tsan/Y", ".cache/a", ".cache/A"), [])

    def test_the_environment_is_read_in_one_file(self):
        call = 'auto* home = getenv("HOME");  // getenv\n'
        self.assert_one("trireme/proc/x.cc", call, "x.cc:1:", "trireme::env")
        self.assert_one("trireme/launch/x.cc", "extern char** environ;\n", "x.cc:1:")
        self.assertEqual(self.problems("trireme/core/env.cc", call), [])
        self.assertEqual(self.problems("trireme/core/x.cc", '// getenv\nauto s = "getenv(environ)";\n'), [])

    def test_nobody_sleeps(self):
        for call in ("std::this_thread::sleep_for(1s);", "usleep(10);", "::sleep(1);", "::poll(nullptr, 0, 5);",
                     "ppoll(nullptr, 0, &time, &mask);", "poll(NULL, 0, n);", "select(0, nullptr, nullptr, nullptr, &t);"):
            self.assert_one("tests/faults/x.cc", call + "\n", "x.cc:1:", "deadline")
        reason = "// layers: sleep ok, because the kernel offers no event here\n"
        self.assertEqual(self.problems("tests/faults/x.cc", reason + "usleep(10);\n"), [])
        for wait in ("::poll(&entry, 1, 5);", "poll(entries, 2, -1);", "column = result.select(0, 1);"):
            self.assertEqual(self.problems("tests/faults/x.cc", wait + "\n"), [])

    def test_fixed_width_integers_come_from_cstdint(self):
        self.assert_one("trireme/core/x.h", "#include <string>\nuint64_t n;\n", "x.h:", "<cstdint>")
        self.assertEqual(self.problems("trireme/core/x.h", "#include <cstdint>\nstd::uint64_t n;\n"), [])
        self.assertEqual(self.problems("trireme/core/x.h", "// an int64_t\n"), [])
        self.assertEqual(self.problems("trireme/nn/x.cc", "#include <torch/torch.h>\nint64_t n;\n"), [])

    def test_a_part_is_the_deepest_folder_of_the_table(self):
        self.assertEqual(self.problems("trireme/data/order/x.cc", '#include "trireme/core/text.h"\n'), [])
        self.assert_one("trireme/data/order/x.cc", '#include "trireme/data/loader.h"\n', "data/order may not")
        self.assertEqual(self.problems("trireme/comm/engine/shm/x.cc", "#include <emmintrin.h>\n"), [])

    def test_the_programs_are_checked_too(self):
        self.assert_one("apps/x.cc", '#include "trireme/launch/plan.h"\n', "apps may not include trireme/launch/plan.h")

    def table_problems(self, table, *folders):
        with tempfile.TemporaryDirectory() as scratch:
            for folder in folders:
                (Path(scratch) / folder).mkdir(parents=True)
            return list(check_layers.check_table(Path(scratch), table))

    def test_the_table_names_only_folders_that_exist(self):
        found = self.table_problems({"core": ([], []), "diag": (["core"], [])}, "trireme/core")
        self.assertEqual(len(found), 1, found)
        self.assertIn("diag: there is no such folder", found[0])

    def test_a_part_lists_only_what_stands_above_it(self):
        found = self.table_problems({"core": (["proc"], []), "proc": (["core"], [])}, "trireme/core", "trireme/proc")
        self.assertEqual(len(found), 1, found)
        self.assertIn("core: proc does not stand above it", found[0])


if __name__ == "__main__":
    unittest.main()
