# SPDX-License-Identifier: Apache-2.0
"""Compare the calls in which PyTorch's watchdog found the ranks of a process group, and name the
ranks that it did not find."""

import re
from collections import defaultdict

from nccltune.doctor.evidence.parsers.failures import FailureLine

_CALL = re.compile(
    r"(?:\[rank(?P<process>\d+)\]:.{0,300}?)?\[Rank (?P<rank>\d+)\] Watchdog caught "
    r"collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
    r"OpType=(?P<call>\w+)(?:, NumelIn=(?P<in>\d+))?"
)
# "[PG ID 1 PG GUID 3 Rank 0] ... at work: 126", "[PG 1 Rank 0] Timeout at NCCL work: 126"
_GROUP = re.compile(
    r"\[PG (?:ID \d+ PG GUID )?(?P<group>[^\s(\]]{1,80})[^\]\n]{0,80} Rank (?P<rank>\d+)\].{0,200}?"
    r" (?:at |NCCL |id: |sequence )+(?:work|id): (?P<number>\d+)"
)
# Calls of which all ranks have the same number of elements.
_EQUAL = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE")
# Calls of some ranks only.
_PAIRS = re.compile(r"SEND|RECV|COALESCED|UNKNOWN")
_MOST = 4


def ranks_apart(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each process group whose ranks timed out in different calls, or
    of which ranks are missing.

    Where the text names groups, a line counts that can be of one of them only. Where it names none,
    a rank with two calls is of several groups, and nothing is said.
    """
    if "WorkNCCL(SeqNum=" not in text:
        return ()
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    for match in _GROUP.finditer(text):
        named[match["rank"], match["number"]].add(match["group"])
    # By group and rank: number, call and the process that printed it. The first line of each group.
    found: dict[str, dict[int, set[tuple[int, str, str]]]] = defaultdict(lambda: defaultdict(set))
    at: dict[str, int] = {}
    for match in _CALL.finditer(text):
        groups = named[match["rank"], match["number"]] if named else {""}
        if len(groups) != 1:
            continue
        (group,) = groups
        call = match["call"]
        if call in _EQUAL and match["in"]:
            call = f"{call} of {match['in']} elements"
        at.setdefault(group, match.start())
        number, process = int(match["number"]), match["process"] or ""
        found[group][int(match["rank"])].add((number, call, process))
    lines = []
    for group, ranks in found.items():
        if any(len({one[2] for one in calls}) > 1 for calls in ranks.values()) or (
            not group and any(len(calls) > 1 for calls in ranks.values())
        ):
            continue
        calls: dict[tuple[int, str], list[int]] = defaultdict(list)
        for rank, seen in sorted(ranks.items()):
            calls[min(seen)[:2]].append(rank)
        line = text.count("\n", 0, at[group]) + 1
        missing = sorted(set(range(max(ranks))) - set(ranks))
        if any(_PAIRS.search(call) for _, call in calls):
            continue
        if len(calls) > 1:
            said = "; ".join(
                f"SeqNum {number} {call}: {_ranks(of)}"
                for (number, call), of in sorted(calls.items())[:_MOST]
            )
            more = f"; and {len(calls) - _MOST} more calls" if len(calls) > _MOST else ""
            lines.append(FailureLine("ranks_apart", said + more, line, 1))
        elif missing and len(ranks) > 1:
            ((number, call),) = calls
            said = (
                f"SeqNum {number} {call}: {_ranks(sorted(ranks))}; no timeout of {_ranks(missing)}"
            )
            lines.append(FailureLine("watchdog", said, line, 1))
    return tuple(lines)


def _ranks(ranks: list[int]) -> str:
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}{more}"
