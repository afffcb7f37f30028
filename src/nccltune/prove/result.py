# SPDX-License-Identifier: Apache-2.0
"""What a proof is made of: `proof.json`, and what the report shows of it."""

from typing import Literal

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale

SizeVerdict = Literal["faster", "alike", "slower", "open", "left alone", "not alike", "unverified"]
"""Of a size in a rule: `faster` and `slower` beyond noise, `alike` for no slower, `open` while more
rounds are needed. Outside of all rules: `left alone`, or `not alike` where something else than the
default ran all the same. `unverified` where it could not be measured."""
RuleVerdict = Literal["holds", "open", "unverified"]


class ProvenSize(msgspec.Struct, frozen=True, kw_only=True):
    """One size: medians in us, `gain` is default over tuned time with its 95 % interval, over
    `rounds` rounds. `choice` is that of the rules (None: no rule), `ran` what ran as far as it is
    known. `between`: the sweep had not measured it."""

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
    """A rule that stands: `gain` is its mean over the size axis with its 95 % interval, `least` and
    `most` those of one size, `expected` what the search promised. `sizes` were measured, `between`
    of them for the first time. `reason` is why it is not proven, if it is not."""

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


class Dropped(msgspec.Struct, frozen=True):
    """A rule that did not hold, and why; `narrowed` is what is left of it, if anything is."""

    rule: Rule
    reason: str
    narrowed: Rule | None = None


class ProofGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One collective at one scale. `noise` is how far two medians of the default lie apart (A/A),
    a fraction; `floor` is how much slower a size may be."""

    collective: Collective
    scale: Scale
    noise: float
    floor: float
    rounds: int
    sizes: list[ProvenSize]


ROUNDS_OF_A_PASS = 100
"""More than any pass needs, so that passes never share a round."""


class Pass(msgspec.Struct, frozen=True):
    """The `ROUNDS_OF_A_PASS` rounds from `first_round` on belong to `rules`; `dropped` had been
    taken out before them."""

    first_round: int
    rules: list[Rule]
    dropped: list[Dropped] = []


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """`proof.json`. `config_hash` is that of the configuration as it is now (FNV-1a as the plugin
    prints it). `reason` is `done`, `budget` or `interrupted`; `points` were measured by the last
    run, `known` taken from the study. `noise` is the largest of the groups'."""

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
    dropped: list[Dropped]
    groups: list[ProofGroup]
    passes: list[Pass]

    @property
    def slower(self) -> int:
        """How many sizes are slower with the rules than without, beyond noise."""
        return sum(size.verdict == "slower" for group in self.groups for size in group.sizes)

    @property
    def holding(self) -> int:
        """How many of the rules hold."""
        return sum(item.verdict == "holds" for item in self.rules)

    @property
    def rounds(self) -> int:
        """The most rounds of any size."""
        return max((group.rounds for group in self.groups), default=0)
