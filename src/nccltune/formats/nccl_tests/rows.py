# SPDX-License-Identifier: Apache-2.0
"""Judge the rows of a table together: impossible times, wrong results, rows of several runs."""

from itertools import pairwise

from nccltune.formats.nccl_tests.columns import FlatRow
from nccltune.formats.nccl_tests.run import MAX_RANKS
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.model.scale import count

MIXED = (
    "rows of several runs are mixed in one table (sizes go back and then further on):"
    " they ran at the same time, and are taken as repeats; processes that each print a table"
    " may be separate copies (nccl-tests built without MPI=1)"
)
# NVLink 6, the fastest link of a GPU, carries 1800 GB/s each way. A reduction in the switch counts
# each byte at most twice. Copies inside a GPU's memory (8000 GB/s, read and written) are no faster.
_MOST_BUSBW = 4000.0
_FIRST_TIME = 7


def are_mixed(rows: list[FlatRow]) -> bool:
    """Return whether a table goes back to smaller sizes, and skips some to go on, more than once.

    Passes of the program (`-N`) and runs one after the other skip none. Other types start anew.
    """
    sizes = [row[1] for row in rows if row[3:6] == rows[0][3:6]]
    most, again = 0, 0
    for before, size in pairwise(sizes):
        most = max(most, before)
        again += size > most > before
    return again > 1 and len(set(sizes)) < len(sizes)


def judged_rows(rows: list[FlatRow], ranks: int | None, unchecked: frozenset[int]) -> list[FlatRow]:
    """Return rows whose excess of the error is a verdict: 1 wrong, 0 right, None unknown.

    It is unknown in the placements `unchecked`.
    """
    found = []
    for row in rows:
        cells = list(row)
        for place, at in enumerate(range(_FIRST_TIME + 2, len(row), 3)):
            if place in unchecked:
                cells[at] = None
            elif isinstance(row[at], float):
                is_wrong = row[at] > (ranks or MAX_RANKS) - 1
                cells[at] = int(is_wrong) if ranks is not None or is_wrong else None
        found.append(tuple(cells))
    return found


def possible_rows(rows: list[FlatRow], report: FileReport) -> list[FlatRow]:
    """Return the rows without times that no call of several ranks can have.

    In a placement with a bandwidth that cannot be, nothing was sent: all calls there that took
    three times as long at most did nothing either.
    """
    for column in range(_FIRST_TIME, len(rows[0]), 3):
        timed = [row for row in rows if row[column]]
        rates = [
            row[1] / (row[column] * 1e3) if row[column + 1] is None else row[column + 1]
            for row in timed
        ]
        most = max(rates, default=0.0)
        if most <= _MOST_BUSBW:
            continue
        pairs = zip(timed, rates, strict=True)
        longest = 3 * max(row[column] for row, rate in pairs if rate > _MOST_BUSBW)
        lost = sum(row[column] <= longest for row in timed)
        report.flag(
            FlagKind.IMPOSSIBLE,
            f"{most:,.0f} GB/s is impossible: wrong results, or calls that did nothing (the"
            " fastest link of a GPU carries 1,800 GB/s each way, and a reduction in the switch"
            f" counts a byte twice): {count(lost, 'timing')} left out",
            timed[rates.index(most)][0],
        )
        rows = [
            (*row[:column], None, *row[column + 1 :])
            if row[column] and row[column] <= longest
            else row
            for row in rows
        ]
    return rows


def rows_with_times(rows: list[FlatRow], factor: float) -> list[FlatRow]:
    """Return the rows with times by their busbw, in place of it; `factor` is its bus factor."""
    return [
        row[:_FIRST_TIME]
        + tuple(
            value
            for at in range(_FIRST_TIME, len(row), 3)
            for value in (row[at + 1] and row[1] * factor / (row[at + 1] * 1e3), None, row[at + 2])
        )
        for row in rows
    ]
