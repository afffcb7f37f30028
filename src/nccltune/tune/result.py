# SPDX-License-Identifier: Apache-2.0
"""The structs of a tuning: rules with their evidence, and ranges without a rule with the reason."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale

_UNCLEAR = 4
"""If the ends of an interval of a gain differ by more than this factor, it says nothing."""


class Decision(msgspec.Struct, frozen=True):
    """The effect of the rules at one measured size.

    - `choice`: the choice of the rule at this size; None if the default is kept.
    - `default_us`: the time of the default; None if it was not measured.
    - `tuned_us`: the predicted time with the rules.
    - `best`, `best_us`: the fastest choice (None: the default), and its median time.
    - `gain`: default time over tuned time; None if unknown. Its 95 % interval, `gain_low` to
      `gain_high`, stays valid although the search selected the choice.
    - `channels`, `default_channels`: the channels of the choice and of NCCL's default; None if not
      recorded.
    - `default_ran`: the algorithm and protocol that NCCL ran as its default; None if unknown.
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
    default_ran: Choice | None = None


class RuleEvidence(msgspec.Struct, frozen=True):
    """A rule and its evidence.

    - `sizes`: the measured sizes in the range of the rule.
    - `timings`: the number of timings of the choice and of the default at these sizes.
    - `gain`: the geometric mean over `sizes` of default time over tuned time. Its 95 % interval,
      `gain_low` to `gain_high`, stays valid although the search selected the choice and the range.
    - `least`, `most`: the smallest and the largest gain at one size. All gains are None if the
      default was not measured.
    - `state`: sure only if the interval of the gain is measured and lies above 1. `reason` explains
      the state, and `decided_by` names the runs that would make a candidate sure.
    - `proven_gain`: the gain that `verify` measured; None if the rule is not proven.
    - `channels`, `default_channels`: the largest number of channels in the range with the choice
      and with NCCL's default; None if not recorded. A channel uses one SM.
    """

    rule: Rule
    sizes: list[int]
    timings: int
    reason: str
    state: RuleState = RuleState.CANDIDATE
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    least: float | None = None
    most: float | None = None
    decided_by: str | None = None
    channels: int | None = None
    default_channels: int | None = None
    proven_gain: float | None = None


class LeftAlone(msgspec.Struct, frozen=True):
    """A range of measured sizes without a rule, and the reason.

    `compared` is whether a choice was compared with the default at any of these sizes.
    """

    min_bytes: int
    max_bytes: int
    sizes: int
    reason: str
    compared: bool = True


