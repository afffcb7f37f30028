# SPDX-License-Identifier: Apache-2.0
"""Read a diff of two tables as two texts: the old lines, then the new ones."""

import re
from collections.abc import Iterable, Iterator

_MEASURED = r"[ \t|]*\d[\w.]*(?: ?[A-Za-z/]{1,5})?[ \t|,;]+\d.*$"
SIDES = ("old lines", "new lines")
"""The titles of both sides of a diff."""
_FILE = re.compile(r"(?:---|\+\+\+) [^\s|-]")
_OLD, _NEW = (re.compile(rf"^{sign}(?!{sign}){_MEASURED}", re.MULTILINE) for sign in ("-", r"\+"))


def is_diff(text: str) -> bool:
    """Return whether a text has rows of numbers behind `-` and others behind `+`."""
    return _OLD.search(text) is not None and _NEW.search(text) is not None


def is_added(text: str) -> bool:
    """Return whether a text has rows of numbers behind `+` alone: a diff of a new file."""
    return _OLD.search(text) is None and len(_NEW.findall(text)) > 1


def added_lines(blocks: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks without the sign of the lines that a diff adds."""
    for number, lines in blocks:
        yield number, [line.removeprefix("+") for line in lines]


def old_line(line: str) -> str:
    """Return a line of a diff without its sign."""
    return line[1:] if line[:1] in ("+", "-") else line


def sides_of_diff(blocks: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the old lines of a diff and then the new ones, each side below a title.

    Lines that both have are new at the next `+`, so that tables of both sides have places of their
    own. The names of the files are lines of neither.
    """
    lines = [(at, line) for number, block in blocks for at, line in enumerate(block, number)]
    lines = [(at, line) for at, line in lines if not _FILE.match(line)]
    new: list[tuple[int, str]] = []
    after = 0
    for at, line in reversed(lines):
        after = at if line[:1] == "+" else after
        new += [(max(at, after), line)] if line[:1] != "-" else []
    old = [(at, line) for at, line in lines if line[:1] != "+"]
    for title, side in zip(SIDES, (old, new[::-1]), strict=True):
        yield side[0][0], [f"## {title}"]
        for at, line in side:
            yield at, [old_line(line)]
