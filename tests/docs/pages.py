"""The Markdown pages of the repository as data.

A comment line before a fenced block says what the tests do with it:

    <!-- file: hello.cc -->     the block is written to hello.cc in the page's folder
    <!-- run -->                the block is executed by bash; `run: exit 7` expects another exit code than 0
    <!-- output -->             the block shows what the command before it wrote: every line must be there. Unless a line
                                `...` stands for those left out, standard output must hold no other line.

Text between `<!-- generated: COMMAND -->` and `<!-- /generated -->` is the output of COMMAND.
"""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARKED_BLOCK = re.compile(r"^<!-- (file|run|output)(?:: ([^\n]*?))? -->\n```(\w*)\n(.*?)^```$", re.M | re.S)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
GENERATED = re.compile(r"(<!-- generated: (.*?) -->\n)(.*?)(<!-- /generated -->)", re.S)


@dataclass
class Block:
    kind: str      # file, run or output
    argument: str  # a file's name, "exit 7" or ""
    text: str
    line: int      # in the page


def all_pages():
    """Every page that users read, except those of third parties."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("test_tipc/**/*.md")])


def page(path):
    return (ROOT / path).read_text()


def name_of(path):
    return str(path.relative_to(ROOT))


def marked_blocks(text):
    return [Block(match[1], match[2] or "", match[4], text.count("\n", 0, match.start()) + 1)
            for match in MARKED_BLOCK.finditer(text)]


def fenced_blocks(text, language):
    return [match[2] for match in FENCED.finditer(text) if match[1] == language]


def without_fences(text):
    return FENCED.sub("", text)


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def anchors(text):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", without_fences(text), re.M)}


def table_under(text, heading):
    """The cells of the tables under a heading (up to the next heading), row by row."""
    section = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.M | re.S)
    rows = [line for line in section[2].splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
