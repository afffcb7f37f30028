# SPDX-License-Identifier: Apache-2.0
"""Read the completions with an error that libmlx5 prints, in NCCL, UCX or any other program."""

import re

from nccltune.doctor.evidence.parsers.failures import LONGEST, FailureLine

_WORD = r"[0-9a-f]{8}"
# The last 16 of the 64 bytes have the vendor's syndrome and the syndrome, in their second word.
_DUMP = re.compile(
    r"^(?P<line>.*\bmlx5: \S+: got completion with error:)[^\n]*\n(?:[^\n]*\n){3}"
    rf"[^\n]*?\b{_WORD} [0-9a-f]{{4}}(?P<vendor>[0-9a-f]{{2}})(?P<syndrome>[0-9a-f]{{2}}) {_WORD}",
    re.M,
)
_SYNDROMES = {
    "04": ("status 4, local protection", "rdma_protection"),
    "05": ("status 5, flushed", "rdma_flushed"),
    "11": ("status 8, local access", "rdma_protection"),
    "12": ("status 9, remote invalid request", "rdma_failed"),
    "13": ("status 10, remote access", "rdma_protection"),
    "15": ("status 12, retries exceeded", "rdma_no_answer"),
    "16": ("status 13, receiver not ready", "rdma_not_ready"),
}
"""Name and kind by the syndrome of a completion (mlx5's error CQE). Others are "rdma_failed"."""


def completions(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each syndrome."""
    found: dict[str, FailureLine] = {}
    for match in _DUMP.finditer(text) if "got completion with error:" in text else ():
        code = match["syndrome"]
        name, kind = _SYNDROMES.get(code, ("", "rdma_failed"))
        said = f"syndrome 0x{code}{f' ({name})' if name else ''}, vendor 0x{match['vendor']}"
        line = text.count("\n", 0, match.start()) + 1
        known = found.get(code)
        found[code] = (
            known._replace(times=known.times + 1)
            if known
            else FailureLine(kind, f"{match['line'].strip()[:LONGEST]} {said}", line, 1)
        )
    return tuple(found.values())
