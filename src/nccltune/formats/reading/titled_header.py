# SPDX-License-Identifier: Apache-2.0
"""Complete the names of a table's columns by what stands around them.

Titles and sentences state measures and units, cells have units, and names take several lines.
"""

import re
from collections.abc import Sequence

from nccltune.formats.reading.foreign_names import in_english
from nccltune.formats.reading.quantities import bandwidth_unit
from nccltune.formats.reading.table_header import (
    MEASURED,
    MOST_CHARACTERS,
    NO_RUN,
    column_of,
    header_of,
    is_unit,
    joined_cells,
    may_name_size,
)
from nccltune.formats.text.delimited import BLANKS, cells_of, separators_of

_LEAST_KNOWN = 3
_ALIGNED = re.compile(r"\s{2,}")
_MANY_DIGITS = re.compile(r"(?:\d[\d.,]*\D+){2}\d")
_RULE_OF_BARS = re.compile(r"\s*[|:\-\s]+")
_WORDS = re.compile(r"\S+(?: \S+)*")
_ROW = re.compile(r"\s*\d")
_UNIT_OF_CELL = re.compile(r"[\d.,]+ ?([munµμ]s(?:ec)?)", re.IGNORECASE)
_UNIT_INSIDE = re.compile(rf"(?:^|[|\t,; ]){_UNIT_OF_CELL.pattern}\s*(?:[|\t,;]|$)", re.IGNORECASE)
# A title above a table, such as `All-reduce bus bandwidth (GB/s)`, names what its columns are.
_TITLE = re.compile(
    r"(?P<what>\b(?:alg|bus)[a-z]{0,6}[ _-]?(?:bw|bandwidth)|\b(?:times?|latenc(?:y|ies))\b)"
    r"(?:[^(\[]{0,30}[(\[]|(?:,| in)? )(?P<unit>[^)\]\s:,]{1,12})(?=[)\],]| \(|\W{0,3}$)",
    re.IGNORECASE,
)


# Without a bracket or a word before it, `us` is English.
_TIMES = re.compile(
    r"(?:[(\[]|(?:,|\bin|\btimes?|\blatency)\s|\s(?!us\b))"
    r"(?P<unit>[mnuµμ]s(?:ecs?)?|(?:micro|milli)seconds)"
    r"(?:[)\]]|\W{0,3}$|(?: per |/)(?:call|op|iter)(?:eration|ation)?\b)",
    re.IGNORECASE,
)


_NUMBER_CELL = re.compile(
    r"[\d.,]+(?:\s?(?:\u00b1|\+/-)\s?[\d.,]+)?|n/?a|-1?|\u2014", re.IGNORECASE
)
_NO_NUMBER = re.compile(r"\D*|[+-]?[\d.,]+ ?[%x\u00d7].*|\+.*")
_MEASURES_ARE = re.compile(
    r"(?:\b(?:times?|latenc(?:y|ies))\b (?:are|is|were|was) (?:\w+ ){0,3}?"
    r"|\ball (?:numbers|values|times|latencies) in |^[^|\n]{0,40}(?:\bunits?|单位) ?[:=：] ?)"
    r"(?P<unit>microseconds|milliseconds|微秒|毫秒|[muµμ]s)(?![a-z])"
    r"|\b(?:metric|all (?:numbers|values|cells|results))\b[^.|\n]{0,60}?\b"
    r"(?P<what>(?:alg|bus)[a-z]{0,6}[ _-]?(?:bw|bandwidth))(?: in|,)? ?\(?"
    r"(?P<rate>[GM]i?[Bb](?:/s|ps))\b"
    r"|\b(?:numbers|values) \(?in (?P<of>[GM]i?[Bb](?:/s|ps))\b[^.|\n]{0,60}?\bare (?:the )?"
    r"(?P<are>(?:alg|bus)[a-z]{0,6}[ _-]?(?:bw|bandwidth))\b",
    re.IGNORECASE | re.MULTILINE,
)


def measure_of(text: str) -> str:
    """Return the only measure and unit that sentences in a text state; empty without one.

    It is `(us)` or `busbw (GB/s)`.
    """
    found = {
        f"{match['what'] or match['are']} ({match['rate'] or match['of']})"
        if match["what"] or match["are"]
        else f"({in_english(match['unit'].lower())})"
        for match in _MEASURES_ARE.finditer(text)
    }
    return found.pop() if len(found) == 1 else ""


