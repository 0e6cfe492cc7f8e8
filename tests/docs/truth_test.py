"""What the pages say about the code is true: tables, links, options, exit codes, messages, numbers."""
import re
import shlex
import struct
import subprocess
from pathlib import Path

import generate
import pages
import public_names
from trireme_test import TRIREME, Case, main


def output(*words):
    return subprocess.run([TRIREME, *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def some(found, what):
    """The list of what was found: a check of nothing would always pass."""
    found = list(found)
    assert found, f"no {what} found: has the text or its place changed?"
    return found


def options_of(command):
    """The options that `trireme COMMAND` knows, with underscores."""
    screen = command in ("doctor", "top", "report")  # the others have more options than fit on one, or a table
    found = re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", output("help", command, *([] if screen else ["--markdown"])))
    return {re.sub(r"(?<=\w)-", "_", option) for option in some(found, f"options of {command}")}


def source_text(*patterns):
    return "\n".join(path.read_text() for pattern in patterns for path in some(sorted(pages.ROOT.glob(pattern)), pattern)
                     if not path.name.endswith("_test.cc"))


def png_size(path):
    """Width and height, from the header."""
    return struct.unpack(">II", path.read_bytes()[16:24])


OTHERS = {"--ipc", "--img_path", "--signal", "--net", "--shm_size"}  # options of programs not ours that the text names


class Generated(Case):
    def test_generated_parts_are_current(self):
        for path in pages.all_pages():
            text = path.read_text()
            self.assertEqual(text, generate.regenerated(text, TRIREME),
                             f"{pages.name_of(path)} is out of date; run tests/docs/generate.py")

    def test_the_tables_are_generated(self):
        for page, *commands in (("docs/launch.md", "trireme help launch --markdown"),
                                ("docs/environment.md", "trireme help environment"),
                                ("docs/train.md", "trireme help train --markdown"),
                                ("docs/data.md", "trireme help pack --markdown"),
                                ("docs/export.md", "trireme help export --markdown"),
                                ("docs/infer.md", "trireme help infer --markdown"),
                                ("docs/serve.md", "trireme help serve errors", "trireme help serve --markdown"),
                                ("test_tipc/README.md", "trireme help tipc --markdown")):
            self.assertEqual([match[2] for match in pages.GENERATED.finditer(pages.page(page))], commands, page)

    def test_every_variable_of_a_worker_is_listed(self):
        result = self.launch("-n", 2, "sh", "-c", "env -0 >env.$RANK")
        self.assert_ends(result, 0)
        listed = set(re.findall(r"^- `(\w+)`", pages.page("docs/environment.md"), re.M))
        own = set(self.environment()) | {"PWD", "OLDPWD", "SHLVL", "_"}
        for environment in self.worker_environments(2):
            self.assertEqual(set(environment) - own - listed, set())


class Links(Case):
    def links(self, path):
        return re.findall(r"\]\(([^)\s]+)\)", pages.without_fences(path.read_text()))

    def test_relative_links_resolve(self):
        links = [(path, link) for path in pages.all_pages() for link in self.links(path)]
        for path, link in some(((path, link) for path, link in links if not re.match(r"[a-z]+:", link)), "links"):
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            self.assertTrue(file.exists(), f"{pages.name_of(path)}: {link}")
            if anchor:
                self.assertIn(anchor, pages.anchors(file.read_text()), f"{pages.name_of(path)}: {link}")

    def test_every_page_is_reachable(self):
        """From README by the start page, whose one list has each page once; a row more leads to a part of a page."""
        start = pages.page("docs/README.md")
        self.assertTrue(start.startswith("# Documentation\n\n## What do you want to do?\n"), start[:80])
        self.assertIn("](docs/README.md)", pages.page("README.md"))
        rows = pages.table_under(start, "What do you want to do?")[1:]
        for row in rows:
            self.assertTrue(len(row) == 3 and all(row), row)
        links = [link for row in rows for link in re.findall(r"\]\(([^)\s]+)\)", row[1])]
        self.assertEqual([link for link in set(links) if links.count(link) > 1], [])
        for path in some((pages.ROOT / "docs").glob("*.md"), "pages"):
            if path.name != "README.md":
                self.assertIn(path.name, links)

    def test_readme_names_what_shows_a_job(self):
        for words in ("--dashboard", "trireme top", "trireme report", "--trace", "TensorBoard", "/metrics"):
            self.assertIn(words, pages.page("README.md"))

    def test_every_page_leads_to_the_next(self):
        """The last paragraph; test_relative_links_resolve follows its links."""
        for path in some((pages.ROOT / "docs").glob("*.md"), "pages"):
            last = path.read_text().rstrip().split("\n\n")[-1]
            leads = [link for link in self.links(path) if f"({link})" in last and not link.startswith((path.name, "#"))]
            self.assertTrue(last.startswith("Next: ") and leads, f"{path.name} does not end with `Next: [page](page.md)`")

    def test_nothing_is_left_open(self):
        for path in pages.all_pages():
            self.assertIsNone(re.search(r"\b(TBD|TODO|FIXME|XXX)\b", path.read_text()), pages.name_of(path))

    def test_files_that_are_named_exist(self):
        pattern = r"`((?:tests|setup|bench|trireme|cli|docs|examples)/[\w./-]+)`"
        named = [(path, name) for path in pages.all_pages() for name in re.findall(pattern, path.read_text())]
        for path, name in some(named, "names of files"):
            self.assertTrue((pages.ROOT / name).exists(), f"{pages.name_of(path)}: {name}")

    def test_the_walks_name_files_that_exist(self):
        page = pages.page("docs/architecture.md")
        walks = re.findall(r"^## (Walk \d: .*)$", page, re.M)
        self.assertEqual(len(walks), 5, walks)
        for walk in walks:
            for row in some(pages.table_under(page, walk)[1:], f"steps of {walk}"):
                self.assert_files(walk, some(re.findall(r"`([\w./]+\.(?:cc|h))`", row[1]), f"source file in {row}"))

    def assert_files(self, walk, names):
        """A name without a folder lies where the one before it lies."""
        folder = ""
        for name in names:
            found = [base for base in ("", "trireme/", folder) if (pages.ROOT / base / name).exists()]
            self.assertTrue(found, f"docs/architecture.md: {walk}: {name}")
            folder = str(Path(found[0], name).parent) + "/"


def own_options(words):
    """The options among the words before PROGRAM, with underscores."""
    for word in words:
        if word.startswith("./") or word.endswith(".py") or word in ("sh", "true", "trireme"):
            return
        if word.startswith("-"):
            yield re.sub(r"(?<=\w)-", "_", word.split("=")[0])


class Commands(Case):
    def command_lines(self):
        for path in pages.all_pages():
            for block in pages.fenced_blocks(path.read_text(), "sh"):
                for line in block.replace("\\\n", " ").splitlines():
                    yield pages.name_of(path), line.split("#")[0]

    def test_options_of_shown_commands_exist(self):
        known = {command: options_of(command) for command in ("launch", "doctor", "top", "report")}
        used = []
        for page, line in self.command_lines():
            shown = re.match(rf"\s*trireme ({'|'.join(known)}) (.*)", line)
            if shown and "|| true" not in line:  # the latter are wrong on purpose, and are run
                used += [(shown[1], option, f"{page}: {line}") for option in own_options(shlex.split(shown[2]))]
        for command, option, place in some(used, "options"):
            self.assertIn(option, known[command], place)

    def test_make_targets_exist(self):
        targets = set(re.findall(r"^([a-z-]+):", pages.page("Makefile"), re.M))
        named = [(path, target) for path in pages.all_pages()
                 for target in re.findall(r"(?:^|`)make ([a-z]+)", path.read_text(), re.M)]
        for path, target in some(named, "make targets"):
            self.assertIn(target, targets, f"{pages.name_of(path)}: make {target}")

    def test_options_in_the_text_exist(self):
        commands = ("launch", "doctor", "top", "train", "eval", "export", "infer", "pack", "serve", "tipc")
        known = set().union({"--option"}, *map(options_of, commands))
        named = [(path, option) for path in pages.all_pages()
                 for option in re.findall(r"`(--[a-z][a-z_-]*)[^`\n]*`", pages.without_fences(path.read_text()))]
        for path, option in some(named, "options"):
            self.assertIn("--" + option[2:].replace("-", "_"), known | OTHERS, f"{pages.name_of(path)}: {option}")


class ErrorsPage(Case):
    page = pages.page("docs/errors.md")

    def test_every_exit_code_is_listed(self):
        codes = re.findall(r"inline constexpr int k\w+ = (\d+);", pages.page("trireme/core/error.h"))
        codes += re.findall(r"^    return (\d\d);", pages.page("cli/run_main.h"), re.M)  # an internal error
        listed = [row[0] for row in pages.table_under(self.page, "Exit codes")]
        self.assertGreaterEqual(len(codes), 7)
        for code in codes:
            self.assertIn(code, listed)

    def test_every_cause_is_listed(self):
        text = source_text("trireme/launch/report/*.cc")
        causes = set(re.findall(r'cause = "(\w+)"', text)) | set(re.findall(r'^ +"([a-z_]+)",$', text, re.M))
        causes |= {"stopped", "unkillable"}
        listed = {row[0].strip("`") for row in pages.table_under(self.page, "How a worker failed")[1:]
                  if row[0].startswith("`")}
        self.assertEqual(listed, causes)

    def test_messages_are_in_the_sources(self):
        """Of a quoted message each part between `...` stands in some string of the sources."""
        source = source_text("trireme/**/*.cc", "trireme/**/*.h", "cli/*.cc")
        source = re.sub(r'"\s*\n\s*"', "", source).replace('\\"', '"')
        tables = [(self.page, "Messages between machines"), (self.page, "Messages in a program"),
                  (pages.page("docs/data_parallel.md"), "When something is wrong")]
        for page, heading in tables:
            for row in some(pages.table_under(page, heading)[1:], f"messages under {heading}"):
                for message in some(re.findall(r"`([^`]+)`", row[0]), f"message in {row}"):
                    for part in some(filter(str.strip, message.split("...")), f"words in {message}"):
                        self.assertTrue(part.strip() in source, f"{heading}: {message}: {part}")


class ApiPages(Case):
    """The pages of the C++ interface name what there is, and all of it."""

    def functions(self, header):
        return set(re.findall(r"^[\w:<>]+ (\w+)\((?:const|std|int|T)", pages.page(header), re.M))

    def test_every_collective_is_listed(self):
        page = pages.page("docs/collectives.md")
        plain = {name for name in self.functions("trireme/comm/collectives.h") if not name.endswith("_async")}
        self.assertGreaterEqual(len(plain), 15)
        for name in plain - {"isend", "irecv"}:
            self.assertRegex(page, rf"`{name}\b", f"{name} is not in docs/collectives.md")

    def fields(self, header, struct):
        body = re.search(rf"struct {struct} {{\n(.*?)^}};", pages.page(header), re.M | re.S)[1]
        return set(re.findall(r"^  [\w:<>]+(?:<.*>)? (\w+)(?: = [^;]+)?;", body, re.M))

    def test_every_option_is_listed(self):
        places = (("trireme/parallel/gradient_sync.h", "DataParallelOptions", "docs/data_parallel.md"),
                  ("trireme/parallel/sharded/shard_sync.h", "ShardedOptions", "docs/hybrid.md"),
                  ("trireme/data/loader.h", "LoaderOptions", "docs/data.md"),
                  ("trireme/parallel/init.h", "InitOptions", "docs/spawn.md"))
        for header, struct, page in places:
            fields = self.fields(header, struct)
            self.assertGreaterEqual(len(fields), 3, f"{struct}: {fields}")
            for field in fields:
                self.assertIn(f"| `{field}` |", pages.page(page), f"{struct}::{field} is not in {page}")

    def test_names_of_the_porting_tables_exist(self):
        """Qualified names, types and fields that docs/training.md puts beside those of PyTorch and Paddle."""
        headers = "\n".join(map(pages.page, [*public_names.headers(pages.ROOT), "trireme/io/format/events.h"]))
        declared = set(re.findall(r"\w+", public_names.code_of(headers))) | {"backward"}  # torch's
        for heading in ("From PyTorch", "From Paddle"):
            cells = [row[1] for row in pages.table_under(pages.page("docs/training.md"), heading)[1:]]
            shown = " ".join(code for cell in some(cells, heading) for code in re.findall(r"`([^`]+)`", cell))
            names = re.findall(r"(?:::|(?<![\w)])\.|\w\.)([a-z]\w+)|\b([A-Z]\w+)\b", re.sub(r'"[^"]*"', "", shown))
            self.assertIn(("load_safetensors", ""), names)
            self.assertEqual({lower or upper for lower, upper in names} - declared, set(), f"docs/training.md, {heading}")

    def test_every_backend_is_listed(self):
        names = re.search(r"kNames\[\] = {(.*?)}", pages.page("trireme/core/transport.cc"))[1]
        listed = {row[0].strip("`") for row in pages.table_under(pages.page("docs/collectives.md"), "Backends")[1:]}
        self.assertEqual(set(re.findall(r'"(\w+)"', names)) | {"nccl", "staged"}, listed)

    def test_every_room_is_described(self):
        described = [row[0].strip("`") for row in pages.table_under(pages.page("docs/architecture.md"), "Rooms")[1:]]
        rooms = [path.name for path in (pages.ROOT / "trireme").iterdir() if path.is_dir()]
        self.assertEqual(sorted(described), sorted(rooms))


class Numbers(Case):
    readme = pages.page("README.md")

    def bench(self, name):
        page = pages.page("docs/benchmarks.md")
        return re.search(rf"<!-- bench:{name} -->(.*?)<!-- /bench:{name} -->", page, re.S)[1]

    def test_readme_cites_the_launch_benchmark(self):
        """Milliseconds of Trireme, torchrun and Paddle, doing nothing and then training."""
        medians = [float(value) for value in re.findall(r"^\| `[^|]*` \| ([\d.]+) \|", self.bench("launch"), re.M)]
        self.assertEqual(len(medians), 6, "docs/benchmarks.md lacks rows; run `make bench` on an idle machine")
        for own, torchrun, paddle in (medians[:3], medians[3:]):
            mine = f"{own:.0f} ms" if own < 100 else f"{own / 1000:.2f} s"
            self.assertIn(f"| {mine} | {torchrun / 1000:.1f} s | {paddle / 1000:.1f} s |", self.readme,
                          "the table of README.md differs from docs/benchmarks.md")

    def test_readme_cites_the_allreduce_benchmark(self):
        row = re.search(r"^\| 26214400 \| ([\d.]+) \| ([\d.]+) \|", self.bench("allreduce"), re.M)
        self.assertTrue(row, "docs/benchmarks.md has no all_reduce table; run `make bench` on an idle machine")
        gloo, ours = map(float, row.groups())
        self.assertIn(f"[beside Gloo](docs/benchmarks.md#all_reduce): {gloo / ours:.1f} times as fast)", self.readme)

    def times_of_peers(self, place):
        """Our images a second divided by PyTorch's, torch.compile's and Paddle's."""
        row = r"^\| {}, {} \| {} \| .* \| ([\d.]+) x \|$"
        times = [re.search(row.format(*place, who), self.bench("step"), re.M)
                 for who in ("PyTorch eager, channels last", r"torch\.compile", "Paddle")]
        self.assertTrue(all(times), "docs/benchmarks.md has no table of steps; run `make bench` on an idle machine")
        return [float(one[1]) for one in times]

    def test_readme_cites_the_step_benchmark(self):
        """Of both networks, the one that gains little among them."""
        eager, compiled, paddle = self.times_of_peers(("mobilenet_v3_small", 64))
        slow = self.times_of_peers(("resnet50", 16))
        self.assertIn(f"[{eager:.1f} times the speed of PyTorch](docs/benchmarks.md#a-training-step), {compiled:.1f} times "
                      f"that of torch.compile, {paddle:.1f} times that of Paddle, and ResNet50 at {slow[0]:.2f}, "
                      f"{slow[1]:.2f} and {slow[2]:.2f} times", " ".join(self.readme.split()))

    def test_the_gpu_benchmark_is_cited_like_for_like(self):
        """Autocast beside autocast: PyTorch has no row with weights in bfloat16 (O2)."""
        table, gains = self.bench("gpu_step"), []
        for network in ("mobilenet_v3_small", "resnet50"):
            ours, theirs = (re.search(rf"^\| {network}, 256 \| {who} \| ([\d,]+) \|", table, re.M)
                            for who in (r"Trireme[:,] fused layers, (?:in a |CUDA )graph", "torch.compile, reduce-overhead"))
            self.assertTrue(ours and theirs, f"docs/benchmarks.md has no such rows of {network}")
            gains.append(int(ours[1].replace(",", "")) / int(theirs[1].replace(",", "")))
        self.assertIn(f"in autocast at batch 256, they train at [{gains[0]:.2f} and {gains[1]:.2f} times]"
                      "(docs/benchmarks.md#a-training-step-on-a-gpu) the speed of torch.compile",
                      " ".join(self.readme.split()))
        self.assertIn(f"MobileNetV3-small trains at {gains[0]:.2f} times and ResNet50 at {gains[1]:.2f} times the speed of "
                      "torch.compile", " ".join(pages.page("CHANGELOG.md").split()))

    def test_the_pages_say_when_a_second_sigterm_ends_a_process(self):
        number = re.search(r"number == SIGTERM \? ([\d']+)", pages.page("trireme/core/preemption.cc"))[1]
        seconds = ("no", "one", "two", "three", "four", "five")[int(number.replace("'", "")) // 10**9]
        told = [(path.name, when) for path in (pages.ROOT / "docs").glob("*.md")
                for when in re.findall(r"second SIGTERM,? (.{0,60})", " ".join(path.read_text().split()))]
        self.assertEqual({name for name, _ in told}, {"train.md", "checkpoint.md", "model.md"})
        for name, when in told:
            self.assertTrue(when.startswith(f"{seconds} seconds or more after the first"), f"{name}: {when}")

    def test_the_files_of_paddleclas_are_counted(self):
        """The rows of the table and the numbers in the sentences around it add up."""
        page = pages.page("docs/train.md")
        text = " ".join(page.split())
        total, run = map(int, re.search(r"\((\d+) at commit \w+\), (\d+) train", text).groups())
        refused = map(int, re.search(r"in (\d+) the network is not in the zoo, and in (\d+) an operator", text).groups())
        cells = [row[1] for row in pages.table_under(page, "PaddleClas' configurations and weights")[1:]]
        counts = [re.match(r"(?:all )?(\d+)", cell) for cell in some(cells, "rows")]
        self.assertEqual(sum(int(count[1]) if count else cell.count("`") // 2 for count, cell in zip(counts, cells)), run)
        self.assertEqual(run + sum(refused), total)


class FirstScreen(Case):
    """Of README: what people decide by."""

    screen = pages.page("README.md").split("\n## ")[0]

    def test_it_is_one_screen(self):
        """As it is seen: without the marks for tests, the picture and the addresses of links, no line too long."""
        seen = re.sub(r"^(?:<!-- .* -->|\[<img .*)\n", "", self.screen.rstrip() + "\n", flags=re.M)
        lines = re.sub(r"\]\([^)]*\)", "]", seen).splitlines()
        self.assertLessEqual(len(lines), 40)
        self.assertEqual([line for line in lines if len(line) > 120], [])

    def test_it_says_how_to_begin(self):
        self.assertIn("in a clone of this repository, `make demo`", self.screen)
        self.assertIn("after `make install`", self.screen)

    def test_it_shows_the_program_before_the_picture(self):
        parts = ("# Trireme", "| two processes", "```cpp", "```sh", "```text", "<img src=", "\n- ")
        places = [self.screen.find(part) for part in parts]
        self.assertNotIn(-1, places, dict(zip(parts, places)))
        self.assertEqual(places, sorted(places), dict(zip(parts, places)))

    def test_the_picture_is_small_and_says_what_it_shows(self):
        pictures = re.findall(r'<img src="([^"]*)" width="(\d+)"', self.screen)
        self.assertEqual(len(pictures), 1, pictures)
        self.assertEqual(len(re.findall(r"<img|!\[", self.screen)), 1)
        self.assertLessEqual(int(pictures[0][1]), 800)
        width, height = png_size(pages.ROOT / pictures[0][0])
        self.assertLess(height, 0.6 * width)
        self.assertIn(f'"{Path(pictures[0][0]).name}"', pages.page("tests/dashboard/browser_test.py"))
        self.assertIn("compute nothing", self.screen)  # its ranks are fake_trainer's


class Changelog(Case):
    def test_nothing_stands_twice(self):
        """A merge leaves halves of entries, and entries in two wordings."""
        newest = pages.page("CHANGELOG.md").split("\n## ")[1]
        for entry in some(re.split(r"^- ", newest, flags=re.M)[1:], "entries"):
            self.assertTrue(entry.split("\n###")[0].rstrip().endswith("."), f"not a whole entry: {entry}")
        words = newest.split()
        phrases = [" ".join(words[i:i + 6]) for i in range(len(words) - 5)]
        self.assertEqual({phrase for phrase in phrases if phrases.count(phrase) > 1}, set())


if __name__ == "__main__":
    main()