class TunedGroup(msgspec.Struct, frozen=True):
    """The rules of one collective at one scale.

    - `registered`: whether buffers are registered; None if this was not measured separately.
    - `pipe_ops`: NCCL's numPipeOps; None if only one value was measured.
    - `expected_gain`: the geometric mean of `Decision.gain` over the sizes with a rule; None
      without a rule or if unknown.
    - `recovered`: the share of the possible gain that the rules reach, in log latency. The possible
      gain takes the fastest choice at every size. None if no choice is faster than the default.
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
    pipe_ops: int | None = None

    @property
    def calls_title(self) -> str:
        """Return the calls that the rules are for, such as `registered, 3 pipe ops`.

        The result is empty for all calls and for plain ones.
        """
        parts = ["registered"] if self.registered else []
        parts += [f"{self.pipe_ops} pipe ops"] if (self.pipe_ops or 1) > 1 else []
        return ", ".join(parts)


class TuneOptions(msgspec.Struct, frozen=True):
    """The user options of the search.

    - `min_gain`: the least gain of a rule; 0.03 is 3 %: what a rule should be worth, no hypothesis
      of the statistics (`state_of` tests that)
    - `penalty`: the total log latency that one more rule must save
    - `assumed_noise`: the noise if a point has too few timings or a choice too few processes
    - `channel_tolerance`: the slowdown that is accepted for fewer channels; 0.02 is 2 %
    - `extend`: rules at the smallest and the largest measured size also cover the sizes beyond
    - `any_scale`: merge rules that hold at all measured scales into one rule for any scale
    - `weights`: the path of a file with the weight of each size
    - `workload`: the paths of recordings of a job; sizes count by its time, and rules get a worth
    - `channels`: "any" allows a rule to use more channels than NCCL's default at a size
    """

    min_gain: float = 0.03
    penalty: float = 0.05
    assumed_noise: float = 0.05
    channel_tolerance: float = 0.02
    extend: bool = False
    any_scale: bool = False
    weights: str | None = None
    workload: tuple[str, ...] = ()
    channels: Literal["default", "any"] = "default"


class RuleWorth(msgspec.Struct, frozen=True):
    """What a rule is worth to a job. Times are means of a step, or of what a rank recorded.

    - `rule`: None for all rules together
    - `calls`, `bytes_share`: the job's calls in the range of the rule, and their share of all bytes
    - `time_us`: the time of these calls; `is_recorded` if all of it was recorded, else it is also
      the default's time in the study
    - `elsewhere`: the scales of the job's calls in the range that the study did not measure
    - `exposed_us`: the part in which the GPU ran no kernel but NCCL's; None if unknown
    - `saved_us`: what the rule saves of it, with the limits of the measured gain and of the time
    - `most_share`: the largest share of `JobWorth.total_us` that it can save; None if unknown
    - `advised_against`: that share is below the threshold of `tune.worth`; never where all calls
      are of scales that the study did not measure
    """

    rule: Rule | None
    calls: float
    bytes_share: float
    time_us: float
    is_recorded: bool
    exposed_us: float | None = None
    saved_us: float | None = None
    saved_low_us: float | None = None
    saved_high_us: float | None = None
    most_share: float | None = None
    advised_against: bool = False
    elsewhere: list[Scale] = []


class LeverWorth(msgspec.Struct, frozen=True):
    """What something besides rules is worth to a job: the send/recv library, the net plugin.

    - `why`: what was measured, or why nothing is known
    - `worth`: None if it was not measured; `measure` is then the command that does
    - `basis`, `total_us`: as in `JobWorth`; 0 if only the measurement has times
    """

    name: str
    why: str
    unit: str = ""
    basis: Literal["step", "recorded", "estimated"] = "estimated"
    total_us: float = 0.0
    worth: RuleWorth | None = None
    measure: str | None = None


class JobWorth(msgspec.Struct, frozen=True):
    """What rules are worth to a job.

    - `unit`: what times are means of, `a step` or `a rank`
    - `basis`, `total_us`: what shares are of: the step, all recorded time in NCCL, or that time as
      estimated from the study
    - `nccl_us`: the recorded time in NCCL; None if calls of a size have none
    - `estimated_us`: the recorded time, and the default's time in the study where none was recorded
    - `calls`, `untimed`: the calls of all ranks, and those of them without a time
    - `covered_share`: the share of the job's bytes at collectives, scales and sizes of the study
    - `is_scale_known`: whether the recording states the nodes and ranks of each communicator
    - `unread`: the number of remarks on the recording: files and kinds of entries that could not be
      read, and why the sums may not be those of the job
    - `levers`: what else would pay, or has to be measured to know
    """

    unit: str
    recorders: int
    basis: Literal["step", "recorded", "estimated"]
    total_us: float
    nccl_us: float | None
    estimated_us: float
    covered_share: float
    is_scale_known: bool
    unread: int
    rules: list[RuleWorth]
    whole: RuleWorth
    calls: int = 0
    untimed: int = 0
    levers: list[LeverWorth] = []


class Tuning(msgspec.Struct, frozen=True):
    """The content of `tuning.json`: the rules of a study by group, and the options of the search.

    `stand_in` is how the measurement differs from one of real nodes (`Platform.stand_in`).
    `rests_on` are the facts of the platform in the header of the configuration (`tune.basis`).
    `samples` is the number of samples used. `config_hash` is the FNV-1a hash (64 bit) of the bytes
    of the written configuration. The plugin prints the same hash at init. `worth` is what the rules
    are worth to the job of `TuneOptions.workload`; None also if rules were removed since. `wrong`
    are sentences on what gave wrong results.
    """

    study: str
    created: str
    options: TuneOptions
    groups: list[TunedGroup]
    samples: int
    nccl_version: str | None = None
    stand_in: str | None = None
    rests_on: dict[str, str] = {}
    config_hash: str | None = None
    worth: JobWorth | None = None
    wrong: list[str] = []
    schema_version: int = SCHEMA_VERSION

    @property
    def rules(self) -> list[Rule]:
        """Return the rules of the configuration without duplicates, in the order of the file."""
        return list(
            dict.fromkeys(evidence.rule for group in self.groups for evidence in group.rules)
        )


def is_clear(low: float | None, high: float | None) -> bool:
    """Return whether the interval of a gain is narrow enough to print the gain itself."""
    return low is None or high is None or high <= _UNCLEAR * low


def ran_instead(decisions: Sequence[Decision]) -> list[str]:
    """Return the labels of what NCCL ran as its default at these sizes, without repeats."""
    return list(dict.fromkeys(item.default_ran.label for item in decisions if item.default_ran))


def most_channels(numbers: Sequence[int | None]) -> int | None:
    """Return the largest number of channels; None if any of them is unknown."""
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None


def gain_of(
    decisions: Sequence[Decision], rules: Sequence[RuleEvidence]
) -> tuple[float | None, float | None]:
    """Return `TunedGroup.expected_gain` and `TunedGroup.recovered`. Candidates promise nothing."""
    firm = {size for item in rules if item.state is not RuleState.CANDIDATE for size in item.sizes}
    if rules and not firm:
        return None, None
    gains = [item.gain for item in decisions if item.bytes in firm and item.gain is not None]
    return _geometric_mean(gains), _recovered(decisions)


def _geometric_mean(ratios: Sequence[float]) -> float | None:
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def _recovered(decisions: Sequence[Decision]) -> float | None:
    """Return the share of the possible gain that the rules reach, in log latency.

    The possible gain takes the fastest choice at every size. Return None if the possible gain is 0.
    """
    known = [item for item in decisions if item.default_us is not None]
    total = math.fsum(math.log((item.default_us or 1) / item.best_us) for item in known)
    kept = math.fsum(math.log((item.default_us or 1) / item.tuned_us) for item in known)
    return kept / total if total > 1e-12 else None
