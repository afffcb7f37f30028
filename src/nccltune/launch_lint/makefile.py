# SPDX-License-Identifier: Apache-2.0
"""Read the recipes of a Makefile as a script."""

import re
from collections.abc import Iterator
from itertools import pairwise

from nccltune.launch_lint.finding import LaunchFinding, warning

_RULE = re.compile(
    r"^[\w.%/$()-]+(?: [\w.%/$()-]+)? *::?(?![:=/])[^\n=]*\n(?:[ \t]*(?:#[^\n]*)?\n)*\t", re.M
)
_ASSIGNED = re.compile(r"(export +)?([A-Za-z_]\w*) *(\?|::?|\+)?= *(.*?)(?: +#.*)?")
_DIRECTIVE = re.compile(r"(?:ifn?eq|ifn?def|else|endif|-?include|define|endef|unexport)\b")
_EXPORT = re.compile(r"\t *[@+-]* *(export(?: +[A-Za-z_]\w*=[^\s;&|]*)+) *")


def is_makefile(text: str) -> bool:
    """Return whether a text has a rule of make: a target, and a line behind a tab below it."""
    return not text.startswith("#!") and _RULE.search(text) is not None


def as_script(text: str) -> str:
    """Return a Makefile as a script; another text as it is.

    >>> as_script("NP ?= 16\\nrun:\\n\\t@mpirun -n $(NP) a\\n")
    'NP="16"\\n#run:\\nmpirun -n ${NP} a\\n'
    """
    if not is_makefile(text):
        return text
    lines = []
    for line in re.sub(r"\\\n[ \t]*", " ", text).split("\n"):
        assigned = _ASSIGNED.fullmatch(line)
        if line.startswith("\t"):
            # What a line of its own exports is gone before the next one.
            lost = _EXPORT.fullmatch(line) and ".ONESHELL" not in text
            lines.append("" if lost else _for_shell(line.lstrip("\t @+-")))
        elif assigned is not None:
            export, name, sign, value = assigned.groups()
            plus = "+" if sign == "+" else ""
            value = (" " if plus else "") + re.sub(r'(["\\`])', r"\\\1", _for_shell(value))
            lines.append(f'{export or ""}{name}{plus}="{value}"')
        elif line.partition("#")[0].rstrip().endswith(":") or _DIRECTIVE.match(line):
            lines.append(f"#{line}")
        else:
            lines.append(line)
    return "\n".join(lines)


def _for_shell(text: str) -> str:
    """Return a text of make as a shell has it. Names in small letters may be commands."""
    text = re.sub(r"\$\(([A-Z_]\w*)\)", r"${\1}", text.replace("$(shell ", "$("))
    return text.replace("$$", "$")


def lost_exports(text: str) -> Iterator[LaunchFinding]:
    """Find `export A=1` as a line of a recipe, before others: each line has its own shell."""
    if not is_makefile(text) or ".ONESHELL" in text:
        return
    lines = re.sub(r"\\\n[ \t]*", " ", text).split("\n")
    for line, following in pairwise(lines):
        match = _EXPORT.fullmatch(line)
        if match is not None and following.startswith("\t"):
            yield warning(
                "export-lost",
                f"{match[1]}: make runs each line of a recipe in a shell of its own, so that the"
                " next line does not have it",
                "write it above the rule without the tab, or join the lines by '&& \\'",
            )
