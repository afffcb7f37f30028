# SPDX-License-Identifier: Apache-2.0
"""How a long run behaves: what resumes it, and what ends it."""

import contextlib
import shlex
import signal
from collections.abc import Iterator
from typing import NamedTuple

import click

from nccltune.cli.verb import after_dashes


class RunOptions(NamedTuple):
    """Options of a run.

    `again` is the command that resumes the run. With `dry_run` nothing is measured. With `as_json`
    the result is printed as JSON.
    """

    again: str
    dry_run: bool = False
    as_json: bool = False


def command_line(context: click.Context) -> str:
    """Return this command line in the form that resumes the run."""
    words = ["nccltune", *context.command_path.split()[1:]]
    if context.parent is None:
        words = ["nccltune", context.info_name or ""]
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not click.core.ParameterSource.COMMANDLINE or name not in context.params:
            continue
        value = context.params[name]
        if not isinstance(parameter, click.Option):
            arguments += map(str, value if parameter.nargs == -1 else [value])
            continue
        option = max(parameter.opts, key=len)
        for one in value if parameter.multiple else [value]:
            words += [option] if parameter.is_flag else [option, str(one)]
    behind = after_dashes(context)
    if behind is not None:
        arguments[len(arguments) - len(behind) : len(arguments) - len(behind)] = ["--"]
    return shlex.join([*words, *arguments])


def given(context: click.Context, name: str) -> bool:
    """Return whether an option was given on the command line."""
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def given_after_dashes(
    context: click.Context, words: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of an argument before `--`, and those after it."""
    behind = after_dashes(context) or ()
    return words[: len(words) - len(behind)], behind


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C while a measurement runs."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
