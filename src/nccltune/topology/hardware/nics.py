# SPDX-License-Identifier: Apache-2.0
"""Select NICs by `NCCL_IB_HCA`: `[^][=]NAME[:PORT],...` (NCCL's `net_ib`, 2.19 to 2.30)."""

from collections.abc import Sequence


def chosen_nic_indexes(nics: Sequence[tuple[str, int]], rule: str | None) -> list[int]:
    """Return the indexes of the `nics` (name, port) that `rule` selects; all if there is no rule.

    A name in the rule is a prefix, unless the list begins with `=`. `^` excludes the listed NICs.
    """
    if not rule:
        return list(range(len(nics)))
    excluding = rule.startswith("^")
    text = rule.removeprefix("^")
    exact = text.startswith("=")
    entries = [_entry(part) for part in text.removeprefix("=").split(",") if part]

    def named(name: str, port: int) -> bool:
        return any(
            (name == wanted if exact else name.startswith(wanted)) and at in (None, port)
            for wanted, at in entries
        )

    return [number for number, (name, port) in enumerate(nics) if named(name, port) != excluding]


def _entry(text: str) -> tuple[str, int | None]:
    name, _, port = text.strip().partition(":")
    return name, int(port) if port.isdecimal() else None
