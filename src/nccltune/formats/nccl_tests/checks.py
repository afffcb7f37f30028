# SPDX-License-Identifier: Apache-2.0
"""Check that the numbers of a table agree: bus bandwidth with size and time, average with rows."""

from math import inf

from nccltune.formats.nccl_tests.columns import FlatRow
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.model.collective import Collective

OTHER_BANDWIDTH = frozenset({Collective.ALLTOALLV})
"""Collectives whose printed bandwidth is not computed from the printed size."""
_FIRST_TIME = 7
# A smaller difference is always rounding: bandwidths below 1000 GB/s are printed with two decimals,
# larger bandwidths with one decimal or none. So the slower `_slack` is computed only for larger
# differences.
_QUICK = 0.0049


class BandwidthCheck:
    """A check of the printed bus bandwidth of a table against size and time.

    Only the average is checked if the collective is unknown or all-to-all-v, if there are not known
    to be several ranks, or if the times are CPU times.
    """

    def __init__(self, collective: Collective | None, ranks: int | None, cpu_time: bool) -> None:
        known = collective is not None and collective not in OTHER_BANDWIDTH and not cpu_time
        self._factor = 0.0
        self._what = ""
        if collective is not None and known and ranks is not None and ranks > 1:
            self._factor = collective.bus_factor(ranks) / 1e3
            self._what = f"{collective.prose} of {ranks} ranks"
        self._total = 0.0
        self._most = 0.0
        self._count = 0

    def count_empty(self, timings: int) -> None:
        """Count timings of size 0, because nccl-tests includes them in its average."""
        self._count += timings

    @property
    def any_rows(self) -> bool:
        """Return whether the table had a row."""
        return self._count > 0

    def feed(self, rows: list[FlatRow], report: FileReport) -> None:
        """Process rows; flag the first row whose printed busbw does not match size and time."""
        factor = self._factor
        total, count, off, first_off = 0.0, 0, 0, 0
        most = self._most
        for place in range(_FIRST_TIME, len(rows[0]), 3):
            for row in rows:
                time_us = row[place]
                printed = row[place + 1]
                if time_us is None or printed is None:
                    continue
                total += printed
                count += 1
                if printed > most:  # noqa: PLR1730 - max() costs three times as much
                    most = printed
                if factor:
                    gap = row[1] * factor / time_us - printed
                    if not -_QUICK < gap < _QUICK and abs(gap) > max(
                        _slack(time_us, printed), rounding_by_hand(printed)
                    ):
                        first_off = min(first_off or row[0], row[0])
                        off += 1
        self._total += total
        self._count += count
        self._most = most
        if off:
            report.flag(
                FlagKind.BANDWIDTH_MISMATCH,
                f"the printed busbw is not that of size and time for {self._what}: another"
                " collective or number of ranks, or edited",
                first_off,
            )

    def compare(self, printed: float, line: int, report: FileReport) -> None:
        """Compare the printed average with the average of the rows; flag a difference."""
        if not self._count:
            return
        mean = self._total / self._count
        if abs(mean - printed) > _half(self._most) + 1e-5 * printed + 1e-6:
            report.flag(
                FlagKind.AVERAGE_MISMATCH,
                f"the printed average bus bandwidth is {printed:g} GB/s, that of the rows"
                f" {mean:.6g}: rows are missing, or something was edited",
                line,
            )


def flag_algbw(
    size: int, time_us: float, algbw: float, ranks: int | None, report: FileReport, line: int
) -> None:
    """Flag a printed algorithm bandwidth that is not that of size and time.

    Before nccl-tests 2.9, all-gather and reduce-scatter print (n-1)/n of it.
    """
    rate = size / (time_us * 1e3)
    share = [1.0] + [(n - 1) / n for n in ([ranks] if ranks else range(2, 65)) if n > 1]
    slack = max(_slack(time_us, max(algbw, rate)), rounding_by_hand(algbw))
    if all(abs(rate * part - algbw) > slack for part in share):
        report.flag(
            FlagKind.BANDWIDTH_MISMATCH,
            f"the printed algbw is {algbw:g} GB/s, but {size} bytes in {time_us:g} us are"
            f" {rate:.3g} GB/s: the row was edited",
            line,
        )


# `error` (before 2.13) is a relative difference. A result is wrong if it is above this value times
# (ranks - 1) (DeltaMaxValue in common.cu, 2.0 to 2.11). Integers must not differ at all.
_WRONG_DELTA = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12, "": 1e-2}


def excess(error: float, dtype: str | None) -> float:
    """Return the error by what nccl-tests allows for each rank: wrong if above (ranks - 1).

    Of an unknown type, the most is allowed.
    """
    limit = _WRONG_DELTA.get(dtype or "", 0.0)
    return error / limit if limit else inf if error else 0.0


def bus_factor_of(rows: list[FlatRow]) -> tuple[float, float] | None:
    """Return the limits of the printed bus bandwidth divided by size / time.

    The row with the largest bandwidth is used, because it has the most printed digits. None if it
    has no time or no bandwidth.
    """
    row = max(rows, key=lambda row: row[_FIRST_TIME + 1] or 0.0)
    time_us, printed = row[_FIRST_TIME], row[_FIRST_TIME + 1]
    if not time_us or not printed:
        return None
    slack, scale = max(_slack(time_us, printed), rounding_by_hand(printed)), time_us * 1e3 / row[1]
    return (printed - slack) * scale, (printed + slack) * scale


def _half(printed: float) -> float:
    """Return half a unit of the last printed digit of a bandwidth: its largest rounding error."""
    if printed < 1000:
        return 0.005
    # A value that needs more than six characters is printed with one digit (2.17.3 and later).
    return 0.05 if printed < 1e4 else 0.5 if printed < 999_999 else 0.5 * printed


def rounding_by_hand(printed: float) -> float:
    """Return the largest error of a value that a person rounded, or cut, to fewer digits."""
    return 0.505 if printed == round(printed) else 0.101 if printed == round(printed, 1) else 0.0


def _slack(time_us: float, printed: float) -> float:
    """Return by how much rounding can change a bandwidth that is computed from size and time."""
    # Times are rounded to 0.01 us below 100 us, and to 0.05 % or better above. From 10 s on they
    # have two digits.
    rough = 0.005 / time_us if time_us < 100 else 5.1e-4 if time_us < 1e7 else 0.06
    # A script or a person may have kept fewer digits.
    rough = max(rough, rounding_by_hand(time_us) / time_us)
    return _half(printed) * 1.01 + 1.02 * rough * printed
