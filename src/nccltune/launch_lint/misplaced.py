# SPDX-License-Identifier: Apache-2.0
"""Find options of the launcher after the program, where nccl-tests reads them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Flavor
from nccltune.launch.program import LONG_NAMES, is_nccl_test
from nccltune.launch_lint.options import LAUNCHER_TABLES, TABLES, Spec

_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")


class Misplaced(NamedTuple):
    """An option of the launcher among the program's words: `length` words from index `at` on."""

    at: int
    length: int
    name: str
    values: tuple[str, ...]
    meaning: str


def misplaced_options(words: Sequence[str], flavor: Flavor) -> tuple[Misplaced, ...]:
    """Return the launcher's options among the arguments of an nccl-tests binary."""
    binary = next((at for at, word in enumerate(words) if is_nccl_test(word)), None)
    if binary is None:
        return ()
    found = []
    at = binary + 1
    while at < len(words):
        one = _misplaced(words, at, flavor)
        if one is not None:
            found.append(one)
        at += one.length if one is not None else 1
    return tuple(found)


def _misplaced(words: Sequence[str], at: int, flavor: Flavor) -> Misplaced | None:
    word = words[at]
    if not word.startswith("-"):
        return None
    name, sign, value = word.lstrip("-").partition("=")
    following = words[at + 1] if at + 1 < len(words) else ""
    if word == "-x" and _ASSIGNMENT.match(following):
        return Misplaced(at, 2, "x", (following,), "env")
    if word == "-H" and following:
        return Misplaced(at, 2, "H", (following,), "host")
    if len(name) < 2 or (word.startswith("--") and name in LONG_NAMES):
        return None
    spec = _spec(name, flavor)
    if spec is None:
        return None
    if sign:
        return Misplaced(at, 1, name, (value,), spec.meaning)
    count = spec.words
    if spec.meaning == "env" and count == 2 and "=" in following:
        count = 1
    values = tuple(words[at + 1 : at + 1 + count])
    return Misplaced(at, 1 + len(values), name, values, spec.meaning)


def _spec(name: str, flavor: Flavor) -> Spec | None:
    own = TABLES[flavor].get(name)
    if own is not None:
        return own
    return next((table[name] for table in LAUNCHER_TABLES if name in table), None)
