# SPDX-License-Identifier: Apache-2.0
"""Read what NCCL's RAS reports of ranks and processes, as text or JSON. Source: NCCL 2.24 to 2.30
(src/ras/client_support.cc)."""

import json
import re
from collections import defaultdict
from typing import Any

from nccltune.doctor.evidence.parsers.failures import LONGEST, MOST, FailureLine

_WHO = r"(?:Rank \d{1,9} -- |Process \d{1,10} on node |The missing rank)"
# A statement, and the ranks or processes in the lines below it.
_STATED = re.compile(
    r"^(?P<start>[> \t]*)(?P<said>(?:Communicator ranks have different|Missing communicator data "
    r"from|Rank \d{1,9} (?:has|reported) |\d{1,9} ranks? (?:have|has|reported) "
    r"|\d{1,9} job process\S* (?:is|are) considered dead"
    r"|(?:Initialization|Asynchronous) errors? on ).*)"
    rf"(?P<who>(?:\n[> \t]*{_WHO}.*){{0,64}})",
    re.M,
)
_MARK = re.compile(r"Communicator ranks have|communicator data|considered dead|errors? on \d")
_SHOWN = 4


def ras_ranks(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each statement of RAS, with the ranks or processes that it
    lists."""
    if '"communicators_count"' in text:
        return _of_json(text)
    if "MISMATCH" not in text and "INCOMPLETE" not in text and "ERROR" not in text:
        return ()
    if _MARK.search(text) is None:
        return ()
    found: dict[str, FailureLine] = {}
    number, before = 1, 0
    for match in _STATED.finditer(text):
        if len(found) == MOST:
            break
        who = [" ".join(line.strip("> \t").split()) for line in match["who"].split("\n")[1:]]
        more = f" and {len(who) - _SHOWN} more" if len(who) > _SHOWN else ""
        listed = f": {'; '.join(who[:_SHOWN])}{more}" if who else ""
        said = f"{match['said'].strip()}{listed}"[:LONGEST]
        number += text.count("\n", before, match.start())
        before = match.start()
        found.setdefault(said, FailureLine("ras_report", said, number, 1))
    return tuple(found.values())


def _of_json(text: str) -> tuple[FailureLine, ...]:
    """Return what RAS says in JSON (NCCL 2.28.7 and newer) of ranks that are missing, have an error
    or another count of operations."""
    try:
        report = json.loads(text[text.index("{") : text.rindex("}") + 1])
        said = [line for one in report["communicators"] for line in _of_communicator(one)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
    return tuple(FailureLine("ras_report", one[:LONGEST], 1, 1) for one in dict.fromkeys(said))


def _of_communicator(one: Any) -> list[str]:
    name = f"communicator {one['hash']}"
    said = []
    for rank in one.get("missing_ranks", ()):
        dead = rank["status"]["considered_dead"]
        said.append(f"{name}: no data from {_who(rank)}{', considered dead' if dead else ''}")
    counts: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for rank in one.get("ranks", ()):
        error = rank["status"]["async_error"]
        if error not in (0, _IN_PROGRESS):
            said.append(f"{name}: {_who(rank)} has the error {error} (ncclResult_t)")
        for call, count in rank["collective_counts"].items():
            counts[call][count].append(rank)
    for call, by_count in counts.items():
        if len(by_count) > 1:
            words = (
                f"{_who(some[0]) if len(some) == 1 else f'{len(some)} ranks'} at {count}"
                for count, some in sorted(by_count.items())
            )
            said.append(f"{name}: {call} calls differ: {', '.join(words)}")
    return said


def _who(rank: Any) -> str:
    return f"rank {rank['rank']} (GPU {rank['cuda_dev']}, process {rank['pid']} on {rank['host']})"


_IN_PROGRESS = 7
"""ncclInProgress"""
