# SPDX-License-Identifier: Apache-2.0
"""Read and write NVIDIA's tuner CSV, the configuration file of a tuner plugin.

    colltype,minBytes,maxBytes,algo,proto,channels,nNodes,nRanks[,numPipeOps[,regBuff[,chunkBytes]]]

The format is that of `plugins/tuner/example` in NCCL 2.30, plus the column `chunkBytes`, which
nccltune adds. NVIDIA's reader stops after the tenth column, so it ignores the chunk size of a row.
A comment directly above a row states how much is known about its rule: `# candidate: ...`. Both
plugins skip comments. A header with `end=below` promises a last line with `end=here`: without it,
the file was cut off, and our plugin uses no rule.

NVIDIA's reader silently changes invalid cells: an unknown collective becomes allreduce, NVLS
becomes ring, 1K becomes 1. This reader and our plugin report such a cell as a problem.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nccltune.formats.text.cells import MAX_INT, CellError, Problem, name_of, number_of, size_of
from nccltune.formats.text.lines import check_text, visible
from nccltune.model.choice import ALGORITHMS, MAX_CHANNELS, PROTOCOLS, Choice
from nccltune.model.collective import TUNED
from nccltune.model.errors import InputError
from nccltune.model.rule import Rule, RuleState

COLUMNS = (
    "collective",
    "minBytes",
    "maxBytes",
    "algorithm",
    "protocol",
    "channels",
    "nNodes",
    "nRanks",
    "numPipeOps",
    "regBuff",
    "chunkBytes",
)
LEAST_COLUMNS = 8
MAX_LINE = 255
"""Line length limit of NVIDIA's reader in bytes. It reads a longer line as several lines."""
_LONGEST_READ = 1 << 14
MAX_BYTES = 32 << 20
MAX_RULES = 1 << 18
"""Limits of a file in bytes and in rules. Our plugin has the same limits, which bound the memory of
a communicator."""

MAX_CHUNK = 1 << 30
"""Our plugin's limit for a chunk size in bytes."""

_COLLECTIVES = {item.value: item for item in TUNED}
_ALGORITHMS = {item.value: item for item in ALGORITHMS}
_PROTOCOLS = {item.value: item for item in PROTOCOLS}
_CHOICES = {
    (algo, proto, channels): Choice(_ALGORITHMS[algo], _PROTOCOLS[proto], channels)
    for algo in _ALGORITHMS
    for proto in _PROTOCOLS
    for channels in (None, *range(1, MAX_CHANNELS + 1))
}
_ORDINARY = re.compile(
    rf"({'|'.join(_COLLECTIVES)}),([0-9]{{1,18}}),([0-9]{{1,18}}),({'|'.join(_ALGORITHMS)}),"
    rf"({'|'.join(_PROTOCOLS)}),(-1|[1-9][0-9]?),(-1|[1-9][0-9]{{0,8}}),(-1|[1-9][0-9]{{0,8}})"
    rf"(?:,(-1|[1-9][0-9]{{0,8}})(?:,(-1|0|1)(?:,(-1|[1-9][0-9]{{0,9}}))?)?)?",
    re.ASCII,
)
_CELLS: tuple[tuple[Any, ...], ...] = (
    (name_of, list(_COLLECTIVES), "a collective that NCCL tunes"),
    (size_of,),
    (size_of,),
    (name_of, list(_ALGORITHMS), "an algorithm"),
    (name_of, list(_PROTOCOLS), "a protocol"),
    (number_of, "a number of channels", 1, MAX_CHANNELS, "leaves it to NCCL"),
    (number_of, "a number of nodes", 1, MAX_INT, "matches any"),
    (number_of, "a number of ranks", 1, MAX_INT, "matches any"),
    (number_of, "a number of operations", 1, MAX_INT, "matches any"),
    (number_of, "a registration", 0, 1, "matches any"),
    (number_of, "a chunk size", 1, MAX_CHUNK, "leaves it to NCCL"),
)
"""The reader of each column, and its limits."""
_WHOLE = re.compile(r"\d{1,20}")
_ALGORITHM = COLUMNS.index("algorithm")
UNMARKED = (
    "the names of the columns without # before them: NVIDIA's example plugin makes a rule for 0"
    " nodes of them, which never applies"
)
"""The problem of a line that harms nothing."""
_HEADS = frozenset({"collective", "collective_type", "colltype", "coll_type", "collectivetype"})
_PAIR = re.compile(r'\s*([A-Za-z_][\w.-]*)=(?:"([^"]*)"|([^\s"]+))(?=\s|$)')
_MARKER = re.compile(r"#+\s*nccltune:")
_END = "# nccltune: end=here"
_STATE = re.compile(rf"#\s*({'|'.join(RuleState)}):\s*")
_RATIO = r"(\d+\.\d+)"
_GAIN = re.compile(rf"{_RATIO}x.{{0,40}}?\b95 % CI {_RATIO}-{_RATIO}")
_ROWS = re.compile(r'(?m)^(#+ ?nccltune:.* rows=)"[^"\n]*"')
_FNV_BASIS, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1

