"""A strict reader of Prometheus' text format 0.0.4: every family has its HELP and TYPE once and before its samples, which
stand together; names, labels and values are well formed; no series comes twice.

    samples, problem = read_metrics(text)          # {'trireme_rank_step{rank="0"}': 12.0}, None
"""

import re

HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) \S.*")
TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)")
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)((?:\{{{LABEL}(?:,{LABEL})*,?\}})?) (\S+)")
VALUE = re.compile(r"[-+]?(?:Inf|[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)|NaN")


class _Reader:
    def __init__(self):
        self.samples, self._families, self._family, self._type = {}, set(), None, None

    def take(self, line):
        """Whether the line may stand here."""
        return self._comment(line) if line.startswith("#") else self._sample(line)

    def _comment(self, line):
        if match := HELP.fullmatch(line):
            self._family, self._type = match[1], None
            new = match[1] not in self._families
            self._families.add(match[1])
            return new
        match = TYPE.fullmatch(line)
        if not match or match[1] != self._family or self._type:
            return False
        self._type = match[2]
        return self._type != "counter" or self._family.endswith("_total")

    def _sample(self, line):
        match = SAMPLE.fullmatch(line)
        if not match or match[1] != self._family or not self._type or not VALUE.fullmatch(match[3]):
            return False
        series = match[1] + match[2]
        new = series not in self.samples
        self.samples[series] = float(match[3].replace("Inf", "inf"))
        return new


def read_metrics(text):
    """The samples, and the first line that is wrong, or None."""
    reader = _Reader()
    if not text.endswith("\n"):
        return {}, "the last line has no end"
    for line in text[:-1].split("\n"):
        if not reader.take(line):
            return reader.samples, line
    return reader.samples, None
