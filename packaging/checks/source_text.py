# SPDX-License-Identifier: Apache-2.0
"""Extract the prose of a file: the text of a document, or the comments and strings of code."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^\s*(```|~~~)")
_INLINE_CODE = re.compile(r"(`+)[^`].*?\1")
_CPP = re.compile(
    r"""
      (?P<comment>//[^\n]*|/\*.*?\*/)
    | R"\((?P<raw>.*?)\)"
    | "(?P<string>(?:[^"\\\n]|\\.)*)"
    | '(?:[^'\\\n]|\\.)'
    """,
    re.VERBOSE | re.DOTALL,
)


class Passage(NamedTuple):
    """Some lines of prose, and the line of the file where they start."""

    line: int
    text: str


def passages(path: Path) -> Iterator[Passage]:
    """Yield the prose of a file.

    The suffix of the file selects the parser. A file with an unknown suffix has no prose.
    """
    read = _READERS.get(path.suffix)
    if read is not None:
        yield from read(path.read_text(encoding="utf-8"))


def _of_markdown(text: str) -> Iterator[Passage]:
    """Yield whole paragraphs without code, because a phrase may continue on the next line."""
    fenced = False
    block: list[str] = []
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = _FENCE.match(line) is not None
        fenced ^= fence
        if fence or fenced or line.startswith("    ") or not line.strip():
            if block:
                yield Passage(start, "\n".join(block))
            block = []
            continue
        if not block:
            start = number
        block.append(_INLINE_CODE.sub("`code`", line))


def _of_python(text: str) -> Iterator[Passage]:
    """Yield each block of adjacent comment lines, and each string that contains a blank."""
    comments: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if comments and line != last + 1:
            yield Passage(start, "\n".join(comments))
            comments = []
        if not comments:
            start = line
        comments.append(token.string.lstrip("# "))
        last = line
    if comments:
        yield Passage(start, "\n".join(comments))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Passage(node.lineno, re.sub(_INLINE_CODE, "`code`", node.value))


def _of_cpp(text: str) -> Iterator[Passage]:
    """Yield each block of adjacent comment lines, and each string that contains a blank."""
    comments: list[str] = []
    start = last = 0
    for match in _CPP.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["comment"] is None:
            words = match["string"] or match["raw"] or ""
            if " " in words:
                yield Passage(line, words)
            continue
        if comments and line != last + 1:
            yield Passage(start, "\n".join(comments))
            comments = []
        if not comments:
            start = line
        comments.append(match["comment"].lstrip("/* "))
        last = line
    if comments:
        yield Passage(start, "\n".join(comments))


_READERS = {".md": _of_markdown, ".py": _of_python} | dict.fromkeys(
    (".cc", ".h", ".c", ".cu", ".cuh"), _of_cpp
)
