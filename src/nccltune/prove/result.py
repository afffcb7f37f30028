# SPDX-License-Identifier: Apache-2.0
"""The structs of `proof.json`, which the report reads."""

from typing import Literal

import msgspec

from nccltune.measure.bench.conditions import CallKind
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale

SizeVerdict = Literal["faster", "alike", "slower", "open", "left alone", "not alike", "unverified"]
"""The verdict on one size.

Sizes that a rule applies to:

- `faster`: faster with the rule, beyond noise
- `slower`: slower with the rule, beyond noise; or the tuned call failed or gave wrong results
- `alike`: not slower
- `open`: more rounds are needed

Sizes without a rule:

- `open`: too few rounds
- `left alone`: the tuned call ran the same choice as the default, as far as is known
- `not alike`: the tuned call ran another choice than the default, although no rule applies

`unverified`: the size could not be measured.
"""
RuleVerdict = Literal["holds", "open", "unverified"]


class ProvenSize(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a proof.

    choice   the choice of the rule; None if no rule applies
    between  True if the sweep had not measured this size
    gain     default time over tuned time (1.1 is 1.1 times as fast), from `rounds` rounds; None
             with too few rounds; `gain_low` and `gain_high` are the 95 % interval of the gain
    ran      the choice that NCCL executed with the rules; None if unknown
    note     the reason if the size failed or could not be measured

    Times are medians in us.
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

    reason    explains the verdict; None for `holds`, unless some sizes could not be measured
    expected  the gain that the rule search predicted
    gain      default time over tuned time, the mean over the size axis; None with too few rounds;
              `gain_low` and `gain_high` are the 95 % interval of the gain
    least     the smallest gain at one size; `most` is the largest
    sizes     number of sizes measured for this proof
    between   number of these sizes that the sweep had not measured
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
    """A rule that did not hold, and the reason.

    `narrowed` is the rule that replaces it; None if the rule was removed without a replacement.
    `by` is the verb that found it.
    """

    rule: Rule
    reason: str
    narrowed: Rule | None = None
    by: str = "verify"


class ProofGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The proof of one collective at one scale with one kind of calls.

    The calls may have registered buffers, and `group_calls` of them may form a group. `pipe_ops` is
    NCCL's numPipeOps for them.

    `noise` is how far two medians of the default typically differ (A/A). `floor` is how much slower
    than the default a size may be. Both are fractions. `rounds` is the largest number of rounds of
    any size.
    """

    collective: Collective
    scale: Scale
    noise: float
    floor: float
    rounds: int
    sizes: list[ProvenSize]
    registered: bool = False
    group_calls: int = 1
    pipe_ops: int = 1

    @property
    def calls_title(self) -> str:
        """Return the title of the calls, such as `registered`; empty for plain calls."""
        return CallKind(self.registered, self.group_calls).title


ROUNDS_OF_A_PASS = 100
"""How many round numbers are reserved for a pass: more than a pass needs, so that two passes
never use the same round number."""


class ProofPass(msgspec.Struct, frozen=True):
    """One pass: the measurement of one set of rules.

    Its round numbers are `first_round` to `first_round + ROUNDS_OF_A_PASS - 1`. `dropped` are the
    rules that earlier passes removed or narrowed.
    """

    first_round: int
    rules: list[Rule]
    dropped: list[RemovedRule] = []


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """`proof.json`: the proof of one configuration.

    - `config_hash`: FNV-1a hash of the present configuration, as the plugin logs it
    - `reason`: why the run ended: `done`, `budget` or `interrupted`
    - `points`: the number of points that the last run measured
    - `known`: the number of points that the last run took from the study
    - `noise`: the largest noise of the groups, as a fraction
    - `workload`: the recordings of the job whose sizes were measured; empty for all sizes
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
    workload: tuple[str, ...] = ()

    @property
    def slower(self) -> int:
        """Return the number of sizes with the verdict `slower`."""
        return sum(size.verdict == "slower" for group in self.groups for size in group.sizes)

    @property
    def holding(self) -> int:
        """Return the number of rules that hold."""
        return sum(item.verdict == "holds" for item in self.rules)

    @property
    def rounds(self) -> int:
        """Return the largest number of rounds of any size."""
        return max((group.rounds for group in self.groups), default=0)
