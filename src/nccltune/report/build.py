# SPDX-License-Identifier: Apache-2.0
"""Make the report's data from an analysis and its tuning."""

from collections.abc import Sequence

import msgspec

from nccltune.analyze.default_runs import ran_text
from nccltune.analyze.findings import NOT_TUNING
from nccltune.analyze.result import Analysis, Condition, ConditionAnalysis, Noise
from nccltune.model.choice import DEFAULT
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.numbers import counted, percent_text
from nccltune.model.platform import Platform
from nccltune.prove.job import JobProof
from nccltune.prove.result import Proof, ProofGroup
from nccltune.report import remarks, words
from nccltune.report.charts import (
    choice_map,
    model_series,
    proven_series,
    saturation_text,
    series,
    tuned_series,
)
from nccltune.report.data import (
    Checks,
    Commands,
    ConditionRow,
    FindingRow,
    GroupRow,
    HeaderFact,
    LeftRow,
    Mark,
    NoiseRow,
    Report,
    RuleRow,
    SizeRow,
    WorkloadReport,
)
from nccltune.report.proof import build_proof
from nccltune.report.remarks import AlikeFindings, grouped
from nccltune.report.verdict import (
    ProvenGain,
    firm_rules,
    group_summary,
    notes,
    proven_gains,
    verdict,
)
from nccltune.tune.result import Decision, LeftAlone, RuleEvidence, TunedGroup, Tuning, is_clear


def header_facts(
    platform: Platform,
    analysis: Analysis,
    tuning: Tuning,
    tool_version: str,
    proof: Proof | None = None,
) -> list[HeaderFact]:
    """Return the facts of the header. Unknown facts are left out."""
    machine = msgspec.structs.replace(platform, nccl_version=None)
    facts = [HeaderFact("Platform", words.printable(machine.title))]
    versions = []
    if platform.nccl_version or tuning.nccl_version:
        library = "RCCL" if "AMD" in (platform.gpu or "") else "NCCL"
        versions.append(f"{library} {platform.nccl_version or tuning.nccl_version}")
    if platform.driver_version:
        versions.append(f"driver {platform.driver_version}")
    versions.append(f"nccltune {tool_version}")
    facts.append(HeaderFact("Versions", words.printable(" · ".join(versions))))
    facts.append(_when(platform, analysis, tuning))
    facts.append(HeaderFact("Timings (n)", _timings(analysis)))
    facts += _noise_facts([item.noise for item in analysis.conditions], proof)
    if platform.settings:
        pairs = " ".join(f"{name}={value}" for name, value in sorted(platform.settings.items()))
        facts.append(HeaderFact("Settings", words.printable(pairs)))
    return facts


def _when(platform: Platform, analysis: Analysis, tuning: Tuning) -> HeaderFact:
    """Return the date of the measurement, else of the analysis, and the scale if it is one."""
    scales = {item.condition.scale for item in analysis.conditions}
    where = f", {scales.pop()}" if len(scales) == 1 else ""
    date = words.printable((platform.recorded_at or tuning.created)[:10])
    return HeaderFact("Measured" if platform.recorded_at else "Analysed", date + where)


def _timings(analysis: Analysis) -> str:
    count = counted(analysis.samples, "timing")
    rounds = sorted({item.rounds for item in analysis.conditions})
    if not rounds:
        return count
    if len(rounds) > 1:
        return f"{count} in {rounds[0]} to {rounds[-1]} rounds"
    return f"{count} in {counted(rounds[0], 'round')}"


def _noise_facts(noises: Sequence[Noise], proof: Proof | None) -> list[HeaderFact]:
    """Return the noise floor, measured if any is; the proof, another run, has its own."""
    if not noises:
        return []
    known = [noise for noise in noises if noise.known]
    typical = sorted(noise.typical for noise in known or noises)
    high = max(noise.high for noise in known or noises)
    if not known:
        value = f"unknown; {percent_text(high)} is assumed"
    else:
        value = f"{percent_text(typical[len(typical) // 2])} typical"
        value += f", {percent_text(high)} at worst" if high > typical[0] else ""
    sources = {remarks.NOISE_WORDS.get(noise.source, noise.source) for noise in known or noises}
    if proof is not None and proof.rounds:
        value += f"; {percent_text(proof.noise)} at worst in the proof, which is another run"
    return [HeaderFact("Noise floor", value, "; ".join(sorted(sources)))]


