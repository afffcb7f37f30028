# SPDX-License-Identifier: Apache-2.0
"""What is measured: collectives and sizes, and how much is enough, for the verbs that run the
bench."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.context import Percent, seed_option

if TYPE_CHECKING:
    from nccltune.measure.sweep import Wanted
    from nccltune.model.collective import Collective


def what_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what a sweep looks at."""
    for option in reversed(
        (
            collectives_option(),
            sizes_option("1K-64M"),
            click.option(
                "--gain-threshold",
                type=Percent(),
                default="1%",
                show_default=True,
                help="Stop when the gain still to be found is below this.",
            ),
            seed_option(),
        )
    ):
        command = option(command)
    return command


def collectives_option(prefix: str = "") -> Callable[..., Any]:
    """`--collectives`; `prefix` stands before its help."""
    words = "Which collectives, separated by commas; `all` for the five that NCCL tunes."
    return click.option(
        "--collectives",
        default="allreduce,allgather,reducescatter",
        show_default=True,
        help=_behind(prefix, words),
    )


def sizes_option(default: str, prefix: str = "") -> Callable[..., Any]:
    """`--sizes`; `prefix` stands before its help."""
    words = _behind(prefix, "Range of sizes.")
    return click.option("--sizes", default=default, show_default=True, help=words)


def _behind(prefix: str, sentence: str) -> str:
    return f"{prefix}{sentence[:1].lower()}{sentence[1:]}" if prefix else sentence


def wanted_from(arguments: dict[str, Any]) -> "Wanted":
    """What to sweep by a verb's options, which are taken out of `arguments`.

    Raises InputError for collectives, sizes or a threshold that cannot be.
    """
    from nccltune.measure.sweep import Wanted
    from nccltune.model.errors import InputError

    low, high = sizes_from(arguments.pop("sizes"))
    threshold = arguments.pop("gain_threshold")
    if threshold <= 0:
        raise InputError("must be above 0, or a sweep would never end", where="--gain-threshold")
    return Wanted(
        collectives=collectives_from(arguments.pop("collectives")),
        low=low,
        high=high,
        threshold=threshold,
        seed=arguments.pop("seed"),
    )


def sizes_from(text: str) -> tuple[int, int]:
    """The bytes of `1K-64M`. Raises InputError for others, and for less than one element."""
    from nccltune.model.errors import InputError
    from nccltune.model.sizes import parse_range

    low, high = parse_range(text)
    if low < 4:
        raise InputError(f"{text!r}: sizes begin at 4 bytes, one element", where="--sizes")
    return low, high


def collectives_from(text: str) -> "list[Collective]":
    """The collectives of `allreduce,allgather` or `all`. Raises InputError for others."""
    from nccltune.model.collective import TUNED
    from nccltune.model.errors import InputError
    from nccltune.model.names import nearest

    if text.strip() == "all":
        return list(reversed(TUNED))
    valid = {item.value: item for item in TUNED}
    found = []
    for name in (part.strip() for part in text.split(",")):
        if name not in valid:
            raise InputError(
                f"{name!r} is not a collective that NCCL tunes",
                where="--collectives",
                hint=nearest(name, [*valid, "all"]),
            )
        found.append(valid[name])
    return list(dict.fromkeys(found))
