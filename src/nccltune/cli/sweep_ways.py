# SPDX-License-Identifier: Apache-2.0
"""Other ways to sweep: settings of send/recv (`--p2p`), or nccl-tests (`--with-nccl-tests`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nccltune.cli.bench_options import (
    LAUNCH,
    command_line,
    launch_from,
    terminated_like_interrupted,
)


def ways_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose one of them."""
    for option in reversed(
        (
            click.option(
                "--p2p",
                is_flag=True,
                help="Race settings of native send/recv instead; each needs processes of its own.",
            ),
        )
    ):
        command = option(command)
    return command


def other_way(
    context: click.Context,
    path: Path,
    options: dict[str, Any],
    *,
    budget: float | None,
    exhaustive: bool,
    rounds: int | None,
    dry_run: bool,
    as_json: bool,
) -> int | None:
    """Sweep in another way where the options ask for one: the exit code. None where they do not;
    the options of the ways are taken out of `options` then."""
    p2p = options.pop("p2p")
    if not p2p:
        return None
    from nccltune.cli.sweep_p2p import SIZES, Manner, race
    from nccltune.measure.p2p.driver import Wanted
    from nccltune.model.errors import InputError
    from nccltune.model.sizes import parse_range

    for name, value in (("--exhaustive", exhaustive), ("--rounds", rounds)):
        if value:
            raise InputError("is not for --p2p, which races", where=name)
    if _given(context, "collectives"):
        raise InputError("is not for --p2p: send/recv is what is raced", where="--collectives")
    if options["gain_threshold"] <= 0:
        raise InputError("must be above 0", where="--gain-threshold")
    low, high = parse_range(options["sizes"] if _given(context, "sizes") else SIZES)
    if low < 4:
        raise InputError("sizes begin at 4 bytes, one element", where="--sizes")
    wanted = Wanted(low, high, options["gain_threshold"], budget, options["seed"])
    launch = launch_from({name: options[name] for name in LAUNCH})
    with terminated_like_interrupted():
        return race(path, launch, wanted, Manner(command_line(context), dry_run, as_json))


def _given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
