# SPDX-License-Identifier: Apache-2.0
"""The report as plain data: what `--json` prints and what the page and the terminal render.

Times are microseconds, bandwidth is GB/s (1e9 bytes a second), sizes are bytes as NCCL's tuner
counts them, noise and shares are fractions, gains are old time over new time. Missing is None.
"""

from typing import Literal

import msgspec

from nccltune.doctor.result import Judged
from nccltune.model.finding import FindingKind
from nccltune.model.sample import SCHEMA_VERSION

Tone = Literal["gain", "right", "unknown"]
Role = Literal["default", "tuned", "choice", "measured"]


class Fact(msgspec.Struct, frozen=True):
    """One labelled fact of the header; `note` says where it comes from, where that matters."""

    label: str
    value: str
    note: str | None = None


class Note(msgspec.Struct, frozen=True):
    """Something to know before the verdict is believed; `target` is an id on the page."""

    text: str
    target: str


class Series(msgspec.Struct, frozen=True):
    """One line of a chart, column by column; all columns are equally long.

    A time is None where the line has a gap. `low_us` and `high_us` bound the 95 % confidence
    interval of the median `time_us` over `n` timings.
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
    """Time over the best time at that size: `relative[row][column]` for `choices[row]` at
    `bytes[column]`, None where it was not measured. `path[column]` is the row the rules take (the
    default's where there is no rule), None where that row was not measured."""

    bytes: list[int]
    choices: list[str]
    relative: list[list[float | None]]
    path: list[int | None]


class NoiseRow(msgspec.Struct, frozen=True):
    """How far two medians of the same thing lie apart; `words` says how that was found."""

    typical: float
    high: float
    known: bool
    words: str


class SizeRow(msgspec.Struct, frozen=True):
    """What the rules do at one measured size; `choice` None keeps the default."""

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


class RuleRow(msgspec.Struct, frozen=True):
    """A rule with its evidence; `first_bytes` and `last_bytes` are the measured sizes in it.

    `gain` and its interval are of the whole range, `least` and `most` of a single size. `channels`
    and `default_channels` are the most at any size, one SM each. `written` says that it is in the
    configuration; `decided_by` names the runs that would decide a rule that is not sure.
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
    sure: bool
    reason: str
    channels: int | None = None
    default_channels: int | None = None
    decided_by: str | None = None
    written: bool = True


class LeftRow(msgspec.Struct, frozen=True):
    """A range that keeps the default, and why."""

    min_bytes: int
    max_bytes: int
    sizes: int
    reason: str


class GroupRow(msgspec.Struct, frozen=True):
    """The decisions of one collective at one scale; `outcome` is them in words, `label` as short
    as telling the groups apart allows. `proven_gain` is None where no proof confirmed a rule."""

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
    """Where a finding shows on a curve; `finding` is its number."""

    finding: int
    min_bytes: int
    max_bytes: int


class ConditionRow(msgspec.Struct, frozen=True):
    """One condition with its curves; `group` is the id of its decisions, None where no tuner is
    ever asked. `label` is as short as telling the conditions of this report apart allows.
    `bus_factor` is bus over algorithm bandwidth."""

    id: str
    label: str
    title: str
    collective: str
    nodes: int
    ranks: int
    in_place: bool
    registered: bool
    graph: bool
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


class FindingRow(msgspec.Struct, frozen=True):
    """A finding; `conditions` are the ids of those it shows on. `heading` is its kind in words,
    `more` are the sentences of findings that say the same about something else."""

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
    """One size of the proof. `choice` None: no rule, so tuned runs what the default runs. `between`
    says that the rules were made without it. `words` is the verdict."""

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
    """A rule after the proof: `verdict` is `holds`, `open`, `unverified`, `removed` or `narrowed`;
    `reason` says why it is not `holds`. `expected` is the gain that the search promised."""

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
    """The sizes of one collective at one scale; `floor` is how much slower one may be."""

    label: str
    noise: float
    floor: float
    sizes: list[ProofSizeRow]


class ProofReport(msgspec.Struct, frozen=True):
    """Default against tuned, interleaved in one run. `sentence` is the outcome, `how` says how it
    was measured, `remark` what to know before believing it."""

    sentence: str
    how: str
    remark: str | None
    replay: str | None
    holds: bool
    rules: list[ProofRuleRow]
    groups: list[ProofGroupRow]


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """Commands to copy. `reproduce` measures again, into a study of its own; `reproduce_note` says
    what to know about that. `rebuild` makes rules and report from the same samples. `deploy` is
    None where there is nothing to deploy."""

    reproduce: str
    reproduce_note: str
    rebuild: str
    deploy: str | None


class Checks(msgspec.Struct, frozen=True):
    """What `doctor` found of the platform. `many`: of more nodes than one."""

    verdict: str
    looked_at: str
    many: bool
    findings: list[Judged]


class Report(msgspec.Struct, frozen=True):
    """Everything that is shown, in the order of reading. `tone` is the verdict's colour: there is
    a gain, NCCL is right already, or it cannot be told. `replay` names the recording that the
    timings were drawn from. `sources` are the files read, `remarks` how it was measured,
    `rules_note` what a rule had to show."""

    study: str
    tone: Tone
    verdict: str
    notes: list[Note]
    replay: str | None
    facts: list[Fact]
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
    schema_version: int = SCHEMA_VERSION
