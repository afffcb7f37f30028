# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have. Each flag has one meaning: `MEANINGS` begins its help text."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.verb import AdvancedOption

if TYPE_CHECKING:
    from nccltune.tune.result import TuneOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

MEANINGS = {
    "--anew": "Measure everything again",
    "--budget": "Seconds to measure at most",
    "--check": "Exit with 1",
    "--choice": "The choice that the tables were made with",
    "--collective": "The collective",
    "--collectives": "Collectives, separated by commas",
    "--emulate-nodes": "Make this many nodes of this machine's GPUs",
    "--env": "A variable of every process",
    "--format": "Where the lines will stand",
    "--gain-threshold": "The gain that matters",
    "--gpus": "GPUs per node",
    "--launcher": "The launcher of the processes",
    "--library": "The libnccltune-sendrecv.so",
    "--min-gain": "The least gain that is worth a change",
    "--nccl": "The libnccl.so.2 to measure",
    "--nccl-version": "The version of NCCL",
    "--nodes": "Number of nodes",
    "--output": "Where to write",
    "--plugin": "Where the plugin will be on the nodes",
    "--ranks": "Number of ranks",
    "--replay": "Draw timings from a recorded study",
    "--rounds": "Rounds to measure",
    "--seed": "Seed of the random order",
    "--set": "A key of a job file",
    "--sizes": "Range of sizes",
    "--assume-noise": "Noise of a timing, and of a process, where there are too few to measure it",
}
"""The start of each flag's help text, in every verb that has it."""


def option(
    flag: str, *names: str, more: str = ".", advanced: bool = False, **more_attributes: Any
) -> Decorator:
    """Return a decorator that adds `flag` with its meaning; `more` ends the help text."""
    if advanced:
        more_attributes["cls"] = AdvancedOption
    return click.option(flag, *names, help=f"{MEANINGS[flag]}{more}", **more_attributes)


def apply(function: Callable[..., Any], *decorators: Decorator) -> Callable[..., Any]:
    """Add options to a function in the order given."""
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


class Percent(click.ParamType[float]):
    """A share written as `3%`, `3` or `0.03`.

    A number below 0.1 is a fraction, from 1 on it is a percentage. A number between them is
    ambiguous and needs the `%` sign.
    """

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the value as a fraction."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a percentage; write 3% or 0.03", param, ctx)
        if 0.1 <= number < 1 and not text.endswith("%"):
            self.fail(f"{text} may be a percentage or a fraction; write {text}%", param, ctx)
        fraction = number / 100 if text.endswith("%") or number >= 1 else number
        if not 0 <= fraction <= 1:
            self.fail(f"{value!r} is not between 0% and 100%", param, ctx)
        return fraction


STUDY = click.argument("study", type=click.Path(path_type=Path))
"""The argument that names a study folder."""


def output_option(name: str, more: str, *, metavar: str = "STUDY", **attributes: Any) -> Decorator:
    """Return `-o/--output` as the parameter `name`. `more` describes the file that is written."""
    kind = click.Path(path_type=Path)
    return click.option(
        "-o",
        "--output",
        name,
        metavar=metavar,
        type=kind,
        help=f"{MEANINGS['--output']}: {more}",
        **attributes,
    )


def study_option(more: str, **attributes: Any) -> Decorator:
    """Return `--output STUDY`, the study that a verb writes measurements to, as `path`."""
    return output_option("path", more, **attributes)


def budget_option(*, advanced: bool = False) -> Decorator:
    """Return `--budget` for verbs that measure."""
    kind = click.FloatRange(0, min_open=True)
    return option("--budget", type=kind, metavar="SECONDS", advanced=advanced)


def rounds_option(more: str, *, advanced: bool = False, **attributes: Any) -> Decorator:
    """Return `--rounds`; `more` ends the help text."""
    kind = click.IntRange(1)
    return option("--rounds", type=kind, metavar="N", more=more, advanced=advanced, **attributes)


def seed_option() -> Decorator:
    """Return `--seed` of the random order."""
    kind = click.IntRange(0)
    return option("--seed", type=kind, default=1, show_default=True, advanced=True)


def min_gain_option(more: str, *, advanced: bool = False) -> Decorator:
    """Return `--min-gain`, a fraction."""
    return option(
        "--min-gain",
        type=Percent(),
        default="3%",
        show_default=True,
        more=more,
        advanced=advanced,
    )


def assume_noise_option() -> Decorator:
    """Return `--assume-noise`, a fraction."""
    return option("--assume-noise", type=Percent(), default="5%", show_default=True, advanced=True)


def nccl_version_option(more: str = ".") -> Decorator:
    """Return `--nccl-version`."""
    return option("--nccl-version", metavar="X.Y.Z", more=more)


def scale_options(more: str) -> Decorator:
    """Return `--nodes` and `--ranks` of a communicator; `more` ends both help texts."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        return apply(
            command,
            option("--nodes", type=click.IntRange(1), metavar="N", more=more),
            option("--ranks", type=click.IntRange(1), metavar="N", more=more),
        )

    return add


def choice_option() -> Decorator:
    """Return `--choice` of nccl-tests' tables."""
    return option(
        "--choice",
        more=": tree/ll128, ring/simple/8, default or tuned.  [default: by the NCCL log, the "
        "command line in the output, or the file's name]",
    )


def tune_options(*, advanced: bool = False) -> Decorator:
    """Return the options of the rule search, the same for every verb that runs it.

    Options about statistics are advanced; with `advanced` all options are.
    """

    def plain(*names: str, **attributes: Any) -> Decorator:
        if advanced:
            attributes["cls"] = AdvancedOption
        return click.option(*names, **attributes)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        return apply(
            command,
            plain(
                "--weights",
                type=click.Path(),
                metavar="FILE",
                help="CSV file `bytes,weight`: how much each size counts  [default: all the same]",
            ),
            min_gain_option(": a rule must beat the default by this.", advanced=advanced),
            plain(
                "--channels",
                type=click.Choice(["default", "any"]),
                default="default",
                show_default=True,
                help="Channels (SMs) that a rule may take: at most those of NCCL's default at "
                "that size, or any number.",
            ),
            plain(
                "--include-unsure",
                is_flag=True,
                help="Also write rules that are not sure into the configuration.",
            ),
            plain(
                "--extend",
                is_flag=True,
                help="Let the first and last rule reach beyond what was measured.",
            ),
            plain(
                "--any-scale",
                is_flag=True,
                help="Make a rule for any scale where it holds at every scale measured.",
            ),
            click.option(
                "--penalty",
                type=click.FloatRange(0),
                default=0.05,
                show_default=True,
                cls=AdvancedOption,
                help="Log latency that one more rule must save; higher gives fewer rules.",
            ),
            assume_noise_option(),
            click.option(
                "--channel-tolerance",
                type=Percent(),
                default="2%",
                show_default=True,
                cls=AdvancedOption,
                help="Time that fewer channels may cost.",
            ),
        )

    return add


def options_from(arguments: dict[str, Any]) -> "TuneOptions":
    """Return the rule search's options from a verb's keyword arguments."""
    from nccltune.tune.result import TuneOptions

    return TuneOptions(
        min_gain=arguments["min_gain"],
        penalty=arguments["penalty"],
        assumed_noise=arguments["assume_noise"],
        channel_tolerance=arguments["channel_tolerance"],
        extend=arguments["extend"],
        any_scale=arguments["any_scale"],
        weights=arguments["weights"],
        channels=arguments["channels"],
        include_unsure=arguments["include_unsure"],
    )
