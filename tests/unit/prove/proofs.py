# SPDX-License-Identifier: Apache-2.0
"""A machine that answers the questions of a proof: times by size, noise, what ran."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.bench.conversation import BenchPoint, ExecutedChoice, PointError, PointKey
from nccltune.model.choice import DEFAULT, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import Proof
from nccltune.prove.sizes import ProvenCalls, taken
from tests.unit import builders

SCALE = Scale(4, 4)
K = 1 << 10
M = 1 << 20
PIPE_OPS = {60: 3}
"""NCCL's numPipeOps for groups of so many calls, as on 24 channels."""
GRID = [1 << power for power in range(10, 21)]


def rule(low: int, high: int, label: str = "tree/ll", **more: object) -> Rule:
    return builders.rule(low, high, label, **{"nodes": 4, "ranks": 4, **more})


RULE = rule(4 * K, 64 * K)


class Machine:
    """`gain(size)` is default over tuned time where a rule is taken. Outside of rules both run the
    same. `hiccup(size, round)` multiplies the tuned time, `with_calls(kind)` the gain."""

    def __init__(
        self,
        gain: Callable[[int], float],
        *,
        noise: float = 0.01,
        seed: int = 1,
        hiccup: Callable[[int, int], float] = lambda _size, _round: 1.0,
        fails: Callable[[int], str | None] = lambda _: None,
        ran: Callable[[int, Choice | None], str] | None = None,
        with_calls: Callable[[CallKind], float] = lambda _: 1.0,
    ) -> None:
        self.asked = 0
        self._gain = gain
        self._noise = noise
        self._random = random.Random(seed)
        self._hiccup = hiccup
        self._fails = fails
        self._with_calls = with_calls
        self._ran = ran or (lambda _, choice: choice.label if choice else "ring/simple")

    def answer(self, key: PointKey, rules: Sequence[Rule]) -> BenchPoint:
        self.asked += 1
        calls = ProvenCalls(key.calls, PIPE_OPS.get(key.calls.group_calls, 1))
        index = taken(rules, key.collective, key.bytes, SCALE, calls)
        time_us = (20 + key.bytes / 1e4) * math.exp(self._random.gauss(0, self._noise))
        chosen = None
        if key.choice != DEFAULT:
            chosen = None if index is None else rules[index].choice
            time_us *= self._hiccup(key.bytes, key.round)
            if index is not None:
                time_us /= self._gain(key.bytes) * self._with_calls(key.calls)
                kind = self._fails(key.bytes)
                if kind is not None:
                    return self._point(key, error=PointError(kind, f"{kind} here"))
        found = builders.choice(self._ran(key.bytes, chosen))
        return self._point(
            key, time_us=time_us, ran=ExecutedChoice(found.algorithm, found.protocol, 4)
        )

    @staticmethod
    def _point(key: PointKey, **more: object) -> BenchPoint:
        settings = {"round": key.round, "repeat": key.repeat, "wrong": 0, **more}
        return BenchPoint(bytes=key.bytes, choice=key.choice, **settings)  # type: ignore[arg-type]


def drive(plan: ProofPlan, machine: Machine) -> dict[PointKey, BenchPoint]:
    """Answer every question until there is none; what was answered."""
    known: dict[PointKey, BenchPoint] = {}
    for turn in plan.turns:
        while asks := turn():
            for key in (key for ask in asks for key in ask.points()):
                assert key not in known
                known[key] = machine.answer(key, plan.rules)
                plan.feed(key, known[key])
    return known


def plan_for(rules: Sequence[Rule], first_round: int = 0, *others: ProvenCalls) -> ProofPlan:
    return ProofPlan(rules, SCALE, {Collective.ALLREDUCE: GRID}, first_round, others)


def proven(
    gain: float | Callable[[int], float],
    *rules: Rule,
    others: Sequence[ProvenCalls] = (),
    **machine: Any,
) -> ProofPlan:
    """Return a plan of `rules`, or of RULE, whose questions a machine of this gain answered."""
    plan = plan_for(rules or [RULE], 0, *others)
    drive(plan, Machine(gain if callable(gain) else lambda _: gain, **machine))
    return plan


def empty_proof(**fields: Any) -> Proof:
    """Return a proof without rules and sizes; `fields` replace its values."""
    values: dict[str, Any] = {
        "study": "x",
        "config_hash": "x",
        "reason": "done",
        "points": 0,
        "known": 0,
        "seconds": 0.0,
        "noise": 0.0,
        "replay": None,
        "nccl_version": None,
        "command": "",
        "at": "2026-11-27T03:00:00+00:00",
        "rules": [],
        "dropped": [],
        "groups": [],
        "passes": [],
    }
    return Proof(**values | fields)
