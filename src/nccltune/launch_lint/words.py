# SPDX-License-Identifier: Apache-2.0
"""Split a shell text into commands and words. Each word keeps the form in which it was written."""

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nccltune.model.errors import InputError

_OPERATORS = frozenset("|&;<>")


def whole_number(text: str) -> int | None:
    """Return the value of a text of at most 18 ASCII digits, or None for any other text.

    `str.isdigit` alone also accepts characters such as a superscript 2, for which `int` fails, and
    `int` fails for thousands of digits.
    """
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def placeholder_in(value: Any) -> str | None:
    """Return a text of a manifest's field that somebody replaces before it is applied, or None.

    These are `$NAME` (envsubst), `<NAME>` and `__NAME__`. Commands and texts of several lines,
    which have their own, do not count.
    """
    if isinstance(value, dict):
        value = [inner for name, inner in value.items() if name not in ("command", "args", "value")]
    if isinstance(value, list):
        return next(filter(None, map(placeholder_in, value)), None)
    found = _REPLACED.search(value) if isinstance(value, str) and "\n" not in value else None
    return found[0] if found is not None else None


_REPLACED = re.compile(r"(?<!\$)\$(?:\{\w[^{}]*\}|[^\W\d]\w*)|\A<[\w-]+>\Z|\A__[A-Z][A-Z0-9_]*__\Z")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar of the known words, or None if none is similar."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return close[0] if close else None


class Word(NamedTuple):
    """A word as the program gets it (`text`) and as it was written (`raw`).

    Variables are not expanded.
    """

    text: str
    raw: str


class Line(NamedTuple):
    """The words of one command. `tail` is the pipe or redirection after the words."""

    words: tuple[Word, ...]
    tail: str


BLANK = Word(" ", "\\ ")
"""A backslash before blanks or a comment at a line's end: meant as a continuation, but none."""
PLACEHOLDER = re.compile(
    r"\{\{[^{}\n]*\}\}|(?<![\w${])\{[A-Za-z_](?:[\w./-]*\w)?\}(?!\w)"
    r"|(?<![\w$\]}{*?/.-])\[[#A-Za-z][\w #-]*[\w #]\](?![\w*?-])"
    r"|<\w+(?:\|\w+)+>|<(?:# ?)?\w(?:[^<>|&;\n\"'`$()]*[\w.)\-])?>(?=[\s:,/.@\"'\\)]|$)"
)
"""A word of a manual or a template in place of a value: `<hosts>`, `{{ np }}`, `[number]`."""
_COMMENT_CONTINUED = re.compile(r"^([ \t]*#[^\n]*)\\(?=\r?\n)", re.M)
_BLANK_BEFORE_END = re.compile(r"\\[ \t]+(?:#[^\n]*)?\r?\n")


def is_open(text: str) -> bool:
    """Return whether a text has a part that is not known here: `$N`, `<hosts>`, `{{ np }}`."""
    is_computed = any(sign in text for sign in ("$", "`", "<("))
    return is_computed or PLACEHOLDER.search(text) is not None


def quoted(text: str) -> Word:
    """Return the word `text`, quoted for a shell."""
    return Word(text, shlex.quote(text))


def split(text: str) -> list[Line]:
    """Return the commands of a shell text, in order.

    A line whose backslash is followed by blanks is continued, with the word `BLANK` at this place.
    Raises InputError if a quote is not closed.

    >>> [[word.text for word in line.words] for line in split("export A=1; mpirun 'a b'")]
    [['export', 'A=1'], ['mpirun', 'a b']]
    """
    lines: list[Line] = []
    words: list[Word] = []
    # The backslash at the end of a comment continues nothing.
    text = _COMMENT_CONTINUED.sub(r"\1", text)
    text = text.replace("\\\r\n", " ").replace("\\\n", " ")
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and (blank := _BLANK_BEFORE_END.match(text, at)) is not None:
            words.append(BLANK)
            at = blank.end()
        elif char in "\n;" or text.startswith(("&&", "||"), at):
            _end(lines, words, "")
            is_long = text.startswith(("&&", "||", ";;"), at)
            if text.startswith(";;", at):
                lines.append(Line((), ";;"))
            at += 2 if is_long else 1
        elif char in " \t\r" or (char == "(" and not text.startswith("((", at)):
            at += 1
        elif char == ")":
            _end(lines, words, "")
            at += 1
        elif char == "#":
            at = _to_line_end(text, at)
        elif _is_redirection(text, at) or (
            char in _OPERATORS and not (char == "<" and _is_word(text, at))
        ):
            stop = _tail_end(text, at)
            _end(lines, words, text[at:stop].rstrip())
            at = stop
        else:
            word, at = _word(text, at)
            words.append(word)
    _end(lines, words, "")
    return lines


def _end(lines: list[Line], words: list[Word], tail: str) -> None:
    if words:
        lines.append(Line(tuple(words), tail))
        words.clear()


def _to_line_end(text: str, at: int) -> int:
    stop = text.find("\n", at)
    return len(text) if stop < 0 else stop


def _is_redirection(text: str, at: int) -> bool:
    """Return whether digits at `at` belong to a redirection: `2>file`."""
    stop = at
    while stop < len(text) and text[stop] in "0123456789":
        stop += 1
    return stop > at and stop < len(text) and text[stop] in "<>"


def _is_word(text: str, at: int) -> bool:
    """Return whether `<` at `at` begins a placeholder, or the file of `<(COMMAND)`."""
    return text.startswith("<(", at) or PLACEHOLDER.match(text, at) is not None


