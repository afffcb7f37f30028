# SPDX-License-Identifier: Apache-2.0
"""Find NCCL's log lines: `host:pid:tid [device] NCCL INFO message` (`debug.cc`, 2.18 to 2.32)."""

import re

LOG_LINE = re.compile(
    r"(?P<stamp>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] )?"
    r"(?P<host>[^\s:]+):(?P<pid>\d+):(?P<tid>\d+) "
    r"(?:\S+ ){0,5}?NCCL (?P<level>INFO|WARN|CALL|TRACE|ABORT) ?"
)
_MARK = " NCCL "
_WINDOW = 1024
"""Characters before the mark that are searched: a stamp, a host, numbers and a few words."""
_MARKS = 16


def find_log_line(text: str) -> re.Match[str] | None:
    """Return the match of a log line in `text`, which may have other text before it; else None.

    The message follows the match. Only the text near the mark is searched, because the search time
    is quadratic in the length.
    """
    at, tries = text.find(_MARK), 0
    while at >= 0 and tries < _MARKS:
        match = LOG_LINE.search(text, max(0, at - _WINDOW), at + 2 * len(_MARK))
        if match is not None:
            return match
        at, tries = text.find(_MARK, at + 1), tries + 1
    return None
