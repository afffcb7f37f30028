# SPDX-License-Identifier: Apache-2.0
"""Find NCCL's log lines: `host:pid:tid [device] NCCL INFO message` (`debug.cc`, 2.18 to 2.32)."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from nccltune.formats.text.lines import line_blocks
from nccltune.formats.text.prefixes import strip_prefix

NO_TIME = r"(?<!\d)(?!\d\d:\d\d:\d\d )"
"""Before a host: a time of day before the line is not taken for host, process and thread."""
LOG_LINE = re.compile(
    r"(?P<stamp>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] )?"
    rf"{NO_TIME}(?P<host>[^\s:]+):(?P<pid>\d+):(?P<tid>\d+) "
    r"(?:\S+ ){0,5}?NCCL (?P<level>INFO|WARN|CALL|TRACE|ABORT) ?"
)
_MARK = " NCCL "
_WINDOW = 1024
"""Number of characters before ` NCCL ` that are searched: a stamp, a host, numbers and a few
words."""
_MARKS = 16


def find_log_line(text: str) -> re.Match[str] | None:
    """Return the match of a log line in `text`, which may have other text before it; else None.

    The message follows the match. Only the text near ` NCCL ` is searched, because the search time
    is quadratic in the length.
    """
    at, tries = text.find(_MARK), 0
    while at >= 0 and tries < _MARKS:
        match = LOG_LINE.search(text, max(0, at - _WINDOW), at + 2 * len(_MARK))
        if match is not None:
            return match
        at, tries = text.find(_MARK, at + 1), tries + 1
    return None


def log_lines(file: BinaryIO) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield the log lines of a file.

    Each item has the line number, the line with its launcher prefix, and the match in the line
    without that prefix.
    """
    for first, lines in line_blocks(file):
        for number, line in enumerate(lines, first):
            if _MARK in line and (match := find_log_line(strip_prefix(line)[1])) is not None:
                yield number, line, match
