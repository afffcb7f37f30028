# SPDX-License-Identifier: Apache-2.0
"""What the rows and device lists of nccl-tests show of a failure: wrong elements, lone ranks."""

import re

from nccltune.doctor.evidence.parsers.failures import FailureLine

# A row of an nccl-tests table. The columns are size, elements, further columns, and two groups of
# time, algbw, busbw and wrong elements: first out of place, then in place.
_FIGURES = r"[\d.]+(?:e[+-]?\d+)?\s+[\d.]+(?:e[+-]?\d+)?\s+[\d.]+(?:e[+-]?\d+)?\s+"
_ROW = re.compile(
    rf"^(?:[^\n#]{{0,80}}?\s)?(?P<bytes>\d{{1,15}})\s+\d+\s+[a-z]\w*\s[^\n]{{0,40}}?{_FIGURES}"
    rf"(?P<out>\d+|N/A)\s+{_FIGURES}(?P<in>\d+|N/A)[ \t]*$",
    re.M,
)
_TAGS = re.compile(r"\[\d+\](?=\s)")
_JSON_WRONG = re.compile(r'"nwrong"\s*:\s*"?(\d{1,15})')


def has_rows(text: str) -> bool:
    """Return whether a text contains a row of an nccl-tests table, tagged by a launcher or not."""
    return _ROW.search(_TAGS.sub(" ", text)) is not None


def wrong_rows(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for all results of nccl-tests with wrong elements, in a table or JSON.

    The result is empty if no result has wrong elements.
    """
    if "#wrong" not in text:
        counts = [match for match in _JSON_WRONG.finditer(text) if match[1].strip("0")]
        if not counts:
            return ()
        line = text.count("\n", 0, counts[0].start()) + 1
        return (FailureLine("wrong", f"{counts[0][1]} wrong elements", line, len(counts)),)
    found = [
        row for row in _ROW.finditer(text) if row["out"].strip("0N/A") or row["in"].strip("0N/A")
    ]
    if not found:
        return ()
    first = found[0]
    both = f"{first['out']} wrong elements out of place, {first['in']} in place"
    words = f"{first['bytes']} bytes: {both}"
    return (FailureLine("wrong", words, text.count("\n", 0, first.start()) + 1, len(found)),)


_LONE_RANK = re.compile(r"^.{0,80}# +Rank +(\d+) .{0,40}\bPid +(\d+) on +(\S+)")
_SUMMARY = re.compile(r"^.{0,80}# Avg bus bandwidth\b")
# One start of several processes of one test: no loop, no list of tests.
_START = re.compile(
    r"^(?!.*\b(?:for|while)\b.*\bdo\b)(?!.*_perf\b.*_perf\b)(?!.*\s(?:-np?|--np|--ntasks)[ =]1\s)"
    r".*\b(?:mpirun|mpiexec|prterun|srun)\b.*_perf\b"
)
# Number and text of the line of each rank, or summary, by process and host.
_Lines = dict[str, dict[tuple[str, str], tuple[int, str]]]
_LOOP_ENDS = re.compile(r"\s*(?:done\b|\})")
_TAG = r"(?:\[[\d,]+\](?:<\w+>:?)?|\d+:)?\s*"
_ROW_BEGINS = re.compile(_TAG + r"\d+\s+\d+\s+[a-z]")
_PRINTED = re.compile(_TAG + r"(?:#|\d|$)|.*NCCL (?:INFO|WARN)")


def lone_ranks(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine if processes of one nccl-tests job do not know of each other: several
    have the same rank, or one start prints several summaries. MPI is not compiled in, or is not the
    launcher's.

    Runs one after the other are no copies: a line that no test prints, or a row, is between them.
    """
    if "Pid " not in text and "# Avg bus" not in text:
        return ()
    alike: _Lines = {}
    started, command = False, ""
    for number, line in enumerate((*text.split("\n"), "end"), 1):
        command = command[:-1] + line if command.endswith("\\") else line
        start = "_perf" in command and _START.match(command) is not None
        summary = _SUMMARY.match(line)
        if (match := _LONE_RANK.match(line)) is not None:
            alike.setdefault(match[1], {}).setdefault((match[2], match[3]), (number, line))
        elif summary and started:
            alike.setdefault("summary", {})[str(number), ""] = (number, line)
        elif (
            start
            or not _PRINTED.match(line)
            or (not started and (summary or _ROW_BEGINS.match(line)))
        ):
            if (found := _copies(alike)) is not None:
                return (found,)
            # What the launcher says before the first line of a test is no line between two.
            before = started and not alike and not _LOOP_ENDS.match(line)
            alike, started = {}, start or before
    return ()


def _copies(alike: _Lines) -> FailureLine | None:
    """Return a FailureLine if each process has a rank 0, or one rank is on several hosts."""
    ranks = {rank: found for rank, found in alike.items() if rank != "summary"}
    alone = {process for found in ranks.values() for process in found} <= set(ranks.get("0", ()))
    for found in alike.values():
        if len(found) > 1 and (alone or len({host for _, host in found}) > 1):
            at, first = next(iter(found.values()))
            return FailureLine("lone_ranks", first.strip(), at, len(found))
    return None
