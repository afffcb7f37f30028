# SPDX-License-Identifier: Apache-2.0
"""The report as plain data: the output of `--json`, and the input of the page.

Times are in microseconds, bandwidth in GB/s (1e9 bytes a second), sizes as NCCL's tuner counts
them, noise and shares fractions. A gain is old time over new time. None is missing.
"""

from typing import Literal

import msgspec

from nccltune.doctor.result import RuleResult
from nccltune.model.finding import FindingKind
from nccltune.model.rule import RuleState
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.reference.placement import SystemFigure
from nccltune.report.words import no_shapes
from nccltune.report.worth import WorthLine

Tone = Literal["gain", "right", "unknown"]
Role = Literal["default", "tuned", "choice", "measured"]


class HeaderFact(msgspec.Struct, frozen=True):
    """One labelled fact of the header. `note` is its source, if that matters."""

    label: str
    value: str
    note: str | None = None


class Note(msgspec.Struct, frozen=True):
    """A caveat of the verdict. `target` is the id of an element on the page."""

    text: str
    target: str


class Series(msgspec.Struct, frozen=True):
    """One line of a chart as columns of equal length.

    A time is None where the line has a gap. `low_us` and `high_us` bound the 95 % confidence
    interval of the median `time_us` over `n` timings. `choice` names the choice at each size: that
    of the rules, or what NCCL ran as its default. None if it is unknown at all sizes. With a proof,
    the lines of the roles `default` and `tuned` are those that `verify` measured.
    """

    label: str
    role: Role
    bytes: list[int]
    n: list[int]
    time_us: list[float | None]
    low_us: list[float | None]
    high_us: list[float | None]
    busbw_gb_per_s: list[float | None]
    choice: list[str] | None = None


class ChoiceMap(msgspec.Struct, frozen=True):
    """The time of every choice relative to the best time at each size.

    `relative[row][column]` is for `choices[row]` at `bytes[column]`; None if it was not measured.
    `path[column]` is the row of the choice that the rules select; without a rule, of the default.
    None if that choice was not measured at this size. `ran[column]` is the row of the choice that
    NCCL ran as its default; None if this is unknown or was not measured.
    """

    bytes: list[int]
    choices: list[str]
    relative: list[list[float | None]]
    path: list[int | None]
    ran: list[int | None]


class NoiseRow(msgspec.Struct, frozen=True):
    """The noise between two medians of one choice over sizes: median and 90th percentile."""

    typical: float
    high: float
    known: bool
    words: str


class SizeRow(msgspec.Struct, frozen=True):
    """The effect of the rules at one measured size; without a `choice` it keeps the default.

    `compared` is whether a choice was compared with the default.
    """

    bytes: int
    choice: str | None
    default_us: float | None
    tuned_us: float
    best: str
    best_us: float
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    channels: int | None = None
    default_channels: int | None = None
    compared: bool = True


class RuleRow(msgspec.Struct, frozen=True):
    """A rule with its evidence, over its measured sizes `first_bytes` to `last_bytes`.

    `least` and `most` are gains of a single size. `channels` are the largest numbers at any size; a
    channel uses one SM. `decided_by` are runs that would make a candidate sure.
    """

    min_bytes: int
    max_bytes: int
    first_bytes: int
    last_bytes: int
    choice: str
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    least: float | None
    most: float | None
    sizes: int
    timings: int
    state: RuleState
    reason: str
    channels: int | None = None
    default_channels: int | None = None
    decided_by: str | None = None


class LeftRow(msgspec.Struct, frozen=True):
    """A range of sizes that keeps the default, and the reason."""

    min_bytes: int
    max_bytes: int
    sizes: int
    reason: str


class GroupRow(msgspec.Struct, frozen=True):
    """The decisions of one collective at one scale.

    `label` is the shortest text that tells groups apart. `recovered` is the share of the gain of
    the fastest choice at every size that the rules reach. `proven_gain` is None unless a proof
    measured every written rule, and one holds.
    """

    id: str
    label: str
    title: str
    outcome: str
    expected_gain: float | None
    recovered: float | None
    noise: float
    rules: list[RuleRow]
    left_alone: list[LeftRow]
    sizes: list[SizeRow]
    proven_gain: float | None = None


class Mark(msgspec.Struct, frozen=True):
    """The range of a finding on a curve. `finding` is the finding's number."""

    finding: int
    min_bytes: int
    max_bytes: int


class ConditionRow(msgspec.Struct, frozen=True):
    """One condition with its curves, which differ only in size and choice.

    `group` is the id of the group with the decisions, if NCCL's tuner handles the collective.
    `bus_factor` is bus over algorithm bandwidth. `ran` is what NCCL ran as its default, as text.
    `model` compares NCCL's own cost model with the default.
    """

    id: str
    label: str
    title: str
    collective: str
    nodes: int
    ranks: int
    in_place: bool
    registered: bool
    graph: bool
    group_calls: int
    pipe_ops: int
    dtype: str | None
    redop: str | None
    root: int | None
    group: str | None
    samples: int
    rounds: int
    bus_factor: float
    noise: NoiseRow
    saturation: str | None
    series: list[Series]
    map: ChoiceMap
    marks: list[Mark]
    ran: str | None = None
    model: str | None = None


