# SPDX-License-Identifier: Apache-2.0
"""Lint a tuner configuration: find rules that do not do what their author expects.

The input is a list of rules with their line numbers. `formats.tuner_config` reports lines that it
cannot read. `file_issue` finds what spreadsheets do to a whole file.
"""

import bisect
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from nccltune.model.choice import Algorithm, chunk_grain, largest_chunk
from nccltune.model.collective import Collective
from nccltune.model.finding import Severity
from nccltune.model.nccl_releases import nccl_release
from nccltune.model.rule import Rule, impossible
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes


class Claim(NamedTuple):
    """A range of sizes, `low` to `high` bytes (both inclusive), that belongs to line `line`."""

    low: int
    high: int
    line: int


class ClaimedSizes:
    """Claims that do not overlap, in ascending order of size.

    The first line that matches a size wins, so a line claims only sizes that no earlier line has.
    """

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._claims: list[Claim] = []

    def within(self, low: int, high: int) -> Iterator[Claim]:
        """Yield the claims that overlap `low` to `high`, cut to that range, in order of size."""
        place = max(0, bisect.bisect_right(self._lows, low) - 1)
        for claim in self._claims[place:]:
            if claim.low > high:
                return
            if claim.high >= low:
                yield Claim(max(claim.low, low), min(claim.high, high), claim.line)

    def take(self, low: int, high: int, line: int) -> None:
        """Claim for `line` the sizes from `low` to `high` that no line has claimed yet."""
        reached = low
        for claim in list(self.within(low, high)):
            if claim.low > reached:
                self._insert(Claim(reached, claim.low - 1, line))
            reached = claim.high + 1
        if reached <= high:
            self._insert(Claim(reached, high, line))

    def _insert(self, claim: Claim) -> None:
        place = bisect.bisect_left(self._lows, claim.low)
        self._lows.insert(place, claim.low)
        self._claims.insert(place, claim)


class LintIssue(msgspec.Struct, frozen=True):
    """A problem in one line of a configuration; `line` is None for the whole file."""

    severity: Severity
    kind: str
    line: int | None
    message: str
    hint: str | None = None


class NumberedRule(NamedTuple):
    """A rule and its line number in the file."""

    line: int
    rule: Rule


_Conditions = tuple[int | bool | None, ...]
"""Nodes, ranks, pipe ops and registration that a rule requires; None matches any value."""

_SMALL_GAP = 0.02
"""A gap between two rules is probably a mistake if its length is at most this fraction of the size
at which the next rule begins."""
_SMALL_FILE = 64 << 10
"""If no size in a file of two or more rules exceeds 64 KiB, the sizes are probably not in bytes."""


_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "'|'", " ": "blanks"}
_TUNED = frozenset(collective.value for collective in Collective if collective.tuned)
_ROUNDED = re.compile(r"[0-9]+(?:[.,][0-9]+)?[eE]\+?[0-9]+")


def foreign_separator(text: str) -> str | None:
    """Return the separator of rows that begin with a collective, if it is no comma, else None.

    >>> foreign_separator("allreduce;0;65536;tree;ll;-1;-1;-1")
    ';'
    """
    for line in text.splitlines():
        for separator in _SEPARATORS:
            cells = line.lstrip("\ufeff").split(separator)
            if (
                len(cells) > 4
                and cells[0].strip(" \"'").lower() in _TUNED
                and cells[1].strip(" \"'").isdigit()
            ):
                return separator
    return None


_MEASURED = re.compile(
    r"(?:^|,)[^,\d]*(?:latency|time|bandwidth|busbw|algbw|cost)[^,\d]*(?:,|$)", re.I
)


