"""The programs and commands of the pages, compiled and run exactly as printed, and their output compared.

Programs are compiled with -Wall -Wextra besides, and a warning is an error.
"""
import os
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import installed_copy
import pages
from machines import machines, main
from trireme_test import TRIREME, Case

BUILD = Path(TRIREME).resolve().parents[1]
PATIENCE = 300  # a program with <torch/torch.h> takes half a minute to compile, on a busy machine several times that
HOST, FOLDER = "node1", "/home/you/job"  # what the pages call the machine and the folder
# What differs from run to run, and what stands for it when pages and runs are compared.
VARYING = ((r"\b\d+\.\d+ s\b", "# s"), (r"after \d+ ms\b", "after # ms"), (r"\b(pid|process) \d+", r"\1 #"),
           (r"127\.0\.0\.1:\d{5}", "127.0.0.1:#"), (r"\b(loss|accuracy) \d\.\d{3}\b", r"\1 #"),
           (r'"(pid|seconds)": [\d.e+-]+', r'"\1": #'), (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "#"))


def normal(line):
    for pattern, stand_in in VARYING:
        line = re.sub(pattern, stand_in, line)
    return line.rstrip()


def lines_of(text):
    return [normal(line) for line in text.splitlines() if line.strip()]


class PageCase(Case):
    """Walks through one page in a folder of its own, with an installed copy in the PATH."""

    def walk(self, path):
        self.prepare()
        blocks = pages.marked_blocks(pages.page(path))
        self.assertTrue([block for block in blocks if block.kind == "run"], f"{path}: nothing to run")
        last = None
        for block in blocks:
            place = f"{path}:{block.line}"
            if block.kind == "file":
                file = self.work / block.argument
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text)
                if file.suffix == ".py":
                    compile(block.text, place, "exec")  # programs of the peers are run by tests/interop
            elif block.kind == "run":
                last = self.run_block(place, block)
            else:
                self.compare(place, block, last)

    def prepare(self):
        installed = installed_copy.prefix(BUILD)
        self.work = self.folder / "job"
        self.work.mkdir()
        self.page_environment = {
            "PATH": f"{self.strict_compiler()}:{installed}/bin:{os.environ['PATH']}",
            "CXXFLAGS": " ".join(installed_copy.WARNINGS),  # what CMake adds
            "CMAKE_PREFIX_PATH": str(installed),
            "PKG_CONFIG_PATH": str(installed_copy.pkg_config_path(BUILD)),
            "CUDA_VISIBLE_DEVICES": "-1",  # the pages show a machine without GPUs
            "TRIREME_DATA_DIR": str(pages.ROOT / "examples/data"),  # 6,000 images; an installed package has 70,000
            "LC_ALL": "C.UTF-8"}

    def strict_compiler(self):
        """A folder with a g++ that is asked as users ask theirs: no warning may come from a page or from our headers."""
        folder = self.folder / "strict"
        folder.mkdir()
        wrapper = folder / "g++"
        options = (f"-I{installed_copy.precompiled(BUILD)}", "-Winvalid-pch", *installed_copy.WARNINGS)
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} {shlex.join(options)} "$@"\n')
        wrapper.chmod(0o755)
        return folder

    def run_block(self, place, block):
        script = f"set -euo pipefail\n{block.text}"
        result = self.start_command(["bash", "-c", script], env=self.page_environment, cwd=self.work).wait(PATIENCE)
        expected = re.fullmatch(r"(?:exit (\d+))?", block.argument)
        self.assertTrue(expected, f"{place}: run: {block.argument}?")
        self.assertEqual(result.code, int(expected[1] or 0), f"{place}{result}")
        return result

    def compare(self, place, block, result):
        shown = [line for line in lines_of(block.text) if line != "..."]
        missing = Counter(shown) - Counter(self.written(result.out + "\n" + result.err))
        self.assertFalse(missing, f"{place}: shown, but not written: {list(missing)}{result}")
        if "..." not in block.text.splitlines():
            extra = Counter(self.written(result.out)) - Counter(shown)
            self.assertFalse(extra, f"{place}: written, but not shown: {list(extra)}{result}")

    def written(self, text):
        text = text.replace(str(self.work.resolve()), FOLDER)
        return lines_of(re.sub(rf"\b{re.escape(os.uname().nodename)}\b", HOST, text))


