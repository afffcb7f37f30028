# SPDX-License-Identifier: Apache-2.0
"""The structs of a proof: `proof.json`, the input of the report."""

from typing import Literal

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale

SizeVerdict = Literal["faster", "alike", "slower", "open", "left alone", "not alike", "unverified"]
"""Of a size in a rule: `faster` and `slower` beyond noise, `alike` for no slower, `open` while more
rounds are needed. Of a size without a rule: `left alone`, or `not alike` if another choice than the
default's ran although no rule applies. `unverified`: it could not be measured."""
RuleVerdict = Literal["holds", "open", "unverified"]


class ProvenSize(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a proof.

    Times are medians in us. `gain` is default over tuned time over `rounds` rounds, with its 95 %
    interval. `choice` is that of the rule (None: no rule); `ran` is what ran (None: unknown).
    `between` is True if the sweep had not measured the size.
    """

    bytes: int
    choice: str | None
    between: bool
    verdict: SizeVerdict
    rounds: int = 0
    default_us: float | None = None
    tuned_us: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    ran: str | None = None
    note: str | None = None


class RuleProof(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is still in the configuration.

    `gain` is its mean over the size axis with its 95 % interval, `least` and `most` the extremes at
    one size, `expected` the prediction of the search. `sizes` is the number of measured sizes,
    `between` of them for the first time. `reason` explains a verdict other than `holds`.
    """

    rule: Rule
    verdict: RuleVerdict
    reason: str | None = None
    expected: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    least: float | None = None
    most: float | None = None
    rounds: int = 0
    sizes: int = 0
    between: int = 0


class RemovedRule(msgspec.Struct, frozen=True):
    """A rule that did not hold, and why. `narrowed` replaces it; None if nothing does."""

    rule: Rule
    reason: str
    narrowed: Rule | None = None


class ProofGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One collective at one scale.

    `noise` is the A/A distance of two medians of the default, `floor` the tolerated slowdown of a
    size; both are fractions.
    """

    collective: Collective
    scale: Scale
    noise: float
    floor: float
    rounds: int
    sizes: list[ProvenSize]


ROUNDS_OF_A_PASS = 100
"""The rounds reserved for a pass: more than any needs, so that passes never share a round."""


class ProofPass(msgspec.Struct, frozen=True):
    """One pass: the `ROUNDS_OF_A_PASS` rounds from `first_round` on measured `rules`.

    `dropped` are the rules that earlier passes had removed.
    """

    first_round: int
    rules: list[Rule]
    dropped: list[RemovedRule] = []


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """`proof.json`: the proof of one configuration.

    - `config_hash`: FNV-1a of the present configuration, as the plugin prints it.
    - `reason`: why the run ended: `done`, `budget` or `interrupted`.
    - `points`: the number measured by the last run; `known`: the number taken from the study.
    - `noise`: the largest of the groups.
    """

    schema_version: int = SCHEMA_VERSION
    study: str
    config_hash: str
    reason: str
    points: int
    known: int
    seconds: float
    noise: float
    replay: str | None
    nccl_version: str | None
    command: str
    at: str
    rules: list[RuleProof]
    dropped: list[RemovedRule]
    groups: list[ProofGroup]
    passes: list[ProofPass]

    @property
    def slower(self) -> int:
        """Return the number of sizes that are slower with the rules, beyond noise."""
        return sum(size.verdict == "slower" for group in self.groups for size in group.sizes)

    @property
    def holding(self) -> int:
        """Return the number of rules that hold."""
        return sum(item.verdict == "holds" for item in self.rules)

    @property
    def rounds(self) -> int:
        """Return the largest number of rounds of any size."""
        return max((group.rounds for group in self.groups), default=0)
