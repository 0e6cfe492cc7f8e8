"""The tables of docs/reliability.md, from matrix.py. Of the two, only the times have numbers that are measured.

    PYTHONPATH=tests/support python3 tests/faults/reliability_page.py     writes the table of the cells anew
"""

import re
import sys
from pathlib import Path

import matrix

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reliability.md"
sys.path.insert(0, str(ROOT / "bench/support"))
from report import replace, signed  # noqa: E402

PROMISES = (
    ("a crash, until the launcher of that node has ended", matrix.SAME_NODE),
    ("a crash, until the launcher of the other node has ended", matrix.OTHER_NODE),
    ("a cut link, until both launchers have ended", matrix.CUT_LINK),
    ("a killed launcher, until that of the other node has ended", matrix.LOST_LAUNCHER),
    ("a crash on one node, until the restarted job has taken a step", matrix.RESTART),
    ("a crash on two nodes, until the restarted job has taken a step", matrix.RESTART),
)


def cell_text(outcome, nodes):
    if isinstance(outcome, matrix.NoSense):
        return f"no cell: {outcome.why}"
    if isinstance(outcome, matrix.Elsewhere):
        file, name = outcome.test.split(" ")
        return f"{name.split('.')[0]} in `{file}`"
    if outcome.code == 0:
        return "the job goes on"
    if outcome.code < 0:
        return "all processes end within 2 s"
    first, other = outcome.bounds
    text = f"exit {outcome.code} within {first} s"
    return text if nodes == 1 or first == other else f"{text}, on the other node {other} s"


def cells_table():
    """Phases with the same outcomes share a row."""
    lines = ["| fault | phases | 1 node | 2 nodes |", "|---|---|---|---|"]
    for fault in matrix.FAULTS:
        rows = {}
        for phase in matrix.PHASES:
            texts = tuple(cell_text(matrix.outcome(fault, phase, nodes), nodes) for nodes in matrix.NODES)
            rows.setdefault(texts, []).append(phase)
        for texts, phases in rows.items():
            shown = "all" if len(phases) == len(matrix.PHASES) else ", ".join(phases)
            lines.append(f"| {fault} | {shown} | {' | '.join(texts)} |")
    return "\n".join(lines)


def times_table(longest):
    """With the longest time of each promise, or without any: None."""
    head = ["| from … until … | promised, s |", "|---|---:|"]
    rows = [f"| {what} | {bound} |" for what, bound in PROMISES]
    if longest is None:
        return "\n".join(head + rows)
    head = [head[0] + " longest, s |", head[1] + "---:|"]
    return "\n".join(head + [f"{row} {seconds:.2f} |" for row, seconds in zip(rows, longest)])


def block(mark):
    """What stands between <!-- faults:MARK --> and <!-- /faults:MARK -->."""
    return re.search(f"<!-- faults:{mark} -->\n(.*?)\n<!-- /faults:{mark} -->", PAGE.read_text(), re.S)[1]


def write(mark, text):
    replace(PAGE, f"<!-- faults:{mark} -->.*?<!-- /faults:{mark} -->",
            f"<!-- faults:{mark} -->\n{text}\n<!-- /faults:{mark} -->")


def write_times(longest):
    write("times", signed(times_table(longest), "tests/faults/matrix_soak_test.py --write"))


if __name__ == "__main__":
    write("cells", cells_table())
