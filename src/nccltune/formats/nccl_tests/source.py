# SPDX-License-Identifier: Apache-2.0
"""Read the nccl-tests output of one process: the headers, tables and footers of its runs.

A row that other output cut in two is joined if the joined row is plausible, and the second piece
alone is not. Otherwise the cut piece is reported as unreadable.
"""

import re
from collections.abc import Callable

from nccltune.formats.nccl_tests.columns import (
    DTYPE_BYTES,
    PLACEMENTS,
    REDOPS,
    BadRowError,
    Row,
    TableColumns,
    is_units_line,
    labels_of,
    labels_of_row,
    placements_of,
    units_fault,
)
from nccltune.formats.nccl_tests.copied_table import CopiedTable
from nccltune.formats.nccl_tests.process_logs import RunLogs
from nccltune.formats.nccl_tests.run import NcclTestsRun, header_part
from nccltune.formats.nccl_tests.table import TableReader
from nccltune.formats.reading.collective_names import collective_of_program
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_names import conditions_of
from nccltune.formats.reading.file_report import COPIES, FlagKind
from nccltune.formats.reading.table_header import Header, header_of
from nccltune.model.choice import ALGORITHMS, PROTOCOLS

_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*: (?P<count>\d+) (?P<verdict>\w+)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (?P<value>[\d.e+-]+)(?: (?P<verdict>OK|FAILED))?")
_CONCLUDED = re.compile(r"# Collective test concluded: (?P<program>\S+)")
_ROW_LIKE = re.compile(r"\s*-?\d+\s+-?\d+\s+\S+(?:\s+\S+){5,}\s*$")
_NUMERIC = re.compile(r"\s*-?\.?\d")
# An address, or a version as a title.
_ADDRESS = re.compile(r"\s*\d{1,3}(?:\.\d{1,3}){2,3}(?::\d{0,5})?\s*")
_START = frozenset({"version", "starting", "parameters"})
_NO_HEADER = (
    "which column is which is unknown: no line above the row names them, or it was not read"
)
_ROW_WORDS = frozenset({*DTYPE_BYTES, *REDOPS, *ALGORITHMS, *PROTOCOLS, "n/a", "nan", "inf"})
_MAX_TESTS = 1024
_NO_PLACEMENTS = (
    "no line above the table states which columns are out of place: the first ones are, as every"
    " release of nccl-tests prints them"
)
_NO_LABELS = "no line names the table's columns: they are those of the only layout that fits"
_ABRIDGED = "rows of the table were left out (a line of dots): the others are read"
_SHORTENED = "rows end before or in their in-place columns: their out-of-place times are read"
_CUT = "cut in two by other output, and its rest is unknown"


def _is_prose(text: str) -> bool:
    """Return whether a line that begins with a number has words that no row has."""
    words = [word for word in text.split() if len(word) > 1 and word[0].isalpha()]
    return sum(word.lower() not in _ROW_WORDS for word in words) > 1


