# SPDX-License-Identifier: Apache-2.0
"""Find faults in how a test was started, from the test's output."""

import re

from nccltune.formats.nccl_tests.run import header_part
from nccltune.launch_lint.finding import LaunchFinding, error, warning


def is_output(text: str) -> bool:
    """Return whether a text is an output of nccl-tests."""
    parts = [part for line in text.splitlines() if (part := header_part(_bare(line))) is not None]
    pids = {part[1]["pid"] for part in parts if part[0] == "device" and part[1]["rank"] == "0"}
    return len(pids) > 1 or any(part[0] == "parameters" for part in parts)


def judge_output(text: str) -> list[LaunchFinding]:
    """Return findings on how a test was started, from the test's output.

    The processes did not join one MPI job if there are several tables, and each has only rank 0 or
    a second table begins before the first has ended, or if several processes of one table, or
    without its header, are rank 0. One table with only rank 0 is a warning.
    Tables with other parameters are of other runs.
    """
    tables = done = before_end = 0
    ranks: list[int] = []
    runs: list[str] = []
    firsts: list[set[str]] = [set()]
    for line in text.splitlines():
        part = header_part(_bare(line))
        if part is not None and part[0] == "parameters":
            tables += 1
            before_end += done == 0
            runs.append(_bare(line))
        elif part is not None and part[0] == "device":
            ranks.append(int(part[1]["rank"]))
            firsts[-1].add(f"{part[1]['pid']} on {part[1]['host']}")
        elif "Avg bus bandwidth" in line:
            done += 1
            firsts.append(set())
    alone = bool(ranks) and set(ranks) == {0}
    together = max(map(len, firsts)) if alone and tables < 2 else 0
    is_several = tables > 1 and (alone or before_end > 1) and all(run == runs[0] for run in runs)
    if is_several or together > 1:
        each = "of rank 0 alone" if alone else "that begin with rank 0 before the first has ended"
        return [
            error(
                "no-mpi-build",
                f"{f'{together} starts' if together else f'{tables} tables'} {each}: the processes"
                " did not know of each other, as when nccl-tests was built without MPI",
                "build it with make MPI=1 MPI_HOME=..., with the MPI whose mpirun starts it; under"
                " srun name the interface that this MPI has (srun --mpi=list): --mpi=pmix",
            )
        ]
    if tables == 1 and alone:
        return [
            warning(
                "one-rank",
                "only 1 rank: nothing is sent, busbw is 0",
                "give -g the GPUs of this node, or start more processes",
            )
        ]
    return []


def _bare(line: str) -> str:
    """Return a line from its first `#` on, because launchers print a prefix before the line.

    One of a device gets the `#` that a page has taken for a heading. Others are unchanged.
    """
    at = line.find("#")
    device = _DEVICE.search(line) if at < 0 else None
    return line[at:] if at >= 0 else f"# {device[0]}" if device is not None else line


_DEVICE = re.compile(r"\bRank +\d+ .*\bPid +\d+ on .*")
