# SPDX-License-Identifier: Apache-2.0
"""`NCCL_ALGO` and `NCCL_PROTO` in command lines, shell traces and echoed settings of a text.

Read are assignments (`-x NCCL_ALGO=Tree`, `env`, `--export=ALL,NCCL_ALGO=Tree`), the forms of hydra
and csh (`-genv NCCL_ALGO Tree`, `setenv NCCL_ALGO Tree`), `export` and `unset`.
"""

import re
from typing import NamedTuple

_NAMES = ("NCCL_ALGO", "NCCL_PROTO")
_ASSIGNMENT = re.compile(
    r"(?P<lead>(?:-g?env|setenv|--env)\s{1,8})?(?<![\w$])(?P<name>NCCL_(?:ALGO|PROTO))"
    r"(?:\s{0,3}[=:]\s{0,3}|(?(lead)\s{1,8}|(?!)))"
    r"(?:\"(?P<double>[^\"]{0,200})\"|'(?P<single>[^']{0,200})'"
    r"|(?P<bare>(?:(?!,\w+=)[^\s\"';)\]]){0,200}))"
)
_UNSET = re.compile(r"\bunset(?:env)?\b(?P<names>[^;|&]{0,200})")
_PERSISTENT = re.compile(r"\W{0,8}(?:export|setenv|declare -x|typeset -x|set -gx)\s")
_PROGRAM = re.compile(r"(?:^|[\s/;&|'\"])[a-z_]{3,20}_perf(?:_\w{1,20})?(?=[\s'\";]|$)")
_MOST_CHARACTERS = 1 << 16


class ForcedByCommand(NamedTuple):
    """What a command line sets for a run: NCCL's two settings and the line that sets them.

    `unknown` means that settings were in force for an earlier run of the file, or have a value that
    the text does not show, so that nothing is known of this run.
    """

    algorithms: str | None
    protocols: str | None
    line: int
    unknown: bool = False


class CommandLines:
    """The settings in force as the lines of one text go by."""

    def __init__(self) -> None:
        self._exported: dict[str, str] = {}
        self._block: dict[str, str] = {}
        self._line = 0
        self._used = False

    def observe(self, text: str, number: int) -> None:
        """Take in a line that is no log line and no row."""
        if "_perf" not in text and "NCCL_" not in text:
            return
        text = text[:_MOST_CHARACTERS]
        if "Collective test " in text:
            return
        unset = _UNSET.search(text)
        removed = [] if unset is None else [name for name in _NAMES if name in unset["names"]]
        found = {} if removed else _assignments(text)
        if not (removed or found or _PROGRAM.search(text)):
            return
        if self._used:
            self._block, self._used = {}, False
        for name in removed:
            self._exported.pop(name, None)
            self._block.pop(name, None)
        lasting = _PERSISTENT.match(text) is not None and _PROGRAM.search(text) is None
        (self._exported if lasting else self._block).update(found)
        if found:
            self._line = number

    def begin_run(self, *, again: bool) -> ForcedByCommand | None:
        """Return what was set for the run whose header starts now; None where nothing was.

        `again` means that an earlier run of the text is over. What was said once counts for the
        run behind it only: whether it holds for a later one is unknown.
        """
        stale = again and self._used and bool(self._block)
        self._used = True
        values = {**self._exported, **self._block}
        values = {name: value for name, value in values.items() if value}
        if not values:
            return None
        unknown = stale or any("$" in value for value in values.values())
        algorithms, protocols = (values.get(name) for name in _NAMES)
        return ForcedByCommand(algorithms, protocols, self._line, unknown)


def _assignments(text: str) -> dict[str, str]:
    """The value of each setting that a line assigns; the last counts, as in a shell."""
    found: dict[str, str] = {}
    for match in _ASSIGNMENT.finditer(text):
        value = match["double"] or match["single"] or match["bare"] or ""
        found[match["name"]] = value.strip().rstrip(",;:)]}.")
    return found
