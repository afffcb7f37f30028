# SPDX-License-Identifier: Apache-2.0
"""The proof of one collective: its timings, its verdicts, and its next requests.

A pass measures one set of rules. Round numbers count from the start of their pass. Timings of an
earlier pass therefore count for this pass, at sizes where the rules still give the same choice.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from nccltune.analyze.curves import noise
from nccltune.analyze.result import Condition
from nccltune.analyze.timings import Timings
from nccltune.measure.adaptive.refine import Curves
from nccltune.measure.adaptive.size_state import axis_shares
from nccltune.measure.bench.conversation import BenchPoint, ExecutedChoice, PointKey, RoundRequest
from nccltune.model.choice import DEFAULT, TUNED_RUN, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.prove.judge import (
    FIRST_LOOK,
    LEAST_FLOOR,
    MOST_ROUNDS,
    STEP,
    ProofState,
    Strictness,
    interval,
    rule_state,
    size_state,
)
from nccltune.prove.result import ProofGroup, ProvenSize, SizeVerdict
from nccltune.prove.sizes import PLAIN_CALLS, ProvenCalls, taken
from nccltune.workload.demand import Demand, at_nearest

_HARMLESS = frozenset({"unsupported", "memory"})
"""Kinds of failure that a rule does not cause. A size with such a failure is not measured, and its
rule is kept."""


class CollectiveProof:
    """The proof of one collective at one scale with one kind of calls.

    `sizes` are the sizes to prove, in bytes. `measured` are the sizes of the sweep that the rules
    were made from. With `demand`, sizes count by the time of a job there. The attribute `at` maps
    each size to the index of its rule (None: no rule).
    """

    def __init__(
        self,
        collective: Collective,
        scale: Scale,
        sizes: Sequence[int],
        rules: Sequence[Rule],
        measured: Collection[int],
        calls: ProvenCalls = PLAIN_CALLS,
        demand: Demand | None = None,
    ) -> None:
        self.collective = collective
        self.scale = scale
        self.sizes = list(sizes)
        self.calls = calls
        self.timings = Timings(
            Condition(
                collective,
                scale,
                registered=calls.kind.registered,
                pipe_ops=calls.pipe_ops,
                group_calls=calls.kind.group_calls,
            )
        )
        self.at = {size: taken(rules, collective, size, scale, calls) for size in sizes}
        self.strict = Strictness(0.95, 0.95)
        self._rules = rules
        self._demand = demand
        self._measured = frozenset(measured)
        self._asked = dict.fromkeys(sizes, 0)
        self._lost: dict[int, str] = {}
        self._failures: dict[int, str] = {}
        self._ran: dict[tuple[int, AnyChoice], ExecutedChoice] = {}

    def feed(self, key: PointKey, point: BenchPoint) -> None:
        """Record a point. `key.round` must count from the start of the pass."""
        if key.bytes not in self._asked:
            return
        self._asked[key.bytes] = max(self._asked[key.bytes], key.round + 1)
        if point.ran is not None:
            self._ran[key.bytes, key.choice] = point.ran
        if point.ok and point.time_us is not None:
            cell = self.timings.cells.setdefault(key.bytes, {}).setdefault(key.choice, {})
            cell[key.round, key.repeat] = point.time_us
        else:
            self.note_failure(key, point)

    def note_failure(self, key: PointKey, point: BenchPoint) -> None:
        """Record a point without a valid timing. Its size is not measured again.

        If a tuned call failed in a way that its rule may have caused, the size is added to
        `failures`. Otherwise the size is added to `lost`.
        """
        kind = point.error.kind if point.error else "wrong"
        if kind in _HARMLESS or key.choice == DEFAULT:
            self._lost[key.bytes] = point.error.text if point.error else "wrong results"
        else:
            self._failures[key.bytes] = "wrong results" if kind == "wrong" else f"fails ({kind})"

    def asks(self, first_round: int) -> list[RoundRequest]:
        """Return the next requests; an empty list when every size and every rule is decided.

        `first_round` is the number of the pass's first round. This number is added to every round
        number.
        """
        wanted = {
            size: FIRST_LOOK
            for size in self.sizes
            if self._asked[size] < FIRST_LOOK and not (size in self._lost or size in self._failures)
        }
        if not wanted:
            wanted = self._further()
        asks = []
        for round_ in range(min(self._asked.values(), default=0), MOST_ROUNDS):
            sizes = tuple(size for size, end in wanted.items() if self._asked[size] <= round_ < end)
            if sizes:
                both = (DEFAULT, TUNED_RUN)
                asks.append(
                    RoundRequest(
                        self.collective,
                        sizes,
                        both,
                        first_round + round_,
                        check=round_ == 0,
                        calls=self.calls.kind,
                    )
                )
        self._asked.update(wanted)
        return asks

    def asks_left(self) -> list[RoundRequest]:
        """Return requests that take about as long as the measurements still needed.

        The requests serve only to estimate the remaining time.
        """
        new = [size for size in self.sizes if len(self.gains(size)) < FIRST_LOOK]
        sizes = tuple(size for size in new or self._further() if size not in self._lost)
        return (
            [RoundRequest(self.collective, sizes, (DEFAULT, TUNED_RUN), 0, calls=self.calls.kind)]
            * STEP
            if sizes
            else []
        )

    @property
    def is_decided(self) -> bool:
        """Return whether no rule, and no size of a rule, needs more rounds."""
        return not self._further()

    def _further(self) -> dict[int, int]:
        """Return the sizes that need more rounds, each with the number of rounds to reach.

        A size needs more rounds if its own state or the state of its rule is `OPEN`. Sizes without
        a rule, and sizes of a rule that failed, need none.
        """
        wanted: dict[int, int] = {}
        for index in {index for index in self.at.values() if index is not None}:
            usable = self.of_rule(index)
            if not usable or any(size in self._failures for size in usable):
                continue
            if self.equal_to_default(index, usable) is not None:
                continue
            if self.state_of_rule(usable) is ProofState.OPEN:
                end = min(MOST_ROUNDS, min(self._asked[size] for size in usable) + STEP)
                wanted |= {size: end for size in usable if self._asked[size] < end}
            for size in usable:
                if self.state(size) is ProofState.OPEN and self._asked[size] < MOST_ROUNDS:
                    end = min(MOST_ROUNDS, self._asked[size] + STEP)
                    wanted[size] = max(wanted.get(size, 0), end)
        return dict(sorted(wanted.items()))

    @property
    def noise(self) -> float:
        """Return the A/A noise: how far two medians of the default typically differ, as a
        fraction."""
        return noise(self.timings).typical

    @property
    def floor(self) -> float:
        """Return how much slower than the default a size may be, as a fraction."""
        return max(LEAST_FLOOR, self.noise)

    @property
    def failures(self) -> Mapping[int, str]:
        """Return the sizes at which a tuned call failed or gave wrong results, with the failure as
        text."""
        return self._failures

    @property
    def lost(self) -> Mapping[int, str]:
        """Return the sizes that could not be measured, each with the reason."""
        return self._lost

    def of_rule(self, index: int) -> list[int]:
        """Return the sizes that rule `index` applies to. Sizes in `lost` are left out."""
        return [size for size in self.sizes if self.at[size] == index and size not in self._lost]

    def gains(self, size: int) -> list[float]:
        """Return the gain of every round at a size: the natural log of default over tuned time."""
        return list(self.timings.log_gains(size, TUNED_RUN).values())

    def pooled(self, sizes: Sequence[int]) -> list[float]:
        """Return, for each round that all `sizes` have, the mean gain (a natural log).

        Each size is weighted with its share of the size axis (log bytes), or of the job's time.
        """
        share = self._shares(sizes)
        by_size = {size: self.timings.log_gains(size, TUNED_RUN) for size in sizes}
        common = set.intersection(*(set(gains) for gains in by_size.values())) if sizes else set()
        return [
            math.fsum(share[size] * by_size[size][round_] for size in sizes)
            for round_ in sorted(common)
        ]

    def _shares(self, sizes: Sequence[int]) -> Mapping[int, float]:
        if self._demand is None or not sizes:
            return axis_shares(sizes)
        curves = Curves(self.timings)
        times = self._demand.times(lambda size: curves.estimate_us(size, DEFAULT))
        near = at_nearest(times, self.sizes)
        total = math.fsum(near[size] for size in sizes)
        return {size: near[size] / total for size in sizes} if total > 0 else axis_shares(sizes)

    def state(self, size: int) -> ProofState:
        """Return whether a size is slower with the rules: the result of `size_state`."""
        return size_state(self.gains(size), self.floor, self.strict.size)

    def state_of_rule(self, sizes: Sequence[int]) -> ProofState:
        """Return whether a rule with these sizes is faster: the result of `rule_state`."""
        return rule_state(self.pooled(sizes), self.noise, self.strict.rule)

    def ran_choice(self, size: int, choice: AnyChoice) -> Choice | None:
        """Return the algorithm and protocol that NCCL executed for `choice`; None if unknown."""
        ran = self._ran.get((size, choice))
        found = ran.choice() if ran else None
        return found.without_channels() if found else None

    def fault(self, index: int) -> str | None:
        """Return as text how rule `index` fails, or that it has no effect; None if neither."""
        sizes = self.of_rule(index)
        failed = next((size for size in sizes if size in self._failures), None)
        if failed is not None:
            return f"{self._failures[failed]} at {format_bytes(failed)}"
        own = self._rules[index].choice.without_channels()
        for size, words in self._failures.items():
            other = self.at[size] if words == "wrong results" else None
            if other is not None and self._rules[other].choice.without_channels() == own:
                return f"{own.label} gave wrong results at {format_bytes(size)}"
        instead = self.ran_instead(index, sizes)
        return None if instead is None else f"has no effect: NCCL ran {instead}"

    def ran_instead(self, index: int, sizes: Iterable[int]) -> str | None:
        """Return as text what NCCL executed instead of the choice of rule `index`.

        Return None if NCCL executed that choice at any of `sizes`, or if it is unknown what NCCL
        executed. Only algorithm and protocol are compared.
        """
        wanted = self._rules[index].choice.without_channels()
        ran = {choice.label for size in sizes if (choice := self.ran_choice(size, TUNED_RUN))}
        return None if not ran or wanted.label in ran else " and ".join(sorted(ran))

    def equal_to_default(self, index: int, sizes: Iterable[int]) -> str | None:
        """Return as text what NCCL executed both with rule `index` and without it.

        Return None if it differs at any of `sizes`, or is unknown. Channels and chunk sizes that
        the rule sets must be known to be equal, too.
        """
        wanted = self._rules[index].choice
        seen = []
        for size in sizes:
            default, tuned = (self._ran.get((size, kind)) for kind in (DEFAULT, TUNED_RUN))
            choice = tuned.choice() if default is not None and default == tuned else None
            if choice is None or choice.without_channels() != wanted.without_channels():
                return None
            if wanted.chunk_bytes is not None or wanted.channels not in (None, choice.channels):
                return None
            seen.append(choice.without_channels().label)
        return " and ".join(sorted(set(seen))) or None

    def gain_words(self, size: int) -> str:
        """Return the gain at a size as text: `0.93x at 64 KiB (0.91-0.95)`.

        With too few rounds for a gain, the text is only `at 64 KiB`.
        """
        found = interval(self.gains(size))
        if found is None:
            return f"at {format_bytes(size)}"
        low, high = math.exp(found.low), math.exp(found.high)
        return f"{math.exp(found.value):.2f}x at {format_bytes(size)} ({low:.2f}-{high:.2f})"

    def group(self) -> ProofGroup:
        """Return the state of this collective for `proof.json`."""
        return ProofGroup(
            collective=self.collective,
            scale=self.scale,
            registered=self.calls.kind.registered,
            group_calls=self.calls.kind.group_calls,
            pipe_ops=self.calls.pipe_ops,
            noise=self.noise,
            floor=self.floor,
            rounds=max((len(self.gains(size)) for size in self.sizes), default=0),
            sizes=[self._proven(size) for size in self.sizes],
        )

    def _proven(self, size: int) -> ProvenSize:
        index = self.at[size]
        gains = self.gains(size)
        found = interval(gains)
        ran = self._ran.get((size, TUNED_RUN))
        choice = ran.choice() if ran else None
        return ProvenSize(
            bytes=size,
            choice=None if index is None else self._rules[index].choice.label,
            between=size not in self._measured,
            verdict=self._verdict(size),
            rounds=len(gains),
            default_us=self.timings.median(size, DEFAULT),
            tuned_us=self.timings.median(size, TUNED_RUN),
            gain=None if found is None else math.exp(found.value),
            gain_low=None if found is None else math.exp(found.low),
            gain_high=None if found is None else math.exp(found.high),
            ran=choice.label if choice else None,
            note=self._lost.get(size) or self._failures.get(size),
        )

    def _verdict(self, size: int) -> SizeVerdict:
        found = interval(self.gains(size))
        if size in self._failures:
            return "slower"
        if size in self._lost:
            return "unverified"
        if self.at[size] is None:
            default, tuned = self.ran_choice(size, DEFAULT), self.ran_choice(size, TUNED_RUN)
            if default is not None and tuned is not None and default != tuned:
                return "not alike"
            return "open" if found is None else "left alone"
        state = self.state(size)
        if found is None or state is ProofState.OPEN:
            return "open"
        if state is ProofState.BAD:
            return "slower"
        return "faster" if found.low > 0 else "alike"
