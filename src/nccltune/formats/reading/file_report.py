# SPDX-License-Identifier: Apache-2.0
"""The report of reading a file: counts of what was read, unreadable lines, and flags for doubts."""

from enum import StrEnum
from pathlib import PurePath

import msgspec

from nccltune.formats.reading.runs import RunRecord
from nccltune.formats.text.lines import visible
from nccltune.model.choice import AnyChoice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Sample

MAX_SHOWN = 5
"""Limit of unreadable lines per file that are kept with their text. Others are only counted."""


MAX_KINDS = 256
"""Limit of different flags, reasons, choices and scales in a report, which bounds its size."""


class FileKind(StrEnum):
    """The detected kind of a file."""

    NCCL_TESTS_TEXT = "nccl-tests text"
    NCCL_TESTS_JSON = "nccl-tests JSON"
    RCCL_RESULTS = "rccl-tests results"
    RAW_CSV = "raw CSV"
    JSON_RECORDS = "JSON records"
    SAMPLES = "samples"
    NCCL_LOG = "NCCL log"
    ENVIRONMENT = "environment"
    TUNER_CSV = "tuner configuration"
    TOPOLOGY = "topology"
    GRAPHS = "NCCL graphs"
    UNKNOWN = "not recognised"


COPIES = "several processes ran the same test, each alone with a rank 0"
"""How the sentence of `FlagKind.ONE_RANK_COPIES` begins."""


class FlagKind(StrEnum):
    """The kind of a flag: a doubt about a run, or a fact that the user must know about the run."""

    ONE_RANK = "one_rank"
    ONE_RANK_COPIES = "one_rank_copies"
    ONE_HOST = "one_host"
    WRONG_RESULTS = "wrong_results"
    OUT_OF_BOUNDS = "out_of_bounds"
    IMPOSSIBLE = "impossible"
    REDUCED_SIZE = "reduced_size"
    VERSION_MISMATCH = "version_mismatch"
    FAILURE = "failure"
    ABORTED = "aborted"
    AVERAGE_MISMATCH = "average_mismatch"
    BANDWIDTH_MISMATCH = "bandwidth_mismatch"
    LOW_BANDWIDTH = "low_bandwidth"
    SCALE_UNKNOWN = "scale_unknown"
    RANKS_NEEDED = "ranks_needed"
    SCALE_MISMATCH = "scale_mismatch"
    SCALE_INFERRED = "scale_inferred"
    COLLECTIVE_UNKNOWN = "collective_unknown"
    CHOICE_ASSUMED = "choice_assumed"
    CHOICE_OVERRIDDEN = "choice_overridden"
    CHOICE_RESTRICTED = "choice_restricted"
    CHOICE_UNKNOWN = "choice_unknown"
    CHOICE_CONFLICT = "choice_conflict"
    CHOICE_UNCONFIRMED = "choice_unconfirmed"
    TUNER_LOADED = "tuner_loaded"
    TUNER_BYPASSED = "tuner_bypassed"
    LIBRARY_PRELOADED = "library_preloaded"
    DEVICE_KERNEL = "device_kernel"
    CONDITION = "condition"
    AGGREGATED = "aggregated"
    CPU_TIME = "cpu_time"
    COLLAPSED = "collapsed"
    COLUMNS_UNKNOWN = "columns_unknown"
    DIAGNOSED = "diagnosed"
    DUPLICATE = "duplicate"
    NOTE = "note"


DOUBTFUL = frozenset(
    {
        FlagKind.ONE_RANK,
        FlagKind.ONE_RANK_COPIES,
        FlagKind.WRONG_RESULTS,
        FlagKind.OUT_OF_BOUNDS,
        FlagKind.IMPOSSIBLE,
        FlagKind.FAILURE,
        FlagKind.ABORTED,
        FlagKind.AVERAGE_MISMATCH,
        FlagKind.BANDWIDTH_MISMATCH,
        FlagKind.LOW_BANDWIDTH,
        FlagKind.RANKS_NEEDED,
        FlagKind.SCALE_MISMATCH,
        FlagKind.CHOICE_UNKNOWN,
        FlagKind.CHOICE_CONFLICT,
        FlagKind.CHOICE_UNCONFIRMED,
        FlagKind.COLLECTIVE_UNKNOWN,
        FlagKind.TUNER_LOADED,
        FlagKind.LIBRARY_PRELOADED,
        FlagKind.DEVICE_KERNEL,
        FlagKind.CONDITION,
        FlagKind.COLLAPSED,
    }
)
"""Flags that put the numbers themselves in doubt. The other flags are only information."""


_EACH = frozenset(
    {
        FlagKind.NOTE,
        FlagKind.COLLAPSED,
        FlagKind.COLUMNS_UNKNOWN,
        FlagKind.CONDITION,
        FlagKind.DIAGNOSED,
    }
)
"""Kinds of flags that are kept once for each different sentence. A flag of any other kind is kept
once."""


class Flag(msgspec.Struct):
    """A remark on a file.

    `sentence` and `line` are from the first occurrence (line 0: the file as a whole). `count` is
    the number of occurrences, and `others` are those of them whose sentence has other values.
    `doubtful` means that the flag puts the numbers in doubt.
    """

    kind: FlagKind
    sentence: str
    line: int = 0
    doubtful: bool = False
    count: int = 1
    others: int = 0


class Unreadable(msgspec.Struct, frozen=True):
    """A line that could not be read: its number (from 1), its shortened text and the reason."""

    line: int
    text: str
    reason: str


