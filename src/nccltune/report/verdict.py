# SPDX-License-Identifier: Apache-2.0
"""The verdict in one sentence, and what to know before believing it."""

from collections.abc import Sequence

from nccltune.analyze.result import Analysis
from nccltune.model.finding import Finding, FindingKind
from nccltune.report.data import Note, Tone
from nccltune.report.words import counted, gain_text, listed, percent_text, where_text
from nccltune.tune.result import Decision, TunedGroup

NAMED = 3
"""So many collectives are named in the verdict; more would be a list, not a sentence."""
_NOTES = {
    FindingKind.WRONG_RESULTS: "wrong results: their timings are left out",
    FindingKind.SUSPECT_RUN: "a run is not what it claims to be",
    FindingKind.SINGLE_SAMPLES: "noise cannot be told from so few timings",
    FindingKind.NO_DEFAULT: "the default was not measured",
    FindingKind.BELOW_EXPECTED: "slower than the platform should be: check it before tuning",
    FindingKind.NOT_A_TUNING_PROBLEM: "not a tuning problem: check the base performance",
}
"""Findings that a reader must know of before the verdict means anything, worst first."""


def verdict(analysis: Analysis, groups: Sequence[TunedGroup]) -> tuple[str, Tone]:
    """One sentence on all groups, and its tone."""
    if not analysis.samples:
        return "Nothing was measured yet.", "unknown"
    if not groups:
        return "No rules: NCCL asks no tuner about the collectives measured here.", "unknown"
    ruled = [group for group in groups if group.rules]
    if not ruled:
        return _without_rules(analysis, groups)
    number = sum(len(group.rules) for group in ruled)
    if all(group.expected_gain is None for group in ruled):
        names = listed(_first([_name(group, groups) for group in ruled], len(ruled)))
        return (
            f"{counted(number, 'rule')} {'name' if number > 1 else 'names'} the fastest choice "
            f"measured for {names}; the gain is unknown, because the default was not measured.",
            "unknown",
        )
    known = [group for group in ruled if group.expected_gain is not None]
    known.sort(key=lambda group: -(group.expected_gain or 1.0))
    clauses = [
        f"{_name(group, groups)} {gain_text(group.expected_gain or 1.0)}"
        f"{'' if index else ' faster'} {_where(group)}"
        for index, group in enumerate(known)
    ]
    gains = f"{listed(_first(clauses, len(ruled)))}; {_rest(analysis, groups)}"
    rules = counted(number, "rule")
    if any(evidence.sure for group in ruled for evidence in group.rules):
        return f"{rules} {'make' if number > 1 else 'makes'} {gains}.", "gain"
    return f"{rules} should make {gains}; noise is only assumed.", "gain"


def outcome(analysis: Analysis, group: TunedGroup) -> str:
    """What was decided for one group, in a few words."""
    if group.rules:
        sizes = sum(len(evidence.sizes) for evidence in group.rules)
        return f"{counted(len(group.rules), 'rule')} at {sizes} of {len(group.decisions)} sizes"
    if _right(analysis, group):
        return "NCCL's default is right, within noise"
    by_reason: dict[str, int] = {}
    for left in group.left_alone:
        by_reason[left.reason] = by_reason.get(left.reason, 0) + left.sizes
    if not by_reason:
        return "no rule"
    reason, sizes = max(by_reason.items(), key=lambda item: item[1])
    where = "" if len(by_reason) == 1 else f" (at {sizes} of {len(group.decisions)} sizes)"
    return f"no rule: {reason}{where}"


def notes(findings: Sequence[Finding]) -> list[Note]:
    """What must be known with the verdict, worst first; each leads to the first such finding."""
    found = []
    for kind, text in _NOTES.items():
        numbers = [number for number, finding in enumerate(findings, 1) if finding.kind is kind]
        if numbers:
            many = f" ({len(numbers)} findings)" if len(numbers) > 1 else ""
            found.append(Note(text[0].upper() + text[1:] + many, f"finding-{numbers[0]}"))
    return found


def _without_rules(analysis: Analysis, groups: Sequence[TunedGroup]) -> tuple[str, Tone]:
    if not any(row.default_us is not None for group in groups for row in group.decisions):
        return "No rules: there is no default to beat, because it was not measured.", "unknown"
    if all(_right(analysis, group) for group in groups):
        floor = max(group.noise for group in groups)
        return (
            "No rule is needed: NCCL's default is right everywhere, within noise "
            f"({percent_text(floor)}); nothing is changed.",
            "right",
        )
    if all(group.noise_source == "assumed" for group in groups):
        return (
            "No rules: nothing beats NCCL's default by more than the noise assumed; everything is "
            "left as NCCL has it.",
            "unknown",
        )
    return (
        "No rules: no gain over NCCL's default is sure enough to change it; everything is left as "
        "NCCL has it.",
        "unknown",
    )


def _rest(analysis: Analysis, groups: Sequence[TunedGroup]) -> str:
    if all(_right(analysis, group) for group in groups):
        return "the rest is right within noise and left as NCCL has it"
    return "everything else is left as NCCL has it"


def _right(analysis: Analysis, group: TunedGroup) -> bool:
    """Whether the timings show the default to be right at every size that keeps it: it was
    measured there, noise is known, and no bad crossover reaches there."""
    kept = [row for row in group.decisions if row.choice is None]
    crossed = [
        finding
        for finding in analysis.findings
        if finding.kind is FindingKind.BAD_CROSSOVER
        and (finding.collective, finding.scale) == (group.collective, group.scale)
    ]
    return group.noise_source != "assumed" and all(
        row.default_us is not None and not any(_reaches(finding, row) for finding in crossed)
        for row in kept
    )


def _reaches(finding: Finding, row: Decision) -> bool:
    return (finding.min_bytes or 0) <= row.bytes <= (finding.max_bytes or 0)


def _where(group: TunedGroup) -> str:
    ruled = sorted({size for evidence in group.rules for size in evidence.sizes})
    return where_text(ruled, [row.bytes for row in group.decisions])


def _name(group: TunedGroup, groups: Sequence[TunedGroup]) -> str:
    """The collective, with its scale and registration where the report has several."""
    parts = []
    if len({other.scale for other in groups}) > 1:
        parts.append(str(group.scale))
    if len({other.registered for other in groups}) > 1 and group.registered:
        parts.append("registered")
    return group.collective.prose + (f" ({', '.join(parts)})" if parts else "")


def _first(parts: list[str], whole: int) -> list[str]:
    """The first few parts and how many of `whole` are left."""
    return parts if whole <= NAMED else [*parts[:NAMED], f"{whole - NAMED} more"]
