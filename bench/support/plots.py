"""Plots as SVG: bars, and lines over two logarithmic axes. Plain text without a library, so that a plot of the same
numbers has the same bytes. Each has a background of its own, and follows the reader's light or dark scheme."""

import math
from html import escape

WIDTH, MARGIN, LINE = 760, 24, 22
STYLE = """<style>
  .card { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328; font: 13px sans-serif } .title { font-weight: bold }
  .note { fill: #59636e } .ours { fill: #0969da } .peer { fill: #a9b4c0 } .grid { stroke: #d8dee4 }
  .line { fill: none; stroke-width: 2.5 } .line.ours { stroke: #0969da; fill: none } .line.peer { stroke: #818b98; fill: none }
  @media (prefers-color-scheme: dark) {
    .card { fill: #151b23; stroke: #3d444d } text { fill: #f0f6fc } .note { fill: #9198a1 } .ours { fill: #58a6ff }
    .peer { fill: #565f6b } .grid { stroke: #2f3742 } .line.ours { stroke: #58a6ff } .line.peer { stroke: #9198a1 }
  }
</style>"""


def picture(title, height, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>", STYLE,
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        text(MARGIN, 30, title, "title"), *parts, "</svg>", ""])


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def bars(title, groups):
    """Horizontal bars. `groups`: {heading: [(name, value, is ours)]}; the longest bar of each group has the same length."""
    names, most = 330, WIDTH - 330 - 90
    parts, y = [], 40
    for heading, rows in groups.items():
        y += LINE
        parts.append(text(MARGIN, y, heading, "note"))
        for name, value, ours in rows:
            y += LINE
            length = most * value / max(value for _, value, _ in rows)
            parts += [text(names - 8, y, name, anchor="end"),
                      f'<rect class="{"ours" if ours else "peer"}" x="{names}" y="{y - 13}" width="{length:.1f}" height="16" rx="2"/>',
                      text(names + length + 6, y, f"{value:g}")]
    return picture(title, y + MARGIN, parts)


def powers(values, base):
    """The whole powers that enclose the values."""
    return list(range(math.floor(math.log(min(values), base)), math.ceil(math.log(max(values), base)) + 1))


def lines(title, across, up, series):
    """`series`: {name: [(x, y)]}, the first of them ours; `across` and `up`: functions that label a position."""
    points = [point for line in series.values() for point in line]
    xs, ys = powers([x for x, _ in points], 2), powers([y for _, y in points], 10)
    left, right, top, bottom = 90, WIDTH - 110, 50, 330
    at_x = lambda x: left + (right - left) * (math.log2(x) - xs[0]) / (xs[-1] - xs[0])
    at_y = lambda y: bottom - (bottom - top) * (math.log10(y) - ys[0]) / (ys[-1] - ys[0])
    parts = []
    for power in ys:
        y = at_y(10**power)
        parts += [f'<path class="grid" d="M{left} {y:.1f}H{right}"/>', text(left - 8, y + 4, up(10**power), "note", "end")]
    for power in xs[::4]:
        parts.append(text(at_x(2**power), bottom + 20, across(2**power), "note", "middle"))
    for i, (name, line) in enumerate(series.items()):
        path = "L".join(f"{at_x(x):.1f} {at_y(y):.1f}" for x, y in line)
        parts += [f'<path class="line {"peer" if i else "ours"}" d="M{path}"/>',
                  text(right + 8, at_y(line[-1][1]) + 4, name, "note" if i else "")]
    return picture(title, bottom + 40, parts)


def bytes_text(number):
    for unit in ("B", "KB", "MB"):
        if number < 1024:
            return f"{number:g} {unit}"
        number /= 1024
    return f"{number:g} GB"


def microseconds_text(number):
    return f"{number:g} us" if number < 1000 else f"{number / 1000:g} ms"
