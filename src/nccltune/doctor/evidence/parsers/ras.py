# SPDX-License-Identifier: Apache-2.0
"""Read what NCCL's RAS reports of ranks and processes. Source: NCCL 2.24 to 2.30
(src/ras/client_support.cc)."""

import re

from nccltune.doctor.evidence.parsers.failures import LONGEST, FailureLine

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
    if "MISMATCH" not in text and "INCOMPLETE" not in text and "ERROR" not in text:
        return ()
    if _MARK.search(text) is None:
        return ()
    found: dict[str, FailureLine] = {}
    for match in _STATED.finditer(text):
        who = [" ".join(line.strip("> \t").split()) for line in match["who"].split("\n")[1:]]
        more = f" and {len(who) - _SHOWN} more" if len(who) > _SHOWN else ""
        listed = f": {'; '.join(who[:_SHOWN])}{more}" if who else ""
        said = f"{match['said'].strip()}{listed}"[:LONGEST]
        line = text.count("\n", 0, match.start()) + 1
        found.setdefault(said, FailureLine("ras_report", said, line, 1))
    return tuple(found.values())
