# SPDX-License-Identifier: Apache-2.0
"""Detect the kind of a file by its content."""

import re
from itertools import pairwise
from typing import BinaryIO

import msgspec

from nccltune.formats.importing.environments import is_environment
from nccltune.formats.importing.foreign_programs import foreign_program
from nccltune.formats.importing.raw_header import is_row as is_raw_row
from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.reading.cell_lists import plain_rows
from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.reading.table_header import MEASURED, header_of
from nccltune.formats.reading.titled_header import measure_of, with_title
from nccltune.formats.text.diffs import is_added, is_diff, old_line
from nccltune.formats.text.lines import check_text, encoding_of, line_blocks
from nccltune.formats.text.prefixes import strip_prefix
from nccltune.formats.topology.nvidia_smi_matrix import looks_like_matrix
from nccltune.model.choice import ALGORITHMS, PROTOCOLS
from nccltune.model.collective import TUNED
from nccltune.model.errors import InputError

HEAD_BYTES = 1 << 16
_MOST_BYTES = 64 << 20
"""Limit of the bytes that are searched for a table. A job of thousands of ranks may print hundreds
of kilobytes before it."""
_JSON_KEYS = re.compile(r'"(?:version|start_time|args|env|nccl_version|config|results)"\s*:')
_RCCL_KEYS = frozenset({"name", "size", "time", "busBw", "inPlace"})
_MATRIX_HEADER = re.compile(r"[^\w]*GPU0\s+(?:GPU1|NIC0|mlx|CPU)")
_SAMPLE_KEYS = frozenset({"collective", "bytes", "choice", "time_us", "study"})
_RULE = re.compile(
    rf"\s*(?:{'|'.join(item.value for item in TUNED)})\s*([,;|\t])\s*\d+\s*\1\s*\d+\s*\1"
    rf"\s*(?:{'|'.join(ALGORITHMS)})\s*\1\s*(?:{'|'.join(PROTOCOLS)})\s*\1"
)
_NCCL_TESTS = re.compile(
    r"# (?:nThread \d|[nr]ccl-tests version|Collective test starting|Out of bounds values|Avg bus)"
    r"|(?:#|^|\s)size\s+count\s+type\s"
    r"|^\s*nThread \d+ nGpus \d"
    r"|: Test (?:(?:CUDA|NCCL) failure|timeout|failure) "
)
# NCCL writes no XML declaration. Files of RCCL and hand-made files have one, or comments.
_XML = re.compile(
    r"\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<(?P<root>system|graphs)[\s>/]", re.S
)
_ROW_WIDTH = 4096
_ROW = re.compile(r"\s*\d{1,20}\s+\d{1,20}\s+[a-z]\w{1,15}(?:\s+\S{1,32}){5,}\s*$")


def kind_of(head: bytes) -> FileKind:
    """Return the kind of a file that starts with `head`, its first HEAD_BYTES bytes.

    The kind is UNKNOWN if `head` shows no known format; then see `kind_of_rest`. A file of kind
    NCCL_LOG may still hold nccl-tests tables after `head`. Raises InputError if the file is not
    text, or of a benchmark that does not measure NCCL.
    """
    check_text(head)
    text = head.decode(encoding_of(head[:4]), errors="replace")
    if (program := foreign_program(text)) is not None:
        raise InputError(f"is output of {program.name}: {program.measures}", hint=program.hint)
    lines = [line for line in text.split("\n") if line.strip()]
    if is_diff(text) or is_added(text):
        lines = [old_line(line) for line in lines]
    lines = [line for _, own in plain_rows([(1, lines)], text) for line in own]
    content = next((line for line in lines if not line.startswith("#")), "").strip()
    keys = {key.removesuffix("_mean") for key in _keys(text)} if content[:1] in "[{" else set()
    if content.startswith("numCycle,") or keys >= _RCCL_KEYS:
        return FileKind.RCCL_RESULTS
    if content.startswith("{") and (kind := _json_kind(content, text)) is not FileKind.UNKNOWN:
        return kind
    if content.startswith("<") and (xml := _XML.match(text)) is not None:
        return FileKind.TOPOLOGY if xml["root"] == "system" else FileKind.GRAPHS
    unit = measure_of(text)
    for at, (above, line) in enumerate(pairwise(["", *lines]), 1):
        titled = with_title(line, above, lines[at : at + 5], unit)
        if (kind := _table_kind(titled)) is not FileKind.UNKNOWN:
            return kind
    if looks_like_matrix(text) and any(map(_MATRIX_HEADER.match, lines)):
        return FileKind.TOPOLOGY
    if any("# nccltune:" in line for line in lines) or _RULE.match(content):
        return FileKind.TUNER_CSV
    if is_raw_row(content):
        return FileKind.RAW_CSV
    if any(map(_is_row, lines)):
        return FileKind.NCCL_TESTS_TEXT
    if any(find_log_line(line) for line in lines):
        return FileKind.NCCL_LOG
    return FileKind.ENVIRONMENT if is_environment(lines) else FileKind.UNKNOWN


def kind_of_rest(file: BinaryIO) -> FileKind:
    """Return the kind of a file whose head shows no format: text before a table, or UNKNOWN.

    Raises InputError if the first _MOST_BYTES bytes show none and more follow.
    """
    for _, lines in line_blocks(file):
        for line in lines:
            if (kind := _table_kind(line[:_ROW_WIDTH])) is not FileKind.UNKNOWN:
                return kind
            if _is_row(line):
                return FileKind.NCCL_TESTS_TEXT
            if find_log_line(line):
                return FileKind.NCCL_LOG
        if file.tell() > _MOST_BYTES:
            raise InputError(
                f"shows no table and no line of NCCL's log in its first {_MOST_BYTES >> 20} MiB, "
                "and the rest was not read",
                hint="give the end of it alone, such as: tail -n 10000 {name} > end.txt",
            )
    return FileKind.UNKNOWN


def _table_kind(line: str) -> FileKind:
    """Return the kind of a file by the line that begins a table; UNKNOWN for another line."""
    if _NCCL_TESTS.search(line):
        return FileKind.NCCL_TESTS_TEXT
    header = header_of(strip_prefix(line)[1].lstrip("> "))
    if header is None:
        return FileKind.UNKNOWN
    if header.raw and not (header.roles & MEASURED or header.times_named):
        # It lists choices, as beside the tables of a report; no row has a time.
        return FileKind.UNKNOWN
    if header.raw and line.lstrip().startswith("|") and not header.roles & {"size", "count"}:
        return FileKind.UNKNOWN  # a table of a document: another one may have the sizes
    return FileKind.RAW_CSV if header.raw else FileKind.NCCL_TESTS_TEXT


def _is_row(line: str) -> bool:
    return _ROW.match(strip_prefix(line[:_ROW_WIDTH])[1]) is not None


def _keys(text: str) -> list[str]:
    return re.findall(r'"(\w{1,20})"\s*:', text)


def _json_kind(content: str, text: str) -> FileKind:
    try:
        first = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        first = None
    if isinstance(first, dict) and len(_SAMPLE_KEYS & first.keys()) >= 3:
        return FileKind.SAMPLES
    if len(set(_JSON_KEYS.findall(text))) >= 2:
        return FileKind.NCCL_TESTS_JSON
    # A samples file of one line may be truncated in that line. The line is then not valid JSON, but
    # its start still shows the kind.
    return FileKind.SAMPLES if content.startswith('{"schema_version"') else FileKind.UNKNOWN
