# SPDX-License-Identifier: Apache-2.0
"""Find options on the wrong side of the program."""

from collections.abc import Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch.program import Program
from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    LaunchFinding,
    Replace,
    ReplaceArgument,
    SetLead,
    error,
)
from nccltune.launch_lint.misplaced import Misplaced
from nccltune.launch_lint.options import TABLES, translated
from nccltune.launch_lint.rules.shape import of_program


@of_program
def behind_program(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `all_reduce_perf -np 16`, which nccl-tests reads as -n with the value `p`."""
    given = view.command.program
    for one in view.misplaced:
        words = [word.text for word in given[one.at : one.at + one.length]]
        text = " ".join(words)
        edits: list[Edit] = [ReplaceArgument(one.at, one.length)]
        if view.flavor.launcher is Launcher.LOCAL:
            yield _without_launcher(one, text)
            continue
        before = _before(one, view)
        fix = f"write {text} before {program.binary}"
        if before:
            edits.append(before)
        elif view.command.last(one.meaning) is not None and one.meaning in _SINGLE:
            fix = f"leave it out: {view.command.launcher.text} already has the like of it"
        yield error(
            "option-behind-program",
            f"{text} stands behind the program, which gets it; {view.command.launcher.text} does"
            " not",
            fix,
            tuple(edits),
        )


_OF_JOB = ("host", "hostfile", "total", "per_node", "nodes")


def _without_launcher(one: Misplaced, text: str) -> LaunchFinding:
    # Without the hosts or processes that it asks for, the command starts something else.
    is_job = one.meaning in _OF_JOB
    edits: list[Edit] = [] if is_job else [ReplaceArgument(one.at, one.length)]
    fix = "leave it out, or start the program with mpirun or srun"
    if one.meaning == "env" and one.values and "=" in one.values[0]:
        edits.append(SetLead(one.values[0].partition("=")[0], one.values[0], add=True))
        fix = f"write {one.values[0]} before the program"
    return error(
        "option-behind-program",
        f"{text} is an option of a launcher, and this command has none",
        fix,
        tuple(edits),
    )


_SINGLE = ("total", "per_node", "map_by", "bind_to", "hostfile", "nodes", "root")


def _before(one: Misplaced, view: View) -> Edit | None:
    """Return the edit that gives the option to the launcher.

    Return None if the launcher already has the option, or has no option with this meaning.
    """
    known = one.name in TABLES[view.flavor]
    written = view.command.program[one.at].text.partition("=")[0]
    words = (written, *one.values)
    if known and TABLES[view.flavor][one.name].is_optional:
        words = ("=".join(words),)  # srun takes such a value only in the same word
    if not known:
        words = translated(one.name, one.values, view.flavor)
        if not words:
            return None
    existing = view.command.last(one.meaning) if one.meaning in _SINGLE else None
    if existing is not None:
        is_same = existing.values == one.values or one.meaning == "root"
        return None if is_same else Replace(existing, words)
    given = [(option.name, option.values) for option in view.command.options]
    return AppendOption(words) if (one.name, one.values) not in given else None
