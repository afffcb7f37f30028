# SPDX-License-Identifier: Apache-2.0
"""Explain what a tuner plugin decides at each size.

The plugin host, a small program, loads the plugin as NCCL does and calls it. NCCL does not run.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from nccltune.formats.tuner_config.csv_rules import FileRule
from nccltune.model.choice import DEFAULT, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.nccl_releases import RUN_ON_GPUS
from nccltune.model.rule import Rule, RuleState
from nccltune.model.scale import Scale
from nccltune.native import PluginDecision, PluginHost, PluginLogLine, TunerAnswer, tuner_path
from nccltune.tune.result import Tuning, most_channels, ran_instead

NEWEST_KNOWN = RUN_ON_GPUS[-1]
"""The NCCL version to emulate by default: the newest one that our plugin was run with."""


class DecidedRange(msgspec.Struct, frozen=True):
    """A range of sizes, `min_bytes` to `max_bytes` (inclusive), with one decision of the plugin.

    `decides` is `default` (NCCL decides), `fails`, or the label of a choice. A `-` in a label
    stands for a value that the plugin leaves to NCCL: `-/-/1` sets only the number of channels.
    `warnings` are problems that NCCL itself does not report, and the reason if the plugin fails.
    `state` is the state of the rule that decides, if the configuration has it.
    `channels` is the number of channels of the decision, `default_channels` the number with NCCL's
    default; None if unknown. Each channel uses one SM. `default_ran` are the choices that NCCL ran
    as its default in this range when it was measured.
    """

    min_bytes: int
    max_bytes: int
    decides: str
    warnings: list[str] = []
    channels: int | None = None
    default_channels: int | None = None
    state: RuleState | None = None
    default_ran: list[str] = []


class ExplainResult(msgspec.Struct, frozen=True):
    """The decisions of one plugin at one scale.

    The plugin was loaded as NCCL of the version `nccl` loads it. `asked` is the number of sizes at
    which a plugin of others was asked: a change and its reverse between two of them are missed. It
    is 0 if the ends of all ranges are known. `why_default` are sentences on what NCCL's own cost
    model says of its default, if a single size was asked for and the machine is known.
    """

    tuner: str
    nccl: str
    interface: int | None
    plugin: str | None
    scale: Scale
    log: list[PluginLogLine]
    warnings: list[str]
    collectives: dict[Collective, list[DecidedRange]]
    asked: int = 0
    why_default: dict[Collective, str] = {}


def environment_for(config: Path | None) -> dict[str, str | None]:
    """Return the environment changes that make any tuner plugin read `config`.

    A value of None unsets the variable, so settings of this shell have no effect. `config` None
    means no configuration.
    """
    path = None if config is None else str(config.resolve())
    ours = ("NCCLTUNE_CONFIG", "NCCLTUNE_CONFIG_HASH", "NCCLTUNE_STRICT")
    return {"NCCL_TUNER_CONFIG_FILE": path, **dict.fromkeys(ours)}


def explain(
    tuner: Path,
    config: Path | None,
    *,
    nccl_version: str,
    scale: Scale,
    collectives: Iterable[Collective],
    sizes: Sequence[int],
    pipe_ops: int = 1,
    registered: bool = False,
) -> ExplainResult:
    """Return what `tuner` decides at `sizes` (bytes, ascending) with the rules of `config`.

    Between two sizes with different decisions the exact byte of the change is found. Raises what
    `PluginHost` raises.

    >>> from nccltune.native import tuner_path
    >>> found = explain(
    ...     tuner_path(),
    ...     None,
    ...     nccl_version="2.28.9",
    ...     scale=Scale(4, 32),
    ...     collectives=[Collective.ALLREDUCE],
    ...     sizes=[1 << 10, 1 << 20],
    ... )
    >>> [one.decides for one in found.collectives[Collective.ALLREDUCE]]
    ['default']
    """
    with PluginHost(
        tuner, nccl_version=nccl_version, scale=scale, environment=environment_for(config)
    ) as host:
        found = {
            collective: decided_ranges(
                partial(host.decide, collective, pipe_ops=pipe_ops, registered=registered), sizes
            )
            for collective in collectives
        }
        init = host.init
    return ExplainResult(
        tuner=str(tuner),
        nccl=nccl_version,
        interface=init.interface,
        plugin=init.plugin,
        scale=scale,
        log=init.log,
        warnings=[warning.text for warning in init.warnings],
        collectives=found,
    )


def decided_ranges(
    decide: Callable[[int], PluginDecision], sizes: Sequence[int]
) -> list[DecidedRange]:
    """Return the decisions at `sizes` (bytes, ascending) as ranges.

    If the decisions at two neighbouring sizes differ, bisection finds the byte of each change that
    it meets. A change and its reverse between two sizes are missed. Raises what `decide` raises.
    """
    ranges: list[DecidedRange] = []
    low, before = sizes[0], decide(sizes[0])
    previous = low
    for size in sizes[1:]:
        decision = decide(size)
        while decision.label != before.label:
            edge = _last_alike(decide, before.label, previous, size)
            ranges.append(_range(low, edge, before))
            low = previous = edge + 1
            before = decision if low == size else decide(low)
        previous = size
    ranges.append(_range(low, sizes[-1], before))
    return ranges


def sizes_to_ask(rules: Iterable[Rule], low: int, high: int, *, octave: int = 1) -> list[int]:
    """Return `low`, `high`, the powers of two and the ends of rules between them.

    `octave` is the number of sizes from one power of two to the next.

    The sizes just outside a rule are asked, too: between two rules there may be no rule.

    >>> sizes_to_ask([], 1000, 5000)
    [1000, 1024, 2048, 4096, 5000]
    """
    found = {low, high}
    size = 1
    while size < high:
        found |= {size + size * step // octave for step in range(1, octave + 1)}
        size *= 2
    for rule in rules:
        found |= {rule.min_bytes - 1, rule.min_bytes, rule.max_bytes, rule.max_bytes + 1}
    return sorted(size for size in found if low <= size <= high)


def check_decisions(config: Path, tuning: Tuning) -> tuple[int, int]:
    """Return at how many sizes our plugin decides as `tuning` does, and how many were checked.

    All measured sizes are checked. The plugin is loaded as the study's NCCL version loads it.
    Raises PlatformError if our plugin is not installed, and what `PluginHost` raises.
    """
    agreed = asked = 0
    for group in tuning.groups:
        with PluginHost(
            tuner_path(),
            nccl_version=tuning.nccl_version or NEWEST_KNOWN,
            scale=group.scale,
            environment=environment_for(config),
        ) as host:
            for expected in group.decisions:
                label = choice_label(expected.choice or DEFAULT)
                chunk = expected.choice.chunk_bytes if expected.choice else None
                got = host.decide(
                    group.collective,
                    expected.bytes,
                    pipe_ops=group.pipe_ops or 1,
                    registered=bool(group.registered),
                    # Offer another chunk size than the expected one. Otherwise the answer would not
                    # show whether the plugin set it.
                    chunk_bytes=None if chunk is None else 2 * chunk,
                )
                asked += 1
                agreed += got.label == label or (
                    chunk is not None and _differs_by_cut(got, expected.choice)
                )
    return agreed, asked


def _differs_by_cut(got: PluginDecision, expected: Choice | None) -> bool:
    """Return whether the decision is as expected, except for an equal or smaller chunk size.

    A smaller chunk size is no error: NCCL also cut or rounded it when the choice was measured.
    """
    choice = got.decided.choice if isinstance(got.decided, TunerAnswer) else None
    if choice is None or expected is None:
        return False
    chunk, wanted = choice.chunk_bytes, expected.chunk_bytes
    return (
        msgspec.structs.replace(choice, chunk_bytes=wanted) == expected
        and chunk is not None
        and wanted is not None
        and 0 < chunk <= wanted
    )


def _last_alike(decide: Callable[[int], PluginDecision], label: str, low: int, high: int) -> int:
    """Return the last size between `low` and `high` with the decision `label`.

    The decision at `low` must be `label`, the one at `high` must not be.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if decide(middle).label == label:
            low = middle
        else:
            high = middle
    return low


