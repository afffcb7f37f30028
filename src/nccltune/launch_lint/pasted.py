# SPDX-License-Identifier: Apache-2.0
"""Find the commands in Markdown, in prose and in what a terminal shows."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from textwrap import dedent

from nccltune.launch_lint.options import SERVERS
from nccltune.launch_lint.read import WRAPPERS, is_command, launcher_at, program_at, read
from nccltune.launch_lint.words import Line, Word, split
from nccltune.model.errors import InputError
from nccltune.model.names import listed

_FENCED = re.compile(r"^[ >]*(```+|~~~+)[^`\n]*\n(.*?)^[ >]*\1", re.DOTALL | re.MULTILINE)
_CODE = r"^([ \t]*)\.\. (?:code|code-block|sourcecode|prompt)::"
_RST_CODE = re.compile(
    rf"(?:{_CODE}|^([ \t]*)(?!\.\.)[^\n]*::[ \t]*$)[^\n]*\n(?:[ \t]+:\w[^\n]*\n)*"
    r"((?:(?:(?:\1|\2)[ \t]+\S[^\n]*|[ \t]*)(?:\n|\Z))+)",
    re.MULTILINE,
)
"""A block of code of reStructuredText: behind its directive, or behind a line that ends in `::`."""
_DIRECTIVE = re.compile(r"^\s*#(?:SBATCH|PBS|BSUB|FLUX:)", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]\n]{1,4096})\]\((?:https?:[^)\s]*|url|)\)")
_BOLD = re.compile(r"(?<![\w*])\*\*([^\s*](?:[^*\n]*[^\s*])?)\*\*(?![\w*])")
_AT_HOST = r"(?:\[[\w.-]+\]|(?:\([\w.-]+\) )?\[?[\w.-]+@[^\s#$%>]+(?: [^\s#$%>\]]+\]?)?)[#$%>] ?"
_HOST_PROMPT = re.compile(rf"^[ \t]*(?:{_AT_HOST}|!(?=[a-z]))", re.MULTILINE)
_SECONDARY = re.compile(rf"(^[ \t]*(?:{_AT_HOST}|\$ ).*\\\n)> ?", re.MULTILINE)
_PROMPT = re.compile(rf"\s*(?:>\s+)?(?:{_AT_HOST}|\+{{1,3}} |[$%]?> ?|[$%] |[A-Z][a-z]+> )?`?")
_NAMES = re.compile(
    r"\b(?:mpi(?:run|exec)|(?:pr|or)terun|srun|torchrun|torch\.|deepspeed|accelerate|flux|jsrun|aprun)"
    r"|\b(?:llamafactory-cli|lmf|colossalai|horovodrun|(?:vllm|sglang) serve)\b|_?p[er]+f\b"
    r"|-m (?:sglang|vllm)\."
)
"""What a line with a command names: a launcher, or a test that may be misspelt."""
_VERSION = re.compile(r"\b(?:mpi(?:run|exec)|prterun|orterun|srun|torchrun) \([^()\n]*\)")
"""A launcher with its version or its maker in brackets, which a shell does not take."""
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_ASSIGNED = re.compile(r"\b[A-Za-z_]\w*=(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|\(([^()]*)\))")
_IS_LEAD = re.compile(rf"[A-Za-z_]\w*=|(?:{'|'.join(WRAPPERS)})$")
_PROSE = frozenset(
    listed("""
