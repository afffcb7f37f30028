# SPDX-License-Identifier: Apache-2.0
"""The cost of each kind of flow on a link. Every figure has a source.

A figure is a measured or documented number with a name. Most figures are efficiencies: the
bandwidth that one kind of flow alone reaches on a link, divided by what the link's wires carry
(`Link.wire_gb_per_s`). The defaults are limits: computed from packets, or the highest published
measurement. Two figures are costs of read requests instead: the GB/s that the requests take in the
opposite direction for each GB/s read. The defaults are in calibration.json. A user's calibration
file needs only the figures that it changes.
"""

import functools
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.topology.hardware.links import Link, LinkKind
from nccltune.topology.nccl_model.routes import FlowKind

Share = Annotated[float, msgspec.Meta(gt=0, le=2)]

WIRE = "wire"
COSTS = ("read_request", "read_beside_peer_writes")
"""The figures that are costs, not efficiencies."""


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A measured or documented number with its source.

    An efficiency above 1 shows that the estimate for a link is too low. `samples` is 0 if it was
    not measured with nccltune.
    """

    value: Share
    source: str
    samples: int = 0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A set of figures by name. `name` identifies the calibration.

    `relative_to` is the base of efficiencies. Files of earlier releases lack it: their base is the
    bandwidth that NCCL books.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    relative_to: str = "nccl"
    values: dict[str, Figure]

    def __getitem__(self, name: str) -> float:
        return self.values[name].value

    def cost(self, flow: FlowKind, link: LinkKind, *, through_intel: bool = False) -> float:
        """Return the GB/s of a link that each GB/s of a flow uses up, more through an Intel CPU."""
        return 1.0 / self._efficiency(flow, link, through_intel)

    def _efficiency(self, flow: FlowKind, link: LinkKind, through_intel: bool) -> float:
        name = _figure_of(flow, link)
        value = 1.0 if name is None else self[name]
        return value * (self["p2p_through_intel"] if through_intel and link in _PCI else 1.0)

    def with_figures(self, name: str, figures: dict[str, Figure]) -> "Calibration":
        """Return a calibration called `name` with some figures replaced."""
        return Calibration(name=name, relative_to=WIRE, values={**self.values, **figures})


_PCI = (LinkKind.PCI, LinkKind.SWITCH_TO_SWITCH)
_IN_SWITCHES = (FlowKind.NVLS, FlowKind.NVLS_BLACKWELL)
_BY_LINK = {
    LinkKind.NVLINK: "nvlink",
    LinkKind.CPU_TO_CPU: "between_cpus",
    LinkKind.MEMORY: "host_memory",
    LinkKind.NET: "network",
}


def _figure_of(flow: FlowKind, link: LinkKind) -> str | None:
    if link in _PCI:
        return None if flow in (FlowKind.NVLINK, FlowKind.NETWORK, *_IN_SWITCHES) else flow.value
    return flow.value if flow in _IN_SWITCHES else _BY_LINK.get(link)


def figure_of(flow: FlowKind, link: Link) -> str:
    """Return the name of the figure that applies to a flow on a link, else of the flow's kind."""
    return _figure_of(flow, link.kind) or flow.value


def tree_figure(link: LinkKind) -> str:
    """Return the name of the share of a link that trees reach in nodes of several GPUs."""
    return "tree_nvlink" if link is LinkKind.NVLINK else "tree"


@functools.cache
def defaults() -> Calibration:
    """Return the default figures, which are part of nccltune."""
    data = resources.files("nccltune.topology.flows").joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(data, type=Calibration)


def read_calibration(path: Path) -> Calibration:
    """Return the default figures with those of a file. Raises InputError, as for newer ones."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        own = msgspec.json.decode(data, type=Calibration)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"is not a calibration file: {error}",
            where=str(path),
            hint="docs/reference/what-if.md has an example",
        ) from error
    if own.schema_version > SCHEMA_VERSION:
        raise InputError(
            f"was written by a newer nccltune (schema {own.schema_version})",
            where=str(path),
            hint="update nccltune",
        )
    if own.values and own.relative_to != WIRE:
        raise InputError(
            "has efficiencies relative to the bandwidth that NCCL books, as earlier releases wrote "
            "them; they are now relative to what the wires carry",
            where=str(path),
            hint="divide by what the wires carry instead: docs/reference/what-if.md",
        )
    for name in own.values:
        if name not in defaults().values:
            raise InputError(
                f"{name!r} is not a figure of a calibration",
                where=str(path),
                hint=nearest(name, defaults().values),
            )
    return defaults().with_figures(own.name, own.values)
