# SPDX-License-Identifier: Apache-2.0
"""Simulated platforms on which a plan runs without a bench."""

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nccltune.analyze.timings import Timings
from nccltune.app.sweep import decide
from nccltune.measure.adaptive.collective_plan import CollectivePlan, PlanOptions
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.adaptive.time_estimate import point_us
from nccltune.measure.bench.conversation import (
    BenchPoint,
    ExecutedChoice,
    PointError,
    PointKey,
    RoundRequest,
)
from nccltune.measure.engine.communicator import MeasurementPlan
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from tests.unit.builders import choice

K, M = 1 << 10, 1 << 20
Exact = Callable[[int, AnyChoice], float | None]
"""The true time in us at a size; None where it cannot be measured."""


def no_ran(size: int, choice: AnyChoice) -> ExecutedChoice | None:
    return None


@dataclass
class Platform:
    """Answers with exact times plus log-normal noise, the same for the same point.

    One timing in `1 / hiccups` takes three times as long.
    """

    exact: Exact
    noise: float = 0.0
    hiccups: float = 0.0
    seed: int = 0
    ran: Callable[[int, AnyChoice], ExecutedChoice | None] = no_ran
    not_run: Collection[Choice] = ()
    points: list[PointKey] = field(default_factory=list)
    seconds: float = 0.0

    def answer(self, key: PointKey, plan: Plan) -> BenchPoint:
        self.points.append(key)
        common = {
            "bytes": key.bytes,
            "choice": key.choice,
            "round": key.round,
            "repeat": key.repeat,
        }
        applied = key.choice not in self.not_run
        time_us = self.exact(key.bytes, key.choice if applied else DEFAULT)
        if time_us is None:
            return BenchPoint(**common, error=PointError("unsupported"))
        label = choice_label(key.choice)
        random_ = random.Random(
            f"{self.seed} {key.collective} {key.bytes} {label} {key.round} {key.repeat}"
        )
        time_us *= math.exp(random_.gauss(0, self.noise))
        if random_.random() < self.hiccups:
            time_us *= 3
        iterations = plan.iterations(key.collective, key.bytes, key.calls)
        self.seconds += 1e-6 * point_us(key.bytes, time_us, iterations)
        ran = self.ran(key.bytes, key.choice)
        return BenchPoint(
            **common, time_us=time_us, ran=ran, applied=applied, iterations=iterations
        )


def steps(plan: MeasurementPlan) -> Iterator[list[RoundRequest]]:
    """Yield the requests of a plan, one turn after the other."""
    for turn in plan.turns:
        while asks := turn():
            yield asks


def drive(plan: Plan, platform: Platform, most_points: int = 20_000) -> None:
    """Answer a plan until it has no more requests."""
    for asks in steps(plan):
        for ask in asks:
            for key in ask.points():
                plan.feed(key, platform.answer(key, plan))
        assert len(platform.points) < most_points, "the plan does not come to an end"


def collective_plan(
    legal: Sequence[str],
    low: int = K,
    high: int = 64 * M,
    *,
    collective: Collective = Collective.ALLREDUCE,
    scale: Scale = Scale(4, 4),  # noqa: B008 - frozen
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    predicted: Mapping[int, Choice] | None = None,
) -> CollectivePlan:
    grid = Grid(collective, scale.ranks, low, high)
    choices = [choice(label) for label in legal]
    return CollectivePlan(grid, scale, choices, decide, options, predicted=predicted)


def linear(latency_us: float, bytes_per_us: float) -> Callable[[int], float]:
    return lambda size: latency_us + size / bytes_per_us


@dataclass
class Curves:
    """Choices with times of latency plus bytes over bandwidth. The default runs `default_runs` at a
    size."""

    lines: Mapping[str, Callable[[int], float]]
    default_runs: Callable[[int], str]

    def __call__(self, size: int, choice: AnyChoice) -> float | None:
        label = self.default_runs(size) if choice == DEFAULT else choice_label(choice)
        return self.lines[label](size) if label in self.lines else None

    def best(self, size: int) -> float:
        return min(line(size) for line in self.lines.values())


def timings_of(plan: Plan) -> Timings:
    (known,) = plan.statuses()
    return known.timings


def rule_regret(timings: Timings, exact: Curves, sizes: Sequence[int]) -> float:
    """Return the mean log of the time with the rules of `timings` over the time of the best
    choice."""
    from nccltune.tune.search import search

    rules = [item.rule for group in search([timings]) for item in group.rules]
    scale, collective = timings.condition.scale, timings.condition.collective
    total = 0.0
    for size in sizes:
        taken: AnyChoice = next(
            (r.choice for r in rules if r.matches(collective, size, scale.nodes, scale.ranks)),
            DEFAULT,
        )
        time = exact(size, taken)
        assert time is not None
        total += math.log(time / exact.best(size))
    return total / len(sizes)