def file_issue(text: str, name: str) -> LintIssue | None:
    """Return what is wrong with all rows of a configuration, or None.

    A spreadsheet saved them in another form, or they are measurements.

    `name` is the file's path, for the command that corrects it.
    """
    separator = foreign_separator(text)
    if separator is not None:
        hint = "save the file as CSV (comma delimited), with whole numbers"
        if "," not in text and not _ROUNDED.search(text):
            sign = "\\t" if separator == "\t" else separator
            name = shlex.quote(name)
            hint = f"tr '{sign}' ',' < {name} > commas.conf"
        return LintIssue(
            Severity.ERROR,
            "separator",
            None,
            f"columns are separated by {_SEPARATORS[separator]}; commas are needed",
            hint,
        )
    rows = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if rows and _MEASURED.search(rows[0]) is not None:
        return LintIssue(
            Severity.ERROR,
            "measurements",
            None,
            "this is a table of measurements, which has no rules",
            f"make rules of it: nccltune tune {shlex.quote(name)} -o FOLDER",
        )
    rounded = next((cell for row in rows for cell in row.split(",") if _is_rounded(cell)), None)
    if rounded is not None:
        return LintIssue(
            Severity.ERROR,
            "rounded",
            None,
            f"{rounded.strip()} is a number that a spreadsheet has rounded: its digits are lost",
            "give the columns of sizes the format of a number without decimals, and save again",
        )
    return None


def _is_rounded(cell: str) -> bool:
    return _ROUNDED.fullmatch(cell.strip(' "')) is not None


def lint_rules(rules: Sequence[NumberedRule], nccl: str | None = None) -> list[LintIssue]:
    """Return all issues of `rules`, in order of line. `rules` must be in file order.

    `nccl` is the NCCL version with which the rules were measured, from the header of the file.

    >>> from nccltune.model.choice import Choice, Protocol
    >>> pat = Rule(Collective.ALLREDUCE, 0, 1 << 20, Choice(Algorithm.PAT, Protocol.SIMPLE), 4, 4)
    >>> [issue.kind for issue in lint_rules([NumberedRule(1, pat)])]
    ['scales', 'unreachable', 'nvidia']
    """
    issues = [
        *(issue for item in rules for issue in _unreachable(item)),
        *_shadowed_and_overlapping(rules),
        *_gaps(rules),
        *_scales(rules),
        *_units(rules),
        *_chunks(rules, nccl),
        *_nvidia(rules),
    ]
    return sorted(issues, key=lambda issue: (issue.line or 0, issue.severity != Severity.ERROR))


def scales_of(rules: Iterable[Rule]) -> str | None:
    """Return in words at which scales rules apply, None if one does at every scale."""
    scales = sorted({Scale(rule.nodes or 0, rule.ranks or 0) for rule in rules})
    shown = [str(scale).replace("?", "any") for scale in scales[:6]] + ["..."] * (len(scales) > 6)
    return f"the rules apply to {'; '.join(shown)}" if Scale(0, 0) not in scales[:1] else None


