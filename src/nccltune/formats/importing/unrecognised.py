# SPDX-License-Identifier: Apache-2.0
"""Say what a file without known measurements is, what is missing, and what to give instead."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from nccltune.formats.importing.foreign_programs import foreign_program
from nccltune.formats.importing.json_records import json_documents
from nccltune.formats.importing.posted_values import (
    SUMMARY,
    FileDescription,
    condition_of,
    describe_list,
    describe_pairs,
    describe_sentences,
    listed_values,
)
from nccltune.formats.nccl_log.messages import RanCall, read_message
from nccltune.formats.nccl_tests.run import NcclTestsRun, header_part
from nccltune.formats.reading.collective_names import collective_of_title
from nccltune.formats.reading.file_report import FileReport
from nccltune.formats.reading.quantities import bandwidth_unit, time_unit
from nccltune.formats.reading.table_header import MEASURED, MEASURED_NAME, NO_RUN, column_of
from nccltune.formats.text.delimited import cells_of, separators_of
from nccltune.formats.text.lines import visible
from nccltune.formats.text.prefixes import strip_prefix
from nccltune.formats.tuner_config.csv_rules import foreign_rules
from nccltune.model.numbers import counted
from nccltune.model.sizes import format_bytes

KNOWN = (
    "known are output and JSON of nccl-tests and rccl-tests, NVIDIA's raw CSV, tables and JSON with"
    " a size and a time for each call, samples of nccltune, and topologies (NCCL_TOPO_DUMP_FILE,"
    " nvidia-smi topo -m); faults in a log are for nccltune doctor"
)
"""What can be imported, for hints."""
_NAMES = "name the column of the sizes of calls 'size (bytes)', and each of their times 'NAME (us)'"
_START = re.compile(
    r"(?:^|[\s/;&|'\"])(?:[a-z_]{3,20}_perf)\b.{0,200}\s-[begfn]\s?\d", re.MULTILINE
)
_SCRIPT = re.compile(r"#!|#SBATCH|#PBS|apiVersion:|set -[eux]")
_PROSE = re.compile(
    r"(?=.*(?i:\b(?:busbw|algbw|bandwidth|bus bw|throughput)\b|[nr]ccl|_perf\b|all[ _-]?reduce))"
    r".*\d ?[GMT]i?[Bb](?:it)?(?:/s|ps)"
)
_BUS_SAID = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?GB/s(?:ec)?\b", re.IGNORECASE)
_AVERAGE_SAID = re.compile(r"\b(?:avg|average)\b.{0,12}\bbus", re.IGNORECASE)
_SIZE_NAME = re.compile(r"(?:\b|_)sizes?\b|bytes|payload|elements|\bcount\b", re.IGNORECASE)
_SHAPE = re.compile(r"(?i:.*\b(?:shapes?|rows|tokens|batch\w*|hidden\w*|seq\w*)\b.*)|[MNKBSH]")
_RULES = frozenset({"minbytes", "maxbytes"})
_EXTREME = re.compile(r"min_?bytes|max_?bytes|min[ _]?size|max[ _]?size", re.IGNORECASE)
_TITLE = re.compile(r"[^#]*[a-zA-Z]")
_OUT_OF_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*\d")
_BARE_LOG = re.compile(r"(?:^|\s)(?:\[\d+\] )?NCCL (?:INFO|WARN|TRACE) (?P<message>.+)")
_TIMED = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)? ?"
    r"(?:[mnu\u00b5\u03bc]s|[mu]?sec|seconds|\u79d2|\u6beb\u79d2|\u5fae\u79d2|[GM]i?B/s|[GM]b(?:ps|/s))(?![\w/])"
)
_LOOP = re.compile(r"\s*(?:for|while|until|do)\b")
_APART = (
    "is a separate copy that communicates with no other: nccl-tests was built without MPI=1, or"
    " started without its launcher"
)
_REBUILD = "build it again (make clean; make MPI=1) and start it with mpirun or srun"
_LABELS = re.compile(r"size\s+count\s+type\s+(?:redop|root|time)")
_COMM = re.compile(
    r"(?i)[nr]ccl|all_?-?(?:reduce|gather|to)|send_?recv|p2p|rdma|bandwidth|g(?:bp?|b/|ib/)s"
    r"|bw(?![a-z])|(?<![a-z])(?:node|host|rank|pair|peer|collective)s?(?![a-z])"
)
_LOG = re.compile(r"[\w./-]{1,80}\.(?:log|out|txt|err|json)", re.IGNORECASE)
_PAIRED_SIZE = re.compile(r"\b((?!world|batch|group)[a-z]+[_ ]size) ?[:=] ?\d", re.IGNORECASE)
_VALUE = re.compile(r":\s*-?\d+(?:\.\d+)?\s*(?:[|,]|$)")
_SENTENCE = re.compile(r"[a-z)`][.:,;](?:\s|$)")
_NUMBER = re.compile(r"[-+]?(?!\d+\.\d+\.\d+$)[\d.,]*\d")
_PLAIN = re.compile(
    r"[*~ ]*(?P<value>\d{1,9}(?:\.\d{1,9})?) ?"
    r"(?P<unit>[mnu\u00b5\u03bc]?s|[GM]i?[Bb](?:/s|ps))?x?[* ]*"
)
_STATISTIC = re.compile(
    r"avg|average|mean|median|min(?![a-z])|max|peak|best|worst|std|self|total", re.I
)
_VALUE_CELL = re.compile(r"[-+]?[\d.,]*\d ?(?:[KMGT]?i?B(?:/s)?|[KMG]|[mnu\u00b5\u03bc]?s|[x%])?")
_MEASURES = re.compile(r"\b(?:busbw|algbw)\b", re.IGNORECASE)
_LIST_ITEM = re.compile(r"\s*(?:\d{1,3}[.)]|[-*+])\s")
_PLACEHOLDERS = re.compile(r"\bX{2,}(?:\.X+)?\b(?:.{0,40}\bX{2,}(?:\.X+)?\b|\s*$)")
_TOOL = re.compile(
    r"\b(?:ib_(?:write|read|send)_(?:bw|lat)|iperf3?|nvbandwidth|p2pBandwidthLatencyTest"
    r"|osu_[a-z_]{2,24}|rperf|qperf|[a-z_]{3,20}_perf)\b"
)
_RUNS_NCCL = re.compile(r"osu_(?:nccl|xccl)_|.*_perf")
"""Those of the programs that measure collectives of NCCL, or may."""
_WORDS_OF_PROSE = re.compile(r"\w\(|\w: |\*|\b(?:is|are|the|we|it)\b")
_MOST_WORDS = 5
_MOST_LINES, _WIDTH = 20_000, 2048
_LEAST, _MOST_NAMES, _MOST_DEPTH, _MOST_OBJECTS = 3, 24, 6, 8
_SHOWN, _MOST_ROWS = 10, 64


class _Table(NamedTuple):
    line: int
    names: list[str]
    first: list[list[str]]

    @property
    def listed(self) -> str:
        """Return the names of the columns as text."""
        shown = [visible(name, 30) for name in self.names if name]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        return ", ".join(shown[:_SHOWN]) + more

    @property
    def measured(self) -> list[str]:
        """Return the columns that are times or bandwidths by their names."""
        return [name for name in self.names if MEASURED_NAME.search(name)]

    @property
    def sized(self) -> bool:
        """Return whether a column is the size of a call."""
        return any(
            column_of(name).role == "size"
            or (_SIZE_NAME.search(name) and not _EXTREME.search(name))
            for name in self.names
        )

    @property
    def numbered(self) -> list[str]:
        """Return the columns of numbers, if all rows have several; they may have no size."""
        rows = [[bool(_NUMBER.fullmatch(cell)) for cell in row] for row in self.first if row]
        if len(rows) < _LEAST - 1 or len(self.names) < _LEAST or min(map(sum, rows)) < _LEAST - 1:
            return []
        return [name for name, number in zip(self.names, rows[0], strict=False) if number]

    @property
    def logs(self) -> list[str]:
        """Return the names of files in the first rows."""
        cells = (cell for row in self.first for cell in row)
        return list(dict.fromkeys(cell for cell in cells if _LOG.fullmatch(cell)))


def describe(text: str) -> FileDescription:
    """Describe a text in which no reader found a measurement."""
    lines = _lines(text)
    if (foreign := foreign_rules(text)) is not None:
        return FileDescription(
            f"is a configuration of {foreign[0]}: it holds rules, not measurements",
            "NVIDIA's tuner plugins cannot read it",
            foreign[1],
        )
    if text.lstrip()[:1] in ("{", "[") and (found := _of_json(text)) is not None:
        return found
    for table in _tables(lines):
        plain = {re.sub(r"[^a-z]", "", name.lower()) for name in table.names}
        if plain >= _RULES and plain & {"algorithm", "algo"}:
            return FileDescription(
                "is a tuner configuration: it holds rules, not measurements",
                "check it: nccltune lint {name}",
                table.line,
            )
    cut = next((at for at, line in enumerate(lines, 1) if _PLACEHOLDERS.search(line)), None)
    if cut is not None and any(map(_MEASURES.search, lines)):
        return FileDescription(
            "has placeholders (XXX.XX) where the numbers of a table belong",
            "give an output with its numbers",
            cut,
        )
    if (program := foreign_program(text, words=False)) is not None:
        return FileDescription(f"has output of {program.name}: {program.measures}", program.hint)
    if (values := describe_pairs(lines) or describe_list(lines)) is not None:
        return values
    tables = sorted(_tables(lines), key=lambda table: not (table.measured or table.sized))
    if tables and (tables[0].measured or tables[0].sized):
        found = _of_table(tables[0])
        again = [] if tables[0].sized else [x for x in tables[1:] if x.names == tables[0].names]
        more = [
            f"; the one in line {each.line}:{x[1:]}" for each in again[:3] if (x := _summed(each))
        ]
        return _named_for(
            set(_TOOL.findall(text)), found._replace(message=found.message + "".join(more))
        )
    if (found := describe_sentences(lines) or _of_test(text)) is not None:
        return found
    if (started := _of_start(text, lines)) is not None:
        return started
    for table in tables:
        first = table.line <= _LEAST and not re.search(r"\d", table.listed)
        cells = (cell for row in table.first for cell in row)
        if first or table.numbered or any(map(collective_of_title, cells)):
            return _of_table(table)
    return _bare_rows(lines) or _of_prose(lines)


def _of_start(text: str, lines: list[str]) -> FileDescription | None:
    """Describe a command that starts nccl-tests, or a sentence that names one; None without it."""
    if (match := _START.search(text)) is None:
        return None
    at, script = text.count("\n", 0, match.start()), any(map(_SCRIPT.match, lines))
    if not script and _PROSE.match(lines[at]):
        return _of_words(lines)
    what = "is a script" if script else "has a command"
    return FileDescription(
        f"{what} that starts nccl-tests, and no row of its output",
        f"give its output; check the command: nccltune lint {{name}}{_figure_hint(lines)}",
        at + 1,
    )


def describe_log(text: str) -> FileDescription | None:
    """Describe an NCCL log in which a test began and gave no row; None for another log."""
    return _of_test(text)


def unread_tables(text: str, heads: set[int]) -> Iterator[FileDescription]:
    """Describe the drawn tables by size whose names are not on one of the lines `heads`."""
    lines = _lines(text)
    for table in _tables(lines):
        sized = any(column_of(name).role == "size" for name in table.names)
        values = [sum(map(bool, map(_VALUE_CELL.fullmatch, row))) for row in table.first[:2]]
        drawn = sized and "|" in lines[table.line - 1] and table.line not in heads
        if drawn and min(values) > 1:
            found = _of_table(table)
            yield found._replace(message=found.message.replace("has ", "not read: ", 1))


def _lines(text: str) -> list[str]:
    return [line[:_WIDTH] for line in text.split("\n")[:_MOST_LINES]]


def _of_test(text: str) -> FileDescription | None:
    """Describe what nccl-tests prints beside its rows; None if there is nothing of it."""
    lines = [strip_prefix(line)[1] for line in _lines(text)]
    return _of_header(lines) or _of_summaries(lines, text)


def _named_for(tools: set[str], found: FileDescription) -> FileDescription:
    """Return a description of a table with the only program that its text names, if another."""
    if len(tools) != 1 or _RUNS_NCCL.match(tool := tools.pop()):
        return found
    return found._replace(
        message=f"{found.message} (the text names {tool}, which runs no collective of NCCL)"
    )


def _of_prose(lines: list[str]) -> FileDescription:
    log = [(at, match) for at, line in enumerate(lines, 1) if (match := _BARE_LOG.search(line))]
    if log:
        message = (
            f"has {counted(len(log), 'line')} of an NCCL log without host and process, no table"
        )
        calls = (read_message(match["message"]) for _, match in log)
        if (call := next((each for each in calls if isinstance(each, RanCall)), None)) is not None:
            ran = call.ran if isinstance(call.ran, str) else call.ran.label
            message += f": NCCL chose {ran} for {format_bytes(call.size)}"
        return FileDescription(
            message, "give the lines whole, and the output of nccl-tests", log[0][0]
        )
    timed = [at for at, line in enumerate(lines, 1) if _TIMED.search(line)]
    if len(timed) >= _LEAST:
        hint = "give the output of nccl-tests, or a table with the columns 'size (bytes)' and"
        hint += " 'time (us)'"
        if size := _PAIRED_SIZE.search(lines[timed[0] - 1]):
            hint += f"; where {size[1]!r} is the bytes of a call, name it 'bytes'"
        return FileDescription(
            f"has {len(timed)} lines with times or bandwidths, and no table of them by size",
            hint,
            timed[0],
        )
    return (
        _of_words(lines)
        if any(map(_PROSE.match, lines))
        else FileDescription("nothing in it is known", KNOWN)
    )


def _of_words(lines: list[str]) -> FileDescription:
    return FileDescription(
        "states a bandwidth in words, and has no table with a size and a time for each call",
        f"give the output of nccl-tests, if it is from one{_figure_hint(lines)}",
        next(at for at, line in enumerate(lines, 1) if _PROSE.match(line)),
    )


def _figure_hint(lines: list[str]) -> str:
    """Return the command that judges a single figure, with the bus bandwidth that lines state."""
    said = [line for line in lines if _PROSE.match(line)]
    average = any(map(_AVERAGE_SAID.search, said))
    own = [line for line in said if not average and "link" not in line.lower()]
    values = {match[1] for line in own for match in _BUS_SAID.finditer(line)}
    command = "nccltune compare FILE --collective NAME --nodes N --ranks N --gpu NAME"
    rows = f"'size,busbw (GB/s)' and 'SIZE,{values.pop() if len(values) == 1 else 'BUSBW'}'"
    of = ", of the largest size, as the average is over all sizes" * average
    return f"; is one figure normal? Write two lines, {rows}{of}: {command}" * bool(said)


def _bare_rows(lines: list[str]) -> FileDescription | None:
    """Describe rows of numbers that no line names; None without at least three of them."""
    width, since = 0, 0
    for at, line in enumerate(lines, 1):
        words = line.split()
        numeric = len(words) >= _LEAST and all(map(_NUMBER.fullmatch, words))
        if not numeric or len(words) != width:
            width, since = len(words) if numeric else 0, at
        if width and at - since >= _LEAST - 1:
            return FileDescription(
                f"has rows of {width} numbers, and no line names them",
                "put a line of names above them, such as: size time(us) algbw busbw",
                since,
            )
    return None


def _of_table(table: _Table) -> FileDescription:
    what = f"has a table with the columns {table.listed}: "
    sources = ", ".join(table.logs[:3]) + (", ..." if len(table.logs) > 3 else "")
    logs = f"give the outputs that it was made from{f' ({sources})' if sources else ''}"
    rename = ", or name the columns 'size (bytes)' and 'time (us)'"
    summed = _summed(table)
    if not table.measured and not table.sized:
        hint = _NAMES if table.numbered else KNOWN
        missing = f"none is named a size, a time or a bandwidth{summed}"
        return FileDescription(what + missing, hint, table.line)
    if not table.sized:
        missing = f"none is named the size of a call, so there is no time for each size{summed}"
        if any(map(_SHAPE.fullmatch, table.names)):
            rename = ", or add a column 'size (bytes)': elements of a call x bytes of their type"
        return FileDescription(what + missing, logs if table.logs else logs + rename, table.line)
    if not table.measured:
        numbers = [name for name in table.numbered if not _SIZE_NAME.search(name)]
        missing = "no name or unit says which are times or bandwidths"
        if summed:
            unnamed = "which are the size and the time of a call is not known"
            missing = (missing if numbers else unnamed) + summed
        chosen = any(column_of(name).role in ("algorithm", "protocol") for name in table.names)
        if chosen:
            missing = "it shows what was chosen, not how long it took"
        if numbers:
            rename = f", or name their units, as in 'size (bytes)' and {numbers[0] + ' (us)'!r}"
        return FileDescription(
            what + missing, logs if table.logs or chosen else logs + rename, table.line
        )
    missing = "which one is the time of a call is not known, or rows have other columns"
    if not any(column_of(name).role == "size" for name in table.names):
        missing = "which one is the size of a call is not known"
    return FileDescription(what + missing, "name them 'size (bytes)' and 'time (us)'", table.line)


def _summed(table: _Table) -> str:
    """Sum up the rows of a table without sizes: by name, or of two columns; empty if unclear.

    Two columns are of one measure, or of two conditions such as `before` and `after`.
    """
    rows = [row for row in table.first if len(row) == len(table.names)]
    alike: dict[str, list[int]] = {}
    for at, name in enumerate(table.names):
        units = {unit for row in rows if (unit := _unit_of(row[at]))}
        key = _measure_of(name) or "".join(units) or condition_of(name)
        key = key if len(units) < 2 else ""
        if key and NO_RUN.search(name) is None and _PLAIN.fullmatch(name) is None:
            alike.setdefault(key, []).append(at)
    if len(alike) == 1 and [len(places) for places in alike.values()] == [1]:
        ((key, (at,)),) = alike.items()
        name = visible(table.names[0], 40) if all(row[0].isdecimal() for row in rows) else ""
        # The nodes of a pair are two columns.
        first = 1 if len({row[0] for row in rows}) == len(rows) else 2
        labels = [f"{name} {', '.join(row[:first])}".strip() for row in rows]
        measured = [_number_of(row[at]) for row in rows]
        values = {key: x for key, x in zip(labels, measured, strict=True) if at >= first and x}
        found = None
        if len(values) == len(rows) >= _LEAST and _measure_of(table.names[at]):
            found = listed_values(values, "", visible(table.names[at], 40), table.line)
        return f"; it {found.message}" if found is not None else ""
    for key, places in list(alike.items()):
        if len(places) > 2 and not len(places) % 2:
            # `H4096 NCCL (us)`, `H4096 ours (us)`, `H6144 NCCL (us)`, ...
            del alike[key]
            for at in places:
                alike.setdefault(f"{key} {table.names[at].split()[0]}", []).append(at)
    said = ""
    for pair in (places for places in alike.values() if len(places) == 2):
        names = [table.names[at] for at in pair]
        if names[0] == names[1] or any(map(_STATISTIC.search, names)):
            continue
        numbers = [[_number_of(row[at]) for at in pair] for row in rows]
        ratios = sorted(second / first for first, second in numbers if first and second)
        if len(ratios) > 1:
            base, other = (visible(name, 40) for name in names)
            said += f"; {other!r} is {ratios[0]:.2f} to {ratios[-1]:.2f} of {base!r}"
            part = f"{len(ratios)} of " * (len(ratios) < len(rows))
            said += f" in {part}{len(rows)} rows"
    return said


def _number_of(cell: str) -> float | None:
    match = _PLAIN.fullmatch(cell)
    return float(match["value"]) if match is not None else None


def _unit_of(cell: str) -> str:
    match = _PLAIN.fullmatch(cell)
    return (match["unit"] or "") if match is not None else ""


def _measure_of(name: str) -> str:
    """Return the unit of a time or bandwidth in the name of a column, or its role."""
    column = column_of(name)
    unit = column.unit if time_unit(column.unit) or bandwidth_unit(column.unit) else ""
    # An algorithm bandwidth and a bus bandwidth are of one call.
    rate = re.search(r"alg|bus", name, re.IGNORECASE)
    role = column.role if column.role in MEASURED else ""
    return f"{unit or role} {rate[0].lower()}" if rate is not None and unit + role else unit or role


def _of_header(lines: list[str]) -> FileDescription | None:
    """Describe the header of a run of nccl-tests without a table."""
    parts = [(at, header_part(f"# {line.lstrip(' #>')}")) for at, line in enumerate(lines, 1)]
    found = [(at, *part) for at, part in parts if part is not None]
    labels = next((at for at, line in enumerate(lines, 1) if _LABELS.search(line)), None)
    if not found and labels is None:
        return None
    run, report, again = NcclTestsRun(), FileReport(name=""), False
    for at, name, match in found:
        again = again or (name == "parameters" and bool(run.devices))
        run.take(name, match, at, report)
        hosts = {device.host for device in run.devices}
        if again and run.copies and {host for host, _ in run.copies} <= hosts:
            # The same hosts, below another header: the test was started again.
            run, again = NcclTestsRun(), False
            run.take(name, match, at, report)
        if run.copies:
            return FileDescription(
                f"has the header of nccl-tests, and rank {match['rank']} in several processes: each"
                f" {_APART}; no row",
                _REBUILD,
                at,
            )
    hosts = {device.host for device in run.devices}
    listed = f" (it lists {counted(len(run.devices), 'rank')} on {counted(len(hosts), 'host')})"
    why = "the run hung or ended at its first size, or the text is cut"
    if any(map(SUMMARY.match, lines)):
        why = "the text is cut, its last lines are there"
    return FileDescription(
        f"has the header of nccl-tests{listed if hosts else ''} and no row: {why}",
        "give the whole output; look for the cause: nccltune doctor {name}",
        found[0][0] if found else labels,
    )


def _of_summaries(lines: list[str], text: str) -> FileDescription | None:
    """Describe the last lines of runs of nccl-tests without a table.

    Each run prints one average, so several of one start are of copies.
    """
    found = [(at, match[1]) for at, line in enumerate(lines, 1) if (match := SUMMARY.match(line))]
    if not found:
        end = next((at for at, line in enumerate(lines, 1) if _OUT_OF_BOUNDS.match(line)), None)
        what = "has the last lines of nccl-tests and no row: the text is cut"
        return None if end is None else FileDescription(what, "give the whole output", end)
    values = ", ".join(value for _, value in found[:6]) + (", ..." if len(found) > 6 else "")
    what = f"has {counted(len(found), 'average')} of nccl-tests ({values} GB/s) and no row"
    starts = sum(1 for _ in _START.finditer(text))
    ends = [0, *(at for at, _ in found)]
    titles = [
        next((line for line in reversed(lines[above : at - 1]) if _TITLE.match(line)), "")
        for above, at in pairwise(ends)
    ]
    named = [visible(title.strip("=*-: \t"), 60) for title in titles]
    if len({*named}) == len(found) > 1 and all(named):
        titled = {name: float(value) for name, (_, value) in zip(named, found, strict=True)}
        if (listed := listed_values(titled, "GB/s", "bus bandwidth", found[0][0])) is not None:
            return listed
    if len(found) > 1 and starts == 1 and not any(titles[1:]) and not any(map(_LOOP.match, lines)):
        return FileDescription(f"{what}, from one start: each {_APART}", _REBUILD, found[1][0])
    idle = not any(value.strip("0.") for _, value in found)
    why = f"each run with 0 {_APART}" if idle else "there is no time for each size"
    hint = _REBUILD if idle else "give the whole output"
    return FileDescription(f"{what}: {why}", hint, found[0][0])


def _tables(lines: list[str]) -> Iterator[_Table]:
    """Yield the tables in lines: a line of names above a line of as many cells with numbers."""
    skip = 0
    for at, line in enumerate(lines):
        if at < skip or not any(char.isalpha() for char in line) or _VALUE.search(line):
            continue
        plain = "\t" in line or line.lstrip().startswith("|")
        body = line if plain else line.strip().removeprefix("#").strip()
        for separator in separators_of(body):
            names = cells_of(body, separator)
            if not _are_names(names, line, separator):
                continue
            index = lines[at + 1].split() if separator == " " and at + 1 < len(lines) else []
            if index and not any(map(str.isalpha, index)):
                index = []
            rows = _rows(lines[at + 1 : at + _MOST_ROWS], separator, len(names))
            if not rows and separator == " ":
                rows = _rows(lines[at + 1 : at + _MOST_ROWS], separator, len(body.split()))
                names = body.split() if rows else names
            if not rows and index:
                # Printed by pandas: the names of the index are on a line of their own.
                names = [*index, *line.split()]
                rows = _rows(lines[at + 2 : at + _MOST_ROWS], separator, len(names))
            if not rows and separator == " " and _names_columns(body, lines[at + 1 : at + 2]):
                names, rows = body.split(), [lines[at + 1].split()]
            if rows:
                yield _Table(at + 1, names, rows)
                skip = at + 1 + len(rows)
                break


def _are_names(names: list[str], line: str, separator: str) -> bool:
    """Return whether cells may name columns: they are no sentence, list, code or command."""
    few = len(names) < _LEAST - (separator != " ") or any(map(_NUMBER.fullmatch, names))
    few = few or 2 * sum(map(bool, map(_NUMBER.fullmatch, line.split()))) > len(line.split())
    marks = r"[{};]" if line.lstrip().startswith("|") else r"[={};]"
    if few or re.search(marks, line.replace(separator, "")):
        return False
    if any(name == "-" or name.startswith(("--", "$")) or "://" in name for name in names):
        return False
    if separator == " ":
        listed = re.match(r"\d+[.)]", names[0]) is not None or names[1].endswith(",")
        return len(names) <= _MOST_NAMES and not listed and _SENTENCE.search(line) is None
    if separator == "," and (_LIST_ITEM.match(line) or _WORDS_OF_PROSE.search(line)):
        return False
    return separator not in ",;" or max(len(name.split()) for name in names) <= _MOST_WORDS


def _names_columns(line: str, after: list[str]) -> bool:
    """Return whether words name columns, and the next line has numbers."""
    known = [word for word in line.split() if column_of(word).role or MEASURED_NAME.search(word)]
    numbers = [word for row in after for word in row.split() if _NUMBER.fullmatch(word)]
    return len(known) >= _LEAST and len(numbers) >= _LEAST and 2 * len(known) >= len(line.split())


def _rows(lines: list[str], separator: str, width: int) -> list[list[str]]:
    rows: list[list[str]] = []
    for line in lines:
        if line.strip() and not any(char.isalnum() for char in line):
            continue
        cells = cells_of(line, separator)
        if separator == "|" and rows and not cells:
            break
        if separator == " " and len(cells) != width:
            cells = line.split()
        if len(cells) != width and separator != "|" and not rows:
            # Units, or the second line of a header in two lines.
            if len(cells) > 1 and len(rows) == 0 and line is lines[0]:
                continue
            break
        if len(cells) != width and separator != "|":
            break
        rows.append(cells)
    numbers = sum(any(char.isdigit() for char in cell) for row in rows[:1] for cell in row)
    if separator in ",;" and not any(
        _VALUE_CELL.fullmatch(cell) for row in rows[:1] for cell in row
    ):
        return []  # sentences with commas
    return rows if numbers >= (1 if separator != " " else max(2, width // 3)) else []


def _of_json(text: str) -> FileDescription | None:
    """Describe JSON by the objects in it that look most like measurements; None without any."""
    tables = [
        _Table(line, names, rows)
        for line, _, value in json_documents(text)
        for names, rows in _objects(value, 0)
    ]
    if not tables:
        return None
    best = max(tables, key=lambda table: (bool(table.measured), table.sized, bool(_summed(table))))
    what = f"is JSON, with objects of the keys {best.listed}: "
    if not best.measured or not best.sized:
        what += "none has the size and the time of a call"
        what += _summed(best) * bool(_COMM.search(text))
        return FileDescription(what, KNOWN, best.line)
    what += "which one is the time of a call is not known"
    return FileDescription(what, "name it 'time_us', and the size 'size_bytes'", best.line)


def _objects(value: object, depth: int) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the keys of the objects in a JSON value, with the rows of lists and maps of numbers."""
    if depth > _MOST_DEPTH:
        return
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return
    if isinstance(value, dict):
        yield list(value), []
        for name, item in value.items():
            if isinstance(item, dict) and item and all(map(_is_number, item.values())):
                yield ["", name], [[key, str(each)] for key, each in item.items()][:_MOST_ROWS]
    elif inner and all(isinstance(item, dict) and item.keys() == inner[0].keys() for item in inner):
        keys = [key for key in inner[0] if len({str(item[key]) for item in inner}) > 1]
        yield keys, [[str(item[key]) for key in keys] for item in inner[:_MOST_ROWS]]
    for item in inner[:_MOST_OBJECTS]:
        yield from _objects(item, depth + 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
