# SPDX-License-Identifier: Apache-2.0
"""Compare the calls in which PyTorch's watchdog found the ranks of a process group, and name the
ranks that it or Horovod's stall inspector did not find."""

import re
from collections import defaultdict
from itertools import islice

from nccltune.doctor.evidence.parsers.failures import FailureLine

_CALL = re.compile(
    r"(?:\[rank(?P<process>\d{1,6})\]:.{0,300}?)?\[Rank (?P<rank>\d{1,6})\] Watchdog caught "
    r"collective operation timeout: WorkNCCL\((?:SeqNum=(?P<number>\d{1,19}), )?"
    r"OpType=(?P<call>\w{1,80})(?:, NumelIn=(?P<in>\d{1,19}))?"
)
# "[PG ID 1 PG GUID 3 Rank 0] ... at work: 126", "[PG 1 Rank 0] Timeout at NCCL work: 126"
# A terminal broke the line. What follows it keeps its number.
_TORN = re.compile(r"(\] Watchdog caught [^)\n]{1,200})\n([^)\n\[]{1,200}\)[^\n]*)\n")
_GROUP = re.compile(
    r"(?:\[rank(?P<process>\d{1,6})\]:.{0,300}?)?\[PG (?:ID \d+ PG GUID )?"
    r"(?P<group>[^\s(\]]{1,80}(?:\([A-Za-z]\w{0,60}\))?)[^\]\n]{0,80} Rank (?P<rank>\d{1,6})\]"
    r".{0,200}? (?:at |NCCL |id: |sequence ){1,9}(?:work|id): (?P<number>\d{1,19})"
)
# Calls of which all ranks have the same number of elements.
_EQUAL = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE")
# Calls of some ranks only.
_PAIRS = re.compile(r"SEND|RECV|COALESCED|UNKNOWN")
# Lines were left out, or a person says of ranks that they print the same.
_CUT = re.compile(
    r"[^\w\n]{0,40}(?:\.{3,}|\u2026)[^\w\n]{0,40}$"
    r"|(?=.{0,300}\branks?\b).{0,300}\b(?:same|similar|identical|likewise)\b"
    r"|(?!.{0,300}ProcessGroupNCCL).{0,200}\b(?:all|every|each|other|rest)\b.{0,40}\branks?\b",
    re.IGNORECASE,
)
# The last line of a text that is not whole.
_BROKEN = re.compile(r"(?:\[rank\d+\]:)?\[[EW](?!.*[.)]\s*\Z)")
_SIZE = re.compile(r"(?i)(?:\bnranks |\bworld[_ ]size\W{1,4})(\d{1,6})\b|\[rank(\d{1,6})\]:")
_EXIT = re.compile(
    r"\[rank(?P<rank>\d{1,6})\]:.{0,200}?(?:(?P<stuck> watchdog got stuck)"
    r"|destroy_process_group\(\) was not called|process group has NOT been destroyed)"
)
_OTHER_END = re.compile(r"WorkNCCL\(|Timeout at NCCL|Traceback|Error\b|NCCL WARN|SIG(?:TERM|KILL)")
_MOST = 4
_LONGEST = 700
_SHOWN = 8


