# SPDX-License-Identifier: Apache-2.0
"""Read the text output of nccl-tests, mixed with the output of launchers and NCCL.

Formats: nccl-tests 2.0 to 2.20 (`src/common.cu`, `src/util.cu`). docs/reference/file-formats.md
describes these formats.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import BinaryIO

import msgspec

from nccltune.formats.nccl_log.alarms import alarms
from nccltune.formats.nccl_log.diagnostics import DiagnosticsReader, remarks
from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.nccl_log.messages import VERSION_LINE, read_repeated_message
from nccltune.formats.nccl_log.run import RunLog
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.columns import DTYPE_BYTES
from nccltune.formats.nccl_tests.process_logs import FileLogs, RunLogs
from nccltune.formats.nccl_tests.run import NcclTestsRun
from nccltune.formats.nccl_tests.source import SourceReader
from nccltune.formats.nccl_tests.table import BATCH_ROWS
from nccltune.formats.nccl_tests.wrapped import unwrapped, wrapping_of
from nccltune.formats.reading.cell_lists import plain_rows
from nccltune.formats.reading.command_lines import CommandLines
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.runs import RunSamples
from nccltune.formats.reading.table_header import header_of, may_name_size
from nccltune.formats.reading.titled_header import with_title
from nccltune.formats.reading.titles import ABOVE, LEVEL, SETS_APART, title_of
from nccltune.formats.text.diffs import SIDES, added_lines, is_added, is_diff, sides_of_diff
from nccltune.formats.text.lines import CHUNK_BYTES, encoding_of, line_blocks, visible
from nccltune.formats.text.prefixes import strip_prefix, strip_repeated
from nccltune.formats.text.stamps import Stamps, stamp_of

# Forms of failure lines:
#   host: Test NCCL failure file:line 'error / last error'
#   host: Test timeout (Ns) file:line
#   .. host pid N: Test failure file:line
# The sentence of the flag does not include hosts and files.
_FAILURE = re.compile(
    r"Test (?P<kind>CUDA failure|NCCL failure|timeout|failure)\b(?: [^'(]*'(?P<what>[^']*)')?"
)
_LAST_ERROR = re.compile(r"# error: (?P<what>.*)")
_BARE_HEADER = re.compile(
    r"size\s+count\s+type\s.*\btime\s+algbw\s+busbw\b|\(B\)\s+\(elements\)\s.*\(us\)"
    r"|out-of-place\s+in-place\s*$"
)
# People put a column of their own before those of nccl-tests, such as the number of nodes.
_LED_HEADER = re.compile(
    r"#?\s*(?!size\b)(?P<name>[A-Za-z][\w-]{0,23})\s+(?P<labels>size\s+count\s+type\s.*)"
)
_LED_ROW = re.compile(r"\s*(?P<lead>[\w.-]{1,40})\s+(?P<row>\d+\s+\d+\s+[a-z]\w+\s.*)")
# People paste the output without its comment signs.
_BARE_LINE = re.compile(
    r"nThread \d+ nGpus \d|Rank\s+\d+\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s|Blocking Enabled: "
    r"|[nr]ccl-tests version \d|rccl-tests: Version |Collective test (?:starting|concluded): "
    r"|Reducing maxBytes to \d|(?:Out of bounds values|Avg bus bandwidth)\s*: \d"
)
# Blanks of web pages and word processors, and marks without a width.
_BLANKS = {0xA0: " ", 0x2007: " ", 0x202F: " ", 0x200B: None, 0xFEFF: None, 0x2212: "-"}
_SEPARATED = re.compile(r"[,;|\t]")
_QUOTED = re.compile(r"(?:\s{0,8}>){1,8} ?(?=\s*[|\w])")
# Which GPUs a run had; those of other GPUs are no repeats of it.
_DEVICES = re.compile(r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=[\w,-]+")
_DOTS = re.compile(r"[\[(<]?\s*(?:\.(?:\s?\.){2,20}|\u2026+|snip|\.\.)\s*[\])>]?", re.IGNORECASE)
_ROW_WIDTH = 1024
_ROW_INSIDE = re.compile(
    rf"(?<![\d.])\d{{1,20}}\s{{1,32}}\d{{1,20}}\s{{1,32}}(?:{'|'.join(DTYPE_BYTES)})"
    r"(?:\s{1,32}[^\s]{1,24}){6}"
)
_PLACEHOLDER_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w+\s.*\bX{2,}(?:\.X+)?\s")
_SUMMARY = "# NCCL_TESTS_ALLTOALLV"
_FOLDED = re.compile(r"^[^{]{0,200}\{.*\\n[ #]*size +count .*\\n")
_PIECE_START = frozenset("-.0123456789")
_MAX_SOURCES = 4096
_MAX_HOSTS = 65536


def read_text(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the samples of nccl-tests output in batches (see `context.Reader`)."""
    head = file.read(CHUNK_BYTES)
    file.seek(0)
    text = head.decode(encoding_of(head[:4]), errors="replace")
    wrapping = wrapping_of(text)
    if wrapping is not None:
        note = f"lines are wrapped at {wrapping.width} characters: joined"
        context.report.flag(FlagKind.NOTE, note)

    def too_long(number: int, text: str) -> None:
        context.report.cannot_read(number, text, "a line of more than 1 MiB")

    blocks = line_blocks(file, too_long=too_long, progress=context.progress)
    if is_diff(text):
        note = "a diff: its old and new lines are two runs, which nccltune compare compares"
        context.report.flag(FlagKind.NOTE, note)
        blocks = sides_of_diff(blocks)
    elif is_added(text):
        blocks = added_lines(blocks)
    blocks = plain_rows(blocks, text)
    if wrapping is not None:
        blocks = ((number, unwrapped(lines, wrapping)) for number, lines in blocks)
    yield from read_blocks(_unfolded(blocks), context)


