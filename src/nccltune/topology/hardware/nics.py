# SPDX-License-Identifier: Apache-2.0
"""Select NICs by `NCCL_IB_HCA`: `[^][=]NAME[:PORT],...`, as `parseStringList` and `matchIfList` do.

The rules are the same from NCCL 2.12 to 2.31, and for interfaces in `NCCL_SOCKET_IFNAME`.
"""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"\s*[+-]?\d{1,9}")
_ANY_PORT = -1


def chosen_nic_indexes(nics: Sequence[tuple[str, int]], rule: str | None) -> list[int]:
    """Return the indexes of the `nics` (name, port) that `rule` selects; all if there is no rule.

    A name in the rule is a prefix, unless the list begins with `=`. `^` excludes the listed NICs.
    Blanks are part of a name, and signs behind the start of the list are, too. A list without names
    names every NIC, so `^` alone excludes all. A port of -1 is any port.
    """
    if not rule:
        return list(range(len(nics)))
    excluding = rule.startswith("^")
    text = rule.removeprefix("^")
    exact = text.startswith("=")
    entries = [entry for part in text.removeprefix("=").split(",") if (entry := _entry(part))[0]]

    def named(name: str, port: int) -> bool:
        return not entries or any(
            (name == wanted if exact else name.startswith(wanted))
            and (_ANY_PORT in (at, port) or at == port)
            for wanted, at in entries
        )

    return [number for number, (name, port) in enumerate(nics) if named(name, port) != excluding]


def _entry(text: str) -> tuple[str, int]:
    name, sign, port = text.partition(":")
    if not sign:
        return name, _ANY_PORT
    number = _NUMBER.match(port)
    return name, int(number[0]) if number else 0