def _tail_end(text: str, at: int) -> int:
    """Return the end of a pipe or a redirection, where the next command starts."""
    while at < len(text) and text[at] not in "\n;":
        if text.startswith("&&", at) or text.startswith("||", at):
            break
        at = _word(text, at)[1] if text[at] in "'\"" else at + 1
    return at


def _word(text: str, at: int) -> tuple[Word, int]:
    start, out = at, ""
    while at < len(text):
        char = text[at]
        if char in "<{[" and (blank := PLACEHOLDER.match(text, at)) is not None:
            out, at = out + blank[0], blank.end()
            continue
        if text.startswith("<(", at):
            stop = _closing(text, at + 1)
            out, at = out + text[at:stop], stop
            continue
        if char in " \t\r\n)" or char in _OPERATORS:
            break
        if char == "'":
            stop = text.find("'", at + 1)
            if stop < 0:
                raise _unended(text, at)
            out, at = out + text[at + 1 : stop], stop + 1
        elif char == '"':
            part, at = _double(text, at)
            out += part
        elif char == "\\":
            out, at = out + text[at + 1 : at + 2], at + 2
        elif (stop := substitution_end(text, at)) > at:
            out, at = out + text[at:stop], stop
        elif char == "(" and _ARRAY.fullmatch(out):
            stop = _closing(text, at)
            out, at = out + text[at:stop], stop
        else:
            out, at = out + char, at + 1
    return Word(out, text[start:at]), at


_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")


def _double(text: str, at: int) -> tuple[str, int]:
    out, start = "", at
    at += 1
    while at < len(text):
        if text[at] == '"':
            return out, at + 1
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "`"):
            out, at = out + text[at + 1], at + 2
        elif text[at] == "\\":
            out, at = out + text[at : at + 2], at + 2
        elif (stop := substitution_end(text, at)) > at:
            out, at = out + text[at:stop], stop
        else:
            out, at = out + text[at], at + 1
    raise _unended(text, start)


def substitution_end(text: str, at: int) -> int:
    """Return the end of the substitution that starts at `at`, or `at` if none starts there.

    These are `$NAME`, `${...}`, `$(...)`, `$((...))` and text in backticks.

    >>> text = "$(wc -l < $(cat 'a)')) b"
    >>> text[: substitution_end(text, 0)]
    "$(wc -l < $(cat 'a)'))"
    """
    if text.startswith("$(", at):
        return _closing(text, at + 1)
    if text[at] == "`":
        stop = text.find("`", at + 1)
        return len(text) if stop < 0 else stop + 1
    if text.startswith("${", at):
        depth, at = 1, at + 2
        while depth and at < len(text):
            if text.startswith("${", at):
                depth, at = depth + 1, at + 2
            elif text.startswith("$(", at):
                at = _closing(text, at + 1)
            else:
                depth, at = depth - (text[at] == "}"), at + 1 + (text[at] == "\\")
        return min(at, len(text))
    match = _NAMED.match(text, at)
    return match.end() if match is not None else at


_NAMED = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?])", re.ASCII)


def _closing(text: str, at: int) -> int:
    """Return the index behind the `)` that closes the `(` at `at`, or the end of the text."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "'\"":
            stop = text.find(char, at + 1)
            at = len(text) if stop < 0 else stop + 1
            continue
        if char == "#" and text[at - 1].isspace():
            stop = text.find("\n", at)
            at = len(text) if stop < 0 else stop
            continue
        depth += (char == "(") - (char == ")")
        at += 2 if char == "\\" else 1
        if depth == 0:
            return at
    return len(text)


def _unended(text: str, at: int) -> InputError:
    return InputError(
        f"the quote that starts at {text[at : at + 20]!r} has no end", hint="close it"
    )


_PLAIN = re.compile(r"[\w@%+=:,./~*?\[\]{}-]*", re.ASCII)
_ACTIVE = re.compile(r"[$`~*?\[\]{}]")


def rewritten(text: str, pool: Sequence[Word]) -> Word:
    """Return the word `text`, written in the manner of the words in `pool`.

    A word of the pool with this text is kept as it was written. Else substitutions, globs and `~`
    that the shell resolves in such a word are not quoted in the new one.

    >>> rewritten("$DIR/gather_perf", [Word("$DIR/gatherperf", '"$DIR"/gatherperf')]).raw
    '"$DIR/gather_perf"'
    """
    same = next((word for word in pool if word.text == text), None)
    if same is not None and whole_number(text) is None:
        return same
    active = set(_ACTIVE.findall(text))
    like = next((word for word in pool if active & set(word.text)), None)
    if not active or like is None or "'" in like.raw or "\\" in like.raw:
        return quoted(text)
    return written(text, bare='"' not in like.raw)


def written(text: str, *, bare: bool = False) -> Word:
    """Return the word `text`, in which a shell resolves substitutions.

    With `bare`, the word has no quotes if it needs none, so that globs and `~` are resolved, too.
    """
    inert, kept, at = "", "", 0
    while at < len(text):
        stop = substitution_end(text, at)
        if stop > at:
            kept += text[at:stop]
        else:
            stop = at + 1
            inert += text[at]
            kept += f"\\{text[at]}" if text[at] in '"\\' else text[at]
        at = stop
    if bare and _PLAIN.fullmatch(inert):
        return Word(text, text)
    return Word(text, f'"{kept}"') if "$" in text or "`" in text else quoted(text)
