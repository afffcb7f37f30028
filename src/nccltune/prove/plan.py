# SPDX-License-Identifier: Apache-2.0
"""The proof of a whole configuration: the requests to the bench, and the verdict on every rule."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.time_estimate import PlanEstimates
from nccltune.measure.bench.conversation import BenchPoint, PointKey, RequestSource
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale, count
from nccltune.model.sizes import MAX_BYTES
from nccltune.prove.collective_proof import CollectiveProof
from nccltune.prove.judge import FIRST_LOOK, ProofState, interval, strictness
from nccltune.prove.result import (
    ROUNDS_OF_A_PASS,
    ProofGroup,
    ProofPass,
    RemovedRule,
    RuleProof,
    RuleVerdict,
)
from nccltune.prove.sizes import (
    PLAIN_CALLS,
    ProvenCalls,
    applies,
    at_scale,
    job_sizes,
    sizes_to_prove,
    taken,
)
from nccltune.workload.demand import Demand

SizesByCalls = Mapping[tuple[Collective, ProvenCalls], Sequence[int]]
"""Sizes to prove, in bytes, by collective and calls."""


class ProofPlan(PlanEstimates):
    """One pass: the requests that prove one set of rules, and the verdict from their answers.

    `measured` maps collectives to the sizes (bytes) of the sweep that the rules were made from. The
    round numbers of this pass start at `first_round`. `others` are the calls to measure besides
    plain ones; collectives without a rule for them are not measured with them. With `only`, exactly
    these sizes are proven. With `wanted`, only plain calls that a job makes are measured, at its
    sizes, and each size counts by the job's time there.

    >>> from nccltune.measure.bench.conditions import PLAIN
    >>> from nccltune.model.choice import Algorithm, Choice, Protocol
    >>> rule = Rule(Collective.ALLREDUCE, 1024, 4096, Choice(Algorithm.TREE, Protocol.LL))
    >>> plan = ProofPlan([rule], Scale(2, 16), {Collective.ALLREDUCE: [1024, 4096]}, first_round=0)
    >>> plan.proofs[Collective.ALLREDUCE, PLAIN].sizes
    [1024, 2048, 4096]
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        scale: Scale,
        measured: Mapping[Collective, Sequence[int]],
        first_round: int,
        others: Sequence[ProvenCalls] = (),
        only: SizesByCalls | None = None,
        wanted: Mapping[Collective, Demand] | None = None,
    ) -> None:
        self.rules = list(rules)
        self.scale = scale
        self.first_round = first_round
        self._wanted = wanted
        if wanted is not None:
            only = {
                (collective, PLAIN_CALLS): job_sizes(collective, scale, sizes, rules, demand)
                for collective, sizes in measured.items()
                if (demand := wanted.get(collective)) is not None
            }
        proven = _sizes_by_calls(rules, scale, measured, others) if only is None else only
        self.proofs = {
            (collective, calls.kind): CollectiveProof(
                collective,
                scale,
                sizes,
                rules,
                _aligned(measured.get(collective, ()), collective, scale, calls),
                calls,
                None if wanted is None else wanted[collective],
            )
            for (collective, calls), sizes in proven.items()
            if sizes or wanted is None
        }
        strict = strictness(
            sum(index is not None for proof in self.proofs.values() for index in proof.at.values()),
            len(rules),
        )
        super().__init__({key: proof.timings for key, proof in self.proofs.items()})
        for proof in self.proofs.values():
            proof.strict = strict

    def carry(self, known: Mapping[PointKey, BenchPoint], passes: Sequence[ProofPass]) -> None:
        """Add recorded points of earlier passes, at sizes where the rules still give the same
        choice.

        `known` are the recorded points of all passes. The last of `passes` is this pass. From this
        pass only the failed points are added here. The plan requests its other points again, and
        the engine then answers these requests from `known`.
        """
        for key, point in known.items():
            proof = self.proofs.get((key.collective, key.calls))
            ours = self.first_round <= key.round < self.first_round + ROUNDS_OF_A_PASS
            if ours and not point.ok and proof and key.bytes in proof.at:
                proof.note_failure(key, point)
        for number, before in enumerate(passes[:-1]):
            end = before.first_round + ROUNDS_OF_A_PASS
            for key, point in known.items():
                if not before.first_round <= key.round < end:
                    continue
                proof = self.proofs.get((key.collective, key.calls))
                if proof is None or key.bytes not in proof.at:
                    continue
                if all(
                    self._choice(passes[later].rules, key, proof.calls)
                    == self._choice(self.rules, key, proof.calls)
                    for later in range(number, len(passes) - 1)
                ):
                    proof.feed(key._replace(round=key.round - before.first_round), point)

    @property
    def turns(self) -> Sequence[RequestSource]:
        """Return one function for each collective and kind of calls; it returns the next requests
        for them."""
        return [partial(proof.asks, self.first_round) for proof in self.proofs.values()]

    def feed(self, key: PointKey, point: BenchPoint) -> None:
        """Record the answer to one point."""
        self.forget((key.collective, key.calls))
        proof = self.proofs[key.collective, key.calls]
        proof.feed(key._replace(round=key.round - self.first_round), point)

    def seconds_left(self) -> float:
        """Return about how long the rest of the pass takes, in seconds."""
        return math.fsum(
            self.seconds(ask) for proof in self.proofs.values() for ask in proof.asks_left()
        )

    @property
    def is_decided(self) -> bool:
        """Return whether no rule, and no size of a rule, needs more rounds."""
        return all(proof.is_decided for proof in self.proofs.values())

    @property
    def rounds(self) -> int:
        """Return the least number of rounds of a size that a rule applies to; 0 without one."""
        return min(
            (
                len(proof.gains(size))
                for proof in self.proofs.values()
                for size, index in proof.at.items()
                if index is not None and size not in proof.lost
            ),
            default=0,
        )

    def groups(self) -> list[ProofGroup]:
        """Return the state of every collective and kind of calls that has sizes to prove."""
        return [proof.group() for proof in self.proofs.values() if proof.sizes]

    def verdicts(self, expected: Mapping[Rule, float]) -> list[RuleProof]:
        """Return the verdict on every rule. `expected` are the gains that the rule search
        predicted."""
        return [self._verdict(index, expected.get(rule)) for index, rule in enumerate(self.rules)]

    def bad(self, narrowed: Sequence[Rule]) -> list[RemovedRule]:
        """Return the rules that do not hold, each with the reason.

        A rule that is slower only at its smallest or largest sizes gets a narrower replacement. The
        rules in `narrowed` are replacements themselves and are not narrowed again.
        """
        found = []
        for index, rule in enumerate(self.rules):
            dropped = self._dropped(index, rule, may_narrow=rule not in narrowed)
            if dropped is not None:
                found.append(dropped)
        return found

    def _choice(self, rules: Sequence[Rule], key: PointKey, calls: ProvenCalls) -> object:
        index = taken(rules, key.collective, key.bytes, self.scale, calls)
        return None if index is None else rules[index].choice

    def _proofs(self, rule: Rule) -> list[CollectiveProof]:
        return [proof for proof in self.proofs.values() if proof.collective is rule.collective]

    def _verdict(self, index: int, expected: float | None) -> RuleProof:
        rule = self.rules[index]
        proofs = [proof for proof in self._proofs(rule) if proof.of_rule(index)]
        if not proofs:
            why = self._unverified(index, rule)
            return RuleProof(rule=rule, verdict="unverified", reason=why, expected=expected)
        # With several kinds of calls, the rule may be faster with some of them only. Report these.
        states = {id(proof): proof.state_of_rule(proof.of_rule(index)) for proof in proofs}
        best = next((item for item in proofs if states[id(item)] is ProofState.GOOD), proofs[0])
        verdict: RuleVerdict
        sizes = best.of_rule(index)
        gains = best.pooled(sizes)
        found = interval(gains)
        single = [value for size in sizes if (value := interval(best.gains(size))) is not None]
        still_open = sum(
            proof.state(size) is ProofState.OPEN
            for proof in proofs
            for size in proof.of_rule(index)
        )
        verdict, reason = "open", None
        lost = sum(proof.at[size] == index for proof in proofs for size in proof.lost)
        if found is None or ProofState.OPEN in states.values():
            reason = "more rounds are needed to distinguish its gain from noise"
        elif still_open:
            reason = f"more rounds are needed at {count(still_open, 'size')}"
        else:
            verdict = "holds"
            reason = f"{count(lost, 'size')} could not be measured" if lost else None
        return RuleProof(
            rule=rule,
            verdict=verdict,
            reason=reason,
            expected=expected,
            gain=None if found is None else math.exp(found.value),
            gain_low=None if found is None else math.exp(found.low),
            gain_high=None if found is None else math.exp(found.high),
            least=math.exp(min(item.value for item in single)) if single else None,
            most=math.exp(max(item.value for item in single)) if single else None,
            rounds=len(gains),
            sizes=len(sizes),
            between=sum(proven.between for proven in best.group().sizes if proven.bytes in sizes),
        )

    def _unverified(self, index: int, rule: Rule) -> str:
        """Return why no size of a rule was measured."""
        if not at_scale(rule, self.scale):
            return f"for another scale; this run has {self.scale}"
        if self._wanted is not None and not applies(rule, self.scale):
            return "for registered buffers or groups of calls, which no recording states"
        measured = [proof.calls for proof in self._proofs(rule)]
        if self._wanted is None and not any(applies(rule, self.scale, calls) for calls in measured):
            if rule.registered and not any(calls.kind.registered for calls in measured):
                return "for registered buffers, which cannot be measured here"
            seen = " and ".join(str(number) for number in sorted({c.pipe_ops for c in measured}))
            return (
                f"for numPipeOps {rule.pipe_ops}; the calls measured have {seen}: give the calls "
                "of a group with --pipe-ops, more than the communicator has channels"
            )
        lost = [
            why
            for proof in self._proofs(rule)
            for size, why in proof.lost.items()
            if proof.at[size] == index
        ]
        if lost:
            return f"could not be measured: {lost[0]}"
        if self._wanted is not None:
            return "the job sends nothing in its range, or other rules take all of it first"
        return "nothing that was measured lies in its range, or other rules take all of it first"

    def _dropped(self, index: int, rule: Rule, *, may_narrow: bool) -> RemovedRule | None:
        proofs = [proof for proof in self._proofs(rule) if proof.of_rule(index)]
        for proof in proofs:
            dropped = self._harmful(proof, index, rule, may_narrow=may_narrow)
            if dropped is not None:
                return dropped
        equal = self._equal(index, proofs)
        if equal is not None:
            return RemovedRule(rule, equal)
        gains = [
            interval(proof.pooled(proof.of_rule(index)))
            for proof in proofs
            if proof.state_of_rule(proof.of_rule(index)) is ProofState.BAD
        ]
        if not gains or len(gains) < len(proofs):
            return None
        found = gains[0]
        assert found is not None
        low, high = math.exp(found.low), math.exp(found.high)
        gain = f"{math.exp(found.value):.2f}x ({low:.2f}-{high:.2f})"
        return RemovedRule(rule, f"no gain beyond noise: {gain} in {count(found.n, 'round')}")

    def _equal(self, index: int, proofs: Sequence[CollectiveProof]) -> str | None:
        """Return why a rule can change nothing: NCCL executes its choice without it, too.

        Return None if a call executes something else, or if it is unknown what is executed.
        """
        ran = {proof.equal_to_default(index, proof.of_rule(index)) for proof in proofs}
        rounds = min((len(proof.pooled(proof.of_rule(index))) for proof in proofs), default=0)
        if len(ran) != 1 or None in ran or rounds < FIRST_LOOK:
            return None
        states = [proof.state_of_rule(proof.of_rule(index)) for proof in proofs]
        if ProofState.GOOD in states:
            return None
        return f"equal to the default: NCCL runs {ran.pop()} without the rule, too"

    def _harmful(
        self, proof: CollectiveProof, index: int, rule: Rule, *, may_narrow: bool
    ) -> RemovedRule | None:
        """Return the rule if it fails, has no effect or is slower at a size with these calls."""
        sizes = proof.of_rule(index)
        calls = f" ({proof.calls.title})" if proof.calls.title else ""
        fault = proof.fault(index)
        if fault is not None:
            return RemovedRule(rule, f"{fault}{calls}")
        slower = [size for size in sizes if proof.state(size) is ProofState.BAD]
        if not slower:
            return None
        worst = min(slower, key=lambda size: sum(proof.gains(size)) / len(proof.gains(size)))
        more = f" and at {count(len(slower) - 1, 'more size')}" if len(slower) > 1 else ""
        narrow = self._narrower(proof, index, slower) if may_narrow else None
        return RemovedRule(rule, f"slower: {proof.gain_words(worst)}{more}{calls}", narrow)

    def _narrower(self, proof: CollectiveProof, index: int, slower: Sequence[int]) -> Rule | None:
        """Return the rule without the sizes in `slower`.

        Return None if the other sizes are not neighbours, are fewer than two, or are bad together.
        On a side where sizes are removed, the new range ends at the last remaining size. The next
        pass proves the new rule like any other rule.
        """
        sizes = proof.of_rule(index)
        good = [place for place, size in enumerate(sizes) if size not in slower]
        if not good or good != list(range(good[0], good[-1] + 1)) or len(good) < 2:
            return None
        rest = [sizes[place] for place in good]
        if proof.state_of_rule(rest) is ProofState.BAD:
            return None
        rule = self.rules[index]
        return Rule(
            rule.collective,
            rest[0] if good[0] > 0 else rule.min_bytes,
            rest[-1] if good[-1] < len(sizes) - 1 else rule.max_bytes,
            rule.choice,
            rule.nodes,
            rule.ranks,
            rule.pipe_ops,
            rule.registered,
        )


def _sizes_by_calls(
    rules: Sequence[Rule],
    scale: Scale,
    measured: Mapping[Collective, Sequence[int]],
    others: Sequence[ProvenCalls],
) -> SizesByCalls:
    """Return the sizes to prove of every collective, with plain calls and with those in `others`
    that a rule of the collective is for."""
    collectives = dict.fromkeys([*measured, *(rule.collective for rule in rules)])
    return {
        (collective, calls): sizes_to_prove(collective, scale, known, rules, calls)
        for calls in (PLAIN_CALLS, *others)
        for collective in collectives
        if calls == PLAIN_CALLS
        or any(rule.collective is collective and applies(rule, scale, calls) for rule in rules)
        for known in (_aligned(measured.get(collective, ()), collective, scale, calls),)
    }


def _aligned(
    sizes: Sequence[int], collective: Collective, scale: Scale, calls: ProvenCalls
) -> Sequence[int]:
    """Return the sizes, or for groups the nearest sizes that their calls can divide."""
    if calls.kind.group_calls == 1:
        return sizes
    grid = Grid(collective, scale.ranks, 1, MAX_BYTES, calls.kind.group_calls)
    return sorted({grid.aligned(size) for size in sizes})
