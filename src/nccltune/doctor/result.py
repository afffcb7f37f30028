# SPDX-License-Identifier: Apache-2.0
"""Result of an examination as data, for the terminal, JSON and HTML reports."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from nccltune.doctor.facts import UnusedFile
from nccltune.doctor.rule import RuleScope
from nccltune.model.finding import Severity

SCHEMA_VERSION = 1


class RuleVerdict(StrEnum):
    """Verdict of a rule on a node or on all nodes.

    The members are in order, worst first. The verdict on several nodes is the worst of their
    verdicts.
    """

    FINDING = "finding"
    CANNOT_TELL = "cannot_tell"
    OK = "ok"
    NOT_APPLICABLE = "not_applicable"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, the nodes for which the sentence is true, and where the facts in it were read."""

    text: str
    nodes: tuple[str, ...]
    read: tuple[str, ...] = ()


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """Shell lines that would fix a finding on `nodes`."""

    nodes: tuple[str, ...]
    lines: tuple[str, ...]


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of one rule.

    `nodes` has the names of nodes by their verdict. `missing` names the missing facts if the
    verdict is CANNOT_TELL. For a finding, `remedy`, `commands` and `fix` contain the values of this
    examination. Otherwise `remedy` is the text of the rule; `commands` and `fix` are empty. If
    `alone` is true, a report may print the evidence without the title.
    """

    rule: str
    number: int | None
    family: str
    title: str
    severity: Severity
    scope: RuleScope
    verdict: RuleVerdict
    nodes: dict[RuleVerdict, tuple[str, ...]]
    evidence: tuple[Evidence, ...] = ()
    alone: bool = False
    missing: tuple[str, ...] = ()
    check: str
    remedy: str
    commands: tuple[str, ...] = ()
    cost: str = ""
    fix: tuple[Fix, ...] = ()
    source: tuple[str, ...]
    nccl: str | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An examined node.

    `title` describes the node. `facts` is the number of facts. `unread` lists unreadable inputs.
    `unused` lists the files of which nothing was used. `text_lines` is the number of lines of logs
    and outputs of programs; None if there are none. `known` lists the facts of a node that has few.
    """

    name: str
    title: str
    facts: int
    unread: tuple[str, ...] = ()
    unused: tuple[UnusedFile, ...] = ()
    text_lines: int | None = None
    known: tuple[str, ...] = ()


_EFFECTS = ("collective-timeout", "nccl-failed", "launcher-failed", "process-died", "peer-gone")
"""Rules on lines that seldom name the cause, which a warning may be."""
_CAUSES = ("device-list-takes-more",)
"""Rules on a setting whose consequences other rules of the same severity report."""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Complete result of an examination."""

    schema_version: int = SCHEMA_VERSION
    source: str
    nodes: tuple[Node, ...]
    rules: tuple[RuleResult, ...]

    def of(self, verdict: RuleVerdict) -> tuple[RuleResult, ...]:
        """Return the rules with that verdict, highest severity first, causes before effects."""
        order = {severity: number for number, severity in enumerate(Severity)}
        found = [judged for judged in self.rules if judged.verdict is verdict]
        found.sort(key=lambda judged: (judged.rule not in _CAUSES, judged.rule in _EFFECTS))
        late = dict.fromkeys(_EFFECTS, order[Severity.WARNING])
        return tuple(sorted(found, key=lambda one: late.get(one.rule, order[one.severity])))

    @property
    def is_wrong(self) -> bool:
        """Whether an error or a warning was found. Notes do not count."""
        return any(judged.severity is not Severity.NOTE for judged in self.of(RuleVerdict.FINDING))


def read_words(read: Sequence[str], most: int = 48) -> str:
    """Return the sources in `read` as one text. A source of over `most` characters is cut."""
    return "; ".join(
        source if len(source) <= most else f"{source[: most - 3].rstrip()}..." for source in read
    )


def node_names(names: Sequence[str], most: int = 6) -> str:
    """Return names as text, with ranges of numbers: `n[001-004,007]`.

    Names that differ only in their last number are written as one name with ranges. At most
    `most` such names are listed. Then the number of the other names follows.
    """
    parts = _folded(sorted(set(names), key=_natural))
    shown = ", ".join(parts[:most])
    more = len(parts) - most
    return f"{shown} and {more} more" if more > 0 else shown


def _natural(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits) if digits else -1, name


def _folded(names: Sequence[str]) -> list[str]:
    """Return names in Slurm's notation: names that differ only in their last number become one
    name with ranges in brackets."""
    groups: dict[tuple[str, int], list[int]] = {}
    order: list[tuple[str, int] | str] = []
    for name in names:
        head = name.rstrip("0123456789")
        digits = name[len(head) :]
        if not digits:
            order.append(name)
            continue
        # Numbers with leading zeros form one range only if they have the same number of digits.
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
