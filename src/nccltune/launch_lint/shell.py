# SPDX-License-Identifier: Apache-2.0
"""Expand variables, arithmetic and some substitutions of a shell, as far as the text shows them.

Nothing is run. What cannot be known stays as it is written. What is assumed is stated.
"""

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from nccltune.launch_lint.words import (
    PLACEHOLDER,
    Word,
    is_open,
    split,
    substitution_end,
    whole_number,
    written,
)
from nccltune.model.errors import InputError
from nccltune.model.scale import count

_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_PARAMETER = re.compile(r"([A-Za-z_]\w*|[0-9])(?:(:?[-=])(.*))?", re.DOTALL)
_LONGEST_PART = 4096
"""Characters: of longer values no part is taken, as every cut of one may be tried."""
_PART = re.compile(r"([A-Za-z_]\w*)(%%?|##?|//?|:)(.*)", re.DOTALL)
_SLASH = re.compile(r"(?<!\\)/")
_ARRAY = re.compile(r"(#?)(?:([A-Za-z_]\w*)\[[@*]\]|[@*])(?::([0-9]{1,4})(?::([0-9]{1,4}))?)?")
"""`NAME[@]` or the arguments `@`; `#` before it counts, `:FROM:NUMBER` behind it takes a part."""
_FILTER = (
    r"(?:sort(?: -u)?|uniq|grep -v [\"']?(?:\^|login|batch)\S*|awk '\{ ?print \$1 ?\}'"
    r"|cut -d\S* ?\S* -f ?1)"
)
_COUNTER = r"(?:wc -l|sed -n [\"']?\$=[\"']?|awk [\"']END ?\{ ?print NR ?\}[\"']|grep -c \S+)"
_LINES = re.compile(
    rf"(?:{_COUNTER} <? ?(?P<counted>[^\s|]+)"
    rf"|(?:cat|less|{_FILTER}) <? ?(?P<listed>[^\s|]+)(?: ?\| ?{_FILTER})* ?\| ?{_COUNTER})"
    rf"(?: ?\| ?(?:xargs|tr -d ['\"] ?['\"]|{_FILTER}))*"
)
_COMMAS = r"paste -sd ?['\"]?,['\"]?"
_JOINED = re.compile(
    rf"(?:(?:cat <? ?(?P<cat>[^\s|]+)|echo \"\$\{{?(?P<name>\w+)\}}?\") ?\| ?"
    rf"(?:tr ['\"]?\\*n['\"]? ['\"]?,['\"]?|{_COMMAS}(?: -)?)"
    rf"|{_COMMAS} (?P<paste>[^\s|]+))(?: ?\| ?sed \S*,\$\S*)?"
)
"""The lines of a file or a variable, joined by commas."""
_GPUS = re.compile(
    r"(?:nvidia-smi (?:-L|--list-gpus|--query-gpu=\S+ --format=\S+)"
    r"|ls (?:-1 )?/dev/nvidia\[0-9\]\*)"
    r"(?: ?\| ?grep \S+)? ?\| ?wc -l"
)
_PATH_OF = re.compile(r"(?:which|command -v|type -P) ([\w./-]+)")
_HOSTNAMES = re.compile(r"scontrol show hostnames?(?: \S+)? ?\| ?wc -l")
LSF_HOSTFILE = "$LSB_DJOB_HOSTFILE"
OPERATORS_HOSTFILE = "/etc/mpi/hostfile"
"""The file in which the MPI Operator writes a line for each worker."""
_HOSTLIST = re.compile(r"\$\(\s*scontrol show hostnames?[^|]*\)")
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[([0-9]+)\]")
_OF_VARIABLE = re.compile(
    r"echo [\"']?\$\{?(\w+)\}?[\"']? *\| *"
    r"(?:tr [\"']?(?P<sign>[,;: ])[\"']? [\"']?\\n[\"']? *\| *)?wc -(?P<wc>[lw])"
)
"""The number of lines or words in a variable."""
_SEQ = re.compile(r"seq (?:-w )?(-?[0-9]{1,9})(?: (x?-?[0-9]{1,9}))?(?: (-?[0-9]{1,9}))?")
_SET_BY_JOB = ("SLURM_", "PBS_", "LSB_", "OMPI_", "PMI_", "FLUX_")
"""Beginnings of variables that a job has, so that their defaults do not apply."""
MAX_NUMBERS = 256
"""Maximum number of numbers that `seq` gives."""
MAX_DEPTH = 16
"""Maximum number of substitutions inside each other."""
MAX_LENGTH = 1 << 10
"""Maximum length of an arithmetic expression, and of a file of which lines are counted, in KiB."""


