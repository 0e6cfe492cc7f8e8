"""The names that a header of ours brings into namespace trireme, read from the text of it and of what it includes.

It is not a compiler: it knows the kinds of declarations that our headers have. Another kind is an error, so that no name
is missed.
"""
import re
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*"(trireme/[^"]+)"', re.M)
LITERAL = r"""(?P<literal>"(?:\\.|[^"\\\n])*"|(?<!\d)'(?:\\.|[^'\\\n])*')"""
NOISE = re.compile(LITERAL + r"|//[^\n]*|/\*.*?\*/|^\s*#(?:\\\n|[^\n])*|(?<=\d)'", re.M | re.S)
NAMESPACE = re.compile(r"(?:inline )?namespace ([\w:]+)$")
TYPE = re.compile(r"(?:enum class|enum|class|struct|union) (?:\[\[.*?\]\] )?([\w:]+)")
NEEDS_BODY = re.compile(r"\brequires(?: ?\([^()]*\))?$")  # a requires-expression
NO_NAME = re.compile(r"static_assert\b|template (?!<)|extern template\b|$")
GIVEN_NAME = re.compile(r"(?:using|concept|namespace) (\w+) =|using (?:[\w]+::)+(\w+)$")


def headers(root, first="trireme/trireme.h"):
    """{header: the one that includes it}: the first and all of ours that it leads to, relative to the root."""
    found, left = {}, [(first, None)]
    while left:
        header, includer = left.pop(0)
        if header not in found:
            found[header] = includer
            left += [(name, header) for name in INCLUDE.findall((Path(root) / header).read_text())]
    return found


def names_of(text):
    """What the text declares in namespace trireme itself: the names, and those of the namespaces inside it."""
    names, namespaces = set(), set()
    for scope, declaration in declarations(code_of(text)):
        inner = "::".join([*scope, *namespace_of(declaration)])
        if inner.startswith("trireme::"):
            namespaces.add(inner.split("::")[1])
        elif scope == ["trireme"]:
            names.add(name_of(declaration))
    return names - {None}, namespaces


def code_of(text):
    """Without comments, directives, and what literals hold."""
    return NOISE.sub(lambda match: '""' if match["literal"] else "", text)


def namespace_of(declaration):
    match = NAMESPACE.match(declaration)
    return match[1].split("::") if match else []


def declarations(code):
    """(namespaces around it, declaration without its body), one after the other. Also each namespace that begins."""
    scopes, head, depth = [], "", 0  # depth: of round brackets
    at = 0
    while at < len(code):
        char = code[at]
        at += 1
        depth += (char == "(") - (char == ")")
        if char == "{" and depth == 0 and namespace_of(normal(head)):
            yield sum(scopes, []), normal(head)
            scopes.append(namespace_of(normal(head)))
            head = ""
        elif char == "{":
            at = end_of_body(code, at)
            if depth == 0 and ends_with_body(normal(head)):
                yield sum(scopes, []), normal(head)
                head = ""
        elif char == "}":
            scopes.pop()
            head = ""
        elif char == ";" and depth == 0:
            yield sum(scopes, []), normal(head)
            head = ""
        else:
            head += char


def normal(head):
    return re.sub(r"\s+", " ", head).strip()


def end_of_body(code, at):
    depth = 1
    while depth > 0:
        depth += (code[at] == "{") - (code[at] == "}")
        at += 1
    return at


def ends_with_body(head):
    """A function ends with its body; a type or a value ends with the semicolon behind it."""
    plain = without_template(head)
    return "(" in plain and not TYPE.match(plain) and not re.search(r"(?<!operator)(?<![=!<>])=(?!=)", plain) \
        and not NEEDS_BODY.search(head)


def without_template(declaration):
    """Without `template <…>`, and without what angle brackets hold elsewhere."""
    while declaration.startswith("template <"):
        declaration = declaration[end_of_angles(declaration, len("template ")):].strip()
    while (start := re.search(r"(?<!operator)<", declaration)):
        declaration = declaration[:start.start()] + declaration[end_of_angles(declaration, start.start()):]
    return declaration


def end_of_angles(text, at):
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "<") - (text[place] == ">" and text[place - 1] != "-")
        if depth == 0:
            return place + 1
    return len(text)


def name_of(declaration):
    """The name, or None for a declaration that brings none: an operator, a member of something else."""
    plain = without_template(declaration)
    if NO_NAME.match(plain) or "operator" in plain:
        return None
    if (match := GIVEN_NAME.match(plain)):
        return match[1] or match[2]
    match = TYPE.match(plain) or re.match(r"[^=(]*?([\w:~]+) ?(?:=|\(|\[|$)", plain)
    if match is None:
        raise ValueError(f"cannot read this declaration: {declaration}")
    return None if "::" in match[1] else match[1]
