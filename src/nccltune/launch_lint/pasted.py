# SPDX-License-Identifier: Apache-2.0
"""Find the commands in Markdown, in prose and in what a terminal shows."""

import re
from collections.abc import Iterator

from nccltune.launch_lint.read import is_command
from nccltune.launch_lint.words import Line, split
from nccltune.model.errors import InputError

_FENCED = re.compile(r"^[ >]*(```+|~~~+)[^`\n]*\n(.*?)^[ >]*\1", re.DOTALL | re.MULTILINE)
_DIRECTIVE = re.compile(r"^\s*#(?:SBATCH|PBS|BSUB|FLUX:)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]\n]{1,4096})\]\((?:https?:[^)\s]*|url|)\)")
_AT_HOST = r"(?:\([\w.-]+\) )?\[?[\w.-]+@[^\s#$%>]+(?: [^\s#$%>\]]+\]?)?[#$%>] ?"
_HOST_PROMPT = re.compile(rf"^[ \t]*{_AT_HOST}", re.MULTILINE)
_PROMPT = re.compile(rf"\s*(?:>\s+)?(?:{_AT_HOST}|\+{{1,3}} |[$%>] )?`?")
_NAMES = re.compile(
    r"\b(?:mpi(?:run|exec)|(?:pr|or)terun|srun|torchrun|torch\.|deepspeed|accelerate|flux|jsrun|aprun)"
    r"|_?p[er]+f\b"
)
"""What a line with a command names: a launcher, or a test that may be misspelt."""
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def scripts_of(text: str) -> list[str]:
    """Return the code blocks of a Markdown text, else the text, without links and prompts.

    A block with directives is a script of its own, and the others are one script.
    """
    blocks = [match[2] for match in _FENCED.finditer(text)] or [text]
    jobs = [block for block in blocks if _DIRECTIVE.search(block) is not None]
    rest = "\n".join(block for block in blocks if block not in jobs)
    return [_HOST_PROMPT.sub("", _LINK.sub(r"\1", part)) for part in (rest, *jobs) if part]


def commands_in(text: str) -> Iterator[Line]:
    r"""Yield the commands that lines of a text begin with, or that prose has between backticks.

    >>> [line.words[0].text for line in commands_in("It didn't run.\n[me@a ~]$ srun -n 8 x\n")]
    ['srun']
    """
    for line in _CONTINUED.sub(" ", _LINK.sub(r"\1", text)).splitlines():
        if _NAMES.search(line) is None:
            continue
        for part in (*_INLINE.findall(line), line):
            try:
                found = split(_PROMPT.sub("", part, count=1))
            except InputError:
                continue
            if found and is_command(found[0].words):
                yield found[0]
                break