class ShellValue(NamedTuple):
    """The value of a variable, the assumptions behind it, and what `at_once` is of it."""

    text: str
    assumed: tuple[str, ...] = ()
    at_once: str = ""


class ShellScope(NamedTuple):
    """What a shell knows at a command.

    - `values`: variables that the text assigns.
    - `arrays`: arrays that the text assigns, `NAME=(...)`.
    - `nodes`, `gpus`: nodes of the allocation, None if unknown, and GPUs of a node.
    - `workers`: lines of the hostfile that the operator of an MPIJob writes, None for other jobs.
    - `files`: texts of the files that the script writes, or that the scheduler does.
    """

    values: dict[str, ShellValue]
    arrays: dict[str, tuple[str, ...]]
    nodes: int | None = None
    gpus: int = 8
    workers: int | None = None
    files: dict[str, str] | None = None

    def copy(self) -> "ShellScope":
        """Return the scope with copies of its variables."""
        files = dict(self.files or {})
        return self._replace(values=dict(self.values), arrays=dict(self.arrays), files=files)


def expanded(words: Iterable[Word], scope: ShellScope) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """Return the words as the program gets them, and the assumptions that were made.

    A word keeps the form in which it was written, unless it becomes several words.

    >>> (line,) = split("mpirun -n $((N*8)) $OPTIONS $UNKNOWN")
    >>> scope = ShellScope({"N": ShellValue("2"), "OPTIONS": ShellValue("-x A")}, {})
    >>> [word.text for word in expanded(line.words, scope)[0]]
    ['mpirun', '-n', '16', '-x', 'A', '$UNKNOWN']
    """
    result: list[Word] = []
    assumed: list[str] = []
    for word in words:
        if "$" not in word.raw and "`" not in word.raw:
            result.append(word)
            continue
        texts = _Expansion(scope, assumed).words(word.raw)
        result += [Word(texts[0], word.raw)] if len(texts) == 1 else map(written, texts)
    return tuple(result), tuple(dict.fromkeys(assumed))


def at_once(raw: str, scope: ShellScope | None) -> str:
    r"""Return a word, as it was written, without what its shell leaves for a later shell.

    >>> at_once(r"'$A'$L\$B", ShellScope({"L": ShellValue("$N $C", (), "$N")}, {}))
    ' $N B'
    """
    values = scope.values if scope is not None else {}
    now = _LATER.sub(lambda part: re.sub(r"\\.", " ", part[1] or " "), raw)
    return _READ.sub(lambda part: values[part[1]].at_once if part[1] in values else part[0], now)


_LATER = re.compile(r"(\"(?:\\.|[^\"\\])*\")|'[^']*'|\\.", re.DOTALL)
_READ = re.compile(r"\$\{?(\w+)\}?")


def here_text(text: str, scope: ShellScope | None = None) -> tuple[str, tuple[str, ...]]:
    r"""Return a text behind `<<` as the command reads it, and the assumptions that were made.

    Without a scope, keep all variables.

    >>> here_text(r"mpirun -n $((N*4)) -x A=\$B $C", ShellScope({"N": ShellValue("2")}, {}))
    ('mpirun -n 8 -x A=$B $C', ())
    """
    if scope is None:
        return re.sub(r"\\([$`\\])", r"\1", text), ()
    assumed: list[str] = []
    return _Expansion(scope, assumed).inline(text), tuple(dict.fromkeys(assumed))


def file_text(name: str, folder: str = "") -> str | None:
    """Return the text of a small file, from the current folder or from `folder`, else None."""
    for path in (Path(name), Path(folder, name)):
        try:
            if path.is_file() and path.stat().st_size <= MAX_LENGTH << 10:
                return path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
    return None


def fields(text: str) -> list[str]:
    """Return the words of a value, in which an unknown substitution is a part of one word.

    >>> fields("-n $((NODES * 8)) -N 8")
    ['-n', '$((NODES * 8))', '-N', '8']
    """
    fields: list[str] = []
    at, is_inside = 0, False
    while at < len(text):
        stop = max(substitution_end(text, at), at + 1)
        if text[at].isspace():
            is_inside = False
        elif is_inside:
            fields[-1] += text[at:stop]
        else:
            fields.append(text[at:stop])
            is_inside = True
        at = stop
    return fields


