# SPDX-License-Identifier: Apache-2.0
"""How often the rule search is wrong, and what it finds, on studies with a known truth.

python benchmarks/statistics_simulation.py                    the full table
python benchmarks/statistics_simulation.py --quick            about a minute on idle cores
python benchmarks/statistics_simulation.py --layout 'files-8*' --noise process --effect null --cells

Patterns choose cells, and `--cells` prints all their counts.

Layouts, noises and effects are those of tests/simulation. `--save NAME` writes NAME.md, with all
tables, and NAME.json. Exit code 1 where a criterion is not met: false sure rules in at most 5 % of
the studies of each layout and noise, intervals that hold the truth in 93 % or more per layout.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.simulation.effects import EFFECTS
from tests.simulation.judge import Tally, judge_cell, total
from tests.simulation.layouts import LAYOUTS
from tests.simulation.noises import NOISES

STUDIES, PLANTED_STUDIES, QUICK_STUDIES = 200, 20, 6
QUICK_EFFECTS = ("null", "gain-10")
CHUNK = 20
CELL_STUDIES = 10
"""So many studies of a cell have the interval of every size and choice judged."""
MOST_FALSE, LEAST_COVERAGE = 0.05, 0.93


class Cell(NamedTuple):
    """One layout, noise and effect."""

    layout: str
    noise: str
    effect: str


Task = tuple[Cell, range]
Tallies = dict[Cell, Tally]


def work(task: Task) -> tuple[Cell, Tally, float]:
    started = time.process_time()
    cell, seeds = task
    with_cells = range(seeds.start, min(seeds.stop, CELL_STUDIES))
    without = range(max(seeds.start, CELL_STUDIES), seeds.stop)
    tally = judge_cell(*cell, with_cells) + judge_cell(*cell, without, with_cells=False)
    return cell, tally, time.process_time() - started


def run(studies: Mapping[Cell, int], jobs: int) -> tuple[Tallies, float]:
    """The tally of every cell, of so many studies, and the CPU seconds of all."""
    tasks = [
        (cell, range(first, min(first + CHUNK, count)))
        for cell, count in studies.items()
        for first in range(0, count, CHUNK)
    ]
    found = {cell: Tally() for cell in studies}
    spent = 0.0
    with multiprocessing.Pool(jobs) as pool:
        for done, (cell, tally, seconds) in enumerate(pool.imap_unordered(work, tasks), 1):
            found[cell] += tally
            spent += seconds
            if sys.stderr.isatty() or done % 500 == 0:
                print(f"\r{done} of {len(tasks)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found, spent


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}" if whole else "-"


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_layout(found: Tallies, layout: str, null: bool) -> dict[Cell, Tally]:
    return {
        cell: tally
        for cell, tally in found.items()
        if cell.layout == layout and (cell.effect == "null") == null
    }


def summary(found: Tallies) -> str:
    rows = []
    for layout in unique(cell.layout for cell in found):
        null, planted = by_layout(found, layout, True), by_layout(found, layout, False)
        n, p = total(null.values()), total(planted.values())
        both = n + p
        rows.append(
            [
                layout,
                "yes" if LAYOUTS[layout].paired else "no",
                percent(n.false_sure, n.studies),
                worst(null, lambda t: share(t.false_sure, t.studies)),
                percent(p.false_sure, p.studies),
                percent(n.with_any, n.studies),
                f"{percent(p.sure_covered, p.sure)} ({p.sure})",
                percent(p.rules_covered, p.rules),
                percent(p.sizes_covered, p.sizes),
                f"{percent(both.cells_covered, both.cells)} ({both.cells})",
                percent(both.assumed_covered, both.assumed),
                f"{p.optimism / p.sure:+.3f}" if p.sure else "-",
                percent(p.found, p.studies),
                percent(p.exact, p.studies),
                percent(p.kept, p.studies),
                percent(p.kept_any, p.studies),
            ]
        )
    return table(
        [
            "layout",
            "pairs",
            "null: false sure",
            "worst noise",
            "planted: false sure",
            "null: any rule, candidates too",
            "sure rules covered (n)",
            "all rules covered",
            "sizes in sure rules covered",
            "all sizes and choices covered (n)",
            "of assumed noise covered",
            "claimed less true log gain",
            "found",
            "exact",
            "gain kept",
            "with candidates",
        ],
        rows,
    )


def brief(found: Tallies) -> str:
    """The table by layout, and what is found of each effect where it is a single choice's."""
    planted = unique(cell.effect for cell in found if cell.effect != "null")
    power = [
        f"\n{effect}: found (exact) kept\n"
        + matrix(
            found,
            [effect],
            lambda t: f"{percent(t.found, t.studies)} "
            f"({percent(t.exact, t.studies)}) {percent(t.kept, t.studies)}",
        )
        for effect in planted
    ]
    return "\n".join([summary(found), *(power if len(found) <= 60 else []), ""])


def worst(tallies: Mapping[Cell, Tally], value: Callable[[Tally], float]) -> str:
    if not tallies:
        return "-"
    cell, tally = max(tallies.items(), key=lambda item: value(item[1]))
    return f"{cell.noise} {100 * value(tally):.0f}" if value(tally) else "none"


