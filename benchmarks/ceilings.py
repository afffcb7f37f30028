# SPDX-License-Identifier: Apache-2.0
"""Ceilings beside published measurements, as a table.

python benchmarks/ceilings.py            the table
python benchmarks/ceilings.py --kinds    the kinds of ceilings that these figures confirm

`ceilings.toml` describes machines and lists published figures. A ceiling is a limit, so none may be
below a measurement; one far above the best measurement is of little use. A test compares the same
rows (`tests/unit/topology/flows/test_expect.py`).
"""

import sys
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.topology import C2c, Cpu, Dialect, Gpu, Net, NvLink, Pci, Topology
from nccltune.topology.flows.expect import NEAR, Expected, expect
from nccltune.topology.hardware.fill_in import CUBE

DATA = Path(__file__).with_suffix(".toml")
SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe"}
SWITCH = "fffffff:ffff:ff"


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node. Devices are spread in order over its switches, and switches over its CPUs.

    `links` are the NVLinks of a GPU to NVSwitches, of each pair of all GPUs (`mesh`) or of
    neighbours (`pairs`). Without `switches`, devices are directly below CPUs.
    """

    name: str
    sm: int
    gpus: int
    pcie: int
    cpu: tuple[str, int, int] | None = None
    cpus: int = 2
    switches: int = 0
    links: int = 0
    nvlink: str = "switch"
    device: str | None = None
    gcn: str | None = None
    c2c: bool = False
    nics: int = 0
    nic_gbit: int = 0
    nic_width: int = 16
    nic_pcie: int | None = None
    settings: dict[str, str] = {}


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published bus bandwidth in GB/s.

    `best` is False if the source or its date shows that the machine can do more, so that the
    ceiling may be further away.
    """

    machine: str
    nodes: int
    busbw: float
    source: str
    gpus: int | None = None
    collective: Collective = Collective.ALLREDUCE
    algorithm: str | None = None
    best: bool = True


class Data(msgspec.Struct, frozen=True):
    """The content of `ceilings.toml`."""

    machine: list[Machine]
    published: list[Published]


def read() -> Data:
    return msgspec.convert(tomllib.loads(DATA.read_text("utf-8")), Data, strict=False)


def topology(machine: Machine) -> Topology:
    """Return the topology that NCCL would write for a machine."""
    switches = machine.switches or machine.cpus
    groups = [
        [
            *(gpu(machine, place) for place in share(machine.gpus, switches, group)),
            *(nic(machine, place) for place in share(machine.nics, switches, group)),
        ]
        for group in range(switches)
    ]
    if machine.switches:
        groups = [
            [Pci(bus_id=f"00{group:02x}:00:00.0", class_code="0x060400", speed=SPEEDS[machine.pcie],
                 width=16, children=tuple(devices))]
            for group, devices in enumerate(groups)
        ]  # fmt: skip
    vendor, family, model = machine.cpu or (None, None, None)
    cpus = tuple(
        Cpu(
            numa=number, arch="x86_64" if machine.cpu else "arm64", vendor=vendor, family=family,
            model=model,
            devices=tuple(one for place in share(switches, machine.cpus, number)
                          for one in groups[place]),
        )
        for number in range(machine.cpus)
    )  # fmt: skip
    dialect = Dialect.RCCL if machine.gcn else Dialect.NCCL
    return Topology(source=machine.name, dialect=dialect, cpus=cpus)


def share(count: int, parts: int, part: int) -> range:
    return range(-(-part * count // parts), -(-(part + 1) * count // parts))


def bus_id(kind: int, place: int) -> str:
    return f"{kind:04x}:{place + 1:02x}:00.0"


def gpu(machine: Machine, place: int) -> Pci:
    inside = Gpu(
        index=place, name=machine.gcn, sm=machine.sm, gdr=True,
        nvlinks=tuple(nvlinks(machine, place)),
        c2c=(C2c(mb_per_s=44712, count=5),) if machine.c2c else (),
    )  # fmt: skip
    return Pci(
        bus_id=bus_id(0x100, place), class_code="0x030200", vendor="0x10de", device=machine.device,
        speed=SPEEDS[machine.pcie], width=16, gpu=inside,
    )  # fmt: skip


def nvlinks(machine: Machine, place: int) -> Iterator[NvLink]:
    if machine.nvlink == "switch" and machine.links:
        yield NvLink(target=SWITCH, count=machine.links, target_class="0x068000")
    kinds = {
        "mesh": dict.fromkeys(combinations(range(machine.gpus), 2), machine.links),
        "pairs": {(one, one + 1): machine.links for one in range(0, machine.gpus, 2)},
        "cube": CUBE,
    }
    for pair, count in kinds.get(machine.nvlink, {}).items():
        if place in pair:
            peer = bus_id(0x100, sum(pair) - place)
            yield NvLink(target=peer, count=count, target_class="0x030200")


def nic(machine: Machine, place: int) -> Pci:
    port = Net(
        name=f"mlx5_{place}", index=place, mbit_per_s=machine.nic_gbit * 1000, port=1,
        guid=f"0x{place + 1:x}", gdr=True,
    )  # fmt: skip
    return Pci(
        bus_id=bus_id(0x200, place), class_code="0x020700",
        speed=SPEEDS[machine.nic_pcie or machine.pcie], width=machine.nic_width, nets=(port,),
    )  # fmt: skip


_FOUND: dict[Published, Expected | InputError] = {}


def ceiling(data: Data, row: Published) -> Expected | InputError:
    """Return the ceiling for a row, which takes a second, or the reason why there is none."""
    if row not in _FOUND:
        _FOUND[row] = _ceiling(data, row)
    return _FOUND[row]


def _ceiling(data: Data, row: Published) -> Expected | InputError:
    machine = next(one for one in data.machine if one.name == row.machine)
    settings = machine.settings | ({"NCCL_ALGO": row.algorithm} if row.algorithm else {})
    try:
        return expect(
            topology(machine), collective=row.collective, nodes=row.nodes, ranks_per_node=row.gpus,
            settings=settings,
        )  # fmt: skip
    except InputError as error:
        return error


def measured_kinds(data: Data) -> list[str]:
    """Return the kinds of ceilings that a published figure confirms (`measured_kinds.json`)."""
    found = [(row, ceiling(data, row)) for row in data.published]
    return sorted(
        {
            one.kind
            for row, one in found
            if isinstance(one, Expected) and row.busbw <= one.busbw_gb_per_s <= NEAR * row.busbw
        }
    )


def main(arguments: list[str]) -> None:
    data = read()
    if arguments == ["--kinds"]:
        print(msgspec.json.format(msgspec.json.encode(measured_kinds(data))).decode())
        return
    print("| machine | nodes x GPUs | collective | published | ceiling | ratio | limited by |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in data.published:
        found = ceiling(data, row)
        machine = next(one for one in data.machine if one.name == row.machine)
        size = f"{row.nodes} x {row.gpus or machine.gpus}"
        what = row.collective.prose + (f" ({row.algorithm})" if row.algorithm else "")
        figure = f"[{row.busbw:.4g}]({row.source})" + ("" if row.best else " *")
        if isinstance(found, InputError):
            print(f"| {machine.name} | {size} | {what} | {figure} | none | | {found.message} |")
            continue
        mark = "" if found.sure else "?"
        print(
            f"| {machine.name} | {size} | {what} | {figure} | {found.busbw_gb_per_s:.4g}{mark} | "
            f"{found.busbw_gb_per_s / row.busbw:.2f} | {found.algorithm}: {found.bottleneck} |"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
