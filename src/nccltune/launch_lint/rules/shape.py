# SPDX-License-Identifier: Apache-2.0
"""The type of a rule, and what several rules share."""

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType

from nccltune.launch.program import Program
from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import Edit, LaunchFinding, SetArgument, warning

BEHIND = re.compile(r"(?<![>|&])&(?![>&])")
"""The `&` that starts a command in the background."""
Rule = Callable[[View], Iterator[LaunchFinding]]
"""Function that yields the findings for a command as one launcher reads the command."""


def of_program(rule: Callable[[View, Program], Iterator[LaunchFinding]]) -> Rule:
    """Return a rule that finds nothing in a command without a program of nccl-tests."""

    @functools.wraps(rule)
    def checked(view: View) -> Iterator[LaunchFinding]:
        if view.program is not None:
            yield from rule(view, view.program)

    return checked


def rules_of(module: ModuleType) -> tuple[Rule, ...]:
    """Return the rules of a module, in order: its public functions that yield findings."""
    return tuple(
        function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and function.__annotations__.get("return") == Iterator[LaunchFinding]
    )


def with_gpus(program: Program, number: int) -> tuple[str, tuple[Edit, ...]]:
    """Return the fix that gives each process `number` GPUs: with -g, and one thread."""
    threads, given = program.value("t"), program.number("g", 1)
    parts = [f"write -g {number}"] if threads is None or given != number else []
    parts += [f"leave out -t {threads}"] if threads is not None else []
    return " and ".join(parts), (SetArgument("t", None), SetArgument("g", str(number)))


def named_number(option: str, value: str) -> LaunchFinding:
    """Return the finding on a value such as `N` that stands for a number."""
    return warning(
        "placeholder", f"{option} {value}: {value} stands for a number", "put the number there"
    )