def matrix(found: Tallies, effects: Sequence[str], value: Callable[[Tally], str]) -> str:
    """Layouts in rows, noises in columns, over all `effects` together."""
    noises = unique(cell.noise for cell in found)
    return table(
        ["layout", *noises],
        (
            [
                layout,
                *(
                    value(
                        total(
                            found[cell]
                            for effect in effects
                            if (cell := Cell(layout, noise, effect)) in found
                        )
                    )
                    for noise in noises
                ),
            ]
            for layout in unique(cell.layout for cell in found)
        ),
    )


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def failures(found: Tallies) -> list[str]:
    """What does not meet the criteria."""
    lines = [
        f"{cell.layout}, {cell.noise}, {cell.effect}: false sure rules in {tally.false_sure} of "
        f"{tally.studies} studies"
        for cell, tally in found.items()
        if tally.false_sure > max(1, MOST_FALSE * tally.studies)
    ]
    for layout in unique(cell.layout for cell in found):
        null, planted = by_layout(found, layout, True), by_layout(found, layout, False)
        p, both = total(planted.values()), total([*null.values(), *planted.values()])
        lines += [
            f"{layout}: intervals of {what} hold the truth in {covered} of {count}"
            for what, covered, count in (
                ("sure rules", p.sure_covered, p.sure),
                ("single sizes in sure rules", p.sizes_covered, p.sizes),
                ("all sizes and choices", both.cells_covered, both.cells),
            )
            if count >= 20 and covered < LEAST_COVERAGE * count
        ]
    return lines


def report(found: Tallies, facts: Mapping[str, object], failed: Sequence[str]) -> str:
    effects = unique(cell.effect for cell in found)
    planted = [effect for effect in effects if effect != "null"]
    parts = [
        "# Rules on studies with a known truth",
        "\n".join(f"- {name}: {value}" for name, value in facts.items() if value is not None),
        "All figures are percent, of studies or of intervals.",
        "## By layout",
        summary(found),
    ]
    if "null" in effects:
        parts += [
            "## Null: studies with a false sure rule",
            matrix(found, ["null"], lambda t: percent(t.false_sure, t.studies)),
            "## Null: studies with any rule, candidates too",
            matrix(found, ["null"], lambda t: percent(t.with_any, t.studies)),
        ]
    parts += [
        "## Intervals of every size and choice that hold the truth",
        matrix(found, effects, lambda t: percent(t.cells_covered, t.cells)),
    ]
    if planted:
        parts += [
            "## Intervals of sure rules that hold the truth, all effects",
            matrix(found, planted, lambda t: percent(t.sure_covered, t.sure)),
            "## Intervals of single sizes in sure rules that hold the truth, all effects",
            matrix(found, planted, lambda t: percent(t.sizes_covered, t.sizes)),
        ]
    for effect in planted:
        parts += [
            f"## {effect}: found (exact sizes), share of the gain kept",
            matrix(
                found,
                [effect],
                lambda t: f"{percent(t.found, t.studies)} ({percent(t.exact, t.studies)}) "
                f"{percent(t.kept, t.studies)}",
            ),
        ]
    parts += ["## Criteria", "\n".join(f"- {line}" for line in failed) or "All are met."]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STUDIES} studies a cell")
    for name in ("layout", "noise", "effect"):
        parser.add_argument(f"--{name}", action="append", help="a name or pattern; repeatable")
    parser.add_argument(
        "--studies",
        type=int,
        help=f"studies a cell (default: {STUDIES} without, {PLANTED_STUDIES} with an effect)",
    )
    parser.add_argument("--cells", action="store_true", help="print all counts of each cell")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--save", type=Path, help="write NAME.md and NAME.json")
    options = parser.parse_args()
    quick = QUICK_STUDIES if options.quick else None
    studies = {
        Cell(layout, noise, effect): options.studies
        or quick
        or (STUDIES if effect == "null" else PLANTED_STUDIES)
        for layout in matching(LAYOUTS, options.layout)
        for noise in matching(NOISES, options.noise)
        for effect in matching(EFFECTS, options.effect or (QUICK_EFFECTS if quick else None))
    }
    if not studies:
        parser.error("no layout, noise and effect of these names")
    started = time.monotonic()
    found, spent = run(studies, options.jobs)
    facts = {
        **{
            name: value
            for name, value in common.machine().items()
            if name in ("command", "cpus", "cpu", "kernel", "python", "nccltune commit")
        },
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "cells": len(studies),
        "studies": sum(studies.values()),
        "CPU seconds": round(spent, 1),
        "wall seconds": round(time.monotonic() - started, 1),
    }
    failed = failures(found)
    if options.cells:
        for cell, tally in found.items():
            print(*cell, {name: value for name, value in asdict(tally).items() if value})
    elif options.save is None:
        print(brief(found), *failed, sep="\n")
        print(f"{spent:.0f} CPU seconds, {time.monotonic() - started:.0f} seconds")
    if options.save is not None:
        options.save.with_suffix(".md").write_text(report(found, facts, failed))
        result = {
            "facts": facts,
            "failures": failed,
            "cells": [{**cell._asdict(), **asdict(tally)} for cell, tally in found.items()],
        }
        common.save(options.save.with_suffix(".json"), result)
    return 1 if failed else 0


def matching(names: Iterable[str], patterns: Sequence[str] | None) -> list[str]:
    return [
        name
        for name in names
        if patterns is None or any(fnmatch(name, pattern) for pattern in patterns)
    ]


if __name__ == "__main__":
    sys.exit(main())