# The configurations of other tuners: no plugin that reads CSV can read them. A decimal number is
# measured, so a row with one is no rule.
_FOREIGN = {
    "Google's tuner (NCCL_TUNER_CONFIG_PATH)": re.compile(
        r"^[ \t]*communicator_configs:?[ \t]*\{", re.M
    ),
    "NCCLX's tuner (NCCLX_TUNER_CONFIG_FILE)": re.compile(
        r"^[^\w\n]{0,9}collective,bytes\w*,algorithm,(?!.*\n.*\d\.\d)"
        r"|^ *(?:all|reduce|broad)\w* *,(?!.*\d\.\d)"
        r' *(?:"?[\[(][\d, ]*[\])]"?|\*|\d+) *, *(?:ring|tree|nvls\w*|collnet\w*|pat) *,'
        r"|\"filter\"\s*:\s*\{\s*\"collective\"",
        re.M | re.I,
    ),
}
_TIMED = re.compile(
    r"(?<![a-z])times?(?![a-z])|latency|bandwidth|bw\b|throughput|[gm]bps|gb/s|_[um]s\b|\([um]s\)"
    r"|cost_?metric",
    re.IGNORECASE,
)
_HEAD = 1024


class FileRule(msgspec.Struct, frozen=True):
    """A rule and its line number (from 1).

    `state` is None if no comment states it; `words` are the rest of that comment.
    """

    line: int
    rule: Rule
    state: RuleState | None = None
    words: str = ""

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """Return the gain in `words` with its 95 % interval; None if they have none."""
        match = _GAIN.match(self.words)
        return None if match is None else (float(match[1]), float(match[2]), float(match[3]))


class RuleFile(msgspec.Struct, frozen=True):
    """The content of a configuration file.

    `rules` are in file order. `header` holds the `key=value` pairs of our comment header.
    `problems` are lines that give no rule. `notes` are about lines that are read but need
    attention.
    """

    rules: list[FileRule]
    header: dict[str, str]
    problems: list[Problem]
    notes: list[Problem]


