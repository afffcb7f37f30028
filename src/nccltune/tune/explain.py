# SPDX-License-Identifier: Apache-2.0
"""What a tuner plugin decides, size by size, asked offline through the plugin host."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from nccltune.model.choice import DEFAULT, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.native import Decided, PluginDecision, PluginHost, PluginLogLine, tuner_path
from nccltune.tune.result import Tuning

NEWEST_KNOWN = "2.32.3"
"""The NCCL version to emulate by default: the newest that our plugin was run under."""


class DecidedRange(msgspec.Struct, frozen=True):
    """From `min_bytes` to `max_bytes` (inclusive) the plugin decides the same.

    `decides` is `default` (left to NCCL), a choice's label with `-` for parts left to NCCL, or
    `fails`; `warnings` are what NCCL does not report and a person should know. `channels` is what
    the decision takes and `default_channels` what NCCL's default takes there, one SM each: set by
    the plugin or known from the study's timings; None where it is not known.
    """

    min_bytes: int
    max_bytes: int
    decides: str
    warnings: list[str] = []
    channels: int | None = None
    default_channels: int | None = None


class Explained(msgspec.Struct, frozen=True):
    """One plugin, loaded as one NCCL version loads it, at one scale."""

    tuner: str
    nccl: str
    interface: int | None
    plugin: str | None
    scale: Scale
    log: list[PluginLogLine]
    warnings: list[str]
    collectives: dict[Collective, list[DecidedRange]]


def environment_for(config: Path | None) -> dict[str, str | None]:
    """Return the environment in which any plugin reads `config` and nothing else of this
    shell's."""
    path = None if config is None else str(config.resolve())
    return {"NCCL_TUNER_CONFIG_FILE": path, "NCCLTUNE_CONFIG": None, "NCCLTUNE_STRICT": None}


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
) -> Explained:
    """Ask `tuner` about every size, and between two sizes that differ for the exact byte."""
    with PluginHost(
        tuner, nccl_version=nccl_version, scale=scale, environment=environment_for(config)
    ) as host:
        found = {
            collective: decided_ranges(
                partial(host.decide, collective, pipe_ops=pipe_ops, registered=registered),
                sizes,
            )
            for collective in collectives
        }
        init = host.init
    return Explained(
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
    """Return the decisions at `sizes` (rising) as ranges; where two neighbours differ, the byte at
    which the decision changes is found by bisection (one change between two sizes is assumed)."""
    ranges: list[DecidedRange] = []
    low, before = sizes[0], decide(sizes[0])
    previous = low
    for size in sizes[1:]:
        decision = decide(size)
        if decision.label != before.label:
            edge = _last_alike(decide, before.label, previous, size)
            ranges.append(_range(low, edge, before))
            low, before = edge + 1, decision
        previous = size
    ranges.append(_range(low, sizes[-1], before))
    return ranges


def sizes_to_ask(rules: Iterable[Rule], low: int, high: int) -> list[int]:
    """Powers of two from `low` to `high` and both ends of every rule between them."""
    found = {low, high}
    size = 1
    while size < high:
        size *= 2
        found.add(size)
    for rule in rules:
        found |= {rule.min_bytes, rule.max_bytes}
    return sorted(size for size in found if low <= size <= high)


def check_decisions(config: Path, tuning: Tuning) -> tuple[int, int]:
    """Return at how many measured sizes our plugin decides as `tuning` does, and how many there
    are.

    The plugin is loaded as the NCCL of the study loads it.
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
                    registered=bool(group.registered),
                    # Another one than expected: else it could be NCCL's own.
                    chunk_bytes=None if chunk is None else 2 * chunk,
                )
                asked += 1
                agreed += got.label == label or (chunk is not None and _cut(got, expected.choice))
    return agreed, asked


def _cut(got: PluginDecision, expected: Choice | None) -> bool:
    """Whether the decision is as expected but for a chunk size that NCCL cut or rounded, as it did
    when the choice was measured."""
    choice = got.decided.choice if isinstance(got.decided, Decided) else None
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
    """Return the last size from `low` on that is still decided as `label`; `high` is not."""
    while high - low > 1:
        middle = (low + high) // 2
        if decide(middle).label == label:
            low = middle
        else:
            high = middle
    return low


def with_channels(explained: Explained, tuning: Tuning) -> Explained:
    """Return `explained` with the channels that are known from the study's own `tuning`: of rules
    that the plugin follows, and of NCCL's default."""
    collectives = {
        collective: [_known_channels(one, collective, explained.scale, tuning) for one in ranges]
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
    defaults = [
        row.default_channels
        for group in groups
        for row in group.decisions
        if one.min_bytes <= row.bytes <= one.max_bytes
    ]
    default = _most(defaults)
    channels = one.channels
    if channels is None:
        channels = default if one.decides == DEFAULT else _most(followed)
    return msgspec.structs.replace(one, channels=channels, default_channels=default)


def _most(numbers: Sequence[int | None]) -> int | None:
    """Return the largest; None where one is not known."""
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None


def _range(low: int, high: int, decision: PluginDecision) -> DecidedRange:
    words = [warning.text for warning in decision.warnings]
    if decision.error is not None:
        words.append(decision.error.text)
    channels = decision.decided.channels if isinstance(decision.decided, Decided) else None
    return DecidedRange(low, high, decision.label, words, channels)
