# SPDX-License-Identifier: Apache-2.0
"""Define verbs with their common options: `--json`, `-q`, `-v`, `--dry-run`, `--help-advanced`.

Also return the command line of the current verb, in the form that resumes its run.
"""

import functools
import logging
import platform
import re
import shlex
from collections.abc import Callable
from typing import Any

import click

import nccltune
from nccltune.cli.lazy_group import HelpContext
from nccltune.cli.verbosity import Verbosity, is_quiet, is_verbose, set_verbosity
from nccltune.model.errors import NccltuneError

_SHOW_ADVANCED = "nccltune.show_advanced"
_AFTER_DASHES = "nccltune.after_dashes"
_FIELD = re.compile("‹([a-z_]+)›")
_SPELLINGS = re.compile(r"^--collectives?(?=$|=)")
_LOG = logging.getLogger(__name__)


class AdvancedOption(click.Option):
    """An option that only `--help-advanced` shows, and `--help` does not."""


class Verb(click.Command):
    """A command with advanced options, which keeps the words after `--`."""

    context_class = HelpContext

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep the words after the first `--`."""
        at = args.index("--") + 1 if "--" in args else len(args)
        ctx.meta[_AFTER_DASHES] = (at <= len(args) and "--" in args, tuple(args[at:]))
        own = {name for item in self.params for name in item.opts}
        if len(named := own & {"--collective", "--collectives"}) == 1:
            # Verbs that take one, and verbs that take a list, accept both spellings.
            name = named.pop()
            args = [_SPELLINGS.sub(name, word) for word in args[:at]] + args[at:]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. With `-v` log the versions of nccltune, Python and the system."""
        _LOG.info(
            "nccltune %s, Python %s, %s",
            nccltune.__version__,
            platform.python_version(),
            platform.platform(),
        )
        try:
            return super().invoke(ctx)
        except NccltuneError as error:
            error.message = flagged(error.message)
            error.where = error.where and flagged(error.where)
            error.hint = error.hint and flagged(error.hint)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the advanced options in a separate section if requested."""
        plain, advanced = option_rows(self, ctx)
        with formatter.section("Options"):
            formatter.write_dl(plain)
        if advanced and ctx.meta.get(_SHOW_ADVANCED):
            with formatter.section("Advanced options"):
                formatter.write_dl(advanced)


def option_rows(
    command: click.Command, ctx: click.Context
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the rows of the help for normal options, and for advanced options."""
    plain: list[tuple[str, str]] = []
    advanced: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        # Arguments are shown in the usage line.
        row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if row is not None:
            (advanced if isinstance(parameter, AdvancedOption) else plain).append(row)
    return plain, advanced


def verb(
    name: str | None = None, *, epilog: str, dry_run: bool = False, **attributes: Any
) -> Callable[[Callable[..., Any]], Verb]:
    """Return a decorator that makes a function a verb, maybe with `dry_run`.

    Other common options are `output.is_json` and `nccltune.cli.verbosity`.
    """

    def decorate(function: Callable[..., Any]) -> Verb:
        @functools.wraps(function)
        def without_json(*, as_json: bool, **values: Any) -> Any:  # noqa: ARG001
            return function(**values)

        command = click.command(name, cls=Verb, epilog=epilog, **attributes)(without_json)
        common = [_JSON, _QUIET, _VERBOSE]
        if dry_run:
            common.insert(0, _DRY_RUN)
        if any(isinstance(item, AdvancedOption) for item in command.params):
            common.append(_HELP_ADVANCED)
        command.params += common
        return command

    return decorate


def command_line() -> str:
    """Return the command line of the current verb, in the form that resumes its run."""
    context = click.get_current_context()
    words = ["nccltune", *context.command_path.split()[1:]]
    if context.parent is None:
        words = ["nccltune", context.info_name or ""]
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        # What is kept counts in the run that goes on.
        if not given(name) or name not in context.params or name == "anew":
            continue
        value = context.params[name]
        if not isinstance(parameter, click.Option):
            arguments += map(str, value if parameter.nargs == -1 else [value])
            continue
        option = max(parameter.opts, key=len)
        for one in value if parameter.multiple else [value]:
            words += [option] if parameter.is_flag else [option, str(one)]
    behind = _after_dashes(context)
    if behind is not None:
        arguments[len(arguments) - len(behind) : len(arguments) - len(behind)] = ["--"]
    return shlex.join([*words, *arguments])


def given(name: str) -> bool:
    """Return whether a parameter was given on the command line of the current verb."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def flagged(text: str) -> str:
    """Return `text` with the flag, of this verb or another, of each field (‹nodes›)."""
    from nccltune.cli.options import FLAGS

    flags = {
        str(each.get("name", flag[2:].replace("-", "_"))): flag for flag, each in FLAGS.items()
    }
    context = click.get_current_context(silent=True)
    for parameter in context.command.params if context is not None else ():
        if isinstance(parameter, click.Option) and parameter.name is not None:
            flags[parameter.name] = max(parameter.opts, key=len)
    return _FIELD.sub(lambda match: flags.get(match[1], match[0]), text)


def split_at_dashes(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words before `--` and the words after it, from the argument `words` of a verb."""
    behind = _after_dashes(click.get_current_context()) or ()
    return words[: len(words) - len(behind)], behind


def _after_dashes(context: click.Context) -> tuple[str, ...] | None:
    """Return the words after `--`; None if the command line has no `--`."""
    found, words = context.meta.get(_AFTER_DASHES, (False, ()))
    return words if found else None


def _set_level(level: Verbosity) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
        if not value:
            return
        if is_quiet() or is_verbose():
            raise click.UsageError("-q and -v contradict each other; take one", context)
        set_verbosity(level)

    return callback


def _show_advanced(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not context.resilient_parsing:
        context.meta[_SHOW_ADVANCED] = True
        click.echo(context.get_help())
        context.exit()


_DRY_RUN = click.Option(
    ["--dry-run"], is_flag=True, help="Change nothing: print what would be done."
)
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON.")
_QUIET = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_level(Verbosity.QUIET),
    help="Print no progress and no hints.",
)
_VERBOSE = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_level(Verbosity.VERBOSE),
    help="Print more messages: what is read, written and started.",
)
_HELP_ADVANCED = click.Option(
    ["--help-advanced"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_advanced,
    help="Show advanced options, too.",
)
