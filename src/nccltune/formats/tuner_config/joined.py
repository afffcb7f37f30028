# SPDX-License-Identifier: Apache-2.0
"""Join the rules of several scales into one configuration: NCCL loads one file for a job."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from nccltune.formats.tuner_config.csv_rules import parse_rules, rows_text, write_rules
from nccltune.model.errors import InputError
from nccltune.model.rule import Rule

_ALIKE = ("nccl", "gpu")
"""Keys of the header by which the plugin finds rules stale. One file has one value of each."""
_OF_ONE_FILE = ("end", "rows")


class NamedRules(NamedTuple):
    """The text of a configuration, and its name for errors."""

    name: str
    text: str


def joined_rules(parts: Sequence[NamedRules]) -> str:
    """Return a configuration with the rows of all `parts` in their order, and their comments.

    A value of the header that all have is kept, also a list of all studies. Raises InputError if a
    line is bad, if NCCL's version or the GPU differs, and if two parts have different rules for one
    call: the first would hide the second.
    """
    headers, rules, bodies = [], [], []
    for part in parts:
        read = parse_rules(part.text, name=part.name, strict=True)
        headers.append(read.header)
        rules.append([(f"{part.name}:{item.line}", item.rule) for item in read.rules])
        bodies.append(_body(part.text))
    _check_alike(parts, headers)
    for first, second in combinations(rules, 2):
        _check_disjoint(first, second)
    header = {
        key: value
        for key, value in headers[0].items()
        if key not in _OF_ONE_FILE and all(each.get(key) == value for each in headers)
    }
    for key, joint in (("study", " + "), ("measured", ", and ")):
        values = dict.fromkeys(each[key] for each in headers if key in each)
        header |= {key: joint.join(values)} if values else {}
    if header:
        header["rows"] = rows_text([rule for part in rules for _, rule in part])
    # The rows go before the line that states that the file is whole.
    *top, columns, end = write_rules([], header or {"schema": "1"}).splitlines()
    return "\n".join([*top, columns, *(line for body in bodies for line in body), end]) + "\n"


def _body(text: str) -> list[str]:
    lines = [line.strip("\ufeff\r") for line in text.split("\n")]
    skipped = ("# nccltune:", "# colltype,")
    return [line for line in lines if line.strip() and not line.startswith(skipped)]


def _check_alike(parts: Sequence[NamedRules], headers: Sequence[dict[str, str]]) -> None:
    for key in _ALIKE:
        stated = {each.get(key): part.name for part, each in zip(parts, headers, strict=True)}
        if len(stated) > 1:
            words = ", ".join(f"{value or 'unknown'} in {name}" for value, name in stated.items())
            raise InputError(
                f"rules of different platforms do not fit into one file: {key} is {words}",
                hint="deploy a file for each platform; a job loads one",
            )


def _check_disjoint(first: Sequence[tuple[str, Rule]], second: Sequence[tuple[str, Rule]]) -> None:
    for place, rule in first:
        for other_place, other in second:
            if _meet(rule, other) and rule.choice != other.choice:
                raise InputError(
                    f"{place} and {other_place} are different rules for the same calls of "
                    f"{rule.collective.value}",
                    hint="leave out one of the two, or import both measurements into one study",
                )


def _meet(one: Rule, other: Rule) -> bool:
    """Return whether a call can match both rules."""
    conditions = (
        (one.nodes, other.nodes),
        (one.ranks, other.ranks),
        (one.pipe_ops, other.pipe_ops),
        (one.registered, other.registered),
    )
    return (
        one.collective is other.collective
        and one.min_bytes <= other.max_bytes
        and other.min_bytes <= one.max_bytes
        and all(None in pair or pair[0] == pair[1] for pair in conditions)
    )
