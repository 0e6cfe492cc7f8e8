"""What a project gets from an installed copy: by find_package and by pkg-config, with and without libtorch."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trireme_test import ROOT, TRIREME, Case, main

sys.path.insert(0, str(ROOT / "tests/docs"))
import installed_copy
import pages

BUILD = Path(TRIREME).resolve().parents[1]
PREFIX = installed_copy.prefix(BUILD)
PATIENCE = 300
TORCH = r"torch|c10|cuda"

JOB = """
#include <trireme/store/job.h>
#include <cstdio>

int main() { std::printf("rank %d\\n", trireme::connect_job().env.rank); }
"""
ENGINES = """
#include <trireme/deploy/infer/predictor.h>
#include <cstdio>

int main() {
  using namespace trireme::infer;
  for (EngineKind kind : {EngineKind::openvino, EngineKind::torch})
    std::printf("%s: %s\\n", to_string(kind), why_no_engine(kind).value_or("here").c_str());
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(downstream LANGUAGES CXX)
@before@
find_package(Trireme CONFIG REQUIRED @components@)
add_executable(program main.cc)
target_link_libraries(program PRIVATE @target@)
"""


def dynamic_entries(path):
    """Of an ELF file: what it needs and where it looks, as readelf prints them."""
    return subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout


class InstallCase(Case):
    def run_command(self, *command, code=0, **options):
        result = self.start_command([str(word) for word in command], **options).wait(PATIENCE)
        self.assert_ends(result, code)
        return result

    def configure(self, text, components="", target="Trireme::job", before="", prefix=PREFIX, code=0):
        project = PROJECT.replace("@before@", before).replace("@components@", components).replace("@target@", target)
        (self.folder / "CMakeLists.txt").write_text(project)
        (self.folder / "main.cc").write_text(text)
        return self.run_command("cmake", "-G", "Ninja", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", code=code)

    def built_by_cmake(self, text, **project):
        self.configure(text, **project)
        self.run_command("cmake", "--build", "build", "--verbose")
        return self.folder / "build/program"

    def flags(self, package):
        environment = {"PKG_CONFIG_PATH": installed_copy.pkg_config_path(BUILD)}
        return self.run_command("pkg-config", "--cflags", "--libs", package, env=environment).out.split()

    def built_by_pkg_config(self, text, package):
        (self.folder / "main.cc").write_text(text)
        flags = self.flags(package)
        self.assertNotRegex(" ".join(flags), TORCH)
        self.run_command("g++", "-std=c++20", "main.cc", *flags, "-o", "program")
        return self.folder / "program"

    def folder_beside(self):
        """On the file system of the installed copy, for hard links: no file is copied."""
        folder = Path(tempfile.mkdtemp(dir=PREFIX.parent))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def copy_without_libtorch(self):
        copy = self.folder_beside() / "copy"
        subprocess.run(["cp", "-al", PREFIX, copy], check=True)
        shutil.rmtree(copy / "lib/trireme/torch")
        return copy


class Job(InstallCase):
    def check(self, program):
        self.assertNotRegex(dynamic_entries(program), TORCH)
        self.assertEqual(self.run_command(program).out, "rank 0\n")

    def test_by_cmake(self):
        result = self.configure(JOB, components="COMPONENTS job")
        self.assertNotRegex(result.text, TORCH)  # it is not even looked for
        self.check(self.built_by_cmake(JOB, components="COMPONENTS job"))

    def test_by_pkg_config(self):
        self.check(self.built_by_pkg_config(JOB, "trireme-job"))


class Embedded(InstallCase):
    """A project that builds Trireme as a part of itself, as docs/install.md shows."""

    def project(self):
        blocks = pages.fenced_blocks(pages.page("docs/install.md"), "cmake")
        (text,) = (block for block in blocks if "FetchContent_Declare" in block)
        (self.folder / "hello.cc").write_text(JOB)
        (self.folder / "trireme").symlink_to(ROOT)
        return text

    def configured(self, text, **options):
        (self.folder / "CMakeLists.txt").write_text(text)
        self.run_command("cmake", "-G", "Ninja", "-B", "build", "-DCMAKE_UNITY_BUILD=ON", **options)
        return (self.folder / "build/CMakeCache.txt").read_text()

    def test_the_job_without_libtorch(self):
        cache = self.configured(self.project())
        self.assertRegex(cache, r"(?m)^CMAKE_BUILD_TYPE:STRING=$", "it is the project's own affair")
        self.assertRegex(cache, r"(?m)^TRIREME_DEVELOPER:BOOL=OFF$")
        self.run_command("cmake", "--build", "build", "--target", "hello")
        self.assertNotRegex(dynamic_entries(self.folder / "build/hello"), TORCH)
        self.assertEqual(self.run_command(self.folder / "build/hello").out, "rank 0\n")

    def test_with_libtorch_it_is_configured(self):
        """Compiling it would take as long as `make build`."""
        text = re.sub(r"(?m)^set\(TRIREME_WITH_TORCH.*\n", "", self.project()).replace("Trireme::job", "Trireme::trireme")
        named = ("HOME", "XDG_CACHE_HOME", "TRIREME_TORCH_DIR", "TRIREME_LIBTORCH")  # where setup.sh finds libtorch
        self.configured(text, env={name: os.environ[name] for name in named if name in os.environ})
        commands = self.run_command("ninja", "-C", "build", "-t", "commands", "hello").out
        self.assertRegex(commands, r"-isystem \S+/torch/include .*/hello\.dir/")


class Infer(InstallCase):
    def check(self, program):
        self.assertNotRegex(dynamic_entries(program), r"NEEDED.*(torch|c10|cuda|openvino)")
        self.assertEqual(self.run_command(program).out, "openvino: here\ntorch: here\n")

    def test_engines_are_found_by_cmake(self):
        self.check(self.built_by_cmake(ENGINES, components="COMPONENTS infer", target="Trireme::infer"))

    def test_engines_are_found_by_pkg_config(self):
        self.check(self.built_by_pkg_config(ENGINES, "trireme-infer"))

    def test_an_engine_whose_library_is_gone_says_so(self):
        """And not that the engine itself is."""
        prefix = self.copy_without_libtorch()
        program = self.built_by_cmake(ENGINES, components="COMPONENTS infer", target="Trireme::infer", prefix=prefix)
        self.assert_says(self.run_command(program), "^openvino: here$",
                         r"^torch: cannot load libtrireme_torch.so: lib\S+: cannot open shared object file")


class WithoutLibtorch(InstallCase):
    def test_what_needs_none_works(self):
        prefix = self.copy_without_libtorch()
        for components in ("", "COMPONENTS job infer"):
            program = self.built_by_cmake(JOB, components=components, prefix=prefix)
            self.assertEqual(self.run_command(program).out, "rank 0\n")
        self.assert_says(self.configure(JOB, prefix=prefix), "Trireme without Trireme::trireme .* no libtorch in")

    def test_what_needs_it_is_refused(self):
        prefix = self.copy_without_libtorch()
        result = self.configure(JOB, components="COMPONENTS trireme", prefix=prefix, code=1)
        self.assert_says(result, r"The component trireme needs libtorch: there\s+is no libtorch in", "TRIREME_TORCH_DIR")

    def test_an_unknown_component_is_refused(self):
        self.assert_says(self.configure(JOB, components="COMPONENTS jobs", code=1), "no component jobs", "there\\s+are: job")


class Torch(InstallCase):
    """A project with a find_package(Torch) of its own. The wheel's needs a CUDA toolkit, so this one stands for that of
    a libtorch zip: the same targets in the same layout."""

    CONFIG = """
        get_filename_component(TORCH_INSTALL_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
        add_library(c10 SHARED IMPORTED)
        set_target_properties(c10 PROPERTIES IMPORTED_LOCATION ${TORCH_INSTALL_PREFIX}/lib/libc10.so)
        add_library(torch_cpu SHARED IMPORTED)
        set_target_properties(torch_cpu PROPERTIES IMPORTED_CONFIGURATIONS RELEASE
          IMPORTED_LOCATION_RELEASE ${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so
          INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
          INTERFACE_INCLUDE_DIRECTORIES ${TORCH_INSTALL_PREFIX}/include INTERFACE_LINK_LIBRARIES c10)
        set(TORCH_LIBRARIES torch_cpu)
        """

    def own_libtorch(self):
        folder = self.folder_beside()
        own = folder / "libtorch"
        subprocess.run(["cp", "-al", PREFIX / "lib/trireme/torch", own], check=True)
        (folder / "nvidia").symlink_to(PREFIX / "lib/trireme/nvidia")
        (own / "share/cmake/Torch").mkdir(parents=True)
        (own / "share/cmake/Torch/TorchConfig.cmake").write_text(self.CONFIG)
        return own

    def project(self, own):
        return {"target": "Trireme::trireme ${TORCH_LIBRARIES}", "before": self.find(own)}

    def find(self, own):
        return f"find_package(Torch REQUIRED PATHS {own} NO_DEFAULT_PATH)"

    def test_a_program_has_one_libtorch(self):
        own = self.own_libtorch()
        program = self.built_by_cmake(JOB, **self.project(own))
        self.assertEqual(self.run_command(program).out, "rank 0\n")
        libraries = self.run_command("ldd", program).out
        self.assertEqual(re.findall(r"libtorch_cpu.so => (\S+)/libtorch_cpu.so", libraries), [f"{own}/lib"])

    def test_the_other_order_is_refused(self):
        result = self.configure(JOB, target="Trireme::trireme\n)\n" + self.find(self.own_libtorch()) + "\nset(X", code=1)
        self.assert_says(result, "Two libtorch in one project", r"Call\s+find_package\(Torch\) before")

    def test_another_version_is_refused(self):
        own = self.own_libtorch()
        header = own / "include/torch/headeronly/version.h"
        text = re.sub(r"(TORCH_VERSION_M\w+) \d+", r"\1 9", header.read_text())
        header.unlink()
        header.write_text(text)
        result = self.configure(JOB, **self.project(own), components="COMPONENTS trireme", code=1)
        self.assert_says(result, r"was built with\s+libtorch\s+\d+\.\d+\.\d+, but", r"is\s+9\.9\.\d+", "Torch_DIR")


class Language(InstallCase):
    def test_cxx17_is_one_clear_error(self):
        for header in ("trireme.h", "core/parallel_env.h", "store/job.h", "launch/spawn.h", "deploy/infer/predictor.h"):
            (self.folder / "main.cc").write_text(f"#include <trireme/{header}>\nint main() {{ trireme::spawn(1); }}\n")
            result = self.run_command("g++", "-std=c++17", "-fsyntax-only", f"-I{PREFIX}/include", "main.cc", code=1)
            errors = [line for line in result.err.splitlines() if "error:" in line]
            self.assertIn("Trireme needs C++20: compile with -std=c++20", errors[0], header)
            self.assertEqual([line for line in errors[1:] if "fatal error: trireme/stop" not in line], [], header)


class PlainModule(InstallCase):
    TEXT = """
        #include <trireme/trireme.h>
        struct Net : torch::nn::Module { torch::Tensor forward(torch::Tensor x) { return x; } };
        void parallel(trireme::World& world) { trireme::DataParallel model(Net(), world); }
        void model() { trireme::Model model{Net()}; }
        void step(torch::optim::SGD& sgd) { Net net; trireme::train::Step step(net, sgd); }
        """

    def test_the_compiler_says_what_to_write(self):
        (self.folder / "main.cc").write_text(self.TEXT)
        result = self.run_command("g++", "-std=c++20", "-fsyntax-only", f"-I{installed_copy.precompiled(BUILD)}",
                                  *installed_copy.WARNINGS, *self.flags("trireme"), "main.cc", code=1)
        self.assertEqual(len(re.findall(r"static assertion failed:.*\(std::make_shared<Net>", result.err)), 2, result)
        self.assert_says(result, "main.cc:5:.*required from here", "DataParallel needs a pointer to the module")


class Prefix(InstallCase):
    def secret_folders(self):
        """That other users may not be able to read, or that may be gone tomorrow."""
        where = [str(ROOT / "setup/setup.sh"), "where", "libtorch"]
        libtorch = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
        return [str(BUILD), str(ROOT), str(Path(libtorch).parent)]

    def test_nothing_refers_to_the_clone_or_the_cache(self):
        names = [name for pattern in ("*.cmake", "*.pc") for name in PREFIX.rglob(pattern)]
        self.assertGreater(len(names), 5)
        for name in names:
            for secret in self.secret_folders():
                self.assertNotIn(secret, name.read_text(), name)
        programs = [*PREFIX.glob("bin/trireme*"), *PREFIX.glob("lib/libtrireme_*.so")]
        self.assertGreater(len(programs), 7)
        for program in programs:
            for path in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic_entries(program)):
                self.assertRegex(path, r"^\$ORIGIN[^:]*(:\$ORIGIN[^:]*)*$", program)

    def test_every_user_may_read_it(self):
        closed = [path for path in (PREFIX, *PREFIX.rglob("*"))
                  if (path.stat().st_mode & 0o005) != (0o005 if path.is_dir() else path.stat().st_mode & 0o001 | 0o004)]
        self.assertEqual(closed, [])

    def test_converters_are_installed(self):
        for name in ("pth_to_safetensors", "pdparams_to_safetensors"):
            program = PREFIX / "bin" / name
            self.assertTrue(os.access(program, os.X_OK), program)
            self.assertEqual(program.read_text(), (ROOT / "tools" / f"{name}.py").read_text())


class CudaHeaders(InstallCase):
    """Which folder trireme_find_cuda_headers() takes."""

    def folder_with(self, name, *files):
        for file in files:
            path = self.folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def found(self, **environment):
        script = self.folder / "find.cmake"
        script.write_text(f"include({ROOT}/cmake/TriremeCudaHeaders.cmake)\n"
                          f"trireme_find_cuda_headers(FOUND {self.folder}/nvidia)\nmessage(\"${{FOUND}}\")\n")
        return self.run_command("cmake", "-P", script, env=environment).err.strip()

    def test_a_toolkit_goes_before_the_wheels(self):
        self.folder_with("nvidia/cu13/include", "cuda_runtime_api.h", "crt/host_defines.h")
        self.folder_with("toolkit/include", "cuda_runtime_api.h", "crt/host_defines.h")
        self.assertEqual(self.found(CUDA_HOME=self.folder / "toolkit"), str(self.folder / "toolkit/include"))

    def test_an_incomplete_folder_is_not_taken(self):
        self.folder_with("nvidia/cu13/include", "cuda_runtime_api.h")
        self.assertNotIn(str(self.folder), self.found())
        self.folder_with("nvidia/cu13/include", "crt/host_defines.h")
        self.assertIn("crt", [path.name for path in (self.folder / "nvidia/cu13/include").iterdir()])
        self.assertTrue(self.found().startswith((str(self.folder), "/usr/local/cuda")))


if __name__ == "__main__":
    main()