class FileReport(msgspec.Struct, kw_only=True):
    """The report of reading one file.

    - `asked`: the user named the file itself, not a folder above it.
    - `rows`: result rows that were understood. A row can give two samples: out of place and in
      place.
    - `heads`: the lines of the names of columns that were read, or that are reported.
    - `rows_size_0`: rows of size 0, which give no sample.
    - `unreadable`: number of unreadable lines. The first few are in `first_unreadable`.
    - `ignored`: number of lines without a result, such as log lines.
    - `error`: the reason that the file was refused as a whole.
    """

    name: str
    asked: bool = True
    kind: FileKind = FileKind.UNKNOWN
    size_bytes: int = 0
    file_hash: str = ""
    tables: int = 0
    heads: set[int] = set()
    rows: int = 0
    rows_size_0: int = 0
    samples: int = 0
    unreadable: int = 0
    ignored: int = 0
    first_unreadable: list[Unreadable] = []
    reasons: dict[str, int] = {}
    flags: list[Flag] = []
    collectives: dict[str, int] = {}
    choices: dict[str, int] = {}
    scales: dict[str, int] = {}
    min_bytes: int | None = None
    max_bytes: int | None = None
    tool_version: str | None = None
    nccl_version: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    emulated_nodes: bool = False
    network: str | None = None
    settings: dict[str, str] = {}
    error: str | None = None
    hint: str | None = None
    error_line: int | None = None

    def flag(
        self, kind: FlagKind, sentence: str, line: int = 0, doubtful: bool | None = None
    ) -> None:
        """Add a flag. If the report has the flag already, increase its count."""
        for flag in self.flags:
            if flag.kind is kind and (kind not in _EACH or flag.sentence == sentence):
                flag.count += 1
                flag.others += flag.sentence != sentence
                return
        sure = kind in DOUBTFUL if doubtful is None else doubtful
        if len(self.flags) < MAX_KINDS:
            self.flags.append(Flag(kind, sentence, line, sure))

    def cannot_read(self, line: int, text: str, reason: str, lines: int = 1) -> None:
        """Count `lines` unreadable lines. Keep the first few with their number and text."""
        self.unreadable += lines
        _count(self.reasons, reason, lines)
        if len(self.first_unreadable) < MAX_SHOWN:
            self.first_unreadable.append(Unreadable(line, visible(text.strip()), reason))

    def refuse(self, message: str, *, hint: str | None = None, line: int | None = None) -> None:
        """Refuse the file as a whole; `message` is the reason."""
        self.error, self.hint, self.error_line = message, hint, line

    @property
    def doubtful(self) -> bool:
        """Return whether any flag puts the numbers in doubt."""
        return any(flag.doubtful for flag in self.flags)

    def saw(self, sample: Sample) -> None:
        """Count a sample by collective, choice and scale."""
        nodes, ranks = sample.nodes, sample.ranks
        self.saw_many(sample.collective, sample.choice, nodes, ranks, 1, sample.bytes)

    def saw_many(
        self,
        collective: Collective,
        choice: AnyChoice,
        nodes: int | None,
        ranks: int | None,
        number: int,
        size: int,
    ) -> None:
        """Count `number` samples of the same collective, choice, scale and size."""
        self.samples += number
        _count(self.collectives, collective.value, number)
        _count(self.choices, choice_label(choice), number)
        _count(self.scales, f"{_text(nodes)}x{_text(ranks)}", number)
        self.min_bytes = size if self.min_bytes is None else min(self.min_bytes, size)
        self.max_bytes = size if self.max_bytes is None else max(self.max_bytes, size)


def _count(counts: dict[str, int], key: str, number: int) -> None:
    """Add to a count. Beyond MAX_KINDS different keys, count all further keys under `other`."""
    if key not in counts and len(counts) >= MAX_KINDS:
        key = "other"
    counts[key] = counts.get(key, 0) + number


def _text(number: int | None) -> str:
    return "?" if number is None else str(number)


class ImportRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `imports.jsonl`: a file that was read into a study.

    - `file`: the name of the file without folders.
    - `options`: the options that the file was read with.
    - `flags`: the kinds of flags, with their count.
    - `doubtful`: the kinds of flags that put the numbers in doubt; `sentences` are their sentences.
    - `runs`: the program starts that the file shows (None in studies of nccltune 0.1).
    """

    # A default factory, because `omit_defaults` would leave out a plain default value.
    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    file: str
    file_hash: str
    options: str = ""
    kind: FileKind
    size_bytes: int = 0
    tables: int = 0
    rows: int = 0
    samples: int = 0
    unreadable: int = 0
    flags: dict[str, int] = {}
    doubtful: list[str] = []
    sentences: list[str] = []
    tool_version: str | None = None
    nccl_version: str | None = None
    at: str | None = None
    runs: list[RunRecord] | None = None

    @classmethod
    def of(
        cls, report: FileReport, options: str, at: str | None, runs: list[RunRecord]
    ) -> "ImportRecord":
        """Return the record of a finished reading."""
        return cls(
            file=PurePath(report.name).name,
            file_hash=report.file_hash,
            options=options,
            kind=report.kind,
            size_bytes=report.size_bytes,
            tables=report.tables,
            rows=report.rows,
            samples=sum(run.samples for run in runs),
            unreadable=report.unreadable,
            flags={flag.kind.value: flag.count for flag in report.flags},
            doubtful=[flag.kind.value for flag in report.flags if flag.doubtful],
            sentences=[flag.sentence for flag in report.flags if flag.doubtful],
            tool_version=report.tool_version,
            nccl_version=report.nccl_version,
            at=at,
            runs=runs,
        )
