# SPDX-License-Identifier: Apache-2.0
"""Read time stamps before a line: from NCCL's log, kubectl, CRI, `ts`, Open MPI and syslog."""

import re
from datetime import UTC, datetime, timedelta

_WIDTH = 200
_ISO = re.compile(
    r"(?<!\d)(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# ctime (`Sat Nov 21 01:54:54 2026`), `ts` and syslog (`Nov 21 01:54:54`, without a year).
_WORDS = re.compile(
    rf"\b(?P<month>{_MONTHS}) {{1,2}}(?P<day>\d{{1,2}}) (?P<time>\d\d:\d\d:\d\d)"
    r"(?: (?P<year>\d{4}))?"
)
_EPOCH = re.compile(r"(?P<seconds>1\d{9})(?:\.\d{1,9})?(?=\s)")


class Stamps:
    """The first time stamps in the lines of a run, one per clock, in seconds since 1970.

    `utc` is the first stamp with a time zone. `local` is the first stamp without a time zone, read
    as if it were UTC.
    """

    def __init__(self) -> None:
        self.utc: float | None = None
        self.local: float | None = None

    @property
    def open(self) -> bool:
        """Return whether no stamp has been found yet."""
        return self.utc is None and self.local is None

    def add(self, found: tuple[float, bool] | None) -> None:
        """Add a stamp: seconds since 1970, and whether the stamp names its time zone."""
        if found is None:
            return
        seconds, zoned = found
        if zoned and self.utc is None:
            self.utc = seconds
        elif not zoned and self.local is None:
            self.local = seconds

    def fill(self, other: "Stamps") -> None:
        """Copy the stamps of `other` for clocks that have none yet."""
        self.utc = other.utc if self.utc is None else self.utc
        self.local = other.local if self.local is None else self.local


def stamp_of(
    line: str, end: int | None = None, *, latest: float | None = None
) -> tuple[float, bool] | None:
    """Return the stamp before `end` in `line`: seconds since 1970, and whether it names its zone.

    A stamp without a zone is read as if it were UTC. A stamp without a year gets the last
    year in which the stamp is not after `latest` (seconds since 1970; default: now) plus a day.
    Return None if there is no valid stamp.
    """
    head = line[: min(_WIDTH, len(line) if end is None else end)]
    if (match := _ISO.search(head)) is not None:
        zone = match["zone"]
        text = f"{match['date']}T{match['time']}"
        try:
            moment = datetime.fromisoformat(text + (zone or "+00:00").replace("Z", "+00:00"))
        except ValueError:
            return None
        return moment.timestamp(), zone is not None
    if (match := _WORDS.search(head)) is not None:
        return _of_words(match, latest)
    if (match := _EPOCH.match(head)) is not None:
        return float(match["seconds"]), True
    return None


def _of_words(match: re.Match[str], latest: float | None) -> tuple[float, bool] | None:
    limit = datetime.now(UTC) if latest is None else datetime.fromtimestamp(latest, UTC)
    # Local time may be ahead of UTC by up to 14 hours.
    limit += timedelta(days=1)
    years = [int(match["year"])] if match["year"] else range(limit.year, limit.year - 9, -1)
    for year in years:
        text = f"{match['month']} {match['day']} {year} {match['time']}"
        try:
            moment = datetime.strptime(text, "%b %d %Y %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            continue
        if match["year"] or moment <= limit:
            return moment.timestamp(), False
    return None