class _Expansion:
    """Expand one word. Assumptions are added to `assumed`."""

    def __init__(self, scope: ShellScope, assumed: list[str]) -> None:
        self._scope = scope
        self._assumed = assumed
        self._depth = 0

    def words(self, raw: str) -> list[str]:
        """Return the words that a shell makes of a word as it is written."""
        is_assignment = _ASSIGNS.match(raw) is not None
        if is_assignment and raw.partition("=")[2].startswith("("):
            return [raw]  # An array; `source.py` reads its words.
        parts = [""]
        is_word = False
        at = 0
        while at < len(raw):
            char = raw[at]
            if char == "'":
                stop = raw.find("'", at + 1)
                stop = len(raw) if stop < 0 else stop
                parts[-1] += raw[at + 1 : stop]
                at, is_word = stop + 1, True
            elif char == '"':
                stop = self._double(raw, at + 1, parts)
                # An empty "$@" or "${A[@]}" is no word, other than "".
                is_word = is_word or self._array(raw[at + 1 : stop - 1]) != ()
                at = stop
            elif char == "\\":
                parts[-1] += raw[at + 1 : at + 2]
                at, is_word = at + 2, True
            elif (stop := substitution_end(raw, at)) > at:
                found = self._value(raw[at:stop])
                if found is None or is_assignment:
                    pieces = [raw[at:stop] if found is None else found]
                else:
                    whole = PLACEHOLDER.sub(lambda one: one[0].replace(" ", "\0"), found)
                    pieces = [piece.replace("\0", " ") for piece in fields(whole)]
                parts[-1] += "".join(pieces[:1])
                parts += pieces[1:]
                at, is_word = stop, is_word or bool(pieces)
            else:
                parts[-1] += char
                at, is_word = at + 1, True
        return parts if is_word else []

    def _double(self, raw: str, at: int, parts: list[str]) -> int:
        """Add the text in double quotes that begins at `at`, and return the index behind it."""
        while at < len(raw) and raw[at] != '"':
            if raw[at] == "\\" and raw[at + 1 : at + 2] in ('"', "\\", "`", "$"):
                parts[-1] += raw[at + 1]
                at += 2
            elif (stop := substitution_end(raw, at)) > at:
                source = raw[at:stop]
                if (items := self._array(source)) is not None:
                    parts[-1] += "".join(items[:1])
                    parts += items[1:]
                else:
                    found = self._value(source)
                    parts[-1] += source if found is None else found
                at = stop
            else:
                parts[-1] += raw[at]
                at += 1
        return at + 1

    def inline(self, text: str) -> str:
        """Return a text with the substitutions that are known."""
        out, at = "", 0
        while at < len(text):
            stop = substitution_end(text, at)
            if text[at] == "\\" and text[at + 1 : at + 2] in ("$", "`", "\\"):
                out, at = out + text[at + 1], at + 2
            elif stop > at:
                found = self._value(text[at:stop])
                out, at = out + (text[at:stop] if found is None else found), stop
            else:
                out, at = out + text[at], at + 1
        return out

    def _assume(self, sentence: str) -> None:
        self._assumed.append(sentence)

    def _value(self, source: str) -> str | None:
        """Return the value of a substitution, or None if it is unknown."""
        if self._depth >= MAX_DEPTH:
            return None
        self._depth += 1
        found = self._evaluate(source)
        self._depth -= 1
        return found

    def _evaluate(self, source: str) -> str | None:
        if source.startswith("$((") and source.endswith("))"):
            return self._arithmetic(source[3:-2])
        if source.startswith("$("):
            return self._command(source[2:-1])
        if source.startswith("`"):
            return self._command(source[1:-1])
        inner = source[2:-1] if source.startswith("${") else source[1:]
        if (array := _ARRAY.fullmatch("#@" if inner == "#" else inner)) is not None:
            items = self._items(array)
            if items is None or not array[1]:
                return None if items is None else " ".join(items)
            if len(items) == 1 and _HOSTLIST.fullmatch(items[0]) and self._scope.nodes is not None:
                return str(self._scope.nodes)
            is_known = not any(map(is_open, items))
            return str(len(items)) if is_known else None
        if (element := _ELEMENT.fullmatch(inner)) is not None:
            items = self._scope.arrays.get(element[1], ())
            place = whole_number(element[2])
            is_known = not any("$(" in item or "`" in item for item in items)
            return items[place] if place is not None and place < len(items) and is_known else None
        match = _PARAMETER.fullmatch(inner)
        if match is None:
            return self._part(inner)
        value = self._variable(match[1])
        sign = match[2] or ""
        if value is not None and (value or not sign.startswith(":")):
            return value
        if not sign or match[1].startswith(_SET_BY_JOB):
            return value
        default = " ".join(self.words(match[3]))
        if is_open(default):
            return None
        self._assume(f"{match[1]} is not set: {source} is {default or 'empty'}")
        return default

    def _part(self, inner: str) -> str | None:
        """Return a part of a known value: `NAME%END`, `NAME#START`, `NAME/OLD/NEW`, `NAME:N`."""
        match = _PART.fullmatch(inner)
        value = self._variable(match[1]) if match is not None else None
        if match is None or value is None or is_open(value) or len(value) > _LONGEST_PART:
            return None
        sign = match[2]
        rest, *new = ("".join(self.words(part)) for part in _SLASH.split(match[3], maxsplit=1))
        if sign == ":":
            first, _, length = (word.strip() for word in rest.partition(":"))
            try:
                at = int(first or 0)
                at = max(0, at + len(value)) if at < 0 else at
                end = int(length or len(value)) if length else len(value)
            except ValueError:
                return None
            return value[at : end if end < 0 or not length else at + end]
        old = "/".join((rest, *new)) if "/" not in sign else rest
        # `/#OLD/NEW` replaces at the beginning only, `/%OLD/NEW` at the end.
        anchor = old[:1] if sign == "/" and old.startswith(("#", "%")) else ""
        pattern = fnmatch.translate(old[len(anchor) :]).removesuffix(r"\Z").removesuffix(r"\z")
        pattern = {"#": r"\A" + pattern, "%": pattern + r"\Z"}.get(anchor, pattern)
        if not old:
            return value
        if "/" in sign:
            return re.sub(pattern, lambda _: "".join(new), value, count=int(sign == "/"))
        is_end, cuts = "%" in sign, list(range(len(value) + 1))
        # `%` and `##` try the cuts from the end of the value on: one drops least, the other most.
        cuts = cuts[::-1] if is_end == (len(sign) == 1) else cuts
        for cut in cuts:
            dropped, kept = value[cut:], value[:cut]
            dropped, kept = (dropped, kept) if is_end else (kept, dropped)
            if re.fullmatch(pattern, dropped):
                return kept
        return value

    def _array(self, source: str) -> tuple[str, ...] | None:
        """Return the words that a substitution of an array becomes in quotes, or None."""
        array = _ARRAY.fullmatch(source[1:].removeprefix("{").removesuffix("}"))
        return self._items(array) if array is not None and not array[1] else None

    def _items(self, array: re.Match[str]) -> tuple[str, ...] | None:
        """Return the words of an array or of the arguments, or None if they are unknown."""
        items = self._scope.arrays.get(array[2] or "@")
        if items is None or array[3] is None:
            return items
        # The arguments begin with 1, and `${@:0}` has the name of the script as well.
        first = int(array[3]) - (array[2] is None)
        last = None if array[4] is None else first + int(array[4])
        return items[first:last] if first >= 0 else None

    def _variable(self, name: str) -> str | None:
        found = self._scope.values.get(name)
        if found is None:
            return None
        self._assumed.extend(found.assumed)
        return found.text

    def _command(self, command: str) -> str | None:
        """Return the output of a command that counts something, or that only computes."""
        name = command.strip()
        if name.isidentifier() and name in self._scope.values:
            return self._variable(name)  # Kubernetes writes a variable so, a shell does not.
        if (counted := _OF_VARIABLE.fullmatch(name)) is not None:
            value = self._variable(counted[1])
            words = counted["wc"] == "w" or '"' not in name
            parts = (value or "").split(counted["sign"] or (None if words else "\n"))
            return None if value is None or is_open(value) else str(len(parts))
        text = " ".join(self.inline(name).split())
        if (joined := _JOINED.fullmatch(text) or _JOINED.fullmatch(name)) is not None:
            source, files = joined["cat"] or joined["paste"] or "", self._scope.files or {}
            written = files.get(source, files.get(source.rpartition("/")[2]))
            written = self._variable(joined["name"]) if joined["name"] else written
            end = "," * (" tr " in name and " sed " not in name)
            return ",".join(written.split()) + end if written and "$(" not in written else None
        if (path := _PATH_OF.fullmatch(text)) is not None:
            return path[1]
        if text.startswith("echo ") and "|" not in text and "$" not in text:
            return text.removeprefix("echo ").strip("\"'")
        sum_of = re.fullmatch(r"expr (.+)|echo \"?([^|\"]+)\"? ?\| ?bc", text)
        if sum_of is not None:
            return self._arithmetic((sum_of[1] or sum_of[2]).replace("\\", ""))
        lines = _LINES.fullmatch(text)
        if lines is not None:
            is_unique = "sort -u" in text or "uniq" in text
            name = (lines["counted"] or lines["listed"]).strip("\"'")
            if name == LSF_HOSTFILE and not (is_unique and "batch" in text):
                return None  # A line for each slot, and for the host of the batch script.
            return self._lines(name, is_unique)
        if (numbers := _SEQ.fullmatch(text)) is not None:
            return _sequence(*numbers.groups())
        if _HOSTNAMES.fullmatch(text) and self._scope.nodes is not None:
            return str(self._scope.nodes)
        if _GPUS.fullmatch(text):
            self._assume(f"a node has {count(self._scope.gpus, 'GPU')}: --gpus")
            return str(self._scope.gpus)
        return None

    def _lines(self, name: str, is_unique: bool) -> str | None:
        """Return the number of lines of a file, or None if the file is not here."""
        written = (self._scope.files or {}).get(name)
        if written is not None:
            lines = written.splitlines()
            return str(len(set(lines) if is_unique else lines))
        workers = self._scope.workers
        if workers is not None and name == OPERATORS_HOSTFILE:
            self._assume(f"{name} has a line for each of {count(workers, 'worker')}")
            return str(workers)
        if (text := file_text(name)) is None:
            return None
        number = text.count("\n")
        self._assume(f"{name} has {count(number, 'line')}, as here")
        return str(number)

    def _arithmetic(self, text: str) -> str | None:
        text = self.inline(text).strip()
        if "$" in text or len(text) > MAX_LENGTH:
            return None
        try:
            number = self._number(ast.parse(text, mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return None
        return None if number is None or abs(number) >= 1 << 63 else str(number)

    def _number(self, node: ast.expr) -> int | None:
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            return whole_number(self._variable(node.id) or "")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self._number(node.operand)
            return None if number is None else -number
        if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
            return None
        left, right = self._number(node.left), self._number(node.right)
        if left is None or right is None or max(abs(left), abs(right)) >= 1 << 63:
            return None
        return _ARITHMETIC[type(node.op)](left, right)


def _sequence(first: str, second: str | None, third: str | None) -> str | None:
    """Return the numbers of `seq LAST`, `seq FIRST LAST` or `seq FIRST STEP LAST`.

    A step `x2` doubles, as `for ((n=1; n<=8; n*=2))` does. None for more than `MAX_NUMBERS`.
    """
    low, step, last = ("1", "1", first) if second is None else (first, "1", second)
    if third is not None:
        step, last = second or "1", third
    number, end, by = int(low), int(last), int(step.removeprefix("x"))
    found: list[str] = []
    if by < 1 or (step.startswith("x") and (by < 2 or number < 1)):
        return None
    while number <= end:
        found.append(str(number))
        number = number * by if step.startswith("x") else number + by
        if len(found) > MAX_NUMBERS:
            return None
    return "\n".join(found)


def _divided(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.Mod: lambda left, right: left - right * _divided(left, right),
}


def assign(scope: ShellScope, word: Word, assumed: tuple[str, ...] = ()) -> str | None:
    """Store the assignment `NAME=VALUE`, `NAME+=VALUE` or `NAME=(...)`.

    `word` is expanded, and `assumed` are the assumptions of that. Return the name, or None for a
    word that assigns nothing.
    """
    match = _ASSIGNMENT.fullmatch(word.text)
    if match is None:
        return None
    name, more, text = match[1], bool(match[2]), match[3]
    if text.startswith("(") and text.endswith(")"):
        try:
            inner = [part for line in split(text[1:-1]) for part in line.words]
        except InputError:
            return None
        words, _ = expanded(inner, scope)
        before = scope.arrays.get(name, ()) if more else ()
        scope.arrays[name] = (*before, *(part.text for part in words))
        return name
    start = scope.values[name] if more and name in scope.values else ShellValue("")
    now = start.at_once + at_once(word.raw.partition("=")[2], scope)
    scope.values[name] = ShellValue(start.text + text, (*start.assumed, *assumed), now)
    return name


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