def _unfolded(blocks: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks with the lines of an output that is a string in a JSON log line."""
    for number, lines in blocks:
        if not any(_FOLDED.search(line) for line in lines):
            yield number, lines
            continue
        for at, line in enumerate(lines, number):
            for inner in _strings(line) if _FOLDED.search(line) else (line,):
                yield at, [inner]


def _strings(line: str) -> list[str]:
    """Return the lines of the longest string in the JSON object of a line."""
    try:
        value = msgspec.json.decode(line[line.index("{") :])
    except (ValueError, msgspec.DecodeError, RecursionError):
        return [line]
    strings = [item for item in value.values() if isinstance(item, str)]
    return max(strings, key=len, default=line).split("\n")


def read_blocks(blocks: Iterable[tuple[int, list[str]]], context: Context) -> Iterator[RunSamples]:
    """Yield the samples of blocks of lines, each with the number of its first line."""
    reader = _TextReader(context)
    for number, lines in blocks:
        reader.block(number, lines)
        yield from reader.drain()
    reader.end()
    yield from reader.drain()
    report = context.report
    if report.tables or report.unreadable:
        report.kind = FileKind.NCCL_TESTS_TEXT
    elif reader.log_lines:
        report.kind = FileKind.NCCL_LOG
    else:
        report.kind = FileKind.UNKNOWN


@lru_cache(64)
def _without_prefix(line: str) -> tuple[str, str]:
    """Return the name of the source process and the text of a line."""
    if not line.isascii():
        line = line.translate(_BLANKS)
    name, text = strip_prefix(line)
    return name, strip_repeated(line, text) if name and "[" in text else text


class _TextReader:
    """The state of one file: the output of each process, the known hosts, the NCCL log."""

    def __init__(self, context: Context) -> None:
        self.report = context.report
        self.context = context
        self.logs = FileLogs()
        self.commands = CommandLines(context.environment)
        self.facts = RunLog()
        self.diagnostics = DiagnosticsReader()
        self.log_lines = 0
        self.hosts: set[str] = set()
        self.above = self.over = self.title = self.side = self.devices = ""
        self.below: list[str] = []
        self.path: dict[int, str] = {}
        self.led_by = self.led = self.lead = ""
        self.plain = SourceReader(context, self.begin)
        self.sources = {"": self.plain}

    def begin(self, run: NcclTestsRun, again: bool) -> RunLogs:
        """Begin a run: set the settings of its command line; return the logs of its processes."""
        run.set_command(self.commands.begin_run(again=again))
        path = [x for x in self.path.values() if SETS_APART.search(x)]
        words = ", ".join(dict.fromkeys(filter(None, (self.title, self.side, self.devices))))
        run.title = ABOVE.join([*(x for x in path if x != self.title), words])
        return self.logs.begin_run(again=again)

    def block(self, number: int, lines: list[str]) -> None:
        """Process `lines`. The first line has the number `number`."""
        fast = self.plain.fast
        for at, line in enumerate(lines, number):
            if fast is not None and fast(line, at):
                continue
            if line:
                self.below = lines[at - number + 1 : at - number + 6]
                self.line(line, at)
                fast = self.plain.fast
            self.over = line

    def line(self, line: str, number: int) -> None:
        """Process any line."""
        name, text = _without_prefix(line)
        header = self.plain.fast
        if name not in self.sources and header is not None and header(text, number):
            self.sources[name] = self.plain  # a tag before rows only
            return
        source = self.plain if not name else self.source(name)
        if name and source.fast is not None and source.fast(text, number):
            return
        if " NCCL " in text:
            if (match := find_log_line(text)) is not None:
                log = self.log_line(source, text, match, number)
                self.note_time(log.stamps, line, line.find(" NCCL "))
                return
            if self.diagnostics.feed(text):
                self.report.ignored += 1
                return
        body = text.lstrip()
        self._note_title(body)
        if self._led(source, text, number):
            pass
        elif body.startswith("#"):
            self._commented(source, line, text, number)
        elif (at := text.find(_SUMMARY)) > 0:
            source.glued(text, at, "", self.hosts, number)
        elif "Test " in text and (failure := _FAILURE.search(text)) is not None:
            what = visible(failure["what"] or "", 80)
            sentence = f"nccl-tests reports: Test {failure['kind']}" + (
                f" ({what})" if what else ""
            )
            self.report.flag(FlagKind.FAILURE, sentence, number)
        elif (version := VERSION_LINE.match(body)) is not None:
            self.logs.unnamed.version = version["version"]
        elif body:
            self._other(source, text, body, number)

    def _note_title(self, body: str) -> None:
        """Keep the title that a line is, and the GPUs that it sets."""
        if "VISIBLE_DEVICES=" in body and (devices := _DEVICES.search(body)) is not None:
            self.devices = devices[0]
        if title := title_of(body, self.over, self.below, self._begins_table):
            self.title = title
            if (mark := LEVEL.match(body)) is not None:
                level = len(mark[0])
                self.path = {x: y for x, y in self.path.items() if x < level} | {level: title}
            self.side = self.title if self.title in SIDES else self.side
            for each in self.sources.values():
                each.end_unlabelled()

    def _commented(self, source: SourceReader, line: str, text: str, number: int) -> None:
        """Process a line that starts with `#` after its prefix."""
        body = text.lstrip()
        if _SEPARATED.search(body) and source.copied(text, number):
            return
        named = with_title(text, "", self.below)
        if named is not text and source.copied(named, number):
            return
        if self.commands.observe(body, number):
            source.end_unlabelled()
        self._comment(source, text, number)
        self.above = text
        self.note_time(source.run.stamps, line, line.find("#"))
        if (error := _LAST_ERROR.match(body)) is not None:
            what = visible(error["what"], 80)
            self.report.flag(
                FlagKind.FAILURE, f"NCCL's last error was: {what}", number, doubtful=False
            )

    def _comment(self, source: SourceReader, text: str, number: int) -> None:
        """Process a line of the header or the footer, with its comment sign."""
        source.comment(text, number)
        for device in source.run.devices[-1:]:
            self.note_host(device.host)
            self.logs.note_device(device)
        if source.table is not None and source.table.footer:
            self.logs.end_table()

    def _other(self, source: SourceReader, text: str, body: str, number: int) -> None:
        """Process a line that is no comment and no log: a header without `#`, a row, or neither."""
        if _QUOTED.match(text):
            text = _QUOTED.sub("", text)
            body = text.lstrip()
        untitled = text
        unit = self.context.unit
        text, self.above = with_title(text, self.above, self.below, unit), text
        # The names of columns may be settings, which are those of a column.
        if header_of(text) is None and self.commands.observe(
            body, number, heads=self._heads(untitled)
        ):
            source.end_unlabelled()
        plain = _BARE_HEADER.match(body) and not _SEPARATED.search(body)
        if not (plain and body.count("time") != 1) and source.copied(text, number):
            return
        if plain:
            source.comment(f"#{text}", number)
        elif _BARE_LINE.match(body):
            self._comment(source, f"# {body}", number)
        elif source.other(text, number):
            return
        elif _DOTS.fullmatch(body.rstrip()):
            source.left_out(number)
            self.report.ignored += 1
        elif _PLACEHOLDER_ROW.match(text):
            self.report.ignored += 1
        elif _ROW_INSIDE.search(text[:_ROW_WIDTH]):
            self.report.cannot_read(number, text, "a result row behind words that are not known")
        else:
            self.report.ignored += 1

    def _begins_table(self) -> bool:
        """Return whether the next line is of a table, a code block or a command."""
        after = next((line.lstrip() for line in self.below if line.strip()), "")
        marks = ("#", "|", "`", "$", "~", "<pre")
        return after.startswith(marks) or header_of(after) is not None

    def _heads(self, text: str) -> bool:
        """Return whether the names of a table follow a line, or one more title below it."""
        if text.count("|") > 1:
            return False  # a row of the table above
        lines = [_without_prefix(line)[1].lstrip("> ") for line in self.below if line.strip()]
        return any(map(may_name_size, [text, *lines])) and any(
            header_of(with_title(line, above, lines[at + 1 :])) is not None
            for at, (above, line) in enumerate(pairwise([text, *lines[:2]]))
        )

    def _led(self, source: SourceReader, text: str, number: int) -> bool:
        """Process a line of a table with another column before those of nccl-tests.

        Return whether `text` is one. Rows with another value in that column are of another run.
        """
        if (header := _LED_HEADER.fullmatch(text)) is not None:
            self.led_by, self.led, self.lead = header["name"].lower(), header["labels"], ""
            return True
        row = _LED_ROW.fullmatch(text) if self.led else None
        if row is None:
            return False
        if row["lead"] != self.lead:
            self.lead = row["lead"]
            if "node" in self.led_by:
                self.commands.observe(f"## {self.lead} nodes", number)
            source.comment(f"# {self.led}", number)
            if source.table is not None:
                source.table.footer = True
        return source.other(row["row"], number)

    def log_line(
        self, source: SourceReader, text: str, match: re.Match[str], number: int
    ) -> NcclLog:
        """Process an NCCL log line, which may follow a piece of a row.

        Return the log to which the line was added.
        """
        self.log_lines += 1
        self.report.ignored += 1
        message = text[match.end() :]
        log = self.logs.log_for(match["host"], match["pid"], message)
        stated = read_repeated_message(message)
        log.take(stated)
        self.facts.nodes = log.nodes or self.facts.nodes
        self.facts.take((match["host"], match["pid"], match["tid"]), stated, number)
        start, host = match.start(), "" if match["stamp"] else match["host"]
        # A piece of a row starts with a digit. If only blanks precede the host, the piece may be
        # part of the host's word.
        if not text[:start].strip() and (start == 0 or host[:1] not in _PIECE_START):
            self.note_host(match["host"])
        elif text[:start].strip() or host not in self.hosts:
            source.glued(text, start, host, self.hosts, number)
        return log

    def note_time(self, stamps: Stamps, line: str, end: int) -> None:
        """Record when a run began, by a time stamp before `end` in one of its first lines."""
        if end > 0 and stamps.open:
            stamps.add(stamp_of(line, end, latest=self.context.modified))

    def note_host(self, host: str) -> None:
        """Record a host name, to separate it from text before it.

        Host names are never written to a study.
        """
        if len(self.hosts) < _MAX_HOSTS:
            self.hosts.add(host)

    def source(self, name: str) -> SourceReader:
        """Return the reader of one process's lines."""
        source = self.sources.get(name)
        if source is None:
            if len(self.sources) >= _MAX_SOURCES:
                return self.plain
            source = self.sources[name] = SourceReader(self.context, self.begin)
        return source

    def drain(self) -> Iterator[RunSamples]:
        """Yield the samples of complete tables, and of tables with many rows so far."""
        for source in self.sources.values():
            while source.finished:
                yield from source.finished.pop(0).finish()
            if source.table is not None and len(source.table.rows) >= BATCH_ROWS:
                yield from source.table.emit()

    def end(self) -> None:
        """End the file: finish all tables, and add the flags of NCCL's log and diagnostics."""
        self.logs.end()
        for source in self.sources.values():
            source.end_run("the file ends in the middle of a row")
        self.facts.finish()
        for alarm in alarms(self.facts):
            self.report.flag(
                FlagKind.NOTE if alarm.chosen else FlagKind.COLLAPSED,
                f"{alarm.sentence}. Look at: {alarm.look_at}",
                alarm.line or 0,
            )
        for remark, broken in remarks(self.diagnostics.reports).items():
            sentence = f"NCCL's diagnostics report: {remark}"
            self.report.flag(FlagKind.DIAGNOSED, sentence, doubtful=broken)