class CloneCase(PageCase):
    """A page whose commands are typed in the root of a clone after `make build`, with build/bin in the PATH."""

    def prepare(self):
        super().prepare()
        (self.work / "configs").symlink_to(pages.ROOT / "configs")
        self.page_environment["PATH"] = f"{self.folder}/strict:{BUILD}/bin:{os.environ['PATH']}"


class Readme(PageCase):
    def test_readme(self):
        self.walk("README.md")


class Install(PageCase):
    def test_install(self):
        self.walk("docs/install.md")


class Launch(PageCase):
    def test_launch(self):
        self.walk("docs/launch.md")


class Spawn(PageCase):
    def test_spawn(self):
        self.walk("docs/spawn.md")


class Errors(PageCase):
    def test_errors(self):
        self.walk("docs/errors.md")


class Training(PageCase):
    def test_training(self):
        self.walk("docs/training.md")


class DataParallel(PageCase):
    def test_data_parallel(self):
        self.walk("docs/data_parallel.md")


class Collectives(PageCase):
    def test_collectives(self):
        self.walk("docs/collectives.md")


class Data(PageCase):
    def test_data(self):
        self.walk("docs/data.md")


class Model(PageCase):
    def test_model(self):
        self.walk("docs/model.md")


class Checkpoint(PageCase):
    def test_checkpoint(self):
        self.walk("docs/checkpoint.md")


class Train(CloneCase):
    def test_train(self):
        self.walk("docs/train.md")


class Export(CloneCase):
    def test_export(self):
        self.walk("docs/export.md")


class Infer(CloneCase):
    def test_infer(self):
        self.walk("docs/infer.md")


class Serve(CloneCase):
    def test_serve(self):
        self.walk("docs/serve.md")


class Watch(PageCase):
    def test_watch(self):
        self.walk("docs/watch.md")


class PortingPaddle(PageCase):
    def test_porting_paddle(self):
        self.walk("docs/porting_paddle.md")


class PortingPytorch(PageCase):
    def test_porting_pytorch(self):
        self.walk("docs/porting_pytorch.md")


class ChainReadme(CloneCase):
    def test_chain_readme(self):
        self.walk("test_tipc/README.md")

    def prepare(self):
        super().prepare()
        (self.work / "configs").unlink()  # files are added
        for name in ("configs", "test_tipc"):
            shutil.copytree(pages.ROOT / name, self.work / name, ignore=shutil.ignore_patterns("output"))


class Chain(PageCase):
    def test_chain(self):
        self.walk("test_tipc/docs/test_train_inference_cpp.md")


class ChainOfMachines(PageCase):
    """A page whose commands are typed on two machines at once; its output is the first one's."""

    def test_chain_of_machines(self):
        with machines(("alpha", "beta"), self.folder) as self.machines:
            self.walk("test_tipc/docs/test_train_fleet_inference_cpp.md")

    def run_block(self, place, block):
        jobs = []
        for machine in self.machines:
            folder = self.work / machine.name
            folder.mkdir(exist_ok=True)
            command = machine.command(folder, "bash", "-c", f"set -euo pipefail\n{block.text}")
            jobs.append(self.start_command(command, env=self.page_environment))
        results = [job.wait(PATIENCE) for job in jobs]
        for result in results:
            self.assertEqual(result.code, 0, f"{place}{result}")
        return results[0]


class EveryPage(Case):
    def test_no_page_is_forgotten(self):
        """A page with something to run has its class above."""
        tested = re.findall(r'self\.walk\("(.*?)"\)', Path(__file__).read_text())
        marked = [pages.name_of(path) for path in pages.all_pages() if pages.marked_blocks(path.read_text())]
        self.assertEqual(sorted(tested), sorted(marked))

    def test_few_programs_need_libtorch(self):
        """Each takes 10 to 25 s to compile; most pages do with <trireme/store/job.h> and the like, or with a fragment."""
        programs = [f"{pages.name_of(path)}: {block.argument}" for path in pages.all_pages()
                    for block in pages.marked_blocks(path.read_text())
                    if block.kind == "file" and re.search(r"#include <(trireme/trireme\.h|torch/)", block.text)]
        self.assertLessEqual(len(programs), 14, programs)


if __name__ == "__main__":
    main()
