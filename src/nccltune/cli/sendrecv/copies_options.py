# SPDX-License-Identifier: Apache-2.0
"""Options of comparisons of NCCL with copy engines, which reach the GPUs of one node."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import apply, budget_option, option, seed_option, study_option
from nccltune.cli.platform_options import gpus_option, launch_from, nccl_option, replay_option
from nccltune.cli.size_options import gain_threshold_option, threshold_from

if TYPE_CHECKING:
    from nccltune.measure.bench.process import Launch


def copies_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of both comparisons: the study, the library, GPUs and a recording."""
    return apply(
        command,
        study_option("the study; an interrupted comparison goes on there.", required=True),
        option(
            "--library",
            metavar="FILE",
            type=click.Path(path_type=Path),
            more=" to measure  [default: the installed one]",
        ),
        gpus_option("  [default: all]"),
        replay_option(),
        budget_option(),
        gain_threshold_option(": a difference below it is noise.", "2%"),
        nccl_option(),
        seed_option(),
    )


def copies_from(options: dict[str, Any]) -> "tuple[Launch, Path | None, float]":
    """Return the launch, the library and the noise floor; their options are removed from `options`.

    Raises InputError for a library together with a replay, and as `launch_from` does.
    """
    from nccltune.model.errors import InputError

    launch, library = launch_from(options), options.pop("library")
    if launch.replay is not None and library is not None:
        raise InputError("is not for a replay", where="--library")
    return launch, library, threshold_from(options.pop("gain_threshold"))
