# SPDX-License-Identifier: Apache-2.0
"""What a byte of each kind of flow costs a link, each figure with where it comes from.

An efficiency is the share of a link's bandwidth, as NCCL books it, that a kind reaches alone. Two
figures are costs: GB/s of the other direction for each GB/s read. The defaults are in
calibration.json; a file of one's own need hold only what it changes.
"""

import functools
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.topology.kinds import FlowKind
from nccltune.topology.links import Link, LinkKind

Share = Annotated[float, msgspec.Meta(gt=0, le=2)]

COSTS = ("read_request", "read_beside_peer_writes")
"""Figures that are costs and not efficiencies."""


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """`value` is above 1 only where NCCL books a link too low; `samples` timings are behind it,
    0 where it was not measured with nccltune."""

    value: Share
    source: str
    samples: int = 0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The figures by name; `name` says whose they are."""

    schema_version: int = SCHEMA_VERSION
    name: str
    values: dict[str, Figure]

    def __getitem__(self, name: str) -> float:
        """A figure's value."""
        return self.values[name].value

    def cost(self, flow: FlowKind, link: LinkKind, *, through_intel: bool = False) -> float:
        """GB/s of a link for each GB/s of a flow."""
        return 1.0 / self._efficiency(flow, link, through_intel)

    def _efficiency(self, flow: FlowKind, link: LinkKind, through_intel: bool) -> float:
        name = _figure_of(flow, link)
        value = 1.0 if name is None else self[name]
        return value * (self["p2p_through_intel"] if through_intel and link in _PCI else 1.0)

    def with_figures(self, name: str, figures: dict[str, Figure]) -> "Calibration":
        """The same with some figures replaced."""
        return Calibration(name=name, values={**self.values, **figures})


_PCI = (LinkKind.PCI, LinkKind.SWITCH_TO_SWITCH)
_BY_LINK = {
    LinkKind.NVLINK: "nvlink",
    LinkKind.CPU_TO_CPU: "between_cpus",
    LinkKind.MEMORY: "host_memory",
    LinkKind.NET: "network",
}


def _figure_of(flow: FlowKind, link: LinkKind) -> str | None:
    if link in _PCI:
        return None if flow in (FlowKind.NVLINK, FlowKind.NETWORK) else flow.value
    return _BY_LINK.get(link)


def figure_of(flow: FlowKind, link: Link) -> str:
    """The name of the figure that says what a flow costs on a link; the flow's own where none
    does."""
    return _figure_of(flow, link.kind) or flow.value


@functools.cache
def defaults() -> Calibration:
    """The figures that come with nccltune."""
    data = resources.files("nccltune.topology").joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(data, type=Calibration)


def read_calibration(path: Path) -> Calibration:
    """A calibration file over the defaults. Raises InputError where it cannot be read or names a
    figure that does not exist."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        own = msgspec.json.decode(data, type=Calibration)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"is no calibration: {error}",
            where=str(path),
            hint="make one: nccltune calibrate --from STUDY -o FILE",
        ) from error
    if own.schema_version > SCHEMA_VERSION:
        raise InputError(
            f"was written by a newer nccltune (schema {own.schema_version})",
            where=str(path),
            hint="update nccltune",
        )
    for name in own.values:
        if name not in defaults().values:
            raise InputError(
                f"{name!r} is no figure of a calibration",
                where=str(path),
                hint=nearest(name, defaults().values),
            )
    return defaults().with_figures(own.name, own.values)