class SourceReader:
    """A reader of the lines of one process, without launcher prefixes.

    - `begin`: a function that returns the logs of a run. It is called at the start of each run's
      header, with the run and with whether an earlier run of this process has ended.
    - `fast`: a reader of ordinary rows of the current table. None if each line needs all checks.
    - `finished`: tables that get no more rows or log lines.
    """

    def __init__(self, context: Context, begin: Callable[[NcclTestsRun, bool], RunLogs]) -> None:
        self.context = context
        self.report = context.report
        self.run = NcclTestsRun()
        self._begin = begin
        self._logs = RunLogs()
        self._again = False
        self.table: TableReader | None = None
        self.finished: list[TableReader] = []
        self.fast: Callable[[str, int], bool] | None = None
        self._placements: list[str] = []
        self._quick: Callable[[str, int], bool] | None = None
        self._accepts = False
        self._unlabelled = False
        self._labelled = False
        self._no_labels = False
        self._cut = ""
        self._cut_line = 0
        self._one_rank: dict[str, set[tuple[str, int]]] = {}
        self._copies = False
        self._copied: list[tuple[CopiedTable, TableReader]] = []

    # --- header and footer ---------------------------------------------------------------------

    def comment(self, text: str, number: int) -> None:
        """Process a line that starts with `#`."""
        body = text.lstrip()
        words = labels_of(body[1:])
        if words is not None:
            self._unlabelled, self._labelled = False, True
            self._column_header(words, text, number)
        elif body[1:].lstrip().startswith("(B)"):
            self._units(body[1:], text, number)
        elif (match := _OUT_OF_BOUNDS.match(body)) is not None:
            self._out_of_bounds(int(match["count"]), match["verdict"], number)
        elif (match := _AVERAGE.match(body)) is not None:
            self._average(match["value"], match["verdict"], number)
        elif (match := _CONCLUDED.match(body)) is not None:
            if self.table is not None and self.run.collective is None:
                self.run.collective = collective_of_program(match["program"])
        elif placements := placements_of(body):
            self._placements = placements
        elif (found := header_part(body)) is not None:
            self._header(*found, number)

    def _start(self, part: str) -> None:
        """Record a part of a run's header. The first part begins the run."""
        if not self.run.seen:
            self._logs = self._begin(self.run, self._again)
        self.run.seen.add(part)

    def _header(self, part: str, match: re.Match[str], number: int) -> None:
        seen = self.run.seen
        # A start line begins a new run only after a device or a table, because processes that were
        # started without MPI print their headers mixed with each other.
        begun = part in _START and bool(seen & {"device", "table"})
        begun = begun or (part == "device" and "table" in seen)
        if begun:
            self.end_run("a new run began in the middle of a row")
        self._start(part)
        self.run.take(part, match, number, self.report)
        if part == "device":
            self._watch_copies(number)

    def end_run(self, why: str) -> None:
        """End the current run and its table. If a row is incomplete, report it with the reason
        `why`."""
        self._drop_cut(why)
        for copied, table in self._copied:
            rows = copied.rows()
            table.left, table.stated = copied.left, copied.stated
            for row in rows:
                if row[1]:
                    table.keep(row)
                else:
                    table.count_empty(len(table.layout.in_place))
            self.finished.append(table)
        if self.table is not None and not self._copied:
            self.finished.append(self.table)
        self._copied = []
        self.table, self._labelled, self._no_labels = None, False, False
        self._again = self._again or bool(self.run.seen)
        self.run = NcclTestsRun()
        self._quick, self._accepts = None, False
        self._refresh()

    def end_unlabelled(self) -> None:
        """End a table without a header: a setting above further rows is of another run."""
        if self.table is not None and self._no_labels:
            self.end_run(_CUT)

    def _column_header(self, words: list[str], text: str, number: int) -> None:
        if self._copies and self.table is not None and self.table.layout.labels == words:
            return
        self._drop_cut("a new table began in the middle of a row")
        if "table" in self.run.seen:
            self.end_run("")
        self._start("table")
        try:
            layout = TableColumns(words, self._placements)
        except BadRowError as error:
            self.report.cannot_read(number, text, str(error))
            return
        if layout.placements_assumed:
            self.report.flag(FlagKind.NOTE, _NO_PLACEMENTS, number)
        layout.place(text)
        self.report.tables += 1
        self.report.heads.add(number)
        self.table = TableReader(self.run, layout, self.context, number, self._logs)
        self.table.copies = self._copies
        self.table.sound = len(layout.in_place) == len(PLACEMENTS)
        self._quick, self._accepts = layout.fast(self.table.keep), True
        # The fast reader keeps only rows whose algbw is size / time.
        self.table.share = None if self._quick is None else 1.0
        self._refresh()

    def copied(self, text: str, number: int) -> bool:
        """Process a line of a table whose cells are separated, or that has other column names.

        Return whether `text` is such a line.
        """
        header = header_of(text)
        if header is not None and not header.raw:
            self._copied_header(header, text, number)
            return True
        if True in [copied.feed(text, number) for copied, _ in self._copied]:
            return True
        if "|" in text and (placements := placements_of(text.lower())):
            self._placements = placements
            return True
        return False

    def _copied_header(self, header: Header, text: str, number: int) -> None:
        if "table" in self.run.seen:
            self.end_run("a new table began in the middle of a row")
        self._start("table")
        self.report.heads.add(number)
        try:
            runs = [
                (heading, CopiedTable(each, self._placements, self.report, number))
                for heading, each in header.runs() or [("", header)]
            ]
        except BadRowError as error:
            self.report.cannot_read(number, text, str(error))
            return
        self.report.tables += 1
        headings = [heading for heading, _ in runs if heading]
        apart = conditions_of(headings, comparing=self.context.options.comparing)
        for heading, copied in runs:
            table = TableReader(self.run, copied.layout, self.context, number, self._logs)
            # A copy often has no footer, and not all rows.
            table.footer, table.sound, table.found.heading = True, False, heading
            table.apart, table.counts_rows = heading in apart, not self._copied
            table.nccl = self.context.nccl
            self._copied.append((copied, table))
        self.table, self._quick, self._accepts = self._copied[0][1], None, False
        self._refresh()

    def _units(self, body: str, text: str, number: int) -> None:
        if self.table is None or not self._accepts:
            # If a line of labels was invalid, the layout must not be guessed from the shape of a
            # row.
            self._unlabelled = not self._labelled and is_units_line(body)
            return
        fault = units_fault(self.table.layout, body)
        if fault is not None:
            self.report.cannot_read(number, text, fault)
            self._quick, self._accepts = None, False
            self._refresh()

    def _out_of_bounds(self, wrong: int, verdict: str, number: int) -> None:
        self._drop_cut("the table ended in the middle of a row")
        if self.table is not None:
            self.table.footer = True
        if wrong or verdict == "FAILED":
            self.report.flag(
                FlagKind.OUT_OF_BOUNDS,
                f"nccl-tests found wrong results: {wrong} failed checks (out of bounds), summed"
                " over all processes",
                number,
            )

    def _average(self, value: str, verdict: str | None, number: int) -> None:
        table = self.table
        if verdict == "FAILED":
            self.report.flag(
                FlagKind.LOW_BANDWIDTH,
                f"the average bus bandwidth of {value} GB/s is below NCCL_TESTS_MIN_BW",
                number,
            )
        if table is None:
            return
        table.footer = True
        try:
            table.average = (float(value), number)
        except ValueError:
            self.report.cannot_read(number, value, "the average bus bandwidth is not a number")
        if not self._copies:
            self._quick, self._accepts = None, False
            self._refresh()

    def _watch_copies(self, number: int) -> None:
        """Detect copies: several processes that each ran the test alone.

        This happens if nccl-tests was built without MPI, but is started with MPI's launcher. Copies
        that print in turn are told from other runs only if they have one rank.
        """
        devices = self.run.devices
        if len(self._one_rank) > _MAX_TESTS:
            self._one_rank.clear()
        alone = self._one_rank.setdefault(self.run.parameters, set())
        if any(device.rank for device in devices):
            # The run has more ranks than the one of its first line.
            alone.discard((devices[0].host, devices[0].pid))
        elif len(alone) < 2:
            alone.add((devices[-1].host, devices[-1].pid))
        if len(alone) > 1 or self.run.copies:
            self._copies = True
            for table in (self.table, *self.finished):
                if table is not None:
                    table.copies = True
            why = "nccl-tests was built without MPI=1, or started without its launcher"
            self.report.flag(FlagKind.ONE_RANK_COPIES, f"{COPIES}: {why}", number)

    # --- rows ----------------------------------------------------------------------------------

    def other(self, text: str, number: int) -> bool:
        """Process a line that is no comment and no log line; return whether it belongs to a row."""
        if self._cut:
            return self._rejoin(text, number)
        if self._accepts and self.table is not None:
            if not _NUMERIC.match(text) or _ADDRESS.fullmatch(text) or _is_prose(text):
                return False
            try:
                self.table.add(self.table.layout.row(text, number))
            except BadRowError as error:
                row = self._shortened(text, number)
                if row is None:
                    self._unreadable(number, text, str(error))
                else:
                    self.table.add(row)
            return True
        if not _ROW_LIKE.match(text):
            return False
        labels = None if self._labelled else labels_of_row(text)
        if labels and (self._unlabelled or self._is_whole_row(labels, text, number)):
            self._unlabelled = False
            self.report.flag(FlagKind.NOTE, _NO_LABELS, number)
            self._column_header(labels, text, number)
            if self.table is not None:
                # A paste that starts below the header may also end before the footer.
                self.table.footer, self.table.sound = True, False
                self._no_labels = True
                return self.other(text, number)
        self.report.cannot_read(number, text, _NO_HEADER)
        return True

    def _is_whole_row(self, labels: list[str], text: str, number: int) -> bool:
        """Return whether `text` is a consistent row with these columns, below no header at all."""
        try:
            row = TableColumns(labels, list(PLACEMENTS)).row(text, number)
        except BadRowError:
            return False
        return self._agrees(row)

    def _shortened(self, text: str, number: int) -> Row | None:
        """Return a row without its in-place columns; None if `text` is no such row."""
        if self.table is None:
            return None
        try:
            row = self.table.layout.shortened(text, number)
        except BadRowError:
            return None
        if not self._agrees(row):
            return None
        self.table.sound = False
        self.report.flag(FlagKind.NOTE, _SHORTENED, number)
        return row

    def left_out(self, number: int) -> None:
        """Process a line of dots: the user left out rows of the table, or lines of its header."""
        if self.table is not None and self._accepts:
            self.table.sound = False
            self.report.flag(FlagKind.NOTE, _ABRIDGED, number)
        elif self.table is None:
            self.run.abridged = True

    def glued(self, text: str, start: int, host: str, hosts: set[str], number: int) -> None:
        """Process the start of a row that a log line or comment interrupts.

        The log line or comment begins at `start` in `text`. `host` is the first word of a log line;
        it may begin with the last characters of the row.
        """
        if not self._accepts or self.table is None:
            return
        end = self._boundary(text, start, host, hosts)
        if end is None:
            self._unreadable(number, text, _CUT)
            self._cut = ""
            self._refresh()
            return
        piece = text[:end]
        if not piece.strip() or not (self._cut or _NUMERIC.match(piece)):
            return
        self._cut_line = self._cut_line if self._cut else number
        self._cut += piece
        self._refresh()

    def _boundary(self, text: str, start: int, host: str, hosts: set[str]) -> int | None:
        """Return the end of a piece of a row that touches a host name; None if it is unknown.

        If the host name is known, the piece ends before it. Otherwise the piece ends at the only
        position where a column can end.
        """
        if not host or host in hosts:
            return start
        known = [name for name in hosts if host.endswith(name)]
        if known:
            return start + len(host) - len(max(known, key=len))
        if self.table is None:
            return None
        whole = self._cut + text
        behind = len(self._cut)
        edges = [edge - behind for edge in self.table.layout.cuts(whole)]
        inside = [edge for edge in edges if start < edge < start + len(host)]
        return inside[0] if len(inside) == 1 else None

    def _rejoin(self, text: str, number: int) -> bool:
        """Join a cut row with this line; return whether the line belongs to a row.

        The cut row and the line are joined if together they are a consistent row, and the line
        alone is not. If only the line alone is a consistent row, the cut row is reported as
        unreadable. A line that is neither and does not start like a number is left alone. In all
        other cases, both are reported as unreadable.
        """
        joined = self._sound(self._cut + text, self._cut_line)
        alone = self._sound(text, number)
        if joined is None and alone is None and not _NUMERIC.match(text):
            return False
        if joined is not None and alone is None and self.table is not None:
            self._cut = ""
            self.table.add(joined)
        elif alone is not None and joined is None and self.table is not None:
            self._drop_cut(_CUT)
            self.table.add(alone)
        else:
            whole, self._cut = self._cut + text, ""
            self._unreadable(self._cut_line, whole, _CUT)
        self._refresh()
        return True

    def _sound(self, text: str, number: int) -> Row | None:
        """Return `text` as a row whose size, count, type, time and bandwidth agree, or None."""
        if self.table is None:
            return None
        try:
            row = self.table.layout.row(text, number)
        except BadRowError:
            return None
        return row if self._agrees(row) else None

    def _agrees(self, row: Row) -> bool:
        """Return whether size, count, type, time and bandwidth of a row agree."""
        each = row.elements * DTYPE_BYTES.get(row.dtype, 0)
        if row.size and (not each or row.size % each):
            return False
        for timing in row.timings:
            told = timing.algbw * timing.time_us * 1e3
            # Before 2.9 the printed algbw of all-gather and reduce-scatter is (n-1)/n of size /
            # time, so half the size is still allowed. With -C the times are CPU times, so they are
            # not compared.
            most = row.size * 1.06 + 0.006 * timing.time_us * 1e3
            least = row.size * 0.47 - 0.006 * timing.time_us * 1e3
            if (self.table is None or not self.table.layout.cpu_time) and not least <= told <= most:
                return False
        return True

    def _drop_cut(self, why: str) -> None:
        if self._cut:
            piece, self._cut = self._cut, ""
            self._unreadable(self._cut_line, piece, why)
            self._refresh()

    def _unreadable(self, number: int, text: str, reason: str) -> None:
        self.report.cannot_read(number, text, reason)
        if self.table is not None:
            self.table.sound = False

    def _refresh(self) -> None:
        self.fast = None if self._cut else self._quick
