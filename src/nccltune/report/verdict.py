# SPDX-License-Identifier: Apache-2.0
"""State the verdict of a report in a few sentences, with proven gains and caveats."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.analyze.compared import comparisons
from nccltune.analyze.result import Analysis
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.numbers import counted, gain_text, percent_text
from nccltune.model.rule import Rule, RuleState
from nccltune.prove.result import Proof, ProvenSize, RuleProof
from nccltune.report.data import Note, Tone
from nccltune.report.remarks import REMARKS, AlikeFindings
from nccltune.report.words import listed, range_text, where_text
from nccltune.tune.result import Decision, RuleEvidence, TunedGroup


class ProvenGain(NamedTuple):
    """The proven gain of the rules of one group that hold: their geometric mean by octaves.

    `sizes` are those that such a rule covers, `measured` all of the proof, ascending.
    """

    gain: float
    rules: int
    sizes: list[int]
    measured: list[int]


def proven_gains(proof: Proof | None, groups: Sequence[TunedGroup]) -> list[ProvenGain | None]:
    """Return the proven gain of every group; None unless all rules were measured and one holds."""
    if proof is None:
        return [None] * len(groups)
    judged = {item.rule: item for item in proof.rules}
    return [_of_group(proof, group, judged) for group in groups]


def _of_group(proof: Proof, group: TunedGroup, judged: dict[Rule, RuleProof]) -> ProvenGain | None:
    rules = [evidence.rule for evidence in group.rules]
    if any(rule not in judged for rule in rules):
        return None
    sizes = next(
        (
            found.sizes
            for found in proof.groups
            if (found.collective, found.scale) == (group.collective, group.scale)
            and found.registered == bool(group.registered)
            and found.pipe_ops == (group.pipe_ops or 1)
        ),
        [],
    )
    holding = [
        (item, covered)
        for rule in rules
        if (item := judged[rule]).verdict == "holds"
        and item.gain is not None
        and (covered := _covered(item, sizes))
    ]
    if not holding:
        return None
    weights = [_octaves(covered) for _, covered in holding]
    mean = math.fsum(
        weight * math.log(item.gain or 1.0)
        for weight, (item, _) in zip(weights, holding, strict=True)
    ) / math.fsum(weights)
    return ProvenGain(
        gain=math.exp(mean),
        rules=len(holding),
        sizes=sorted({size for _, covered in holding for size in covered}),
        measured=sorted(size.bytes for size in sizes),
    )


def _covered(item: RuleProof, sizes: Sequence[ProvenSize]) -> list[int]:
    rule = item.rule
    return [
        size.bytes
        for size in sizes
        if size.choice is not None
        and size.gain is not None
        and rule.min_bytes <= size.bytes <= rule.max_bytes
    ]


def _octaves(sizes: Sequence[int]) -> float:
    """Return the octaves from the smallest to the largest size, at least 0.1."""
    return max(0.1, math.log2(max(1, *sizes) / max(1, min(sizes))))


NAMED = 3
"""The largest number of collectives that the verdict names."""
PLACES = 2
"""The largest number of places that a caveat names."""


def verdict(
    analysis: Analysis, groups: Sequence[TunedGroup], proof: Proof | None = None
) -> tuple[str, Tone]:
    """Return the verdict and its tone: proven gains if there are any, else expected ones."""
    if not analysis.samples:
        return "Nothing was measured yet.", "unknown"
    if not groups:
        return _without_groups(analysis), "unknown"
    ruled = [group for group in groups if group.rules]
    if not ruled:
        return _without_rules(analysis, groups, proof)
    rest = _rest(analysis, groups)
    if proven := _proven(ruled, groups, proof):
        return " ".join([*proven, *rest]), "gain"
    firm = [group for group in ruled if firm_rules(group)]
    candidates = _candidates(ruled, groups, bool(firm))
    if not firm:
        return " ".join([*candidates, *rest]), "unknown"
    return " ".join([*_expected(firm, groups, proof), *candidates, *rest]), "gain"


def group_summary(analysis: Analysis, group: TunedGroup, proven: ProvenGain | None = None) -> str:
    """Return a short summary of the decisions of one group."""
    if group.rules:
        firm = firm_rules(group)
        noun = "rule" if firm or proven is not None else "candidate"
        number = proven.rules if proven is not None else len(firm or group.rules)
        where = _where(firm or group.rules, group)
        if proven is not None:
            where = where_text(proven.sizes, proven.measured)
        more = len(group.rules) - number if firm and proven is None else 0
        also = f", and {counted(more, 'candidate')}" if more else ""
        return f"{counted(number, noun)} {where}{also}"
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


def notes(findings: Sequence[AlikeFindings]) -> list[Note]:
    """Return the caveats of the verdict, worst first, each with its first finding."""
    found = []
    for kind, remark in REMARKS.items():
        alike = [(n, item) for n, item in enumerate(findings, 1) if item.first.kind is kind]
        if not remark.caveat or not alike:
            continue
        every = [one for _, item in alike for one in (item.first, *item.others)]
        more = f" ({len(every)} findings)" if len(every) > 1 else ""
        text = remark.caveat + (f": {_places(every)}" if remark.is_placed else more)
        found.append(Note(text[0].upper() + text[1:], f"finding-{alike[0][0]}"))
    return found


def firm_rules(group: TunedGroup) -> list[RuleEvidence]:
    """Return the rules of a group that are more than candidates."""
    return [item for item in group.rules if item.state is not RuleState.CANDIDATE]


def _proven(
    ruled: Sequence[TunedGroup], groups: Sequence[TunedGroup], proof: Proof | None
) -> list[str]:
    if proof is None:
        return []
    gains = [
        (group, gain)
        for group, gain in zip(ruled, proven_gains(proof, ruled), strict=True)
        if gain is not None
    ]
    if not gains:
        return []
    gains.sort(key=lambda item: -item[1].gain)
    clauses = [f"{_name(group, groups)} {gain_text(gain.gain)}" for group, gain in gains]
    where = where_text(gains[0][1].sizes, gains[0][1].measured)
    number = sum(gain.rules for _, gain in gains)
    how = "Proven in a replay" if proof.replay else "Proven"
    sentences = [
        f"{how}: {counted(number, 'rule')} {'make' if number > 1 else 'makes'} "
        f"{_faster(clauses, where)}."
    ]
    if proof.slower:
        verb = "is" if proof.slower == 1 else "are"
        sentences.append(f"{counted(proof.slower, 'size')} {verb} slower than the default.")
    open_rules = sum(len(group.rules) for group in ruled) - number
    if open_rules:
        verb = "is" if open_rules == 1 else "are"
        sentences.append(f"{open_rules} more {verb} not proven.")
    return sentences


def _expected(
    firm: Sequence[TunedGroup], groups: Sequence[TunedGroup], proof: Proof | None
) -> list[str]:
    known = [group for group in firm if group.expected_gain is not None]
    known.sort(key=lambda group: -(group.expected_gain or 1.0))
    clauses = [f"{_name(group, groups)} {gain_text(group.expected_gain or 1.0)}" for group in known]
    number = sum(len(firm_rules(group)) for group in firm)
    if not known:
        return [f"{counted(number, 'rule')} {'are' if number > 1 else 'is'} proven."]
    sentences = [
        f"{counted(number, 'rule')} {'are' if number > 1 else 'is'} expected to make "
        f"{_faster(clauses, _where(firm_rules(known[0]), known[0]))}."
    ]
    if proof is not None:
        sentences.append("The proof has not confirmed a gain.")
    return sentences


def _faster(gains: list[str], where: str) -> str:
    """Return the gains of collectives as one clause. Only one collective has its sizes in it."""
    if len(gains) == 1:
        return f"{gains[0]} faster {where}"
    return f"{listed(_first(gains, len(gains)))} faster where they apply"


def _candidates(ruled: Sequence[TunedGroup], groups: Sequence[TunedGroup], more: bool) -> list[str]:
    found = [
        (group, item)
        for group in ruled
        for item in group.rules
        if item.state is RuleState.CANDIDATE
    ]
    if not found:
        return []
    names = list(dict.fromkeys(_name(group, groups) for group, _ in found))
    if len(names) > 2:
        # The scales are in the table below. With them the headline has more than two lines.
        names = list(dict.fromkeys(group.collective.prose for group, _ in found))
    which = f"{listed(_first(names, len(names)))}"
    why = "the gain is not sure yet"
    if all(item.gain is None for _, item in found):
        why = "the gain is unknown, because the default was not measured"
    number = counted(len(found), "more candidate" if more else "candidate")
    return [f"{number} for {which}, {'not' if len(found) == 1 else 'none'} proven: {why}."]


def _without_groups(analysis: Analysis) -> str:
    if not any(item.condition.collective.tuned for item in analysis.conditions):
        return "No rules: NCCL asks no tuner about the collectives measured here."
    reasons = dict.fromkeys(
        item.missing
        for item in comparisons(analysis)
        if item.conditions[0].condition.collective.tuned and item.missing
    )
    return f"No rules: {'; '.join([*reasons][:NAMED]) or 'nothing was compared'}."


def _without_rules(
    analysis: Analysis, groups: Sequence[TunedGroup], proof: Proof | None
) -> tuple[str, Tone]:
    if proof is not None and proof.dropped and not proof.rules:
        number = len(proof.dropped)
        return (
            f"No rule held in the proof: {counted(number, 'rule')} "
            f"{'was' if number == 1 else 'were'} removed. NCCL's default is kept at all sizes.",
            "unknown",
        )
    if not any(row.default_us is not None for group in groups for row in group.decisions):
        return "No rules: there is no default to beat, because it was not measured.", "unknown"
    if not any(left.compared for group in groups for left in group.left_alone):
        wrong = [x.sentence for x in analysis.findings if x.kind is FindingKind.WRONG_RESULTS]
        if wrong:
            return f"No rules: {'; '.join(wrong[:NAMED])}.", "unknown"
        return (
            "No rules: only NCCL's default was measured, so nothing was compared with it.",
            "unknown",
        )
    if all(_right(analysis, group) for group in groups):
        floor = max(group.noise for group in groups)
        return (
            "No rule is needed: NCCL's default is right everywhere, within noise "
            f"({percent_text(floor)}); nothing is changed.",
            "right",
        )
    if all(group.noise_source == "assumed" for group in groups):
        return (
            "No rules: nothing beats NCCL's default by more than the noise assumed. NCCL's "
            "default is kept at all sizes.",
            "unknown",
        )
    return (
        "No rules: no gain over NCCL's default is sure enough to change it. NCCL's default is "
        "kept at all sizes.",
        "unknown",
    )


def _rest(analysis: Analysis, groups: Sequence[TunedGroup]) -> list[str]:
    if not any(row.choice is None for group in groups for row in group.decisions):
        return []
    if all(_right(analysis, group) for group in groups):
        return ["No other size improved by more than noise; those keep NCCL's default."]
    return ["All other sizes keep NCCL's default."]


def _right(analysis: Analysis, group: TunedGroup) -> bool:
    """Return whether the default is right at every size that keeps it: compared, and no
    crossover."""
    if not all(left.compared for left in group.left_alone):
        return False
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


def _where(rules: Sequence[RuleEvidence], group: TunedGroup) -> str:
    ruled = sorted({size for evidence in rules for size in evidence.sizes})
    return where_text(ruled, [row.bytes for row in group.decisions])


def _places(findings: Sequence[Finding]) -> str:
    """Return places such as `all-gather 256 KiB – 4 MiB, all-reduce 64 KiB and 3 more`."""
    scales = {finding.scale for finding in findings}
    parts = []
    for finding in findings:
        words = [] if finding.collective is None else [finding.collective.prose]
        if len(scales) > 1 and finding.scale is not None:
            words.append(f"({finding.scale})")
        if finding.min_bytes is not None and finding.max_bytes is not None:
            words.append(range_text(finding.min_bytes, finding.max_bytes))
        parts.append(" ".join(words))
    every = list(dict.fromkeys(part for part in parts if part))
    more = f" and {len(every) - PLACES} more" if len(every) > PLACES else ""
    return ", ".join(every[:PLACES]) + more


def _name(group: TunedGroup, groups: Sequence[TunedGroup]) -> str:
    """Return the name of the collective, with scale, registration and pipe ops if they differ."""
    parts = []
    if len({other.scale for other in groups}) > 1:
        parts.append(str(group.scale))
    if len({other.calls_title for other in groups}) > 1 and group.calls_title:
        parts.append(group.calls_title)
    return group.collective.prose + (f" ({', '.join(parts)})" if parts else "")


def _first(parts: list[str], whole: int) -> list[str]:
    return parts if whole <= NAMED else [*parts[:NAMED], f"{whole - NAMED} more"]