i we you it the this that please with when then is was and but to via by as using ran running tried
so because which instead there's there\u2019s \u2022
""")
)
"""Words of a sentence that are no word of a command."""


def unnumbered(text: str) -> str:
    r"""Return a listing without the numbers of its lines; another text as it is.

    >>> unnumbered(" 1#!/bin/sh\n 2\n 3set -e\n 4srun \\\n 5  a")
    '#!/bin/sh\n\nset -e\nsrun \\\n  a'
    """
    lines = [line for line in text.splitlines() if line.strip()]
    found = [match for line in lines if (match := _NUMBERED.match(line)) is not None]
    numbers = [int(match[2]) for match in found]
    steps = {later - before for before, later in pairwise(numbers)}
    if len(lines) < _MIN_NUMBERED or len(found) < len(lines) or not steps <= {1, 2, 3}:
        return text
    margins = (len(match[3]) for match in found if match.end() < len(match.string))
    margin = min(margins, default=0)
    pairs = zip(lines, found, strict=True)
    return "\n".join(line[match.end(1) + margin :] for line, match in pairs)


_NUMBERED = re.compile(r"([ \t]*(\d{1,4})(?:[ \t]*[|:](?!\S))?)([ \t]*)")
_MIN_NUMBERED = 5


def blocks_of(text: str) -> list[str]:
    """Return the code blocks of Markdown or of reStructuredText, else the whole text."""
    is_rst = re.search(_CODE, text, re.MULTILINE) is not None
    of, group = (_RST_CODE, 3) if is_rst else (_FENCED, 2)
    return [dedent(match[group]) for match in of.finditer(text)] or [text]


def _is_readable(text: str) -> bool:
    with contextlib.suppress(InputError):
        return bool(split(text))
    return False


def scripts_of(text: str) -> list[str]:
    """Return the code blocks of a page, else its text, without links and prompts.

    A block with directives is a script of its own, and the others are one script.
    """
    blocks = blocks_of(_BOLD.sub(r"\1", _VERSION.sub("", text)))
    # One block of another language leaves the others readable.
    blocks = [block for block in blocks if _is_readable(block)] or blocks
    jobs = [block for block in blocks if _DIRECTIVE.search(block) is not None]
    rest = "\n".join(block for block in blocks if block not in jobs)
    return [
        _HOST_PROMPT.sub("", _SECONDARY.sub(r"\1", _LINK.sub(r"\1", part)))
        for part in (rest, *jobs)
        if part
    ]


def commands_in(text: str) -> Iterator[tuple[Line, bool]]:
    r"""Yield the commands that lines of a text begin with, or that prose has between backticks.

    With each, return whether it is the value of a variable, behind which more may follow.

    >>> [one.words[0].text for one, _ in commands_in("It didn't run.\n[me@a ~]$ srun -n 8 x\n")]
    ['srun']
    """
    text = _BOLD.sub(r"\1", _LINK.sub(r"\1", _VERSION.sub("", text)))
    for line in _CONTINUED.sub(" ", text).splitlines():
        if _NAMES.search(line) is None:
            continue
        held = (re.sub(r"\\([$`\"\\])", r"\1", a) + b + c for a, b, c in _ASSIGNED.findall(line))
        parts = [(part, False) for part in (*_INLINE.findall(line), line)]
        for part, is_value in (*parts, *((part, True) for part in held)):
            try:
                found = split(_PROMPT.sub("", part, count=1))
            except InputError:
                continue
            if found and is_command(found[0].words):
                if part == line or is_value or has_program(found[0].words):
                    yield found[0], is_value
                break


def out_of_prose(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command that a sentence names, without the sentence; else the words unchanged.

    Return no word for a sentence that names a program, but no command.

    >>> (line,) = split("We ran srun -n 8 ./all_reduce_perf -g 1, and it hung")
    >>> [word.text for word in out_of_prose(line.words)]
    ['srun', '-n', '8', './all_reduce_perf', '-g', '1']
    """
    start = launcher_at(words)
    if start is None:
        start = program_at(words) or 0
    marks = [at for at, word in enumerate(words) if word.raw.lower().strip(",.:") in _PROSE]
    # What an option takes is a value, whatever its word.
    marks = [at for at in marks if at == 0 or not words[at - 1].text.startswith("-")]
    if not marks:
        return words
    end = next((at for at in marks if at > start), len(words))
    if marks[0] < start:
        while start and (_IS_LEAD.match(words[start - 1].text)):
            start -= 1
    else:
        start = 0
    *kept, last = words[start:end]
    if not any(word.text.startswith("-") for word in (*kept, last)):
        return ()
    found = (*kept, Word(last.text.rstrip(",.;:!?"), last.raw.rstrip(",.;:!?")))
    return found if has_program(found) else ()


def has_program(words: Sequence[Word]) -> bool:
    """Return whether a command that a sentence names has a program, and not only options."""
    with contextlib.suppress(InputError):
        found = read(Line(tuple(words), ""))
        programs = [command.program for command in found.values()]
        named = any(program and program[0].text.lower() not in _PROSE for program in programs)
        return named or any(flavor in SERVERS for flavor in found)
    return True