class FindingRow(msgspec.Struct, frozen=True):
    """A finding; `more` are the sentences of findings that differ only in files or numbers."""

    number: int
    id: str
    kind: FindingKind
    heading: str
    sentence: str
    where: str | None
    min_bytes: int | None
    max_bytes: int | None
    tuning: bool | None
    conditions: list[str]
    more: list[str] = []


class ProofSizeRow(msgspec.Struct, frozen=True):
    """One size of the proof; `between` if the rule search did not measure it."""

    bytes: int
    choice: str | None
    between: bool
    verdict: str
    words: str
    rounds: int
    default_us: float | None
    tuned_us: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    ran: str | None


class ProofRuleRow(msgspec.Struct, frozen=True):
    """A rule after the proof.

    `verdict` is `holds`, `open`, `unverified`, `removed` or `narrowed`. `reason` explains a verdict
    other than `holds`. `expected` is the gain that the search predicted.
    """

    group: str
    min_bytes: int
    max_bytes: int
    choice: str
    verdict: str
    reason: str | None
    expected: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    least: float | None
    most: float | None
    sizes: int
    between: int
    rounds: int


class ProofGroupRow(msgspec.Struct, frozen=True):
    """The sizes of one collective at one scale. `floor` is the tolerated slowdown of a size."""

    label: str
    noise: float
    floor: float
    sizes: list[ProofSizeRow]


class ProofReport(msgspec.Struct, frozen=True):
    """The result of a proof: timings of default and tuned, in alternating order."""

    sentence: str
    how: str
    remark: str | None
    replay: str | None
    holds: bool
    rules: list[ProofRuleRow]
    groups: list[ProofGroupRow]


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """Commands to copy; None for what there is nothing to do.

    `reproduce` measures again into a new study, `rebuild` makes rules and report from the same
    samples, `prove` proves the rules, `deploy` deploys them.
    """

    reproduce: str
    reproduce_note: str
    rebuild: str
    deploy: str | None
    prove: str | None = None


class Checks(msgspec.Struct, frozen=True):
    """The findings of `doctor` about the platform. `many` is True for more than one node."""

    verdict: str
    looked_at: str
    many: bool
    findings: list[RuleResult]


class WorkloadRow(msgspec.Struct, frozen=True):
    """Calls of one collective between two sizes, as means of a step or of a rank.

    `share` is of all time in NCCL, or of all bytes if no call has a time.
    """

    collective: str
    low: int
    high: int
    calls: float
    bytes: float
    time_us: float | None
    share: float | None


class WorkloadGroup(msgspec.Struct, frozen=True):
    """What communicators of one name and scale carry; `more` is the number of smaller rows."""

    title: str
    rows: list[WorkloadRow]
    more: int


class WorkloadReport(msgspec.Struct, frozen=True):
    """The job that the rules were searched for; without `groups` if its recordings are gone."""

    unit: str
    worth: list[WorthLine]
    sent: str = ""
    groups: list[WorkloadGroup] = []


class PublishedRow(msgspec.Struct, frozen=True):
    """Where the default of a collective is among published systems that are alike by `rule`.

    `sentences` are on its bandwidth at `bytes` and its latency; `systems` have those bandwidths.
    """

    title: str
    sentences: list[str]
    rule: str
    bytes: int
    systems: list[SystemFigure]


class Report(msgspec.Struct, frozen=True):
    """The whole report, in reading order.

    `tone` is `gain`, `right` (NCCL's default is right) or `unknown`. `remarks` are on how the
    timings were measured, `rules_note` on the requirements for a rule.
    """

    study: str
    tone: Tone
    verdict: str
    notes: list[Note]
    replay: str | None
    facts: list[HeaderFact]
    line_rate_gb_per_s: float | None
    groups: list[GroupRow]
    conditions: list[ConditionRow]
    findings: list[FindingRow]
    check_first: list[str]
    sources: list[str]
    remarks: list[str]
    commands: Commands
    created: str
    tool_version: str
    rules_note: str = ""
    proof: ProofReport | None = None
    checks: Checks | None = None
    workload: WorkloadReport | None = None
    published: list[PublishedRow] = []
    schema_version: int = SCHEMA_VERSION

    @property
    def no_shapes(self) -> str:
        """Return what the curves show if nothing was found."""
        return no_shapes(
            max((len(item.map.bytes) for item in self.conditions), default=0),
            rates=all(item.saturation for item in self.conditions),
            known=all(item.noise.known for item in self.conditions),
        )
