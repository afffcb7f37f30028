# SPDX-License-Identifier: Apache-2.0
"""Build arguments for functions of `nccltune.app` from the options of a verb.

An option sets the field of the same name. So verbs need not copy options one by one.
"""

import inspect
from pathlib import Path
from typing import Any, TypeVar

import click

from nccltune.app.bench_launch import LaunchRequest, Site, launch_of
from nccltune.cli.output import note
from nccltune.measure.bench.process import Launch
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.sizes import parse_range

T = TypeVar("T")


def struct_from(kind: type[T], options: dict[str, Any], **more: Any) -> T:
    """Return a `kind` built from the verb's options and from `more`.

    Options named like a field of `kind` are removed from `options`. If the value of such an option
    is None, the field keeps its default value.
    """
    fields = inspect.signature(kind).parameters
    found = {name: options.pop(name) for name in fields if name in options}
    return kind(**{name: value for name, value in found.items() if value is not None}, **more)


def launch_from(options: dict[str, Any]) -> Launch:
    """Return the launch that a verb's options describe. These options are removed from `options`.

    Raises InputError for options that contradict each other, and StudyError for an invalid
    recording.
    """
    return launch_of(struct_from(LaunchRequest, options), site())


def site() -> Site:
    """Return the callbacks of the current verb that a launch needs: print a note, clean up."""
    return Site(note, click.get_current_context().call_on_close)


def scope_from(kind: type[T], options: dict[str, Any], **more: Any) -> T:
    """Return the scope of an experiment, a `kind`, from a verb's options and from `more`.

    The options used are removed from `options`. Raises InputError for invalid collectives, sizes or
    threshold.
    """
    low, high = sizes_from(options.pop("sizes"))
    if "collectives" in options:
        more["collectives"] = collectives_from(options.pop("collectives"))
    if options.get("threshold", options.get("noise_floor")) == 0:
        raise InputError("must be above 0, or a sweep would never end", where="--gain-threshold")
    return struct_from(kind, options, low=low, high=high, **more)


def copies_from(kind: type[T], options: dict[str, Any]) -> tuple[Launch, Path | None, T]:
    """Return the launch, the library and the scope of a comparison with copy engines.

    The options used are removed from `options`. Raises InputError for a library together with a
    replay, and what `launch_from` and `scope_from` raise.
    """
    scope, library = scope_from(kind, options), options.pop("library")
    launch = launch_from(options)
    if launch.replay is not None and library is not None:
        raise InputError("is not for a replay", where="--library")
    return launch, library, scope


def sizes_from(text: str) -> tuple[int, int]:
    """Return the two sizes in bytes of a range such as `1K-64M`.

    Raises InputError for other text, and if the first size is below 4 bytes.
    """
    low, high = parse_range(text)
    if low < 4:
        raise InputError(f"{text!r}: sizes begin at 4 bytes, one element", where="--sizes")
    return low, high


def collectives_from(text: str) -> list[Collective]:
    """Return the collectives in a list such as `allreduce,allgather`, or all tuned ones for `all`.

    Raises InputError for other names.
    """
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
