# SPDX-License-Identifier: Apache-2.0
"""Sum up measured values that a text without a table states: a list, pairs of nodes, sentences."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from nccltune.formats.reading.collective_names import collective_of_title
from nccltune.formats.reading.quantities import bandwidth_unit, time_unit
from nccltune.formats.text.lines import visible
from nccltune.model.numbers import gain_text

# `- v2.11.4-1: 7.05 GB/s`, below words or with a unit that say what it is.
# `node01.out:# Avg bus bandwidth : 380.1`, `node01 380.1`.
_LISTED = re.compile(
    r"(?:[-*+\u2022]\s|\d{1,2}[.)]\s)?\s*(?:(?P<label>[^\s|=:][^|=:]{0,59}?)\s*"
    r"(?::|=|->|\u2192|\s[-\u2013]\s)\s*(?P<average>(?:# ?)?Avg bus bandwidth ?: ?)?[~\u2248]?"
    r"|(?P<host>(?!p\d\d)(?=[\w.-]{0,60}\d)[A-Za-z][\w.-]{1,60})\s)"
    r"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>[GM]i?B/s|[GM]bps|[mu\u00b5\u03bc]s)?[.,;]?"
)
# `node17,node23   49.3  # another rack`
_HOST = r"(?=[\w.-]{0,60}\d)[A-Za-z][\w.-]{1,60}"
_PAIR = re.compile(
    rf"(?P<first>{_HOST})\s*(?:,|<?-+>|\u2194|\u2192|<=>|\band\b|/|\s)\s*(?P<second>{_HOST})"
    r"[\s:=|,]{1,40}(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>[GM]i?[Bb](?:/s|ps))?\s*(?:[#(].*)?"
)
_GAP = 1.2
"""The least ratio between the values of slow pairs and those of others."""
_MEASURE = re.compile(
    r"\b(?:busbw|algbw|(?:bus|alg\w*) ?(?:bandwidth|bw)|bandwidth|throughput|latency)\b",
    re.IGNORECASE,
)
_VALUE_SAID = re.compile(
    r"(?<![\w.,])(?P<value>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>[GMT]i?[Bb](?:ps|/s(?:ec)?)"
    r"|[mu\u00b5\u03bc]?s|(?:milli|micro)?sec(?:onds?)?)(?![\w/])"
    r"|Avg bus bandwidth\s*:\s*(?P<average>\d[\d.]*)"
)
_SIZE_SAID = re.compile(r"\b\d+(?:\.\d+)? ?[KMG]i?B\b(?!/s|ps)", re.IGNORECASE)
_COLLECTIVE = r"(?:all|reduce)[ _-]?(?:reduce|gather|scatter|to[ _-]?all)|broadcast|send[ _-]?recv"
_CONDITIONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:[NR]CCL|UCX|FI|OFI|MSCCL\w{0,2})_\w+ ?= ?[\w.,:^-]*\w",
        r"(?<![\w.])(?:[nr]ccl[ _-]?(?:version )?v?2\.\d{1,2}(?:\.\d{1,2})?|v?2\.\d{1,2}\.\d{1,2})"
        r"(?:-\d)?(?![\w.]*\d)",
        r"\b(?:before|after)\b|^(?:pre|post)$",
        r"\b(?:old|new)\b",
        r"\bwith(?:out)?\b(?: [A-Z]+_\w+(?: ?= ?\w+)?)?",
        r"\b(?:en|dis)abled\b",
        r"(?<![\w.])\d{1,5} ?(?:x ?)?(?:[a-z]{1,3}\d{2,4} )?(?:GPU|card|device)s?\b",
        r"(?<![\w.])\d{1,5}[ -]?(?:node|machine|server)s?\b",
        r"(?<![\w.])\d{1,5} ?(?:rank|process)(?:e?s)?\b",
        r"\b(?:ring|tree|nvls(?:[ _-]?tree)?|collnet)\b",
        rf"\b(?:{_COLLECTIVE})\b",
        r"\b(?:docker|container|bare[ -]?metal|VM)\b",
        r"\b(?:from|to)\b(?=\s*[~\u2248]?\d)",
    )
)
"""What sets measured values of one text apart: the words of each kind exclude each other."""
_NOT_MEASURED = re.compile(
    r"\b(?:expect\w*|theor\w+|should|ideal\w*|line rate|spec\w*|limit\w*|advertis\w+|target|capable"
    r"|up to|peak of|\w*link|NICs?|PCIe|[HN]DR|bidirectional|unidirectional|timeout|h[au]ng\w*"
    r"|stuck|fr[eo]ze\w*|rate:"
    r"|sleep|memory|RAM|disks?|storage|checkpoint\w*|memcpy|[HD]2[HD]|files?|init\w*|steps?"
    r"|epochs?|iterations?|train\w*|inference|prefill|decod\w*|compil\w*|buil[dt]\w*|load\w*"
    r"|boot\w*|start\w*|install\w*)(?!\w)|\?\s*$|^\s*>",
    re.IGNORECASE,
)
_OF_COLLECTIVE = re.compile(rf"_perf\b|{_COLLECTIVE}", re.IGNORECASE)
_OF_NCCL = re.compile(r"[nr]ccl|_perf\b|all[ _-]?(?:reduce|gather|to[ _-]?all)", re.IGNORECASE)
_COMMAND = re.compile(
    r"[\s$#>]*(?:[A-Z]\w*=\S+ )*(?:\S*/)?(?:mpirun|mpiexec|srun|torchrun|\w+_perf)\b"
    r"|.*(?:[|{}]|NCCL \w{4} )"
)
_SENTENCE_END = re.compile(r"(?<=[^\W\d_)])[.;]\s+(?=\S)")
_ALIKE = 1.05
"""The largest ratio of the values that count as repeats of one."""
SUMMARY = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*(\d[\d.e+-]*)")
_AVERAGE_BYTES = 1 << 16
_LEAST, _LONGEST = 3, 400


class FileDescription(NamedTuple):
    """What a file is: a message for an error, the way out, and the line that shows it.

    `{name}` in the hint stands for the name of the file.
    """

    message: str
    hint: str
    line: int | None = None


def describe_list(lines: list[str]) -> FileDescription | None:
    """Describe a list with a bandwidth or latency for each of several things; None without one."""
    found: list[re.Match[str]] = []
    title, above, first = "", "", 0
    for at, line in enumerate([*lines, "end"], 1):
        plain = " ".join(line.replace("**", "").replace("`", "").split())
        if (match := _LISTED.fullmatch(plain)) is not None:
            title, first = (title, first) if found else (above, at)
            found.append(match)
            continue
        if not line.strip():
            continue
        values = {
            (match["label"] or match["host"]).strip(): float(match["value"]) for match in found
        }
        units = {"GB/s" if match["average"] else match["unit"] for match in found}
        if len(values) == len(found) >= _LEAST and len(units) == 1:
            unit = units.pop() or ""
            named = _measure([title], unit)
            whole = unit or (named and all(re.search(r"\d", label) for label in values))
            if whole and (named or _may_be_timed(unit, [title, *values])):
                return listed_values(values, unit, named, first)
        found, above = [], line
    return None


class _Value(NamedTuple):
    """A value that a sentence states, and its place among those of the text."""

    place: int
    value: float
    unit: str


def describe_sentences(lines: list[str]) -> FileDescription | None:
    """Describe values that sentences give under different conditions; None unless it is clear.

    Each value needs one condition: of its own sentence, or of the line with a colon above it.
    """
    if not any(map(_OF_NCCL.search, lines)):
        return None
    found = [
        (at, sentence)
        for at, line in enumerate(lines, 1)
        if len(line) <= _LONGEST and not _COMMAND.match(line)
        for sentence in _SENTENCE_END.split(line)
        if sentence.strip() and not _NOT_MEASURED.search(sentence)
    ]
    labels: dict[int, list[str]] = {}
    values: dict[int, float] = {}
    units: set[str] = set()
    for condition in _CONDITIONS:
        groups = _under(found, condition)
        # `from` and `to` are the last, and say nothing where another condition does.
        if len(groups) < 2 or (values and condition is _CONDITIONS[-1]):
            continue
        for label, group in groups.items():
            own = [said.value for said in group]
            if max(own) > _ALIKE * min(own) or min(own) <= 0:
                return None
            labels.setdefault(group[0].place, []).append(label)
            values[group[0].place] = median(own)
            units |= {said.unit for said in group}
    if len(values) < 2 or len(units) > 1 or len({*map(len, labels.values())}) > 1:
        return None
    named = {
        # `NCCL_ALGO=Ring` says what `Ring` says.
        ", ".join(x for x in own if not any(x in y and x != y for y in own)): values[place]
        for place, own in sorted(labels.items())
    }
    if len(named) < len(values):
        return None
    unit = units.pop()
    stating = [x for x in found if unit in map(_unit_of, _VALUE_SAID.finditer(x[1]))]
    line, words = stating[0]
    if not _is_of_one_kind(" ".join(x for _, x in stating)):
        return None
    above = next((x for at, x in reversed(found) if at < line), "")
    # The line above is a title unless a sentence ends there.
    title = "" if re.search(r"[.!?]\W*$", above) else above
    if not _may_be_timed(unit, [title, words]):
        return None
    return listed_values(named, unit, _measure([title, *(x for _, x in stating)], unit), line)


def _is_of_one_kind(words: str) -> bool:
    """Return whether words name no two bandwidths that differ by definition, and no two sizes."""
    bandwidths = {name[:3].lower() for name in _MEASURE.findall(words)} & {"alg", "bus"}
    return max(len(bandwidths), len({x.lower() for x in _SIZE_SAID.findall(words)})) < 2


def _measure(texts: Iterable[str], unit: str) -> str:
    """Return the first name of a quantity of this unit in texts; of any quantity without a unit."""
    names = [name for text in texts for name in _MEASURE.findall(text)]
    timed = time_unit(unit) is not None
    fitting = (name for name in names if not unit or (name.lower() == "latency") is timed)
    return next(fitting, "")


def _may_be_timed(unit: str, texts: Iterable[str]) -> bool:
    """Return whether values of a unit are bandwidths, or of collectives by the texts."""
    return time_unit(unit) is None or any(map(_OF_COLLECTIVE.search, texts))


def condition_of(name: str) -> str:
    """Return what kind of condition the name of a column states, as a text; empty for none."""
    found = [kind.pattern for kind in _CONDITIONS if kind.search(name)]
    return found[0] if len(found) == 1 else ""


def _under(sentences: list[tuple[int, str]], condition: re.Pattern[str]) -> dict[str, list[_Value]]:
    """Return the values of the text by the words of one kind of condition; empty if unclear."""
    groups: dict[str, list[_Value]] = {}
    texts: dict[str, str] = {}
    bare: set[str] = set()
    above, place = "", 0
    for _, sentence in sentences:
        words = [(match.start(), match) for match in condition.finditer(sentence)]
        values = [(match.start(), match) for match in _VALUE_SAID.finditer(sentence)]
        names = [" ".join(match[0].split()) for _, match in words]
        if not values:
            if sentence.rstrip().endswith((":", "\uff1a")):
                above = names[0] if len({*names}) == 1 else ""
            continue
        if words and len(words) != len(values) and not len(words) == 1 < len(values):
            return {}
        order = [match for _, match in sorted([*words, *values], key=lambda item: item[0])]
        are_values = [match.re is _VALUE_SAID for match in order]
        if len(words) > 1 and any(one == other for one, other in pairwise(are_values)):
            return {}
        for at, (_, match) in enumerate(values):
            unit = _unit_of(match)
            said = _Value(place, float(match["average"] or match["value"]), unit)
            place += 1
            label = (names[at] if len(names) > 1 else names[0]) if names else above
            if not label:
                bare.add(unit)
            else:
                # `2 nodes` and `2-node` are one; so are `8 process` and `8 processes`.
                key = re.sub(r"(?:(?<=ss)e|(?<=[^s]))s$", "", label.lower().replace("-", " "))
                groups.setdefault(key, []).append(said)
                texts.setdefault(key, label)
    units = {said.unit for group in groups.values() for said in group}
    clear = not units & bare
    return {texts[key]: group for key, group in groups.items()} if clear else {}


def _unit_of(value: re.Match[str]) -> str:
    """Return the unit of a value without the difference of spellings: GB/s, us, s."""
    unit = "GB/s" if value["average"] else value["unit"]
    rate = re.sub(r"ps$|/sec$", "/s", unit)
    if bandwidth_unit(rate) is not None:
        return rate
    factor = time_unit(unit)
    return {1: "us", 1000: "ms", 1000000: "s"}.get(int(factor or 0), unit)


def describe_pairs(lines: list[str]) -> FileDescription | None:
    """Describe a list of pairs of nodes with a value each; None without one."""
    matches = [(at, _PAIR.fullmatch(" ".join(line.split()))) for at, line in enumerate(lines, 1)]
    found = [(at, match) for at, match in matches if match is not None]
    values = {(match["first"], match["second"]): float(match["value"]) for _, match in found}
    if len(values) < _LEAST or len(values) < len(found) or min(values.values()) <= 0:
        return None
    if len({match["unit"] for _, match in found}) > 1:
        return None
    if not found[0][1]["unit"] and not all(_are_alike(match) for _, match in found):
        return None  # Any words with a digit.
    unit = f" {found[0][1]['unit']}" if found[0][1]["unit"] else ""
    ranked = sorted(values, key=values.__getitem__)
    steps = [values[after] / values[before] for before, after in pairwise(ranked)]
    split = steps.index(max(steps)) + 1
    message = f"lists {len(values)} pairs of nodes, each with a value"
    if max(steps) < _GAP:
        message += f", all from {values[ranked[0]]:g} to {values[ranked[-1]]:g}{unit}"
    else:
        low, high = ranked[:split], ranked[split:]
        of_low, of_high = Counter(node for pair in low for node in pair), {*sum(high, ())}
        parts = [f"{len(pairs)} at {_range(values, pairs)}{unit}" for pairs in (low, high)]
        message += f": {', '.join(parts)}"
        alone = [
            f"{node} in {number}"
            for node, number in of_low.items()
            if number > 1 and node not in of_high
        ]
        if alone:
            message += f"; only in the lower ones, and in several of them: {', '.join(alone[:5])}"
    return FileDescription(
        message, "give the outputs of the pairs in a folder: nccltune compare FOLDER", found[0][0]
    )


def _are_alike(pair: re.Match[str]) -> bool:
    first, second = (re.sub(r"\d+", "", pair[name]) for name in ("first", "second"))
    return first == second


def _range(values: dict[tuple[str, str], float], pairs: list[tuple[str, str]]) -> str:
    ends = dict.fromkeys(f"{values[pair]:g}" for pair in (pairs[0], pairs[-1]))
    return " to ".join(ends)


def describe_averages(files: list[Path]) -> FileDescription | None:
    """Describe files of one average of nccl-tests each, by their names; None for other files."""
    values = {}
    for file in files:
        with file.open("rb") as opened:
            text = opened.read(_AVERAGE_BYTES + 1).decode(errors="replace")
        found = [match[1] for line in text.split("\n") if (match := SUMMARY.match(line))]
        if len(found) != 1 or len(text) > _AVERAGE_BYTES:
            return None
        try:
            values[file.name] = float(found[0])
        except ValueError:
            return None
    if len(values) < len(files):
        return None
    listed = listed_values(values, "GB/s", "bus bandwidth", 1)
    if listed is None:
        return None
    middle = f"; the median is {median(values.values()):g} GB/s" * (len(values) >= _LEAST)
    return listed._replace(
        message=f"no file has a row of nccl-tests; it {listed.message}{middle}",
        hint="give the whole outputs, which show each size: nccltune compare FOLDER",
    )


def listed_values(
    values: dict[str, float], unit: str, measure: str, line: int
) -> FileDescription | None:
    """Describe values by their names: the highest, the lowest, and the largest step.

    None for values that are no spread: of several collectives, or not above 0.
    """
    if min(values.values()) <= 0 or len({*map(collective_of_title, values)} - {None}) > 1:
        return None

    def of(label: str) -> str:
        return f"{values[label]:g} {unit}".strip() + f" ({visible(label, 60)})"

    high, low = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    message = f"lists {len(values)} values" + f" of {measure}" * bool(measure)
    message += f": highest {of(high)}, lowest {of(low)}"
    message += f", {gain_text(values[high] / values[low])} apart"
    steps = {pair: abs(math.log(values[pair[1]] / values[pair[0]])) for pair in pairwise(values)}
    before, after = max(steps, key=steps.__getitem__)
    if {before, after} != {high, low}:
        step = gain_text(math.exp(steps[before, after]))
        message += f"; the largest step is {step}, from {of(before)} to {of(after)}"
    return FileDescription(
        message, "compare their outputs size by size: nccltune compare A B", line
    )
