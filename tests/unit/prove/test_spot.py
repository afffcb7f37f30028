# SPDX-License-Identifier: Apache-2.0
"""Spot checks: no false alarm, lost gains are found, what is measured and in which order."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from nccltune.formats.tuner_config.csv_rules import FileRule
from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.bench.process import Bench
from nccltune.model.choice import AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.prove.plan import ProofPlan
from nccltune.prove.sizes import PLAIN_CALLS, ProvenCalls
from nccltune.prove.spot import (
    CHANCE,
    Gain,
    SpotCheck,
    SpotSite,
    by_weight,
    judge,
    judge_proof,
    spot_check,
    spot_sizes,
)
from nccltune.study.files import Study
from tests.unit.measure.fakes import FakeBench, hello
from tests.unit.prove.proofs import GRID, SCALE, K, M, Machine, drive, rule

SMALL, LARGE = rule(2 * K, 16 * K), rule(64 * K, 512 * K, "tree/simple")


def proven(found: Rule, gain: float, low: float, high: float, line: int = 1) -> FileRule:
    words = f"{gain:.2f}x faster than the default (95 % CI {low:.2f}-{high:.2f}), measured"
    return FileRule(line, found, RuleState.PROVEN, words)


class Quiet:
    """Receives the status of a run and shows nothing."""

    def update(self, *_: object) -> None:
        """Show nothing."""


def checked(
    folder: Path,
    items: Sequence[FileRule],
    times: Callable[[int, AnyChoice], float | None],
    *,
    budget_s: float = 1e6,
    others: Sequence[ProvenCalls] = (),
) -> list[SpotCheck]:
    bench = FakeBench(times, hello_=hello())
    site = SpotSite(
        bench=cast("Bench", bench),
        scratch=Study.create(folder),
        budget_s=budget_s,
        measured={Collective.ALLREDUCE: GRID},
        others=others,
        ran={},
    )
    return spot_check(items, site, Quiet(), lambda _: None)


class NoisyMachine:
    """Times of one process: noise of single timings, hiccups, and a gain that differs by process.

    Without `holds`, the rules gain nothing any more.
    """

    def __init__(self, seed: int, *, holds: bool) -> None:
        self.random = random.Random(seed)
        self.noise = self.random.choice([0.002, 0.01, 0.03, 0.05])
        self.hiccups = self.random.choice([0.0, 0.0, 0.05])
        gains = [self.random.uniform(1.05, 1.6) for _ in range(2)]
        self.items = [self._recorded(*pair) for pair in zip((SMALL, LARGE), gains, strict=True)]
        shift = self.random.gauss(0, 0.01)
        self.gains = [gain * math.exp(shift) if holds else 1.0 for gain in gains]

    def _recorded(self, found: Rule, gain: float) -> FileRule:
        """A rule as verify marks it: its estimate is off by the noise of that run."""
        error = self.noise / 4
        log = math.log(gain) + self.random.gauss(0, error)
        return proven(found, *(math.exp(log + part * error) for part in (0, -2, 2)))

    def __call__(self, size: int, choice: AnyChoice) -> float:
        time_us = (20 + size / 1e4) * math.exp(self.random.gauss(0, self.noise))
        if self.random.random() < self.hiccups:
            time_us *= self.random.uniform(1.5, 4.0)
        if choice != "default":
            time_us /= self.gains[not SMALL.min_bytes <= size <= SMALL.max_bytes]
        return time_us


def test_200_checks_of_rules_that_hold_give_no_alarm(tmp_path: Path) -> None:
    kept = 0
    for seed in range(200):
        machine = NoisyMachine(seed, holds=True)
        found = checked(tmp_path / str(seed), machine.items, machine)
        alarms = [item for item in found if item.verdict not in ("keep", "not decided")]
        assert not alarms, (seed, alarms)
        kept += sum(item.verdict == "keep" for item in found)
    assert kept >= 360, f"{kept} of 400 rules were confirmed"


def test_rules_whose_gain_is_gone_are_dropped(tmp_path: Path) -> None:
    found = []
    for seed in range(1000, 1100):
        machine = NoisyMachine(seed, holds=False)
        found += checked(tmp_path / str(seed), machine.items, machine)
    counted = Counter(item.verdict for item in found)
    assert counted["drop"] >= 160
    # That a rule without gain seems to have one is as rare as its interval of 95 % states.
    assert counted["keep"] + counted["measure again"] <= 10


def test_a_verdict_never_contradicts_the_interval_beside_it(tmp_path: Path) -> None:
    for seed in range(2000, 2060):
        machine = NoisyMachine(seed, holds=bool(seed % 2))
        for item in checked(tmp_path / str(seed), machine.items, machine):
            assert item.gain is not None
            is_dropped = item.reason.startswith(("slower: ", "faster by less than 1 %: "))
            is_kept = item.verdict in ("keep", "measure again")
            assert is_dropped or is_kept == (item.gain.low > 1)


@pytest.mark.parametrize(
    ("gain", "spread", "low", "verdict"),
    [
        (0.26, 0.01, 1.25, "keep"),
        (0.26, 0.01, None, "keep"),
        (0.05, 0.005, 1.04, "keep"),
        (0.05, 0.005, 1.25, "measure again"),
        (0.00, 0.01, 1.25, "drop"),
        (0.00, 0.01, None, "drop"),
        (0.004, 0.002, 1.25, "drop"),
        (0.004, 0.002, None, "drop"),
        (-0.2, 0.01, None, "drop"),
        (0.02, 0.15, 1.40, "drop"),
        (0.02, 0.15, 1.04, "not decided"),
        (0.02, 0.15, None, "not decided"),
        (0.02, 0.15, 0.98, "not decided"),
    ],
)
def test_a_verdict_needs_evidence(
    gain: float, spread: float, low: float | None, verdict: str
) -> None:
    random_ = random.Random(3)
    gains = [gain + random_.uniform(-spread, spread) for _ in range(24)]
    assert judge(gains, low, 1 - CHANCE)[0] == verdict
    assert judge(gains[:3], low, 1 - CHANCE)[0] == "not checked"


@pytest.mark.parametrize(
    ("machine", "verdict", "words"),
    [
        (Machine(lambda _: 1.3), "keep", "faster"),
        (Machine(lambda _: 1.3, fails=lambda _: "nccl"), "drop", "fails (nccl)"),
        (Machine(lambda _: 1.3, fails=lambda _: "memory"), "not checked", "could not be measured"),
        (
            Machine(lambda _: 1.3, ran=lambda *_: "ring/simple"),
            "drop",
            "no effect: NCCL ran ring/simple",
        ),
        (
            Machine(lambda _: 1.02, noise=0.2, ran=lambda *_: "tree/ll"),
            "drop",
            "NCCL runs tree/ll without",
        ),
        (Machine(lambda size: 0.8 if size > 8 * K else 1.6), "drop", "slower: 0.80x at 16 KiB"),
    ],
)
def test_what_ran_is_evidence_too(machine: Machine, verdict: str, words: str) -> None:
    only = {(Collective.ALLREDUCE, PLAIN_CALLS): [2 * K, 4 * K, 16 * K]}
    plan = ProofPlan([SMALL], SCALE, {}, 0, only=only)
    drive(plan, machine)
    (proof,) = plan.proofs.values()
    found = judge_proof(proof, 0, 1.2, 1 - CHANCE)
    assert found[0] == verdict
    assert words in found[1]


def test_rules_that_carry_most_come_first_and_the_rest_is_not_reported_as_right(
    tmp_path: Path,
) -> None:
    small, large = proven(SMALL, 1.05, 1.03, 1.07), proven(LARGE, 1.6, 1.5, 1.7, line=2)
    assert by_weight([small, large]) == [1, 0]
    wide = proven(rule(0, 1 << 40), 1.05, 1.03, 1.07)
    assert by_weight([small, wide]) == [1, 0]

    def times(_: int, choice: AnyChoice) -> float:
        return 1e6 if choice == "default" else 6e5

    found = checked(tmp_path, [small, large], times, budget_s=1e-9)
    assert [item.verdict for item in found] == ["not checked", "not checked"]
    found = checked(tmp_path, [small, large], times)
    assert [item.verdict for item in found] == ["keep", "keep"]
    assert found[0].rule == SMALL
    assert found[1].recorded == Gain(1.6, 1.5, 1.7)
    assert found[1].sizes[0].default_us == pytest.approx(1e6, rel=0.1)


def test_a_rule_that_cannot_be_measured_here_says_why(tmp_path: Path) -> None:
    items = [
        proven(rule(K, M, nodes=8, ranks=64), 1.2, 1.1, 1.3),
        proven(rule(K, M, registered=True), 1.2, 1.1, 1.3),
        proven(rule(K, M), 1.2, 1.1, 1.3),
        proven(rule(2 * K, 4 * K), 1.2, 1.1, 1.3),
    ]

    def times(_: int, choice: AnyChoice) -> float:
        return 20.0 if choice == "default" else 15.0

    found = checked(tmp_path, items, times)
    assert [item.verdict for item in found] == ["not checked"] * 2 + ["keep", "not checked"]
    assert "for another scale; this run has 4 nodes, 4 ranks" in found[0].reason
    assert "registered" in found[1].reason
    assert "other rules take all" in found[3].reason
    calls = ProvenCalls(CallKind(registered=True))
    found = checked(tmp_path / "registered", items[1:2], times, others=[calls])
    assert [item.verdict for item in found] == ["keep"]


def test_a_candidate_has_no_gain_to_lose(tmp_path: Path) -> None:
    candidate = FileRule(1, SMALL, RuleState.CANDIDATE, "1.60x, 95 % CI 1.50-1.70; few timings")

    def times(_: int, choice: AnyChoice) -> float:
        return 20.0 if choice == "default" else 19.0

    (found,) = checked(tmp_path, [candidate], times)
    assert (found.verdict, found.recorded) == ("keep", None)


def test_sizes_are_spread_over_the_range_that_a_rule_decides() -> None:
    first, second = rule(2 * K, 8 * K), rule(K, 512 * K, "ring/ll")
    assert spot_sizes([first], 0, SCALE, GRID, PLAIN_CALLS) == [2 * K, 4 * K, 8 * K]
    assert spot_sizes([second], 0, SCALE, GRID, PLAIN_CALLS) == [4 * K, 16 * K, 256 * K]
    behind = spot_sizes([first, second], 1, SCALE, GRID, PLAIN_CALLS)
    assert behind == [16 * K, 64 * K, 256 * K]
    narrow = spot_sizes([rule(4 * K, 4 * K + 64)], 0, SCALE, GRID, PLAIN_CALLS)
    assert narrow
    assert all(4 * K <= size <= 4 * K + 64 for size in narrow)
    assert len(spot_sizes([second], 0, SCALE, [], PLAIN_CALLS)) == 3
    assert spot_sizes([rule(4 * K + 1, 4 * K + 2)], 0, SCALE, GRID, PLAIN_CALLS) == []
