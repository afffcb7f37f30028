# SPDX-License-Identifier: Apache-2.0
"""Read `NCCL_ALGO` and `NCCL_PROTO` from command lines, shell traces and echoed settings in a text.

Forms that are read:

- assignments: `-x NCCL_ALGO=Tree`, `env`, `--export=ALL,NCCL_ALGO=Tree`
- forms of hydra and csh: `-genv NCCL_ALGO Tree`, `setenv NCCL_ALGO Tree`
- `export` and `unset`
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
_LAUNCHER = re.compile(
    r"\b(?:mpirun|mpiexec|mpiexec\.hydra|orterun|prterun|srun|flux|jsrun|aprun|torchrun)\b"
)
_PROCESSES = re.compile(r"\s(?:-np|--np|-n|--ntasks|--n)[\s=]\s{0,8}(?P<count>\d{1,7})(?=\s|$)")
_MOST_CHARACTERS = 1 << 16


class CommandFound(NamedTuple):
    """The settings of a run in a command line, the number of that line, and the number of ranks.

    `unknown` means that the settings of this run are unknown. Either they were set for an
    earlier run of the file, or a value is a shell variable.
    """

    algorithms: str | None
    protocols: str | None
    line: int
    unknown: bool = False
    ranks: int | None = None


class CommandLines:
    """The settings in force at the current line of one text."""

    def __init__(self) -> None:
        self._exported: dict[str, str] = {}
        self._block: dict[str, str] = {}
        self._line = 0
        self._used = False
        self._ranks: int | None = None
        self._begun = ""

    def observe(self, text: str, number: int) -> None:
        """Process a line that is neither a log line nor a table row."""
        if "Collective test " in text:
            return
        # A command that continues in the next line is processed as a whole at its end.
        if text.rstrip().endswith("\\"):
            if len(self._begun) < _MOST_CHARACTERS:
                self._begun += text.rstrip()[:-1] + " "
            return
        text, self._begun = (self._begun + text)[:_MOST_CHARACTERS], ""
        if "_perf" not in text and "NCCL_" not in text:
            return
        unset = _UNSET.search(text)
        removed = [] if unset is None else [name for name in _NAMES if name in unset["names"]]
        found = {} if removed else _assignments(text)
        program = _PROGRAM.search(text)
        if not (removed or found or program):
            return
        if self._used:
            self._block, self._used, self._ranks = {}, False, None
        if program is not None:
            self._ranks = _ranks_of(text[: program.start()], text[program.end() :])
        for name in removed:
            self._exported.pop(name, None)
            self._block.pop(name, None)
        lasting = _PERSISTENT.match(text) is not None and program is None
        (self._exported if lasting else self._block).update(found)
        if found:
            self._line = number

    def begin_run(self, *, again: bool) -> CommandFound | None:
        """Return the settings and the number of ranks of the run whose header starts now.

        None if command lines show neither settings nor a number of ranks.

        `again` means that an earlier run of the text has ended. Settings that are not exported
        apply to the next run only. Whether they apply to a later run is unknown.
        """
        stale = again and self._used and bool(self._block)
        ranks = None if again and self._used else self._ranks
        self._used = True
        values = {**self._exported, **self._block}
        values = {name: value for name, value in values.items() if value}
        if not values:
            return None if ranks is None else CommandFound(None, None, self._line, ranks=ranks)
        unknown = stale or any("$" in value for value in values.values())
        algorithms, protocols = (values.get(name) for name in _NAMES)
        return CommandFound(algorithms, protocols, self._line, unknown, ranks)


def _assignments(text: str) -> dict[str, str]:
    """Return the value of each setting that a line assigns; the last one counts, as in a shell."""
    found: dict[str, str] = {}
    for match in _ASSIGNMENT.finditer(text):
        value = match["double"] or match["single"] or match["bare"] or ""
        found[match["name"]] = value.strip().rstrip(",;:)]}.")
    return found


def _ranks_of(launcher: str, options: str) -> int | None:
    """Return the number of ranks that a command starts.

    None if a launcher starts the program and its command line has no number of processes.
    """
    processes: int | None = 1
    if (match := _LAUNCHER.search(launcher)) is not None:
        said = _PROCESSES.search(launcher, match.end())
        processes = int(said["count"]) if said is not None else None
    if processes is None:
        return None
    for option in ("t", "g"):
        each = re.search(rf"\s-{option}\s{{0,4}}(\d{{1,5}})(?=\s|$)", options)
        processes *= int(each[1]) if each is not None else 1
    return processes or None