def ranks_apart(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each process group whose ranks timed out in different calls, or
    of which ranks are missing.

    Where the text names groups, a line counts that can be of one of them only. Where it names none,
    a rank with two calls is of several groups, and nothing is said. Calls of two ranks and more
    without a SeqNum in common may be of two groups: they are named, and not `ranks_apart`.
    """
    if "WorkNCCL(" not in text:
        return ()
    text = _TORN.sub(r"\1\2\n\n", text)
    lines = []
    groups = _groups(text)
    # The highest rank that prints, or a number of ranks.
    size = max((int(m[1] or int(m[2]) + 1) for m in _SIZE.finditer(text)), default=0)
    if len(groups) > 1:
        hung = [
            f"group {of} in {min(map(min, one.values()))[1]}" for of, (_, one) in groups.items()
        ]
        said = f"{len(hung)} groups hang at once: {'; '.join(hung[:_MOST])}"
        at = text.count("\n", 0, next(iter(groups.values()))[0]) + 1
        lines.append(FailureLine("watchdog", said, at, 1))
    for group, (start, ranks) in groups.items():
        if any(len({one[2] for one in calls}) > 1 for calls in ranks.values()) or (
            not group and any(len(calls) > 1 for calls in ranks.values())
        ):
            continue
        calls: dict[tuple[int, str], list[int]] = defaultdict(list)
        for rank, seen in sorted(ranks.items()):
            calls[min(seen)[:2]].append(rank)
        if any(_PAIRS.search(call) for _, call in calls):
            continue
        missing = max(ranks) + 1 - len(ranks)
        said = f"group {group}: " if group[:1].isdigit() else ""
        # A group counts its ranks from 0 on: the number of the process says which of the job.
        process = {rank: int(min(seen)[2] or rank) for rank, seen in ranks.items()}
        own = "" if all(rank == of for rank, of in process.items()) else " of the group"
        said += "; ".join(
            f"{call}: {_ranks([process[one] for one in of], len(of))}"
            for (_, call), of in sorted(calls.items())[:_MOST]
        )
        kind = "watchdog"
        if len(calls) > 1:
            said += f"; and {len(calls) - _MOST} more calls" if len(calls) > _MOST else ""
            numbers = {number for number, _ in calls if number}
            alone = min(map(len, calls.values())) == 1
            if group or alone or 0 < len(numbers) < len(calls):
                kind = "ranks_apart"
        elif len(ranks) < 2:
            continue
        elif missing and not _is_cut(text):
            absent = (rank for rank in range(max(ranks)) if rank not in ranks)
            said += f"; no timeout of {_ranks(list(islice(absent, _SHOWN)), missing)}{own}"
        elif not missing and len(groups) == 1 and " of " in said and size == len(ranks):
            said += f"; none is missing from 0 to {max(ranks)}"
        lines.append(FailureLine(kind, said, text.count("\n", 0, start) + 1, 1))
    return tuple(lines)


def stuck_at_exit(text: str) -> tuple[FailureLine, ...]:
    """Return the first watchdog that got stuck after its program began to end, where no collective
    timed out and the text shows no error."""
    ending = set()
    for match in _EXIT.finditer(text) if not _OTHER_END.search(text) else ():
        if not match["stuck"]:
            ending.add(match["rank"])
        elif match["rank"] in ending:
            said = f"rank {match['rank']}: stuck in its exit, no destroy_process_group() before"
            return (FailureLine("watchdog", said, text.count("\n", 0, match.start()) + 1, 1),)
    return ()


def _is_cut(text: str) -> bool:
    lines = text.rstrip().split("\n")
    if _BROKEN.match(lines[-1]) is not None:
        return True
    return any("NCCL INFO" not in line and _CUT.match(line[:_LONGEST]) for line in lines)


_Ranks = dict[int, set[tuple[int, str, str]]]


def _groups(text: str) -> dict[str, tuple[int, _Ranks]]:
    """Return by group the offset of its first line, and by rank number, call and the process that
    printed it."""
    named: dict[tuple[str | None, ...], set[str]] = defaultdict(set)
    for match in _GROUP.finditer(text):
        named[match.group("process", "rank", "number")].add(match["group"])
    if len(set[str]().union(*named.values())) == 1:
        # A line of which the group was left out may be of another group.
        ids = (one.group("process", "rank", "number") for one in _CALL.finditer(text))
        named = {} if any(not named[one] for one in ids) else named
    found: dict[str, tuple[int, _Ranks]] = {}
    for match in _CALL.finditer(text):
        groups = named.get(match.group("process", "rank", "number"), set()) if named else {""}
        if len(groups) != 1:
            continue
        (group,) = groups
        call = f"SeqNum {match['number']} {match['call']}" if match["number"] else match["call"]
        if match["call"] in _EQUAL and match["in"]:
            call = f"{call} of {match['in']} elements"
        _, ranks = found.setdefault(group, (match.start(), defaultdict(set)))
        ranks[int(match["rank"])].add((int(match["number"] or 0), call, match["process"] or ""))
    return found


def _ranks(ranks: list[int], count: int) -> str:
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return f"rank{'s' if count > 1 else ''} {', '.join(map(str, ranks[:_SHOWN]))}{more}"


_STALLED = re.compile(
    r"(?:\A|[\s:])(?P<tensor>[\w./-]{1,200}) \[missing ranks: ?(?P<ranks>\d[\d, ]{0,2000})\]"
)
_LISTED = re.compile(r"(?:\A|.{0,40}[\s:])(?P<ranks>\d{1,6}): \[(?P<tensor>[\w./-]{1,200})[ ,\]]")


def stalled_ranks(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each set of ranks that Horovod waits for, with the first tensor
    that they did not submit."""
    start = text.find("Stalled ranks:")
    if start < 0 and "missing ranks:" not in text:
        return ()
    listed = text.count("\n", 0, start) if start >= 0 else None
    found: dict[tuple[int, ...], FailureLine] = {}
    for number, line in enumerate(text.split("\n")):
        match = _STALLED.search(line) if "missing ranks:" in line else None
        if match is None and listed is not None and number > listed and ": [" in line:
            match = _LISTED.match(line)
        if match is None:
            continue
        ranks = tuple(dict.fromkeys(int(one[:9]) for one in re.findall(r"\d+", match["ranks"])))
        if ranks in found:
            found[ranks] = found[ranks]._replace(times=found[ranks].times + 1)
        elif len(found) < _SHOWN:
            said = f"{match['tensor']}: missing {_ranks(list(ranks), len(ranks))}"
            found[ranks] = FailureLine("late", said, number + 1, 1)
    return tuple(found.values())
