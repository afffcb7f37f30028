# SPDX-License-Identifier: Apache-2.0
"""The rule search on studies with a known truth: a quick subset with fixed seeds.

The full table is `python benchmarks/statistics_simulation.py`.
"""

import pytest

from tests.simulation.judge import Tally, judge_cell, total

STUDIES = 5
NASTY = ("drift-down-20", "process-size", "correlated-runs")
LAYOUTS = (
    "files-4",
    "files-8-twice",
    "files-4-cycles",
    "files-4-stated",
    "files-4-two",
    "blocked-4",
    "blocked-4-two",
    "cycles-8-bare",
)
"""Layouts of files that gave false sure rules when rows counted as independent."""
PAIRED = ("files-4", "files-8-twice", "files-4-cycles", "files-4-two")


def judged(
    layout: str,
    noises: tuple[str, ...],
    effect: str,
    studies: int = STUDIES,
    *,
    with_cells: bool = False,
) -> Tally:
    return total(
        judge_cell(layout, noise, effect, range(studies), with_cells=with_cells) for noise in noises
    )


@pytest.mark.parametrize("layout", ["sweep-4", "sweep-8", "sweep-4-old", "sweep-2x4"])
def test_a_paired_sweep_of_equal_choices_has_no_sure_rule(layout: str) -> None:
    tally = judged(
        layout, ("lognormal-5", "student", "drift-up-20", "slow-node"), "null", with_cells=True
    )
    assert tally.studies == 4 * STUDIES
    assert tally.false_sure == 0
    assert tally.cells_covered >= 0.93 * tally.cells > 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_equal_choices_have_no_sure_rule(layout: str) -> None:
    tally = judged(layout, NASTY, "null")
    assert tally.studies == len(NASTY) * STUDIES
    assert tally.false_sure <= 1


@pytest.mark.parametrize("layout", PAIRED)
def test_intervals_hold_where_processes_have_offsets(layout: str) -> None:
    tally = judged(layout, ("process", "lognormal-5"), "gain-10", 10, with_cells=True)
    assert tally.cells_covered >= 0.93 * tally.cells > 0
    assert tally.false_sure == 0


def test_one_timing_a_point_of_equal_choices_has_no_rule() -> None:
    tally = judged("single", ("lognormal-15", "drift-down-5", "hiccups"), "null")
    assert tally.with_sure == 0
    assert tally.with_any <= 1


@pytest.mark.parametrize(
    ("layout", "noise", "effect", "least"),
    [
        ("sweep-8", "lognormal-1", "gain-4", 20),
        ("sweep-8", "lognormal-5", "gain-10", 18),
        ("sweep-8", "lognormal-5", "gain-10-slower", 16),
        ("sweep-4", "lognormal-5", "gain-30", 17),
        ("sweep-8", "lognormal-15", "gain-30", 15),
        ("files-8", "lognormal-5", "gain-10", 16),
        ("files-8", "process", "gain-30", 18),
    ],
)
def test_a_planted_effect_is_found(layout: str, noise: str, effect: str, least: int) -> None:
    tally = judged(layout, (noise,), effect, 20)
    assert tally.found >= least
    assert tally.false_sure == 0
    assert tally.sure_covered >= 0.85 * tally.sure
