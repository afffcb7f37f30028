# SPDX-License-Identifier: Apache-2.0
"""Read the completions with an error that libmlx5 prints, in NCCL, UCX or any other program."""

import re

from nccltune.doctor.evidence.parsers.failures import LONGEST, FailureLine
from nccltune.doctor.evidence.parsers.nccl_warnings import status_kind

_WORD = r"[0-9a-f]{8}"
# The last 16 of the 64 bytes have the vendor's syndrome and the syndrome, in their second word.
_DUMP = re.compile(
    r"^(?P<line>.{0,300}\bmlx5: \S{1,80}: got completion with error:)[^\n]*\n(?:[^\n]*\n){3}"
    rf"[^\n]*?\b{_WORD} [0-9a-f]{{4}}(?P<vendor>[0-9a-f]{{2}})(?P<syndrome>[0-9a-f]{{2}}) {_WORD}",
    re.M,
)
_STATUSES = {"04": 4, "05": 5, "11": 8, "12": 9, "13": 10, "15": 12, "16": 13}
"""Statuses of a completion (enum ibv_wc_status) by the syndrome of mlx5's error CQE."""


def completions(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each syndrome."""
    found: dict[str, FailureLine] = {}
    for match in _DUMP.finditer(text) if "got completion with error:" in text else ():
        code = match["syndrome"]
        status = _STATUSES.get(code, 0)
        said = f"syndrome 0x{code}{f' (status {status})' * (status > 0)}, vendor {match['vendor']}"
        if code in found:
            found[code] = found[code]._replace(times=found[code].times + 1)
        else:
            line = text.count("\n", 0, match.start()) + 1
            said = f"{match['line'].strip()[:LONGEST]} {said}"
            found[code] = FailureLine(status_kind(status), said, line, 1)
    return tuple(found.values())
