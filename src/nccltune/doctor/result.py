# SPDX-License-Identifier: Apache-2.0
"""What an examination found, as data: terminal, JSON and HTML are made of it."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from nccltune.doctor.facts import UnusedFile
from nccltune.doctor.rule import Of, Severity

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """What a rule says of a node, or of all of them: the worst of its nodes."""

    FINDING = "finding"
    CANNOT_TELL = "cannot_tell"
    OK = "ok"
    NOT_APPLICABLE = "not_applicable"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, the nodes it is true of, and where it was read there."""

    text: str
    nodes: tuple[str, ...]
    read: tuple[str, ...] = ()


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a shell that would mend it on `nodes`."""

    nodes: tuple[str, ...]
    lines: tuple[str, ...]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's verdict. `nodes` are those of each verdict; `missing` the facts that were not
    there where it cannot tell; `remedy`, `commands` and `fix` are filled in where it found. A
    sentence of evidence that is said `alone` needs no title before it."""

    rule: str
    number: int | None
    family: str
    title: str
    severity: Severity
    scope: Of
    verdict: Verdict
    nodes: dict[Verdict, tuple[str, ...]]
    evidence: tuple[Evidence, ...] = ()
    alone: bool = False
    missing: tuple[str, ...] = ()
    check: str
    remedy: str
    commands: tuple[str, ...] = ()
    cost: str = ""
    fix: tuple[Fix, ...] = ()
    by_hand: str | None = None
    source: tuple[str, ...]
    nccl: str | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node examined: its name, what it is in words, what could not be read of it, and the files
    of which nothing was used."""

    name: str
    title: str
    facts: int
    unread: tuple[str, ...] = ()
    unused: tuple[UnusedFile, ...] = ()


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    schema_version: int = SCHEMA_VERSION
    source: str
    nodes: tuple[Node, ...]
    rules: tuple[Judged, ...]

    def of(self, verdict: Verdict) -> tuple[Judged, ...]:
        """The rules with that verdict; findings the gravest first."""
        order = list(Severity)
        found = [judged for judged in self.rules if judged.verdict is verdict]
        return tuple(sorted(found, key=lambda judged: order.index(judged.severity)))

    @property
    def is_wrong(self) -> bool:
        """An error or a warning was found; notes alone are no reason."""
        return any(judged.severity is not Severity.NOTE for judged in self.of(Verdict.FINDING))


def read_words(read: Sequence[str], most: int = 48) -> str:
    """Where something was read, for people: long commands are cut."""
    return "; ".join(
        source if len(source) <= most else f"{source[: most - 3].rstrip()}..." for source in read
    )


def node_names(names: Sequence[str], most: int = 6) -> str:
    """Names for people, runs of numbers together: `n[001-004,007]`, the rest counted."""
    parts = _folded(sorted(set(names), key=_natural))
    shown = ", ".join(parts[:most])
    more = len(parts) - most
    return f"{shown} and {more} more" if more > 0 else shown


def _natural(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits) if digits else -1, name


def _folded(names: Sequence[str]) -> list[str]:
    """Names that differ in a number at their end, folded into brackets as Slurm writes them."""
    groups: dict[tuple[str, int], list[int]] = {}
    order: list[tuple[str, int] | str] = []
    for name in names:
        head = name.rstrip("0123456789")
        digits = name[len(head) :]
        if not digits:
            order.append(name)
            continue
        # Digits of one length only: n9 and n10 are no n[9-10] to a shell that wants leading zeros.
        key = (head, len(digits) if digits.startswith("0") else 0)
        if key not in groups:
            groups[key] = []
            order.append(key)
        groups[key].append(int(digits))
    folded = []
    for item in order:
        if isinstance(item, str):
            folded.append(item)
            continue
        head, width = item
        numbers = groups[item]
        ranges = _ranges(numbers, width)
        folded.append(f"{head}{ranges}" if len(numbers) == 1 else f"{head}[{ranges}]")
    return folded


def _ranges(numbers: Sequence[int], width: int) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    words = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in parts]
    return ",".join(words)