def with_channels(explained: ExplainResult, tuning: Tuning) -> ExplainResult:
    """Return `explained` with facts that are known from the study's `tuning`.

    These are the channels of rules that the plugin follows, those of NCCL's default, and the
    choices that NCCL ran as its default.
    """
    collectives = {
        collective: [_known_channels(one, collective, explained.scale, tuning) for one in ranges]
        for collective, ranges in explained.collectives.items()
    }
    return msgspec.structs.replace(explained, collectives=collectives)


def with_states(
    explained: ExplainResult, rules: Sequence[FileRule], pipe_ops: int, registered: bool
) -> ExplainResult:
    """Return `explained` with the states of the rules that decide."""

    def state(one: DecidedRange, collective: Collective) -> RuleState | None:
        nodes, ranks = explained.scale.nodes, explained.scale.ranks
        for item in rules:
            if item.rule.matches(collective, one.max_bytes, nodes, ranks, pipe_ops, registered):
                return item.state if item.rule.choice.label == one.decides else None
        return None

    collectives = {
        collective: [msgspec.structs.replace(one, state=state(one, collective)) for one in ranges]
        for collective, ranges in explained.collectives.items()
    }
    return msgspec.structs.replace(explained, collectives=collectives)


def _known_channels(
    one: DecidedRange, collective: Collective, scale: Scale, tuning: Tuning
) -> DecidedRange:
    groups = [
        group for group in tuning.groups if (group.collective, group.scale) == (collective, scale)
    ]
    followed = [
        evidence.channels
        for group in groups
        for evidence in group.rules
        if evidence.rule.choice.label == one.decides
        and evidence.rule.min_bytes <= one.max_bytes
        and one.min_bytes <= evidence.rule.max_bytes
    ]
    rows = [
        row
        for group in groups
        for row in group.decisions
        if one.min_bytes <= row.bytes <= one.max_bytes
    ]
    default = most_channels([row.default_channels for row in rows])
    channels = one.channels
    if channels is None:
        channels = default if one.decides == DEFAULT else most_channels(followed)
    return msgspec.structs.replace(
        one, channels=channels, default_channels=default, default_ran=ran_instead(rows)
    )


def _range(low: int, high: int, decision: PluginDecision) -> DecidedRange:
    words = [warning.text for warning in decision.warnings]
    if decision.error is not None:
        words.append(decision.error.text)
    channels = decision.decided.channels if isinstance(decision.decided, TunerAnswer) else None
    return DecidedRange(low, high, decision.label, words, channels)
