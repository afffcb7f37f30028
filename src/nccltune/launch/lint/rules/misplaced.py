# SPDX-License-Identifier: Apache-2.0
"""Options that stand on the wrong side of the program."""

from collections.abc import Iterator

from nccltune.launch.lint.command import View
from nccltune.launch.lint.finding import Add, Edit, Finding, Replace, ReplaceArgument, Severity
from nccltune.launch.lint.misplaced import Misplaced
from nccltune.launch.lint.options import TABLES
from nccltune.launch.lint.translate import translated


def behind_program(view: View) -> Iterator[Finding]:
    """`all_reduce_perf -np 16`: nccl-tests reads -n with the value `p`, the launcher nothing."""
    if view.program is None:
        return
    given = view.command.program
    for one in view.misplaced:
        words = [word.text for word in given[one.at : one.at + one.length]]
        text = " ".join(words)
        edits: list[Edit] = [ReplaceArgument(one.at, one.length)]
        before = _before(one, view)
        fix = f"write {text} before {view.program.binary}"
        if before:
            edits.append(before)
        elif view.command.last(one.meaning) is not None and one.meaning in _SINGLE:
            fix = f"leave it out: {view.command.launcher.text} already has the like of it"
        yield Finding(
            Severity.ERROR,
            "option-behind-program",
            f"{text} stands behind the program, which gets it; {view.command.launcher.text} does"
            " not",
            fix,
            tuple(edits),
        )


_SINGLE = ("total", "per_node", "map_by", "bind_to", "hostfile", "nodes", "root")


def _before(one: Misplaced, view: View) -> Edit | None:
    """The edit that gives the option to the launcher; None where it has the like of it."""
    known = one.name in TABLES[view.flavor]
    written = view.command.program[one.at].text.partition("=")[0]
    words = (written, *one.values)
    if not known:
        words = translated(one.name, one.values, view.flavor)
        if not words:
            return None
    existing = view.command.last(one.meaning) if one.meaning in _SINGLE else None
    if existing is not None:
        return (
            None
            if existing.values == one.values or one.meaning == "root"
            else Replace(existing, words)
        )
    if any(
        option.name == one.name and option.values == one.values for option in view.command.options
    ):
        return None
    return Add(words)


RULES = (behind_program,)
