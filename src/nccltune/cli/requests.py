# SPDX-License-Identifier: Apache-2.0
"""Build arguments for functions of `nccltune.app` from the options of a verb.

An option sets the field of the same name. So verbs need not copy options one by one.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import click

from nccltune.app.bench_launch import LaunchRequest, Site, launch_of
from nccltune.cli.output import note
from nccltune.cli.verb import flagged, given
from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.choices import SweepScope
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.sizes import parse_range


def bound(
    command: Callable[..., Any], places: Mapping[str, str], values: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a verb: classes of `places` built from its options, and others.

    An option that is None leaves the default of its field. Raises InputError.
    """
    own = inspect.signature(command).parameters
    arguments = {name: values.pop(name) for name in list(values) if name in own}
    used: set[str] = set()
    for argument, place in places.items():
        kind = class_at(place)
        fields = inspect.signature(kind).parameters
        if "low" in fields:
            values["low"], values["high"] = sizes_from(values.pop("sizes"))
            if values.get("threshold", values.get("noise_floor")) == 0:
                raise InputError(
                    "must be above 0, or a sweep would never end", where="--gain-threshold"
                )
        elif "sizes" in fields and "sizes" in values:
            values["sizes"] = sizes_from(values["sizes"])
        if "collectives" in fields and values.get("collectives") is not None:
            values["collectives"] = collectives_from(values["collectives"])
        found = {name: values[name] for name in fields if name in values}
        used.update(found)
        arguments[argument] = kind(
            **{name: value for name, value in found.items() if value is not None}
        )
    return arguments | {name: value for name, value in values.items() if name not in used}


def scope_for(scope: SweepScope) -> SweepScope:
    """Return the scope. With a workload, what no option gives is left to the job."""
    if not scope.workload:
        return scope
    if not given("collectives"):
        scope = scope._replace(collectives=())
    return scope if given("sizes") else scope._replace(low=0, high=0)


def class_at(place: str) -> type[Any]:
    """Return the class that `place` names as `MODULE:CLASS`."""
    module, _, name = place.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def launch_at(request: LaunchRequest) -> Launch:
    """Return the launch that a verb's options describe. Raises InputError, StudyError."""
    return launch_of(request, site())


def site() -> Site:
    """Return the callbacks of the current verb that a launch needs: print a note, clean up."""
    return Site(lambda words: note(flagged(words)), click.get_current_context().call_on_close)


def sizes_from(text: str) -> tuple[int, int]:
    """Return both sizes of `1K-64M` in bytes. Raises InputError, also below 4 bytes."""
    low, high = parse_range(text)
    if low < 4:
        raise InputError(f"{text!r}: sizes begin at 4 bytes, one element", where="--sizes")
    return low, high


def collectives_from(text: str) -> list[Collective]:
    """Return the collectives in a list, or all tuned ones for `all`. Raises InputError."""
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