def read_rules(path: Path, *, strict: bool = False) -> RuleFile:
    """Read a configuration file.

    Raises InputError if the file cannot be read at all, and with `strict` at its first problem.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = "is a folder, not a file" if path.is_dir() else f"cannot be read: {error.strerror}"
        raise InputError(what, where=str(path), hint="name a tuner configuration") from error
    return parse_rules(data, name=str(path), strict=strict)


def parse_rules(data: bytes | str, *, name: str = "config", strict: bool = False) -> RuleFile:
    """Parse the content of a configuration file; `name` is the file name for errors.

    Raises InputError if the content is too large or is not text, and with `strict` at the first
    problem.
    """
    found = RuleFile([], {}, [], [])
    above = ""
    lines = _decoded(data.encode() if isinstance(data, str) else data, name).split("\n")
    for number, raw in enumerate(lines, 1):
        if len(raw) > _LONGEST_READ:
            # No valid row or header is this long. Splitting such a line into cells could take
            # gigabytes of memory.
            message = f"a line of {len(raw)} characters is not read"
            found.problems.append(Problem(number, message, "a row has 8 to 11 short columns"))
            if strict:
                raise found.problems[-1].error(name)
            continue
        line = raw.removesuffix("\r").strip(" \t")
        if not line:
            continue
        if len(raw) > MAX_LINE // 4 and len(raw.removesuffix("\r").encode()) > MAX_LINE:
            found.notes.append(_long(number))
        problems = len(found.problems)
        if line.startswith("#"):
            _read_header(line, number, found)
        elif number == len(lines):
            message = "the last line has no line end: the file may be cut off"
            found.problems.append(Problem(number, message, "add a line end"))
        else:
            _read_row(line, number, found, above)
        above = line
        if strict and len(found.problems) > problems:
            raise found.problems[-1].error(name)
    _check_end(lines, found)
    if strict and found.problems:
        raise found.problems[-1].error(name)
    return found


def foreign_rules(text: str) -> tuple[str, int] | None:
    """Return which other tuner a text configures, and the line that shows it; else None."""
    if _TIMED.search(text[:_HEAD]) is not None:
        return None  # a table of measurements has such rows, too
    for reader, form in _FOREIGN.items():
        if (match := form.search(text)) is not None:
            start = match.end() - len(match[0].lstrip())
            return reader, text.count("\n", 0, start) + 1
    return None


def _check_end(lines: Sequence[str], found: RuleFile) -> None:
    """Take no rule of a file that is only the first part of what was written."""
    if found.header.get("end") == "below" and _END not in map(str.strip, lines):
        message = f"the file is cut off, its last line {_END!r} is missing: no rule is used"
        found.problems.append(Problem(len(lines), message, "copy the whole file again"))
        found.rules.clear()


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise InputError("is larger than 32 MiB, which no tuner reads", where=name)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16", where=name, hint="save it as UTF-8 or plain ASCII")
    try:
        check_text(data[:4096])
    except InputError as error:
        raise InputError(error.message, where=name, hint=error.hint) from error
    return data.decode("utf-8-sig", errors="replace")


def _marked(number: int, rule: Rule, above: str) -> FileRule:
    """Return a rule with the state that the line above it states."""
    match = _STATE.match(above)
    if match is None:
        return FileRule(number, rule)
    return FileRule(number, rule, RuleState(match[1]), above[match.end() :])


def write_rules(
    rules: Sequence[Rule], header: Mapping[str, str], marks: Mapping[Rule, str] | None = None
) -> str:
    """Return the text of a configuration: `header` as comments, the column names, one row per rule.

    With a header, the last line shows a reader that the file is whole.
    `marks` are the comments above rows, as `mark` makes them. A row has 8 fields; 9, 10 or 11 if
    `pipe_ops`, `registered` or a chunk size is set. In header values, a double quote becomes a
    single quote and a control character becomes a blank. Raises InputError for a rule that the
    format cannot hold: a chunk size above `MAX_CHUNK`, or a collective that NCCL does not tune.
    """
    chunks = any(rule.choice.chunk_bytes is not None for rule in rules)
    columns = ("colltype", *COLUMNS[1 : len(COLUMNS) if chunks else -1])
    closed = {**header, "end": "below"} if header else {}
    lines = [*_header_lines(closed), "# " + ",".join(columns)]
    for rule in rules:
        lines += [marks[rule]] if marks and rule in marks else []
        lines.append(_row(rule))
    lines += [_END] if header else []
    return "\n".join(lines) + "\n"


def mark(state: RuleState, words: str) -> str:
    """Return the comment that states the state of the rule in the next row, with the reason."""
    plain = words.encode("ascii", "replace").decode()
    plain = "".join(char if char.isprintable() else " " for char in plain)
    return f"# {state}: {plain}"[:MAX_LINE]


def config_hash(data: bytes) -> str:
    """Return the 64-bit FNV-1a hash of a configuration as 16 hex digits, as our plugin logs it."""
    value = _FNV_BASIS
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return f"{value:016x}"


def rows_text(rules: Sequence[Rule]) -> str:
    """Return the number of rules and the hash of their rows: the header's value of `rows`.

    So a reader sees that rows were changed since. Comments and blanks do not count.
    """
    return f"{len(rules)} {config_hash(chr(10).join(map(_row, rules)).encode())}"


def with_rows(text: str) -> str:
    """Return a configuration of ours, of which rows were changed, with the new `rows`."""
    rows = rows_text([item.rule for item in parse_rules(text).rules])
    return _ROWS.sub(rf'\g<1>"{rows}"', text, count=1)


def _read_row(line: str, number: int, found: RuleFile, above: str) -> None:
    if len(found.rules) >= MAX_RULES:
        found.problems.append(Problem(number, f"a file has at most {MAX_RULES} rows"))
        return
    match = _ORDINARY.fullmatch(line)
    if match is None:
        result = _careful(line, number)
        if isinstance(result, Problem):
            found.problems.append(result)
        else:
            found.rules.append(_marked(number, result, above))
        return
    func, low, high, algo, proto, channels, nodes, ranks, pipe, registered, chunk = match.groups()
    choice = _CHOICES.get((algo, proto, _optional(channels)))
    chunk_bytes = _optional(chunk)
    if choice is None or int(low) > int(high) or (chunk_bytes or 0) > MAX_CHUNK:
        result = _careful(line, number)
        assert isinstance(result, Problem)
        found.problems.append(result)
        return
    rule = Rule(
        _COLLECTIVES[func],
        int(low),
        int(high),
        _with_chunk(choice, chunk_bytes),
        _optional(nodes),
        _optional(ranks),
        _optional(pipe),
        None if registered in (None, "-1") else registered == "1",
    )
    found.rules.append(_marked(number, rule, above))


def _optional(cell: str | None) -> int | None:
    return None if cell is None or cell == "-1" else int(cell)


def _with_chunk(choice: Choice, chunk_bytes: int | None) -> Choice:
    if chunk_bytes is None:
        return choice
    return Choice(choice.algorithm, choice.protocol, choice.channels, chunk_bytes)


def _careful(line: str, number: int) -> Rule | Problem:
    """Parse a row cell by cell; return its rule, or the problems of all its cells."""
    cells = [cell.strip(" \t") for cell in line.split(",")]
    if not LEAST_COLUMNS <= len(cells) <= len(COLUMNS):
        few = len(cells) < LEAST_COLUMNS
        message = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
        message += f": too {'few' if few else 'many'}"
        least, most = [*cells[1:3], "", ""][:2]
        if _WHOLE.fullmatch(least) and _WHOLE.fullmatch(most) and int(least) > int(most):
            message += f"; {_named(2)}: {most} is less than minBytes {least}"
        return Problem(
            number,
            message,
            f"a row has 8 to 11: {','.join(COLUMNS[:8])}[,numPipeOps[,regBuff[,chunkBytes]]]",
        )

    if cells[0].lower() in _HEADS and not any(cell.lstrip("-")[:1].isdigit() for cell in cells):
        return Problem(number, UNMARKED, "write # before it")
    found: list[Any] = []
    errors: list[CellError] = []
    for column, (cell, (parse, *limits)) in enumerate(zip(cells, _CELLS, strict=False)):
        try:
            if column == _ALGORITHM and cell == "default":
                hint = "for NCCL's own choice leave the row out"
                raise CellError("'default' is not an algorithm", hint)
            found.append(parse(cell, *limits))
        except CellError as error:
            errors.append(CellError(f"{_named(column)}: {error.message}", error.hint))
    if errors:
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        return Problem(
            number, "; ".join(error.message for error in errors), "; ".join(hints) or None
        )
    if found[1] > found[2]:
        return Problem(
            number, f"{_named(2)}: {found[2]} is less than minBytes {found[1]}", "swap them"
        )
    found += [None] * (len(COLUMNS) - len(found))
    collective, low, high, algorithm, protocol, channels, nodes, ranks, *rest = found
    pipe, registered, chunk = rest
    choice = _with_chunk(_CHOICES[algorithm, protocol, channels], chunk)
    registration = None if registered is None else bool(registered)
    return Rule(_COLLECTIVES[collective], low, high, choice, nodes, ranks, pipe, registration)


def _named(column: int) -> str:
    return f"column {column + 1} ({COLUMNS[column]})"


def _read_header(line: str, number: int, found: RuleFile) -> None:
    marker = _MARKER.match(line)
    if marker is None:
        return
    at = marker.end()
    while line[at:].strip():
        pair = _PAIR.match(line, at)
        if pair is None or not (pair[2] or pair[3]):
            rest = visible(line[at:].strip(), 40)
            found.problems.append(
                Problem(number, f'header: {rest!r} is not key=value or key="value"')
            )
            return
        found.header.setdefault(pair[1], pair[2] or pair[3])
        at = pair.end()


def _header_lines(header: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for key, value in header.items():
        plain = "".join(char if char.isprintable() else " " for char in value).replace('"', "'")
        if not plain.strip():
            continue
        quoted = not re.fullmatch(r"[0-9.+-]+", plain)  # numbers, versions and dates need no quotes
        room = MAX_LINE - len(f'# nccltune: {key}=""'.encode())
        plain = plain.encode()[:room].decode(errors="ignore")
        pair = f'{key}="{plain}"' if quoted else f"{key}={plain}"
        if lines and len(f"{lines[-1]} {pair}".encode()) <= MAX_LINE:
            lines[-1] += f" {pair}"
        else:
            lines.append(f"# nccltune: {pair}")
    return lines


def _row(rule: Rule) -> str:
    choice = rule.choice
    if choice.chunk_bytes is not None and not 1 <= choice.chunk_bytes <= MAX_CHUNK:
        raise InputError(f"{choice.label}: a chunk size is 1 to {MAX_CHUNK} bytes")
    if not rule.collective.tuned:
        raise InputError(f"NCCL asks no tuner about {rule.collective.value}")
    cells: list[object] = [
        rule.collective.value,
        rule.min_bytes,
        rule.max_bytes,
        choice.algorithm.value,
        choice.protocol.value,
        _cell(choice.channels),
        _cell(rule.nodes),
        _cell(rule.ranks),
    ]
    optional = [rule.pipe_ops, rule.registered, choice.chunk_bytes]
    while optional and optional[-1] is None:
        optional.pop()
    cells += [_cell(value) for value in optional]
    return ",".join(map(str, cells))


def _cell(number: int | None) -> int:
    return -1 if number is None else int(number)


def _long(number: int) -> Problem:
    return Problem(
        number,
        f"longer than {MAX_LINE} characters: NVIDIA's example plugin would cut it and read the"
        " rest as another row",
        "shorten it",
    )
