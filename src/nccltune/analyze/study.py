# SPDX-License-Identifier: Apache-2.0
"""Analyse a whole study."""

from collections.abc import Mapping, Sequence

import msgspec

from nccltune.analyze.compared import not_compared
from nccltune.analyze.curves import ASSUMED_NOISE, curve, noise, saturation
from nccltune.analyze.expected import Expectation, expected_findings
from nccltune.analyze.falling_findings import falling_findings
from nccltune.analyze.findings import condition_findings
from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.result import Analysis, Condition, ConditionAnalysis, titles
from nccltune.analyze.timings import SortedSamples, Timings
from nccltune.model.choice import rest_of
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale, count

_MOST_LISTED = 3
_ORDER = [
    FindingKind.WRONG_RESULTS,
    FindingKind.SUSPECT_RUN,
    FindingKind.BAD_CROSSOVER,
    FindingKind.FALLING_TIME,
    FindingKind.BELOW_EXPECTED,
    FindingKind.NOT_A_TUNING_PROBLEM,
    FindingKind.DIP,
    FindingKind.PLATEAU,
    FindingKind.NO_DEFAULT,
    FindingKind.NOT_COMPARED,
    FindingKind.SINGLE_SAMPLES,
    FindingKind.NOISY,
    FindingKind.NOT_SATURATED,
    FindingKind.AS_EXPECTED,
]


def analyze(
    platform: Platform,
    found: SortedSamples,
    *,
    suspect: Sequence[str] = (),
    expected: Sequence[Expectation] = (),
    assumed_noise: float = ASSUMED_NOISE,
    names: Mapping[str, str] | None = None,
) -> Analysis:
    """Return the curves and findings of sorted samples.

    - `suspect`: sentences about runs whose data is in doubt; each becomes a finding
    - `expected`: the bandwidths that the links allow; empty if they are unknown
    - `assumed_noise`: the noise as a fraction, used if the timings are too few to measure it
    - `names`: the files of the processes, to name slow runs

    >>> from nccltune.analyze import sort_samples
    >>> from nccltune.examples import example
    >>> from nccltune.study.files import Study
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> analysis = analyze(study.platform(), sort_samples(study.samples()))
    >>> analysis.conditions[0].condition.title
    'all-reduce, 4 nodes, 4 ranks'
    """
    findings = [
        Finding(kind=FindingKind.SUSPECT_RUN, sentence=sentence)
        for sentence in (*suspect, *found.doubts)
    ]
    every = found.curves
    named = titles(item.condition for item in every)
    findings += _left_out(found)
    known = {(item.collective, item.scale, item.limits): item for item in expected}
    reported: set[tuple[Collective, Scale]] = set()
    conditions = [
        _condition(item, named[item.condition], platform.line_rate_gb_per_s, assumed_noise)
        for item in every
    ]
    placed = {item.condition: item for item in conditions}
    for analysis, timings in zip(conditions, every, strict=True):
        table = _table(timings, assumed_noise)
        what = (timings.condition.collective, timings.condition.scale)
        expectation = known.get((*what, timings.condition.limits))
        findings += condition_findings(
            analysis,
            timings,
            table,
            beside=placed.get(analysis.condition.other_placement),
            names=names,
            rated=expectation is None,
        )
        if what not in reported and expectation is not None:
            # Report once for each collective and scale, for its first condition. Conditions out of
            # place are sorted before conditions in place, and the default before forced algorithms.
            reported.add(what)
            findings += expected_findings(platform, analysis, expectation)
    crossovers = [item for item in findings if item.kind is FindingKind.BAD_CROSSOVER]
    pairs = list(zip(conditions, every, strict=True))
    findings += falling_findings(pairs, crossovers, assumed_noise, names or {})
    for table in gain_tables(found.timings, assumed_noise):
        findings += _what_is_missing(table)
    spoilt = {(item.collective, item.scale) for item in found.wrong}
    findings += [x for x in not_compared(conditions) if (x.collective, x.scale) not in spoilt]
    findings.sort(key=lambda finding: _ORDER.index(finding.kind))
    return Analysis(platform, conditions, findings, found.samples)


