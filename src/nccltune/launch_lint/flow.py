# SPDX-License-Identifier: Apache-2.0
"""Find the loops, branches and functions of a shell text, and the texts that it has behind `<<`."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nccltune.launch_lint.words import Line, Word, split
from nccltune.model.names import listed

_MAX_DEPTH = 40


class ShellLoop(NamedTuple):
    """A loop. `head` is `for NAME in WORDS`, or the condition of `while` with its keyword."""

    head: Line
    body: "tuple[Node, ...]"


class Branches(NamedTuple):
    """The bodies of `if` or `case`, of which at most one runs; with `is_full` one does.

    `condition` is that of an `if` without `elif`.
    """

    bodies: "tuple[tuple[Node, ...], ...]"
    is_full: bool = False
    condition: tuple[Word, ...] = ()


class ShellFunction(NamedTuple):
    """A function and its body."""

    name: str
    body: "tuple[Node, ...]"


Node = Line | ShellLoop | Branches | ShellFunction
_ENDS = frozenset(listed("then do done fi elif else esac } ;; !"))


def nodes_of(lines: Sequence[Line]) -> tuple[Node, ...]:
    """Return the commands of a text, with those of loops, branches and functions inside them.

    A keyword without its counterpart is dropped.

    >>> (loop,) = nodes_of(split("for n in 1 2; do srun -N $n a; done"))
    >>> [word.text for word in loop.body[0].words]
    ['srun', '-N', '$n', 'a']
    """
    return _Reader(lines).all()


def lines_of(nodes: Sequence[Node]) -> Iterator[Line]:
    """Yield every line in a sequence of nodes, with the heads of loops."""
    for node in nodes:
        if isinstance(node, Line):
            yield node
        elif isinstance(node, Branches):
            for body in node.bodies:
                yield from lines_of(body)
        else:
            if isinstance(node, ShellLoop):
                yield node.head
            yield from lines_of(node.body)


class _Reader:
    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = list(lines)
        self._at = 0
        self._depth = 0

    def all(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while self._at < len(self._lines):
            nodes += self._block(frozenset())
        return tuple(nodes)

    def _first(self) -> str | None:
        """Return the first word of the next line as it is written, or None at the end."""
        if self._at >= len(self._lines):
            return None
        line = self._lines[self._at]
        return line.words[0].raw if line.words else line.tail

    def _take(self) -> None:
        """Drop the keyword at the beginning of the next line."""
        line = self._lines[self._at]
        if len(line.words) > 1:
            self._lines[self._at] = Line(line.words[1:], line.tail)
        else:
            self._at += 1

    def _block(self, ends: frozenset[str]) -> list[Node]:
        nodes: list[Node] = []
        self._depth += 1
        while (first := self._first()) is not None and first not in ends:
            nodes += self._statement(first)
        self._depth -= 1
        return nodes

    def _until(self, *ends: str) -> tuple[Node, ...]:
        body = tuple(self._block(frozenset(ends)))
        if self._first() in ends:
            self._take()
        return body

    def _statement(self, first: str) -> list[Node]:
        line = self._lines[self._at]
        if first in _ENDS:
            self._take()
            return []
        if self._depth < _MAX_DEPTH:
            if first == "if":
                return self._if()
            if first in ("for", "select", "while", "until"):
                return self._loop(line, is_list=first in ("for", "select"))
            if first == "case":
                return self._case(line)
            if first == "{":
                self._take()
                return list(self._until("}"))
            name = _function_name(line)
            if name is not None:
                texts = [word.raw for word in line.words]
                behind = line.words[texts.index("{") :] if "{" in texts else ()
                self._lines[self._at : self._at + 1] = [Line(behind, line.tail)] if behind else []
                if self._first() == "{":
                    self._take()
                return [ShellFunction(name, self._until("}"))]
        self._at += 1
        return [line]

    def _if(self) -> list[Node]:
        nodes: list[Node] = []
        bodies: list[tuple[Node, ...]] = []
        self._take()
        while True:
            nodes += (tests := self._until("then"))
            bodies.append(tuple(self._block(frozenset(("elif", "else", "fi")))))
            end = self._first()
            if end == "else":
                self._take()
                bodies.append(self._until("fi"))
            elif end is not None:
                self._take()
            if end != "elif":
                test = tests[0] if len(nodes) == 1 else None
                condition = test.words if isinstance(test, Line) else ()
                return [*nodes, Branches(tuple(bodies), end == "else", condition)]

    def _loop(self, line: Line, *, is_list: bool) -> list[Node]:
        self._at += 1
        before = [] if is_list else self._block(frozenset(("do",)))
        if self._first() != "do":
            return [line, *before]
        self._take()
        return [*before, ShellLoop(line, self._until("done"))]

    def _case(self, line: Line) -> list[Node]:
        """Return the branches of `case WORD in PATTERN) ... ;; esac`."""
        self._at += 1
        bodies = []
        has_pattern = len(line.words) > 3
        is_full = False
        while (first := self._first()) is not None and first != "esac":
            if not has_pattern:
                pattern = self._lines[self._at]
                is_full = is_full or pattern.words[:1] == (Word("*", "*"),)
                # What follows `a|b)` is in the tail, which begins with `|`.
                rest = pattern.tail.partition(")")[2] if pattern.tail.startswith("|") else ""
                self._lines[self._at : self._at + 1] = split(rest)
            has_pattern = False
            bodies.append(tuple(self._block(frozenset((";;", "esac")))))
            if self._first() == ";;":
                self._take()
        if self._first() == "esac":
            self._take()
        return [Branches(tuple(bodies), is_full)]


def _function_name(line: Line) -> str | None:
    texts = [word.raw for word in line.words]
    if texts and texts[0] == "function" and len(texts) > 1:
        return texts[1].rstrip("(")
    if len(texts) == 1 and re.fullmatch(r"[\w-]+\(", texts[0]):
        return texts[0][:-1]
    return None


_HERE = re.compile(
    r"<<-?[ \t]*([\"'\\]?)(\w+)[\"']?([^\n]*)\n(.*?)^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE
)
HERE = re.compile(r"__here_([0-9]+)__")
"""A word in place of a text behind `<<`."""


def without_here(text: str, first: int = 0) -> tuple[str, list[str]]:
    """Return a script in which a word stands for each text behind `<<`, and these texts.

    The words are numbered from `first` on. A text whose end is quoted gets a backslash before each
    `$`, as an equal text without quotes.

    >>> without_here("cat > hosts <<EOF\\na\\nEOF\\n")
    ('cat > hosts __here_0__\\n', ['a\\n'])
    """
    texts: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        texts.append(re.sub(r"([$`\\])", r"\\\1", match[4]) if match[1] else match[4])
        return f"__here_{first + len(texts) - 1}__{match[3]}"

    return _HERE.sub(replaced, text), texts


_COUNTING = re.compile(
    r"\bfor\s*\(\(\s*(\w+)\s*=\s*(\w+)\s*;\s*\1\s*(<=?)\s*([\w$]+)\s*;\s*"
    r"(?:\1\s*(\*|\+)=\s*([0-9]+)|\1\+\+|\+\+\1)\s*\)\)"
)


def with_lists(text: str) -> str:
    """Return a script in which `for ((i=A; i<B; i++))` is `for i in $(seq A 1 $((B - 1)))`."""

    def listed_one(match: re.Match[str]) -> str:
        name, low, less, high, sign, step = match.groups()
        last = f"$(( {high} - {int(less == '<')} ))"
        by = f"x{step}" if sign == "*" else step or "1"
        return f"for {name} in $(seq {low} {by} {last})"

    return _COUNTING.sub(listed_one, text)