CHECK_FIRST = (
    "Measure the links alone: GPU to GPU (nvbandwidth, p2pBandwidthLatencyTest) and NIC to NIC "
    "(ib_write_bw, iperf3). NCCL cannot be faster than they are.",
    "Look at how GPUs and NICs are wired (nvidia-smi topo -m): every GPU should have a NIC behind "
    "the same PCIe switch, and GPUDirect RDMA should be in use.",
    "Look for left-over NCCL_* settings in the environment, /etc/nccl.conf and the job file.",
    "Check CPU and NUMA binding of the ranks, and that nothing else uses the GPUs or the network.",
)
"""Steps to check if even the best choice is slow, the most likely cause first."""
RULES_NOTE = (
    "A sure rule beats NCCL's default over its whole range of sizes, beyond noise and by at least "
    "{gain}. A single size in it may gain less. A candidate is the best of what was measured: its "
    "noise or its gain is not known. A proven rule was measured against the default by verify."
)
UNMARKED = frozenset({FindingKind.NOT_COMPARED, FindingKind.NO_DEFAULT})
"""Kinds of findings that are about what was measured, not about a range of the curve."""
NOT_TUNED = frozenset({FindingKind.NOT_A_TUNING_PROBLEM, FindingKind.BELOW_EXPECTED})
"""Kinds of findings that no choice of algorithm and protocol improves."""


def build(
    analysis: Analysis,
    tuning: Tuning,
    *,
    commands: Commands,
    tool_version: str,
    sources: Sequence[str] = (),
    proof: Proof | None = None,
    job: JobProof | None = None,
    checks: Checks | None = None,
    workload: WorkloadReport | None = None,
) -> Report:
    """Return the report of one study.

    `sources` names the files that the timings were read from. `proof` is the proof of the
    configuration that has the rules of `tuning`, `job` that of a job with this configuration.

    >>> from nccltune.analyze import analyze, sort_samples
    >>> from nccltune.examples import example
    >>> from nccltune.report import html
    >>> from nccltune.study.files import Study
    >>> from nccltune.tune.result import TuneOptions
    >>> from nccltune.tune.study import tune
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> found = sort_samples(study.samples())
    >>> tuning = tune(study.name, study.platform(), found, TuneOptions(), created="2026-01-31")
    >>> commands = Commands(reproduce="", reproduce_note="", rebuild="", deploy=None)
    >>> report = build(
    ...     analyze(study.platform(), found), tuning, commands=commands, tool_version="1.0"
    ... )
    >>> report.tone
    'gain'
    >>> html.render(report)[:15]
    '<!DOCTYPE html>'
    """
    platform = analysis.platform
    labels = _labels(analysis.conditions)
    alike = grouped(analysis.findings)
    findings = [
        _finding(number, finding, analysis.conditions, labels)
        for number, finding in enumerate(alike, 1)
    ]
    rows = []
    for index, item in enumerate(analysis.conditions):
        group = _group_of(item.condition, tuning.groups)
        decided = None if group is None else tuning.groups[group]
        shown = _proof_of(item.condition, proof)
        rows.append(_condition(index, item, labels[index], group, decided, findings, shown))
    sentence, tone = verdict(analysis, tuning.groups, proof)
    if job is not None:
        of_job = words.printable(f"{job.sentence[0].upper()}{job.sentence[1:]}.")
        if job.harms:
            sentence, tone = f"{of_job} {sentence}", "unknown"
        else:
            sentence = f"{sentence} {of_job}"
    proven = proven_gains(proof, tuning.groups)
    return Report(
        study=words.printable(platform.name),
        tone=tone,
        verdict=sentence,
        notes=notes(alike),
        replay=platform.replay and words.printable(platform.replay),
        facts=header_facts(platform, analysis, tuning, tool_version, proof),
        line_rate_gb_per_s=platform.line_rate_gb_per_s,
        groups=[
            _group(index, item, label, analysis, gain)
            for index, (item, label, gain) in enumerate(
                zip(tuning.groups, _group_labels(tuning.groups), proven, strict=True)
            )
        ],
        conditions=rows,
        findings=findings,
        check_first=list(CHECK_FIRST)
        if any(item.kind in NOT_TUNED for item in analysis.findings)
        else [],
        sources=[words.printable(source) for source in sources],
        remarks=[words.printable(remark) for remark in platform.notes],
        commands=commands,
        created=tuning.created,
        tool_version=tool_version,
        rules_note=RULES_NOTE.format(gain=percent_text(tuning.options.min_gain)),
        proof=None if proof is None else build_proof(proof),
        workload=workload,
        checks=checks,
    )