def _condition(
    timings: Timings, title: str, line_rate: float | None, assumed_noise: float
) -> ConditionAnalysis:
    found = ConditionAnalysis(
        condition=timings.condition,
        curves=[curve(timings, choice) for choice in timings.choices],
        noise=noise(timings, assumed_noise),
        saturation=None,
        samples=timings.samples,
        rounds=timings.rounds,
        title=title,
        ran_predicted=timings.ran_predicted,
    )
    return msgspec.structs.replace(found, saturation=saturation(found.shown, line_rate))


def _table(timings: Timings, assumed_noise: float) -> GainTable | None:
    tables = gain_tables([timings], assumed_noise)
    return tables[0] if tables else None


def _left_out(found: SortedSamples) -> list[Finding]:
    findings = [
        Finding(
            kind=FindingKind.WRONG_RESULTS,
            sentence=wrong.sentence,
            where=Condition(wrong.collective, wrong.scale).title,
            collective=wrong.collective,
            scale=wrong.scale,
            min_bytes=min(wrong.sizes),
            max_bytes=max(wrong.sizes),
            evidence={"timings": float(len(wrong.sizes))},
        )
        for wrong in found.wrong
    ]
    if found.without_scale:
        findings.append(
            Finding(
                kind=FindingKind.SUSPECT_RUN,
                sentence=f"{count(found.without_scale, 'timing')} left out because the number of "
                "nodes or ranks is unknown, and runs of unknown scales cannot be compared: import "
                "again with --nodes and --ranks",
            )
        )
    if found.unscaled:
        kinds = dict.fromkeys(
            f"{item.condition.collective.prose}, {item.condition.scale}" for item in found.unscaled
        )
        findings.append(
            Finding(
                kind=FindingKind.NOT_COMPARED,
                sentence=f"{'; '.join(kinds)}. A curve needs no scale, but a rule does: import "
                "again with --nodes and --ranks",
            )
        )
    limited = [item.condition for item in found.curves if item.condition.limits]
    if limited:
        listed = ", ".join(
            dict.fromkeys(
                f"{item.limits}, {rest_of(item.limits)}" for item in limited if item.limits
            )
        )
        findings.append(
            Finding(
                kind=FindingKind.NOT_COMPARED,
                sentence=f"{listed}: such a run is neither NCCL's default nor a whole choice, so "
                "it makes no rule",
            )
        )
    if found.one_rank:
        findings.append(
            Finding(
                kind=FindingKind.SUSPECT_RUN,
                sentence=f"{count(found.one_rank, 'timing')} left out because they are of a single "
                "rank, where nothing is communicated",
            )
        )
    return findings


def _what_is_missing(table: GainTable) -> list[Finding]:
    what = Condition(
        table.collective,
        table.scale,
        registered=table.registered,
        graph=all(timings.condition.graph for timings in table.timings),
        pipe_ops=table.pipe_ops,
    ).title
    findings = []
    if not table.has_default:
        one = table.choices[0].label if table.choices else "a tuned run"
        only = f"{one} is the only whole choice measured, so its gain is unknown"
        many = (
            "NCCL's default was not measured, so nothing is known about what the choices gain over "
            "it"
        )
        findings.append(
            Finding(
                kind=FindingKind.NO_DEFAULT,
                sentence=f"{what}: {many if len(table.choices) > 1 else only}; measure the default "
                "in the same run",
                where=what,
                collective=table.collective,
                scale=table.scale,
            )
        )
        return findings
    problems: dict[tuple[str, str], list[str]] = {}
    for choice in table.choices:
        if table.noise.known and table.shares_rounds(choice):
            # A sweep drops slow choices after one or two rounds, so few rounds are no problem here.
            continue
        layout = table.layout(choice)
        if not layout.separable:
            problems.setdefault((layout.problem, layout.remedy), []).append(choice.label)
    findings += [
        Finding(
            kind=FindingKind.SINGLE_SAMPLES,
            sentence=f"{what}: no gain of {_listed(labels)} can be sure: {problem}. To decide, "
            f"{remedy}",
            where=what,
            collective=table.collective,
            scale=table.scale,
            evidence={"assumed_noise": table.row_noise},
        )
        for (problem, remedy), labels in problems.items()
    ]
    return findings


def _listed(labels: Sequence[str]) -> str:
    if len(labels) <= _MOST_LISTED:
        return ", ".join(labels)
    return f"{', '.join(labels[:_MOST_LISTED])} and {len(labels) - _MOST_LISTED} more choices"
