# SPDX-License-Identifier: Apache-2.0
"""The structs of a tuning: rules with their evidence, and sizes without a rule with the reason."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale


class Decision(msgspec.Struct, frozen=True):
    """The effect of the rules at one measured size.

    - `choice`: None keeps the default.
    - `default_us`: None where the default was not measured. `tuned_us`: the predicted time with the
      rules.
    - `best_us`: the best median of all choices; `best`: the choice with it (None: the default).
    - `gain`: default over tuned time with its 95 % interval, which stays valid although the search
      selected the choice; None if unknown.
    - `channels`, `default_channels`: the channels of the choice and of NCCL's default (None: not
      recorded).
    """

    bytes: int
    choice: Choice | None
    default_us: float | None
    tuned_us: float
    best: Choice | None
    best_us: float
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    channels: int | None = None
    default_channels: int | None = None


class RuleEvidence(msgspec.Struct, frozen=True):
    """A rule and its evidence.

    - `gain`: the geometric mean of default over tuned time over the measured sizes in the range,
      with its 95 % interval, which stays valid although the search selected choice and range.
      `least` and `most`: its smallest and largest value at one size. All are None where the default
      was not measured.
    - `sure`: the gain is beyond measured noise, in runs that distinguish the choice from its
      process and from drift. If not, `decided_by` names the runs that would decide.
    - `written`: the rule is in the configuration.
    - `channels`, `default_channels`: the most that the choice and NCCL's default use in the range
      (None: not recorded). A channel uses one SM.
    - `timings`: the number of samples behind the rule.
    """

    rule: Rule
    sizes: list[int]
    timings: int
    sure: bool
    reason: str
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    least: float | None = None
    most: float | None = None
    decided_by: str | None = None
    written: bool = True
    channels: int | None = None
    default_channels: int | None = None


class LeftAlone(msgspec.Struct, frozen=True):
    """A range of measured sizes without a rule, and the reason."""

    min_bytes: int
    max_bytes: int
    sizes: int
    reason: str


class TunedGroup(msgspec.Struct, frozen=True):
    """One collective at one scale (and registration, where it was measured separately).

    `expected_gain` is the geometric mean of `Decision.gain` over the sizes that have a rule (None:
    no rule, or unknown). `recovered` is the share of the log-latency gain of the best choice at
    every size that the rules keep (None where there is nothing to gain).
    """

    collective: Collective
    scale: Scale
    registered: bool | None
    rounds: int
    noise: float
    noise_source: str
    rules: list[RuleEvidence]
    left_alone: list[LeftAlone]
    decisions: list[Decision]
    expected_gain: float | None
    recovered: float | None


class TuneOptions(msgspec.Struct, frozen=True):
    """The user options of the search.

    `min_gain` 0.03 is 3 %; `penalty` is the total log latency that one more rule must save;
    `assumed_noise` stands in where a point has few timings or a choice few processes; `weights` is
    the path of the file with the weight of each size. `channels` is whether a rule may take more
    channels than NCCL's default at that size; `include_unsure` also writes rules that are not sure.
    """

    min_gain: float = 0.03
    penalty: float = 0.05
    assumed_noise: float = 0.05
    channel_tolerance: float = 0.02
    extend: bool = False
    any_scale: bool = False
    weights: str | None = None
    channels: Literal["default", "any"] = "default"
    include_unsure: bool = False


class Tuning(msgspec.Struct, frozen=True):
    """`tuning.json`: all groups, the options, and the number of samples behind them.

    `config_hash` is the FNV-1a hash (64 bit) of the bytes of the written configuration, as the
    plugin prints it at init.
    """

    study: str
    created: str
    options: TuneOptions
    groups: list[TunedGroup]
    samples: int
    nccl_version: str | None = None
    gpu: str | None = None
    config_hash: str | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def rules(self) -> list[Rule]:
        """Return every rule of the configuration once, in the order written."""
        return list(
            dict.fromkeys(
                evidence.rule
                for group in self.groups
                for evidence in group.rules
                if evidence.written
            )
        )


def most_channels(numbers: Sequence[int | None]) -> int | None:
    """Return the largest number of channels; None if any of them is unknown."""
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None
