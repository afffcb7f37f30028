# SPDX-License-Identifier: Apache-2.0
"""What several verbs do first: open a study, sort its samples, read options shared by them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nccltune.analyze.timings import Sorted
    from nccltune.model.study import Study
    from nccltune.tune.result import TuneOptions


class Percent(click.ParamType[float]):
    """A share written as `3%`, `3` or `0.03`: below 0.1 a fraction, from 1 on a percentage. What
    lies between may be meant either way and needs its sign."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction."""
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


def given(context: click.Context, name: str) -> bool:
    """Whether an option is on the command line, whatever its default."""
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def study_option(words: str, **more: Any) -> Callable[..., Any]:
    """`--output STUDY`, the study that a verb measures into, as `path`."""
    kind = click.Path(path_type=Path)
    return click.option("-o", "--output", "path", metavar="STUDY", type=kind, help=words, **more)


def budget_option() -> Callable[..., Any]:
    """`--budget` of what measures."""
    kind = click.FloatRange(0, min_open=True)
    return click.option("--budget", type=kind, help="Seconds to measure at most.")


def seed_option() -> Callable[..., Any]:
    """`--seed` of what is drawn; for tests."""
    return click.option("--seed", type=click.IntRange(0), default=1, hidden=True)


def min_gain_option(words: str) -> Callable[..., Any]:
    """`--min-gain`, a fraction: less is not worth it."""
    return click.option("--min-gain", type=Percent(), default="3%", show_default=True, help=words)


def assume_noise_option() -> Callable[..., Any]:
    """`--assume-noise`, a fraction."""
    return click.option(
        "--assume-noise",
        type=Percent(),
        default="5%",
        show_default=True,
        help="Noise of a timing, and of a process, where there are too few to measure it.",
    )


def open_sorted(path: Path) -> "tuple[Study, Sorted]":
    """A study and its samples, sorted. Raises StudyError where there are none to compare."""
    from nccltune.analyze import sort_samples
    from nccltune.formats.suspect import platform_doubts
    from nccltune.model.errors import StudyError
    from nccltune.model.study import Study

    study = Study.open(path)
    found = sort_samples(study.samples())
    found.doubts += platform_doubts(study)
    if not found.timings:
        why = (
            "none of its samples can be compared (unknown scale, one rank, or wrong results)"
            if found.samples
            else "it has no samples"
        )
        raise StudyError(
            why,
            where=str(path),
            hint=f"add measurements: nccltune import FILES... -o {path}",
        )
    return study, found


def tune_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the rule search, the same for every verb that runs it."""
    for option in reversed(
        (
            click.option(
                "--weights",
                type=click.Path(),
                help="CSV file `bytes,weight`: how much each size counts  [default: all the same]",
            ),
            min_gain_option("A rule must beat the default by at least this."),
            click.option(
                "--penalty",
                type=click.FloatRange(0),
                default=0.05,
                show_default=True,
                help="Log latency that one more rule must save; higher gives fewer rules.",
            ),
            assume_noise_option(),
            click.option(
                "--channel-tolerance",
                type=Percent(),
                default="2%",
                show_default=True,
                help="Time that fewer channels may cost.",
            ),
            click.option(
                "--channels",
                type=click.Choice(["default", "any"]),
                default="default",
                show_default=True,
                help="A rule takes at most as many channels (SMs) as NCCL's default at that size, "
                "or any number.",
            ),
            click.option(
                "--include-unsure",
                is_flag=True,
                help="Also write rules that are not sure into the configuration.",
            ),
            click.option(
                "--extend",
                is_flag=True,
                help="Let the first and last rule reach beyond what was measured.",
            ),
            click.option(
                "--any-scale",
                is_flag=True,
                help="Make a rule for any scale where it holds at every scale measured.",
            ),
        )
    ):
        command = option(command)
    return command


def options_from(arguments: dict[str, Any]) -> "TuneOptions":
    """The rule search's options from a verb's keyword arguments."""
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
