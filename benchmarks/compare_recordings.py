# SPDX-License-Identifier: Apache-2.0
"""Compare which of NCCL's choices win in two recorded studies, for example on one GPU and on four.

python benchmarks/compare_recordings.py STUDY STUDY

A choice wins at a size if it is at least 3 % faster than NCCL's default and the 95 % confidence
interval of its gain lies above 1. It loses if it is at least 3 % slower and the interval lies below
1. Only sizes and choices that both studies measured are compared. The first table has the rows
where a choice wins in one of the studies.
"""

import argparse
import math
from collections import Counter
from pathlib import Path

from nccltune.analyze.curves import ASSUMED_NOISE
from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.stats import Interval
from nccltune.app.study import OpenStudy, open_study
from nccltune.model.collective import Collective
from nccltune.model.sizes import format_bytes

LEAST_GAIN = math.log(1.03)
OUTCOMES = ("wins", "undecided", "loses")


def tables(opened: OpenStudy) -> dict[Collective, GainTable]:
    """Return the gains by collective. A recording has one scale."""
    found = gain_tables(opened.samples.timings, ASSUMED_NOISE)
    return {table.collective: table for table in found}


def outcome(gain: Interval) -> str:
    if gain.low > 0 and gain.value >= LEAST_GAIN:
        return "wins"
    if gain.high < 0 and gain.value <= -LEAST_GAIN:
        return "loses"
    return "undecided"


def shown(gain: Interval) -> str:
    ratio = gain.ratio
    return f"{ratio.value:.2f}x ({ratio.low:.2f}-{ratio.high:.2f})"


def compare(first: GainTable, second: GainTable) -> Counter[tuple[str, str]]:
    """Print the rows of one collective. Return the number of points by both outcomes."""
    counts: Counter[tuple[str, str]] = Counter()
    for size in sorted(set(first.sizes) & set(second.sizes)):
        for choice in first.choices:
            gains = first.gain(size, choice), second.gain(size, choice)
            if gains[0] is None or gains[1] is None:
                continue
            both = outcome(gains[0]), outcome(gains[1])
            counts[both] += 1
            if "wins" in both:
                cells = (
                    first.collective.value,
                    format_bytes(size),
                    choice.label,
                    shown(gains[0]),
                    shown(gains[1]),
                    "both" if both == ("wins", "wins") else " / ".join(both),
                )
                print("| " + " | ".join(cells) + " |")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs=2, type=Path, metavar="STUDY")
    studies = [open_study(path) for path in parser.parse_args().studies]
    first, second = (tables(study) for study in studies)
    names = [study.study.path.name for study in studies]
    counts: Counter[tuple[str, str]] = Counter()
    print(f"| collective | size | choice | {names[0]} | {names[1]} | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for collective in [each for each in first if each in second]:
        counts += compare(first[collective], second[collective])
    print(f"\nNumber of points. Rows: {names[0]}; columns: {names[1]}.\n")
    print("| | " + " | ".join(OUTCOMES) + " |\n| --- | --- | --- | --- |")
    for row in OUTCOMES:
        print(f"| {row} | " + " | ".join(str(counts[row, column]) for column in OUTCOMES) + " |")


if __name__ == "__main__":
    main()
