# SPDX-License-Identifier: Apache-2.0
"""What the rule search makes of a study, compared with the truth."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from nccltune.analyze import sort_samples
from nccltune.analyze.gains import gain_tables
from nccltune.analyze.timings import Timings
from nccltune.model.rule import RuleState
from nccltune.tune.result import RuleEvidence, TunedGroup, TuneOptions
from nccltune.tune.search import search
from tests.simulation.effects import CHOICES, EFFECTS, PLANTED, Effect
from tests.simulation.layouts import LAYOUTS
from tests.simulation.noises import NOISES
from tests.simulation.studies import seed_of, study

FALSE_GAIN = math.log1p(0.005)
"""A rule whose choice truly gains less than this over its sizes is false."""
ROUNDING = 1e-9


@dataclass
class Tally:
    """Counts over studies; two are added field by field.

    Studies: `false_sure` have a sure rule that is false, `false_any` any rule that is false,
    `with_sure` and `with_any` a rule. `found` have sure rules with the planted choice at half of
    the planted sizes or more, `exact` at these sizes and no others; `found_any` as `found` with
    rules that are not sure, too.
    Intervals of 95 %, and how many of them hold the truth: of `rules`, `sure` rules, of single
    `sizes` within sure rules, of `cells` (every size and choice compared with the default; those
    of assumed noise are `assumed`).
    `kept` is the share of the true gain that sure rules keep, summed over studies, `kept_any` that
    of all rules; `optimism` the claimed less the true log gain, summed over sure rules.
    """

    studies: int = 0
    false_sure: int = 0
    false_any: int = 0
    with_sure: int = 0
    with_any: int = 0
    found: int = 0
    found_any: int = 0
    exact: int = 0
    rules: int = 0
    rules_covered: int = 0
    sure: int = 0
    sure_covered: int = 0
    optimism: float = 0.0
    sizes: int = 0
    sizes_covered: int = 0
    cells: int = 0
    cells_covered: int = 0
    assumed: int = 0
    assumed_covered: int = 0
    kept: float = 0.0
    kept_any: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)}
        )


def total(tallies: Iterable[Tally]) -> Tally:
    return sum(tallies, Tally())


def judge_cell(
    layout: str, noise: str, effect: str, seeds: Iterable[int], *, with_cells: bool = True
) -> Tally:
    """Judge one study for each seed. `with_cells`: also the intervals of every size and choice."""
    return total(judge_study(layout, noise, effect, seed, with_cells=with_cells) for seed in seeds)


def judge_study(
    layout: str, noise: str, effect: str, seed: int, *, with_cells: bool = True
) -> Tally:
    """Make one study, tune by it, compare with the truth."""
    truth = EFFECTS[effect]
    mixed = seed_of(layout, noise, effect, seed)
    samples = study(LAYOUTS[layout], truth, NOISES[noise], mixed)
    found = sort_samples(samples)
    (group,) = search(found.timings, TuneOptions())
    tally = judge_rules(group, truth)
    if with_cells:
        judge_cells(found.timings, truth, tally)
    return tally


def judge_rules(group: TunedGroup, truth: Effect) -> Tally:
    """Judge the rules of one group, and the intervals in them."""
    sure = [rule for rule in group.rules if rule.state is RuleState.SURE]
    false = {
        id(rule): truth.gain_over(rule.rule.choice, rule.sizes) < FALSE_GAIN for rule in group.rules
    }
    tally = Tally(
        studies=1,
        false_sure=any(false[id(rule)] for rule in sure),
        false_any=any(false.values()),
        with_sure=bool(sure),
        with_any=bool(group.rules),
    )
    for rule in group.rules:
        if rule.gain is None or rule.gain_low is None or rule.gain_high is None:
            continue
        true = truth.gain_over(rule.rule.choice, rule.sizes)
        covered = _holds(rule.gain_low, true, rule.gain_high)
        tally.rules += 1
        tally.rules_covered += covered
        if rule.state is RuleState.SURE:
            tally.sure += 1
            tally.sure_covered += covered
            tally.optimism += math.log(rule.gain) - true
    within = {size for rule in sure for size in rule.sizes}
    for item in group.decisions:
        if item.bytes in within and item.choice is not None and item.gain_low is not None:
            assert item.gain_high is not None
            tally.sizes += 1
            tally.sizes_covered += _holds(
                item.gain_low, truth.gain_over(item.choice, [item.bytes]), item.gain_high
            )
    _judge_power(tally, group, sure, truth)
    return tally


def _judge_power(
    tally: Tally, group: TunedGroup, sure: Sequence[RuleEvidence], truth: Effect
) -> None:
    sizes = [item.bytes for item in group.decisions]
    array = np.array(sizes, dtype=float)
    planted = {size for size, is_in in zip(sizes, truth.planted(array), strict=True) if is_in}
    if not planted:
        return

    def by_planted(rules: Sequence[RuleEvidence]) -> set[int]:
        return {
            size for rule in rules if rule.rule.choice == CHOICES[PLANTED] for size in rule.sizes
        }

    def kept(rules: Sequence[RuleEvidence]) -> float:
        gained = math.fsum(
            truth.gain_over(rule.rule.choice, [size]) for rule in rules for size in rule.sizes
        )
        return gained / (len(planted) * math.log1p(truth.gain))

    tally.found = 2 * len(by_planted(sure) & planted) >= len(planted)
    tally.found_any = 2 * len(by_planted(group.rules) & planted) >= len(planted)
    tally.exact = {size for rule in sure for size in rule.sizes} == planted == by_planted(sure)
    tally.kept, tally.kept_any = kept(sure), kept(group.rules)


def judge_cells(timings: Sequence[Timings], truth: Effect, tally: Tally) -> None:
    """Judge the interval of every size and choice of the gain tables."""
    for table in gain_tables(timings, TuneOptions().assumed_noise):
        gains = truth.log_gains(np.array(table.sizes, dtype=float))
        for choice in table.choices:
            number = CHOICES.index(choice)
            for place, size in enumerate(table.sizes):
                interval = table.gain(size, choice)
                if interval is None:
                    continue
                true = float(gains[number, place])
                covered = interval.low - ROUNDING <= true <= interval.high + ROUNDING
                if interval.known:
                    tally.cells += 1
                    tally.cells_covered += covered
                else:
                    tally.assumed += 1
                    tally.assumed_covered += covered


def _holds(low: float, log: float, high: float) -> bool:
    return low - ROUNDING <= math.exp(log) <= high + ROUNDING