def _labels(conditions: Sequence[ConditionAnalysis]) -> list[str]:
    """Return the shortest labels that distinguish the conditions: collective, title, number."""
    for name in (
        lambda item: item.condition.collective.prose,
        lambda item: _title(item).replace(f", {item.condition.scale}", "", 1),
        _title,
    ):
        labels = [name(condition) for condition in conditions]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, 1)]


def _title(item: ConditionAnalysis) -> str:
    return words.printable(item.title)


def _reaches(group: TunedGroup, condition: Condition) -> bool:
    return group.registered in (None, condition.registered) and group.pipe_ops in (
        None,
        condition.pipe_ops,
    )


def _group_of(condition: Condition, groups: Sequence[TunedGroup]) -> int | None:
    for index, group in enumerate(groups):
        if (group.collective, group.scale) == (condition.collective, condition.scale) and _reaches(
            group, condition
        ):
            return index
    return None


def _condition(
    index: int,
    item: ConditionAnalysis,
    label: str,
    group: int | None,
    decided: TunedGroup | None,
    findings: Sequence[FindingRow],
    proof: ProofGroup | None,
) -> ConditionRow:
    condition = item.condition
    decisions = {} if decided is None else {row.bytes: row for row in decided.decisions}
    lines = [series(curve, item.ran_predicted) for curve in item.curves]
    knows = any(point.ran for point in item.shown.points)
    # Of an unknown number of ranks only the time is drawn: as for one rank, the factor is 0.
    factor = condition.collective.bus_factor(max(1, condition.scale.ranks))
    if proof is not None:
        # The sweep's default becomes one of the lines that the legend switches on.
        lines = [
            msgspec.structs.replace(line, role="choice") if line.role == "default" else line
            for line in lines
        ]
        lines = [*proven_series(proof, factor), *lines]
    elif decided is not None and any(row.choice for row in decided.decisions):
        line = "tuned, expected" if firm_rules(decided) else "candidates"
        lines.insert(1 if item.curve(DEFAULT) else 0, tuned_series(item, decisions, line))
    if item.model is not None:
        lines.append(model_series(item.model, factor))
    return ConditionRow(
        id=_condition_id(index),
        label=label,
        title=_title(item),
        collective=condition.collective.value,
        nodes=condition.scale.nodes,
        ranks=condition.scale.ranks,
        in_place=condition.in_place,
        registered=condition.registered,
        graph=condition.graph,
        group_calls=condition.group_calls,
        pipe_ops=condition.pipe_ops,
        dtype=condition.dtype and words.printable(condition.dtype),
        redop=condition.redop and words.printable(condition.redop),
        root=condition.root,
        group=None if group is None else f"group-{group + 1}",
        samples=item.samples,
        rounds=item.rounds,
        bus_factor=factor,
        noise=NoiseRow(
            item.noise.typical,
            item.noise.high,
            item.noise.known,
            remarks.NOISE_WORDS.get(item.noise.source, item.noise.source),
        ),
        saturation=saturation_text(item),
        series=lines,
        map=choice_map(item, decisions),
        marks=[
            Mark(finding.number, finding.min_bytes, finding.max_bytes)
            for finding in findings
            if _condition_id(index) in finding.conditions
            and finding.kind not in UNMARKED
            and finding.min_bytes is not None
            and finding.max_bytes is not None
        ],
        ran=ran_text(item) if knows else None,
        model=None if item.model is None else item.model.sentence,
    )


def _proof_of(condition: Condition, proof: Proof | None) -> ProofGroup | None:
    """Return the proof of a condition: out of place, without registered buffers and graph."""
    if proof is None or condition.in_place or condition.registered or condition.graph:
        return None
    for group in proof.groups:
        if (group.collective, group.scale) == (condition.collective, condition.scale):
            return group if any(size.tuned_us for size in group.sizes) else None
    return None


def _condition_id(index: int) -> str:
    return f"condition-{index + 1}"