def with_title(line: str, title: str, below: Sequence[str] = (), unit: str = "") -> str:
    """Return a line of names whose measure and unit the title above names, with those in it.

    `unit` is that of all values by another sentence (`measure_of`), for columns of numbers.

    So are the units of times that the cells of the first row have, one of the lines `below`, names
    that continue on the next line, and those of groups of columns on the line above. Return any
    other line as it is.
    """
    line = _grouped(_continued(_spread(line, below), below), title)
    separator = next((mark for mark in "|\t,;" if mark in line), "")
    aligned = not separator and len(_ALIGNED.split(line.strip(" #"))) >= _LEAST_KNOWN
    separator = BLANKS if aligned else separator
    row = next((line for line in below[:2] if any(map(str.isalnum, line))), "")
    united = _UNIT_INSIDE.search(row[:MOST_CHARACTERS]) and not _UNIT_INSIDE.search(line)
    match = _titled(title[:400])
    stated = match is None and bool(unit)
    if stated:
        match = _titled(unit)
    titled = match is not None
    if not (united or titled) or not separator or len(line) > MOST_CHARACTERS:
        return line
    names = cells_of(line, separator)
    columns = [column_of(name) for name in names]
    first = cells_of(row, separator)
    units = [_UNIT_OF_CELL.fullmatch(cell) for cell in first]
    if united and len(units) == len(names):
        cells = [
            f"{column.name} ({unit[1]})"
            if unit and not (column.role or column.unit)
            else column.name
            for column, unit in zip(columns, units, strict=True)
        ]
        return joined_cells(cells, separator)
    others = [column for column in columns if column.role != "size"]
    if match is None:
        return line
    # The bytes of `A/B` are a name. A rate is of either bandwidth.
    open_units = ("", "B", match["unit"] if bandwidth_unit(match["unit"]) else "")
    if any(x.role or x.unit not in open_units or x.name.isdecimal() for x in others):
        return line
    if len(others) != len(names) - 1 or not others or not (all(names) or len(others) == 1):
        return line
    if (stated or aligned) and len(first) != len(names):
        return line
    numbers = [
        _NUMBER_CELL.fullmatch(cell) is not None
        or not (stated or aligned or _NO_NUMBER.fullmatch(cell))
        for cell in (first if len(first) == len(names) else ["1"] * len(names))
    ]
    measure = f"{match.groupdict().get('what', 'time')} ({match['unit']})"
    cells = [
        name
        if column.role or NO_RUN.search(name) or not number
        else measure
        if len(others) == 1
        else f"{name.removesuffix(f'({column.unit})').strip()} {measure}"
        for name, column, number in zip(names, columns, numbers, strict=True)
    ]
    return joined_cells(cells, separator)


def _titled(text: str) -> re.Match[str] | None:
    """Return the first measure with a unit that a title names, else the first unit of a time."""
    found = (match for each in (_TITLE, _TIMES) for match in each.finditer(text))
    return next((match for match in found if is_unit(match["unit"])), None)


def _spread(line: str, below: Sequence[str]) -> str:
    """Return aligned names of runs above the measures of each as one line; any other as it is.

    `size  Ring  Tree` above `time(us) algbw  time(us) algbw` names five columns.
    """
    after = next((each for each in below[:2] if not _RULE_OF_BARS.fullmatch(each)), "")
    row = next((each for each in below[1:5] if _ROW.match(each)), "")
    if not row or len(line) + len(after) > MOST_CHARACTERS or not may_name_size(line):
        return line
    names, measures = (
        [
            (match.start(), match.end(), match[0])
            for match in _WORDS.finditer(each.replace("#", " "))
        ]
        for each in (line, after)
    )
    if len(measures) < 2 or not all(_is_measure(name) for *_, name in measures):
        return line
    first = sum(end <= measures[0][0] for _, end, _ in names)
    last = len(names) - sum(start >= measures[-1][1] for start, *_ in names)
    if first < 1 or last <= first or len(measures) % (last - first):
        return line
    each = len(measures) // (last - first)
    words = [name for *_, name in names]
    spread = [f"{words[first + at // each]} {name}" for at, (*_, name) in enumerate(measures)]
    width = first + len(spread)
    if not {width, width + len(names) - last} & {len(row.split()), len(cells_of(row, BLANKS))}:
        return line
    return joined_cells([*words[:first], *spread, *words[last:]], BLANKS)


def _is_measure(name: str) -> bool:
    column = column_of(name)
    return column.role in MEASURED or is_unit(name.strip("()[]"))


def _continued(line: str, below: Sequence[str]) -> str:
    """Return the names of columns that take two lines as one line; any other line as it is."""
    after = next((each for each in below[:2] if not _RULE_OF_BARS.fullmatch(each)), "")
    if not after.strip() or len(line) + len(after) > MOST_CHARACTERS:
        return line
    if not (may_name_size(line) or may_name_size(after)) or _MANY_DIGITS.search(after):
        return line
    bars = line.count("|")
    if bars and line.rstrip()[-1:] != "|" and "|" in after:
        # A cell with a line break in it: the rule below has as many bars as both pieces.
        joined = f"{line.rstrip()} {after.strip()}"
        rule = below[1] if len(below) > 1 else ""
        return (
            joined
            if _RULE_OF_BARS.fullmatch(rule) and rule.count("|") == joined.count("|")
            else line
        )
    separator = separators_of(line)[0]
    names, more = cells_of(line, separator), cells_of(after, separator)
    if len(names) != len(more) or len(names) < _LEAST_KNOWN - (separator != " "):
        return line
    if header_of(line) is not None or header_of(after) is not None:
        return line
    pairs = zip(names, more, strict=True)
    joined = joined_cells([f"{name} {rest}".strip() for name, rest in pairs], separator)
    return joined if header_of(joined) is not None else line


def _grouped(line: str, above: str) -> str:
    """Return names that repeat, each with the name of its group of columns in the line above."""
    separator = next((mark for mark in "|\t,;" if mark in line), "")
    if not separator or separator not in above or len(line) + len(above) > MOST_CHARACTERS:
        return line
    names, groups = cells_of(line, separator), cells_of(above, separator)
    if len(names) != len(groups) or len(set(names)) == len(names):
        return line
    if _MANY_DIGITS.search(above) or _MANY_DIGITS.search(line):
        return line
    filled, last = [], ""
    for name, group in zip(names, groups, strict=True):
        last = group or last
        filled.append(f"{last} {name}".strip() if names.count(name) > 1 else name)
    return joined_cells(filled, separator)
