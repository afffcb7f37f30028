# SPDX-License-Identifier: Apache-2.0
"""Read the topology of the running machine.

The PCI tree is from sysfs. `nvidia-smi` adds NVLinks and compute capabilities.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from nccltune.formats.topology.nvidia_smi_matrix import (
    SmiMatrix,
    gpu_bus_id,
    read_matrix,
    smi_topology,
)
from nccltune.formats.topology.sysfs import read_sysfs
from nccltune.model.errors import InputError
from nccltune.model.scale import count
from nccltune.model.topology import Cpu, Gpu, NvLink, Pci, Topology
from nccltune.native.child import run_tool

_TIMEOUT_S = 20
_QUERY = ("--query-gpu=index,pci.bus_id,compute_cap", "--format=csv,noheader")
_ROW = re.compile(r"\s*(\d{1,4})\s*,\s*([0-9A-Fa-f:.]+)\s*,\s*(\d{1,2})\.(\d)\s*")


def this_machine(root: Path = Path("/")) -> Topology:
    """Return the topology from sysfs, and from `nvidia-smi` if it works.

    If its output cannot be used, `unread` of the result has the reason.
    """
    topology = read_sysfs(root)
    if not any(_gpus(topology)) or shutil.which("nvidia-smi") is None:
        return topology
    table = _output("topo", "-m")
    rows = _output(*_QUERY)
    matrix = None
    if table is not None:
        try:
            matrix = read_matrix(table.encode(), "nvidia-smi topo -m")
        except InputError as error:
            return _add_unread(topology, str(error))
    return with_smi(topology, matrix, capabilities(rows or ""))


def capabilities(text: str) -> dict[str, tuple[int, int]]:
    """Return index and compute capability (90 is 9.0) of each GPU by bus id, from `nvidia-smi`.

    It is called with `--query-gpu=index,pci.bus_id,compute_cap --format=csv,noheader`.
    """
    found = {}
    for line in text.splitlines():
        row = _ROW.fullmatch(line)
        if row is not None:
            index, bus_id, major, minor = row.groups()
            domain, colon, rest = bus_id.lower().partition(":")
            found[f"{domain[-4:]}{colon}{rest}"] = (int(index), int(major) * 10 + int(minor))
    return found


def with_smi(
    topology: Topology, matrix: SmiMatrix | None, facts: Mapping[str, tuple[int, int]]
) -> Topology:
    """Return sysfs's topology with indexes, compute capabilities and NVLinks of its GPUs.

    If the matrix has another number of GPUs, nothing is added, and `unread` has the reason.
    """
    real = {}
    for device in _gpus(topology):
        assert device.gpu is not None
        index, sm = facts.get(device.bus_id, (device.gpu.index, None))
        real[device.bus_id] = (index, sm)
    links: dict[int | None, tuple[NvLink, ...]] = {}
    if matrix is not None:
        seen = smi_topology(matrix)
        if len(list(_gpus(seen))) != len(real):
            return _add_unread(
                topology,
                f"nvidia-smi lists {count(len(list(_gpus(seen))), 'GPU')}, sysfs {len(real)}: "
                "NVLinks are left out",
            )
        by_index = {index: bus_id for bus_id, (index, _) in real.items()}
        made_up = {gpu_bus_id(index or 0): bus_id for index, bus_id in by_index.items()}
        for device in _gpus(seen):
            assert device.gpu is not None
            links[device.gpu.index] = tuple(
                msgspec.structs.replace(link, target=made_up.get(link.target, link.target))
                for link in device.gpu.nvlinks
            )

    def changed(device: Pci) -> Pci:
        gpu = device.gpu
        if gpu is not None:
            index, sm = real[device.bus_id]
            gpu = Gpu(index=index, sm=sm, nvlinks=links.get(index, ()))
        children = tuple(changed(child) for child in device.children)
        return msgspec.structs.replace(device, gpu=gpu, children=children)

    cpus = tuple(
        msgspec.structs.replace(cpu, devices=tuple(changed(device) for device in cpu.devices))
        for cpu in topology.cpus
    )
    return msgspec.structs.replace(topology, cpus=cpus)


def _gpus(topology: Topology) -> "list[Pci]":
    found: list[Pci] = []
    waiting: list[Pci | Cpu] = list(topology.cpus)
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, Cpu):
            waiting += one.devices
            continue
        waiting += one.children
        if one.gpu is not None:
            found.append(one)
    return found


def _add_unread(topology: Topology, words: str) -> Topology:
    return msgspec.structs.replace(topology, unread=(*topology.unread, words))


def _output(*arguments: str) -> str | None:
    """Return the output of `nvidia-smi`; None if it fails or hangs, as with a broken driver."""
    done = run_tool(["nvidia-smi", *arguments], _TIMEOUT_S)
    if done is None or done.status != 0:
        return None
    return done.out.decode(errors="replace")