def _places(finding: Finding, conditions: Sequence[ConditionAnalysis]) -> list[int]:
    """Return the indexes of the conditions that show a finding with a range of sizes."""
    if finding.min_bytes is None or finding.max_bytes is None:
        return []
    return [
        index
        for index, item in enumerate(conditions)
        if (finding.collective, finding.scale) == (item.condition.collective, item.condition.scale)
        and finding.where in (None, item.title)
    ]


def _group_labels(groups: Sequence[TunedGroup]) -> list[str]:
    """Return the shortest labels that distinguish the groups."""
    for scale in (False, True):
        labels = [_group_name(group, scale) for group in groups]
        if len(set(labels)) == len(labels):
            break
    return labels


def _group_name(group: TunedGroup, scale: bool) -> str:
    parts = [group.collective.prose]
    parts += [str(group.scale)] if scale else []
    parts += [group.calls_title] if group.calls_title else []
    return ", ".join(parts)


def _group(
    index: int, group: TunedGroup, label: str, analysis: Analysis, proven: ProvenGain | None
) -> GroupRow:
    return GroupRow(
        id=f"group-{index + 1}",
        label=label,
        title=_group_name(group, scale=True),
        outcome=group_summary(analysis, group, proven),
        expected_gain=group.expected_gain,
        recovered=group.recovered,
        noise=group.noise,
        rules=[_rule(evidence) for evidence in group.rules],
        left_alone=[
            LeftRow(left.min_bytes, left.max_bytes, left.sizes, left.reason)
            for left in group.left_alone
        ],
        sizes=[_size(decision, group.left_alone) for decision in group.decisions],
        proven_gain=None if proven is None else proven.gain,
    )


def _rule(evidence: RuleEvidence) -> RuleRow:
    rule = evidence.rule
    sizes = evidence.sizes or [rule.min_bytes, rule.max_bytes]
    return RuleRow(
        min_bytes=rule.min_bytes,
        max_bytes=rule.max_bytes,
        first_bytes=min(sizes),
        last_bytes=max(sizes),
        choice=rule.choice.label,
        gain=evidence.gain,
        gain_low=evidence.gain_low,
        gain_high=evidence.gain_high,
        least=evidence.least,
        most=evidence.most,
        sizes=len(evidence.sizes),
        timings=evidence.timings,
        state=evidence.state,
        reason=evidence.reason,
        channels=evidence.channels,
        default_channels=evidence.default_channels,
        decided_by=evidence.decided_by and words.printable(evidence.decided_by),
    )


def _size(decision: Decision, left_alone: Sequence[LeftAlone]) -> SizeRow:
    size = decision.bytes
    return SizeRow(
        bytes=size,
        choice=None if decision.choice is None else decision.choice.label,
        default_us=decision.default_us,
        tuned_us=decision.tuned_us,
        best=DEFAULT if decision.best is None else decision.best.label,
        best_us=decision.best_us,
        gain=decision.gain if is_clear(decision.gain_low, decision.gain_high) else None,
        gain_low=decision.gain_low,
        gain_high=decision.gain_high,
        channels=decision.channels,
        default_channels=decision.default_channels,
        compared=all(
            left.compared or not left.min_bytes <= size <= left.max_bytes for left in left_alone
        ),
    )


def _finding(
    number: int,
    alike: AlikeFindings,
    conditions: Sequence[ConditionAnalysis],
    labels: Sequence[str],
) -> FindingRow:
    finding = alike.first
    titles = dict(zip((item.title for item in conditions), labels, strict=True))
    where = titles.get(finding.where) if finding.where else None
    text = finding.sentence.removeprefix(f"{finding.where}: ")
    if finding.kind is FindingKind.NOT_A_TUNING_PROBLEM:
        # Remove the text that is also in the heading and in `check_first`.
        text = text.removesuffix(NOT_TUNING).strip()
    return FindingRow(
        number=number,
        id=f"finding-{number}",
        kind=finding.kind,
        heading=remarks.REMARKS[finding.kind].heading,
        sentence=words.sentence(words.printable(text)),
        where=where,
        min_bytes=finding.min_bytes,
        max_bytes=finding.max_bytes,
        tuning=finding.tuning,
        conditions=[
            _condition_id(index)
            for one in (finding, *alike.others)
            for index in _places(one, conditions)
        ],
        more=[words.printable(other.sentence) for other in alike.others],
    )
