# SPDX-License-Identifier: Apache-2.0
"""Arguments of nccl-tests that it refuses, ignores or reads as something else."""

import re
from collections.abc import Iterator

from nccltune.launch.lint.command import View
from nccltune.launch.lint.finding import DropArgument, Finding, SetArgument, Severity

_WHOLE = "tginmwNpcGCaRzyTxDVSMuIKf"


def unknown(view: View) -> Iterator[Finding]:
    """nccl-tests prints its usage and exits with 0, as if all were well."""
    if view.program is None:
        return
    for at, word in view.program.unknown:
        known = len(word) > 1 and word[1] != "-" and at == len(view.command.program) - 1
        what = "needs a value" if known and word[1] in "befgn" else "is no option of nccl-tests"
        words = view.command.program
        count = 1
        if at + 1 < len(words) and not words[at + 1].text.startswith("-") and "=" not in word:
            count = 2
        yield Finding(
            Severity.ERROR,
            "argument-unknown",
            f"{word} {what}: it prints its usage, measures nothing and exits with 0",
            "leave it out",
            (DropArgument(at, count),),
        )


def not_whole(view: View) -> Iterator[Finding]:
    """Numbers are read up to the first character that is no digit."""
    program = view.program
    if program is None:
        return
    for flag in _WHOLE:
        value = program.value(flag)
        if value is None or "$" in value or flag == "i":
            continue
        if flag == "f" and re.fullmatch(r"\d*\.\d+", value):
            yield Finding(
                Severity.ERROR,
                "factor-not-whole",
                f"-f {value} is read as {program.number('f', 1)}: the factor is a whole number",
                "write -f 2; finer curves need several runs",
                (SetArgument("f", "2"),),
            )
        elif not re.fullmatch(r"[+-]?(\d+|0[xX][0-9a-fA-F]+)", value):
            yield Finding(
                Severity.ERROR,
                "argument-not-a-number",
                f"-{flag} {value} is read as {program.number(flag, 0)}",
                "write a whole number, or leave it out",
                (SetArgument(flag, "2" if flag == "f" else None),),
            )


def unchecked(view: View) -> Iterator[Finding]:
    """Wrong results can be fast."""
    if view.program is not None and view.program.value("c") == "0":
        yield Finding(
            Severity.WARNING,
            "check-off",
            "-c 0 checks no result: wrong answers can be fast (nccl#2408)",
            "leave it out; checking is outside the timing",
            (SetArgument("c", None),),
        )


def json_name(view: View) -> Iterator[Finding]:
    """-J takes `.json` and ignores other names in silence."""
    if view.program is None:
        return
    value = view.program.value("J")
    if value is not None and not value.endswith(".json") and "$" not in value:
        yield Finding(
            Severity.WARNING,
            "json-name",
            f"-J {value} is ignored in silence: the name must end in .json",
            f"write -J {value}.json",
            (SetArgument("J", f"{value}.json"),),
        )


RULES = (unknown, not_whole, unchecked, json_name)