def _scales(rules: Sequence[NumberedRule]) -> Iterator[LintIssue]:
    """Yield the scales, and 8 nodes with 8 ranks where rules of other nodes have 8 ranks each."""
    if rules and (words := scales_of(rule for _, rule in rules)) is not None:
        yield LintIssue(Severity.NOTE, "scales", None, words)
    pairs = {(rule.nodes or 0, rule.ranks or 0): line for line, rule in reversed(rules)}
    each = {ranks // nodes for nodes, ranks in pairs if nodes > 1 and ranks % nodes == 0}
    alike = [nodes for nodes, ranks in pairs if nodes == ranks > 1]
    for n in each.intersection(alike) if len(alike) == 1 else ():
        said = f"{n} nodes with {n} ranks is 1 rank a node, and other rules have {n}"
        hint = f"nRanks counts the ranks of all nodes: {n},{n * n} if each has {n}"
        yield LintIssue(Severity.NOTE, "scale", pairs[n, n], said, hint)


def _unreachable(item: NumberedRule) -> Iterator[LintIssue]:
    nodes, ranks = item.rule.nodes, item.rule.ranks
    if nodes is not None and ranks is not None and nodes > ranks:
        yield LintIssue(
            Severity.ERROR,
            "scale",
            item.line,
            f"{nodes} nodes with {ranks} ranks cannot be: each node has a rank, so that the rule"
            " never applies",
            f"the columns are nNodes,nRanks: {ranks},{nodes} if they are interchanged",
        )
    why = impossible(item.rule.collective, item.rule.choice, Scale(nodes or 0, ranks or 0))
    if why is not None:
        yield LintIssue(
            Severity.WARNING,
            "unreachable",
            item.line,
            f"{item.rule.choice.label} never runs here: {why}",
            "delete the line",
        )
    rule = item.rule
    if rule.choice.algorithm is Algorithm.PAT and rule.nodes != rule.ranks:
        yield LintIssue(
            Severity.NOTE,
            "unreachable",
            item.line,
            "NCCL uses pat only with one GPU a node unless NCCL_PAT_ENABLE is set (2.23 to 2.30)",
        )


def _shadowed_and_overlapping(rules: Sequence[NumberedRule]) -> Iterator[LintIssue]:
    """Yield an issue for each line whose sizes an earlier line matches (the first match wins).

    Only earlier lines that match every call that this line matches count. Their sizes are grouped
    by collective and conditions, so that a line is compared with a few groups and not with every
    earlier line.
    """
    families: dict[Collective, dict[_Conditions, ClaimedSizes]] = {}
    ranges: dict[int, Rule] = {}
    for line, rule in rules:
        claimed = families.setdefault(rule.collective, {})
        own = _conditions(rule)
        covering = [
            claim
            for conditions, claims in claimed.items()
            if _covers(conditions, own)
            for claim in claims.within(rule.min_bytes, rule.max_bytes)
        ]
        # A narrower range before a wider one is how exceptions are written: it is no mistake.
        crossing = [claim for claim in covering if not _is_within(ranges[claim.line], rule)]
        if _cover(covering, rule):
            lines = ", ".join(str(item) for item in sorted({claim.line for claim in covering})[:3])
            yield LintIssue(
                Severity.WARNING,
                "shadowed",
                line,
                f"never applies: line {lines} matches everything it could, and the first match "
                "wins",
                "delete the line, or move it up",
            )
        elif crossing:
            first = min(crossing, key=lambda claim: claim.line)
            # Ranges that share their boundary alone leave no doubt about what is meant.
            is_boundary = all(claim.low == claim.high for claim in crossing)
            yield LintIssue(
                Severity.NOTE if is_boundary else Severity.WARNING,
                "overlap",
                line,
                f"overlaps line {first.line} from {format_bytes(first.low)} to "
                f"{format_bytes(first.high)} ({first.low} to {first.high} bytes), where that line "
                "wins",
                f"begin at {first.high + 1}" if first.low == rule.min_bytes else None,
            )
        claimed.setdefault(own, ClaimedSizes()).take(rule.min_bytes, rule.max_bytes, line)
        ranges[line] = rule


def _is_within(inner: Rule, outer: Rule) -> bool:
    return outer.min_bytes <= inner.min_bytes and inner.max_bytes <= outer.max_bytes


def _covers(wide: _Conditions, narrow: _Conditions) -> bool:
    """Return whether every call that meets `narrow` meets `wide`."""
    return all(a is None or a == b for a, b in zip(wide, narrow, strict=True))


def _cover(claims: Sequence[Claim], rule: Rule) -> bool:
    """Return whether `claims` together include the whole range of `rule`."""
    reached = rule.min_bytes
    for claim in sorted(claims):
        if claim.low > reached:
            return False
        reached = max(reached, claim.high + 1)
    return reached > rule.max_bytes


def _conditions(rule: Rule) -> _Conditions:
    return (rule.nodes, rule.ranks, rule.pipe_ops, rule.registered)


def _gaps(rules: Sequence[NumberedRule]) -> Iterator[LintIssue]:
    """Yield an issue for each gap between the rules of one collective with the same conditions."""
    families: dict[tuple[object, ...], list[NumberedRule]] = {}
    for item in rules:
        families.setdefault((item.rule.collective, *_conditions(item.rule)), []).append(item)
    for family in families.values():
        ordered = sorted(family, key=lambda item: item.rule.min_bytes)
        end = ordered[0].rule.max_bytes
        for item in ordered[1:]:
            start = item.rule.min_bytes
            if start > end + 1:
                small = start - end - 1 <= max(1, _SMALL_GAP * start)
                yield LintIssue(
                    Severity.WARNING if small else Severity.NOTE,
                    "gap",
                    item.line,
                    f"no rule for {item.rule.collective.value} from {end + 1} to {start - 1} bytes "
                    f"({format_bytes(end + 1)} to {format_bytes(start - 1)}): NCCL's default "
                    "decides there",
                    f"end the rule before at {start - 1}" if small else None,
                )
            end = max(end, item.rule.max_bytes)


def _units(rules: Sequence[NumberedRule]) -> Iterator[LintIssue]:
    largest = max((item.rule.max_bytes for item in rules), default=0)
    if len(rules) >= 2 and largest <= _SMALL_FILE:
        yield LintIssue(
            Severity.WARNING,
            "units",
            None,
            f"no range goes beyond {format_bytes(largest)}: are these sizes KiB or counts?",
            "sizes are bytes; for all-gather and reduce-scatter the total over all ranks",
        )


def _chunks(rules: Sequence[NumberedRule], nccl: str | None) -> Iterator[LintIssue]:
    """Yield an issue for each chunk size that NCCL ignores, or changes to another size."""
    chunked = [item for item in rules if item.rule.choice.chunk_bytes is not None]
    release = nccl_release(nccl or "")
    if chunked and release is not None and not release.asks_chunks:
        yield LintIssue(
            Severity.WARNING,
            "chunk",
            chunked[0].line,
            f"chunk sizes ({_lines(chunked)}) have no effect on NCCL {nccl}: NCCL asks a tuner for "
            "them since 2.30",
        )
    for line, rule in chunked:
        chunk, algorithm = rule.choice.chunk_bytes or 0, rule.choice.algorithm
        least, most = chunk_grain(rule.choice), largest_chunk(rule.collective, rule.choice)
        if chunk < least:
            yield LintIssue(
                Severity.WARNING,
                "chunk",
                line,
                f"a chunk of {chunk} bytes is never used: below {least} NCCL would round it down to"
                f" 0 with {rule.choice.protocol.value}",
                f"{least} or more, or -1",
            )
        elif most is None:
            yield LintIssue(
                Severity.NOTE,
                "chunk",
                line,
                f"with {algorithm.value} a chunk size is used only where it is smaller than NCCL's "
                "own, as NCCL does not check it against that algorithm's buffer",
            )
        elif chunk > most:
            yield LintIssue(
                Severity.NOTE,
                "chunk",
                line,
                f"NCCL cuts a chunk of {chunk} bytes to {most} unless its buffers were made larger",
            )


def _lines(items: Sequence[NumberedRule]) -> str:
    return "line " + ", ".join(str(item.line) for item in items[:5]) + ", ..." * (len(items) > 5)


def _nvidia(rules: Sequence[NumberedRule]) -> Iterator[LintIssue]:
    """Yield a note for each value that NVIDIA's example plugin (2.28 to 2.31) reads differently."""
    unset = [item for item in rules if item.rule.choice.channels is None]
    chunked = [item for item in rules if item.rule.choice.chunk_bytes is not None]
    one = (
        "channels -1 ({}) keeps NCCL's channels here; NVIDIA's example plugin reads it as 1"
        " channel, and sets 1 channel for every call without a rule, too"
    )
    row = "NVIDIA's example plugin reads the row ({}) without its chunk size"
    hint = "load our plugin for this file: nccltune env"
    for items, said in ((unset, one), (chunked, row)):
        if items:
            yield LintIssue(
                Severity.NOTE, "nvidia", items[0].line, said.format(_lines(items)), hint
            )
