# SPDX-License-Identifier: Apache-2.0
"""Runs: starts of a measuring program, as far as an imported file shows them.

A run is the unit of replication: its timings come from one process, so they are not independent.
Two files with the same rows hold the same run, even if names, line ends or prefixes differ.
"""

import hashlib
from collections.abc import Iterable, Sequence
from math import floor, log10
from typing import NamedTuple

import msgspec

from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.formats.text.lines import visible
from nccltune.formats.text.stamps import Stamps
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample, Source

_ROW_PRINT = 4
"""Number of hex digits that are kept of the hash of a row."""
ROWS_KEPT = 64
"""Number of first rows of a run whose hashes are kept to identify it."""
_LEAST_ROWS = 3
_LEAST_DIGITS = 6.0
"""Least number of varying decimal digits in the times of a run. With as many digits, two runs do
not print the same times by chance."""
_COMMON_DIGITS = 2.5
"""Number of leading digits of a time that repeated runs have in common."""
DEFAULT_ITERATIONS, DEFAULT_WARMUP = 20, 5
"""Defaults of nccl-tests, for files without a header that states them."""


class RunKey(NamedTuple):
    """The conditions that a run measured. Runs with the same key are repeats of each other."""

    collective: Collective | None
    nodes: int | None
    ranks: int | None
    registered: bool
    graph: bool
    pipe_ops: int
    choice: str


class RunFound:
    """A run that is being read.

    `samples` is the number of its samples so far. `source` is the source of all its samples, whose
    process id is set later. `source` is None if the samples have their own process ids. `seconds`
    is a lower bound of its run time, from its tables. `line` is that of its header; 0 if unknown.
    `heading` is that of its column, if a table has several runs. `title` is the heading of a
    document above it.
    """

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self.line = 0
        self.heading = ""
        self.title = ""
        self.process = ""
        self.in_rounds = False
        self.collective: Collective | None = None
        self.nodes: int | None = None
        self.ranks: int | None = None
        self.registered = False
        self.graph = False
        self.pipe_ops = 1
        self.choices: dict[str, int] = {}
        self.samples = 0
        self.seconds = 0.0
        self.stamps = Stamps()
        self.facts = PlatformFacts()
        self.prints = ""
        self.pids = ""
        self.rows = 0
        self._digits = 0.0

    def add_row(self, cells: Iterable[object], times: Sequence[float | None]) -> None:
        """Add a row: its printed cells, and the times among them."""
        self.rows += 1
        if self.rows > ROWS_KEPT:
            return
        text = "|".join(map(str, cells))
        self.prints += hashlib.sha256(text.encode()).hexdigest()[:_ROW_PRINT]
        self._digits += sum(_telling_digits(time) for time in times if time)

    @property
    def place(self) -> str:
        """Return the place in its file, as `:7` or `:7 'before'`; empty if it is unknown."""
        heading = f" {visible(self.heading, 40)!r}" if self.heading else ""
        return f":{self.line}{heading}" if self.line else ""

    @property
    def telling(self) -> bool:
        """Return whether the rows identify the run: no other run has the same rows by chance."""
        return self.rows >= _LEAST_ROWS and self._digits >= _LEAST_DIGITS

    @property
    def choice(self) -> str:
        """Return the choice label that most of the samples have."""
        return max(self.choices, key=lambda label: self.choices[label], default="")

    @property
    def key(self) -> RunKey:
        """Return the conditions that the run measured."""
        return RunKey(
            self.collective,
            self.nodes,
            self.ranks,
            self.registered,
            self.graph,
            self.pipe_ops,
            self.choice,
        )

    def saw(self, label: str, number: int) -> None:
        """Count `number` samples of a choice."""
        self.samples += number
        self.choices[label] = self.choices.get(label, 0) + number

    def record(self) -> "RunRecord":
        """Return the entry of the run in `imports.jsonl`, without times."""
        return RunRecord(
            process=self.process,
            samples=self.samples,
            prints=self.prints if self.telling else "",
            pids=self.pids,
            rows=self.rows,
            collective=self.collective,
            nodes=self.nodes,
            ranks=self.ranks,
            choices=self.choices,
            facts=self.facts,
        )

    def name(self, text_hash: str) -> None:
        """Give the run its id.

        A run that has an id keeps it. `text_hash` identifies the file. It is part of the id only if
        another run could have the same rows; otherwise the process ids in the header are.
        """
        if not self.process:
            text = self.pids if self.telling else text_hash
            self.process = text_id(f"{self.prints} {text}")


class RunSamples(NamedTuple):
    """Samples of one run, in the order of its rows."""

    run: RunFound
    samples: list[Sample]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in `imports.jsonl`.

    - `prints`: hashes of the first rows, 4 hex digits each. Empty if another run could have the
      same rows by chance.
    - `pids`: a hash of the process ids in the header. Runs with different `pids` are different.
    - `at`: when the run began. `clock` is `utc` or `local`; times of the two clocks cannot be
      compared.
    - `modified`: the time of the input file, in seconds since 1970.
    - `seconds`: a lower bound of the time that the runs of this file took. `seconds` and `modified`
      are used to check the times of files that are imported later.
    """

    process: str
    samples: int
    prints: str = ""
    pids: str = ""
    rows: int = 0
    collective: Collective | None = None
    nodes: int | None = None
    ranks: int | None = None
    choices: dict[str, int] = {}
    facts: PlatformFacts = msgspec.field(default_factory=PlatformFacts)
    at: str | None = None
    clock: str | None = None
    modified: float | None = None
    seconds: float = 0.0

    @property
    def has_scale(self) -> bool:
        """Return whether nodes and ranks are known. Samples without them are not compared."""
        return self.nodes is not None and self.ranks is not None


def printed_time(time_us: float, width: int = 7) -> float:
    """Return a time rounded as nccl-tests prints it (`getFloatStr`, 2.17.3 and later).

    With this rounding, rows of the JSON output and of the text output are equal.
    """
    for digits in (2, 1, 0):
        text = f"{time_us:.{digits}f}"
        if len(text) <= width:
            return float(text)
    return float(f"{time_us:.1e}")


def _telling_digits(time_us: float) -> float:
    """Return how many digits of a printed time differ from run to run."""
    if not 0.01 <= time_us < 1e12:
        return 0.0
    decimals = 2 if time_us < 100 else 1 if time_us < 10_000 else 0
    expected = floor(log10(time_us)) + 1 + decimals
    # Round numbers come from a coarse clock or were written by hand, so zeros at the end count as
    # one digit.
    shown = len(f"{time_us:.10g}".replace(".", "").strip("0")) + 1
    return max(0.0, min(expected, shown, 6) - _COMMON_DIGITS)


def text_id(text: str) -> str:
    """Return an id of a text: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
