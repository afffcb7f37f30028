# SPDX-License-Identifier: Apache-2.0
"""What is measured: collectives and sizes, and how much is enough."""

from typing import TYPE_CHECKING, Any

from nccltune.cli.options import Decorator, Percent, apply, option, seed_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccltune.measure.experiments.choices.experiment import SweepScope
    from nccltune.model.collective import Collective


def scope_options(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options of what a sweep measures."""
    return apply(
        command,
        collectives_option(),
        sizes_option("1K-64M"),
        gain_threshold_option(": stop when less is still to be found.", "1%"),
        seed_option(),
    )


def collectives_option(more: str = "", *, advanced: bool = False) -> Decorator:
    """Return `--collectives`; `more` ends its help."""
    return option(
        "--collectives",
        default="allreduce,allgather,reducescatter",
        show_default=True,
        metavar="A,B",
        more=f", or `all` of those that NCCL tunes{more}.",
        advanced=advanced,
    )


def explained_collectives() -> Decorator:
    """Return `--collectives` for verbs that examine rules."""
    return option("--collectives", metavar="A,B", more="  [default: those with rules, else all]")


def sizes_option(default: str, more: str = ".") -> Decorator:
    """Return `--sizes`; `more` ends its help."""
    return option("--sizes", default=default, show_default=True, metavar="A-B", more=more)


def gain_threshold_option(more: str, default: str) -> Decorator:
    """Return `--gain-threshold`."""
    return option(
        "--gain-threshold",
        type=Percent(),
        default=default,
        show_default=True,
        more=more,
        advanced=True,
    )


def scope_from(arguments: dict[str, Any]) -> "SweepScope":
    """Return the scope of a sweep from a verb's options, which are removed from `arguments`.

    Raises InputError for invalid collectives, sizes or threshold.
    """
    from nccltune.measure.experiments.choices.experiment import SweepScope

    low, high = sizes_from(arguments.pop("sizes"))
    return SweepScope(
        collectives=collectives_from(arguments.pop("collectives")),
        low=low,
        high=high,
        threshold=threshold_from(arguments.pop("gain_threshold")),
        seed=arguments.pop("seed"),
    )


def threshold_from(threshold: float) -> float:
    """Return a `--gain-threshold` with which a sweep ends. Raises InputError for 0."""
    from nccltune.model.errors import InputError

    if threshold <= 0:
        raise InputError("must be above 0, or a sweep would never end", where="--gain-threshold")
    return threshold


def sizes_from(text: str) -> tuple[int, int]:
    """Return the two sizes in bytes of a range such as `1K-64M`.

    Raises InputError for other text, and for less than one element.
    """
    from nccltune.model.errors import InputError
    from nccltune.model.sizes import parse_range

    low, high = parse_range(text)
    if low < 4:
        raise InputError(f"{text!r}: sizes begin at 4 bytes, one element", where="--sizes")
    return low, high


def collectives_from(text: str) -> "list[Collective]":
    """Return the collectives of `allreduce,allgather` or `all`.

    Raises InputError for other names.
    """
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
