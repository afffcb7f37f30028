# SPDX-License-Identifier: Apache-2.0
"""Read the matrix of `nvidia-smi topo -m` and derive the PCI tree from it.

Columns are separated by tabs, or by spaces if the text was pasted. Escape sequences may underline
the header. Newer drivers add columns after the devices: CPU Affinity, NUMA Affinity, GPU NUMA ID.
NICs are `NIC0` with a legend below the table. Drivers before 515 print the NICs' own names.
Rates of NICs are read from `ibstat` or `ibstatus` in the same text.
`pasted_matrix` restores rows of pasted text.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from nccltune.formats.text.lines import check_text, encoding_of
from nccltune.formats.topology.cpu_list import cpus_of, mask_of
from nccltune.formats.topology.pasted_matrix import KIND, plain_lines, row_cells
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Dialect, Gpu, Net, NvLink, Pci, Topology

MAX_BYTES = 1 << 20
MAX_DEVICES = 128
# The distance that each kind of cell stands for; a larger number is farther. NCCL has no equivalent
# of NODE: it uses PHB for paths that cross no link between CPUs.
_DISTANCES = {"X": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
_GPU = re.compile(r"GPU\d{1,4}")
_NVLINK = re.compile(r"NV(\d{1,3})")
_LEGEND = re.compile(r"\b(NIC\d{1,4})\s*:\s*(\S+?),?(?=\s|$)")
_PORT = re.compile(
    r"\s*(?:(?:CA|Infiniband device) '(?P<name>[\w.-]{1,64})'|State:\s+(?:\d: *)?(?P<state>\w+)"
    r"|Rate:\s+(?P<rate>\d{1,4})\b)",
    re.IGNORECASE,
)
_HEAD = 50
_LISTED = re.compile(
    r"^.*\bGPU models and configuration:\s*((?:GPU \d{1,4}: .*\n?)+)", re.MULTILINE
)
_NAMED = re.compile(r"^ *GPU \d{1,4}: (.*?) *(?:\(UUID: .*)?$", re.MULTILINE)
_TRAILING = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
PCI_MATRIX = re.compile(r"\btopo +(?:-\w+ +)*(?:-mp|--matrix_pci)\b")
PCI_ONLY = "nvidia-smi topo -mp shows PCIe alone: whether NVLink joins the GPUs is not known"
_UNKNOWN = "?"
"""The cell of two NICs whose rows were cut off. It is no kind of connection."""
_MOST_LINKS = 18
"""Number of NVLinks of one GPU, up to Blackwell. Only with NVSwitches can the cells of a row add up
to more."""


class SmiDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the matrix: the name of the device, and the columns after the connections.

    The name of a NIC is from the legend, if the legend has it.
    """

    name: str
    is_gpu: bool
    index: int
    cpu_affinity: str | None = None
    numa: int | None = None


class SmiMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """A matrix. `cells[i][j]` is the connection of device i to device j (`X`, `NV18`, `PIX`).

    `notes` names cells that were run together in the text. `pci_only`: `topo -mp`'s, whose cells
    of GPUs show no NVLink. `rates` are in Gbit/s, by name of NIC. `gpu` is the name of all GPUs.
    """

    source: str
    devices: tuple[SmiDevice, ...]
    cells: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    pci_only: bool = False
    rates: dict[str, int] = {}
    gpu: str | None = None


class MatrixRow(NamedTuple):
    """The cells of a row, the values of the columns after them, and the words that were split."""

    cells: tuple[str, ...]
    rest: dict[str, str]
    split: tuple[str, ...]


def read_matrix(data: bytes, source: str) -> SmiMatrix:
    """Return the matrix in the output of `nvidia-smi topo -m`, else that of `topo -mp`.

    Rows of NICs at the end may be cut off: those of the GPUs show the same connections. Raises
    InputError, with the line, if there is no matrix, or if a row of a GPU is missing or truncated.
    """
    lines = _lines(data, source)
    at, names, trailing = find_header(lines, source)
    pci_only = shows_pci_only(lines, at)
    if pci_only:
        try:
            later, *_ = find_header(lines, source, at + 1)
            if not shows_pci_only(lines, later):
                at, names, trailing = find_header(lines, source, later)
                pci_only = False
        except InputError:
            pass
    legend = nic_names(lines)
    devices: list[SmiDevice] = []
    cells: list[tuple[str, ...]] = []
    notes: list[str] = []
    for number, line in enumerate(lines[at + 1 :], at + 2):
        words = line.split()
        if not words:
            continue
        if words[0] not in names:
            if devices:
                break
            continue
        if words[0] != names[len(devices)]:
            raise InputError(
                f"row {words[0]} stands where {names[len(devices)]} belongs",
                where=f"{source}:{number}",
                hint="save it whole: nvidia-smi topo -m > FILE",
            )
        row = read_row(line, names, trailing, f"{source}:{number}")
        cells.append(row.cells)
        notes += [f"lost tab in line {number}, restored as {one}" for one in row.split]
        devices.append(_device(words[0], legend, row.rest, devices))
        if len(devices) == len(names):
            break
    if len(devices) < len(names):
        missing = names[len(devices) :]
        if any(_GPU.fullmatch(name) for name in missing):
            raise InputError(
                f"has {len(devices)} rows for {len(names)} columns",
                where=source,
                hint="save it whole: nvidia-smi topo -m > FILE",
            )
        notes.append(f"rows that are cut off, taken from the columns: {' '.join(missing)}")
        for place, name in enumerate(missing, len(devices)):
            known = [one[place] for one in cells]
            cells.append((*known, "X", *[_UNKNOWN] * (len(names) - place - 1)))
            devices.append(_device(name, legend, {}, devices))
    return SmiMatrix(
        source=source,
        devices=tuple(devices),
        cells=tuple(cells),
        notes=tuple(notes),
        pci_only=pci_only,
        rates=nic_rates(lines),
        gpu=_gpu_name(lines),
    )


def shows_pci_only(lines: list[str], at: int) -> bool:
    """Return whether the matrix whose header is `lines[at]` is of `nvidia-smi topo -mp`.

    Its command above it shows that, or its whole legend, which has no NVLink.
    """
    end = next((one for one in range(at + 1, len(lines)) if _topo_header(lines[one])), len(lines))
    start = max((one for one in range(at) if "topo " in lines[one]), default=0)
    if any(PCI_MATRIX.search(line) for line in lines[start:at]):
        return True
    legend = [words[0] for line in lines[at:end] if (words := line.split()) and words[1:2] == ["="]]
    is_whole = any(line.startswith("NIC Legend") for line in lines[at:end])
    return is_whole and "PIX" in legend and "NV#" not in legend


def _topo_header(line: str) -> bool:
    words = line.split()
    return words[:1] == ["GPU0"] and not _is_cell(words[1] if len(words) > 1 else "")


def nic_names(lines: Iterable[str]) -> dict[str, str]:
    """Return the names of `NIC0`, ... in the legend below the table."""
    return {name: device for line in lines for name, device in _LEGEND.findall(line)}


def nic_rates(lines: Iterable[str]) -> dict[str, int]:
    """Return the rates of active ports in `ibstat` or `ibstatus`, in Gbit/s by name of NIC.

    A NIC whose ports, or those of several nodes, differ is left out.
    """
    found: dict[str, set[int]] = {}
    name, active = "", True
    for match in filter(None, map(_PORT.match, lines)):
        if match["name"]:
            name, active = match["name"], True
        elif match["state"]:
            active = match["state"].lower() == "active"
        elif name and active:
            found.setdefault(name, set()).add(int(match["rate"]))
    return {name: min(rates) for name, rates in found.items() if len(rates) == 1}


def _gpu_name(lines: Iterable[str]) -> str | None:
    """Return the name that `nvidia-smi -L` or PyTorch's `collect_env` gives to all GPUs, if one."""
    listed = [line for line in lines if "(UUID: GPU-" in line]
    listed += _LISTED.findall("\n".join(lines))
    names = set(_NAMED.findall("\n".join(listed)))
    return names.pop() if len(names) == 1 else None


def looks_like_matrix(text: str) -> bool:
    """Return whether a text may have a matrix: one of its first 50 lines begins with GPU0, or any
    line is a row of GPU0."""
    rows = (line.split(None, 2) for line in plain_lines(text))
    return any(
        row[:1] == ["GPU0"] and (at < _HEAD or any(map(_is_cell, row[1:2])))
        for at, row in enumerate(rows)
    )


def _lines(data: bytes, source: str) -> list[str]:
    if len(data) > MAX_BYTES:
        raise InputError(
            f"has {len(data)} bytes, more than {MAX_BYTES}",
            where=source,
            hint="the output of nvidia-smi topo -m has a few KiB: is this the right file?",
        )
    try:
        check_text(data)
    except InputError as error:
        raise InputError(error.message, where=source, hint=error.hint) from None
    text = data.decode(encoding_of(data[:4]), errors="replace")
    return plain_lines(text)


def find_header(lines: list[str], source: str, start: int = 0) -> tuple[int, list[str], list[str]]:
    """Return the index in `lines` of the first header from `start` on, the device names, and the
    names of the other columns.

    Raises InputError if there is no header, if two devices have the same name, or if there are more
    than MAX_DEVICES.
    """
    for at, line in enumerate(lines[start:], start):
        if not _topo_header(line):
            continue
        words = line.split()
        cut = [line.find(name) for name in _TRAILING if name in line]
        names = line[: min(cut)].split() if cut else words
        if len(names) > MAX_DEVICES or len(set(names)) < len(names):
            raise InputError(
                f"the header names {len(names)} devices, not all different or over {MAX_DEVICES}",
                where=f"{source}:{at + 1}",
                hint="save it whole: nvidia-smi topo -m > FILE",
            )
        return at, names, [name for name in _TRAILING if name in line]
    raise InputError(
        "holds no matrix of nvidia-smi: no header begins with GPU0 GPU1",
        where=source,
        hint="save it whole: nvidia-smi topo -m > FILE",
    )


def _is_cell(word: str) -> bool:
    return KIND.fullmatch(word) is not None


def read_row(line: str, names: list[str], trailing: list[str], where: str) -> MatrixRow:
    """Return the cells of a row, and the values of the columns after them.

    With tabs, empty columns after the cells keep their positions. Raises InputError if the row is
    truncated or has unknown words.
    """
    # Pasted text may have kept only some of its tabs. If no tab follows the first cell, cells are
    # separated by any white space.
    by_tabs = len(line.partition("\t")[0].split()) == 1
    words = line.split("\t") if by_tabs else line.split()
    words = [part for word in words for part in (word.split() or [""])]
    row = row_cells(words[1:], len(names), words[0], where)
    rest = {name: value for name, value in zip(trailing, row.rest, strict=False) if value}
    values = {name: value for name, value in rest.items() if value != "N/A"}
    return MatrixRow(row.cells, values, row.split)


def _device(
    word: str, legend: dict[str, str], rest: dict[str, str], before: list[SmiDevice]
) -> SmiDevice:
    is_gpu = _GPU.fullmatch(word) is not None
    index = int(word[3:]) if is_gpu else sum(not device.is_gpu for device in before)
    numa = rest.get("NUMA Affinity", "")
    return SmiDevice(
        name=legend.get(word, word),
        is_gpu=is_gpu,
        index=index,
        cpu_affinity=rest.get("CPU Affinity"),
        numa=int(numa) if numa.isdecimal() and len(numa) < 7 else None,
    )


def smi_topology(matrix: SmiMatrix, *, sm: int | None = None) -> Topology:
    """Return the tree that a matrix implies: which devices share a switch, and which share a CPU.

    The matrix has no bus ids, so they are invented. It also has no link speeds and no NIC speeds.
    `unread` states this. `sm` is the compute capability of the GPUs, if it is known; without it,
    the NVLinks of the two models with 6 and 12 of them to all other GPUs show it.
    """
    return _Tree(matrix, sm).topology()


def _sm_of_links(matrix: SmiMatrix) -> int | None:
    """Return the compute capability that only one GPU model with such NVLinks has, else None.

    V100 has 6 NVLinks and A100 12, to NVSwitches or divided among at least three other GPUs. Other
    numbers, and bridges between two GPUs, are of several models.
    """
    found = set()
    for index, device in enumerate(matrix.devices):
        if device.is_gpu:
            cells = [_NVLINK.fullmatch(cell) for cell in matrix.cells[index]]
            counts = [int(cell.group(1)) for cell in cells if cell is not None]
            switched = sum(counts) > _MOST_LINKS
            found.add((max(counts) if switched else sum(counts), len(counts) >= 3))
    links, several = found.pop() if len(found) == 1 else (0, False)
    return {6: 70, 12: 80}.get(links) if several else None


class _Tree:
    """A builder of the tree, which groups devices by distance."""

    def __init__(self, matrix: SmiMatrix, sm: int | None) -> None:
        self.matrix = matrix
        self.sm = sm if sm is not None else _sm_of_links(matrix)
        self.switches = 0
        self.uneven: list[str] = []

    def distance(self, one: int, other: int) -> int:
        """Return the PCIe distance of two devices.

        If the two cells of the pair differ, the larger distance counts. A cell with an NVLink does
        not show this distance. The distance is then derived from other cells.
        """
        cells = (self.matrix.cells[one][other], self.matrix.cells[other][one])
        known = [_DISTANCES[cell] for cell in cells if cell in _DISTANCES]
        if known:
            return max(known)
        return self._behind_nvlink(one, other)

    def _behind_nvlink(self, one: int, other: int) -> int:
        """Derive the distance of two GPUs with NVLink from a third device or the NUMA nodes."""
        bound = _DISTANCES["SYS"]
        for third in range(len(self.matrix.devices)):
            pair = [self.matrix.cells[third][place] for place in (one, other)]
            if third in (one, other) or any(cell not in _DISTANCES for cell in pair):
                continue
            near, far = sorted(_DISTANCES[cell] for cell in pair)
            # In a tree, the two largest of the three distances are equal. So the unknown distance
            # equals the larger of the two known ones.
            if near < far:
                return far
            bound = min(bound, far)
        numas = [self.matrix.devices[place].numa for place in (one, other)]
        affinities = [self.matrix.devices[place].cpu_affinity for place in (one, other)]
        same = numas[0] == numas[1] and affinities[0] == affinities[1]
        return min(bound, _DISTANCES["NODE"] if same else _DISTANCES["SYS"])

    def groups(self, members: list[int], limit: int) -> list[list[int]]:
        """Return the groups of members, in order.

        Two members are in one group if a chain of distances of at most `limit` connects them.
        """
        found: list[list[int]] = []
        for member in members:
            near = [
                group
                for group in found
                if any(self.distance(member, other) <= limit for other in group)
            ]
            joined = sorted([member, *(other for group in near for other in group)])
            found = [group for group in found if group not in near] + [joined]
        return sorted(found)

    def topology(self) -> Topology:
        everyone = list(range(len(self.matrix.devices)))
        cpus = []
        named = {device.numa for device in self.matrix.devices}
        taken: set[int] = set()
        for place, members in enumerate(self.groups(everyone, _DISTANCES["NODE"])):
            devices = [self.matrix.devices[member] for member in members]
            told = next((device.numa for device in devices if device.numa is not None), None)
            numa = told if told is not None and told not in taken else place
            while numa in taken or (numa != told and numa in named):
                numa += 1
            taken.add(numa)
            text = next((one.cpu_affinity for one in devices if one.cpu_affinity), None)
            listed = cpus_of(text) if text is not None else None
            cpus.append(
                Cpu(
                    numa=numa,
                    is_guess=numa != told,
                    affinity=mask_of(listed) if listed else None,
                    devices=tuple(self.under_cpu(members)),
                )
            )
        nics = {device.name for device in self.matrix.devices if not device.is_gpu}
        unknown = (
            "speeds of links are not known: nvidia-smi topo -m does not show them"
            if nics and nics <= self.matrix.rates.keys()
            else "speeds of links and NICs are not known: nvidia-smi topo -m shows neither"
        )
        return Topology(
            source=self.matrix.source,
            dialect=Dialect.SMI,
            cpus=tuple(cpus),
            unread=(f"bus ids are made up, {unknown}",
                    *([PCI_ONLY] if self.matrix.pci_only else ()),
                    *self.matrix.notes, *self.asymmetric()),
        )  # fmt: skip

    def under_cpu(self, members: list[int]) -> list[Pci]:
        devices = []
        for near in self.groups(members, _DISTANCES["PXB"]):
            if len(near) == 1:
                devices.append(self.device(near[0]))
                continue
            switches = [self.switch(group) for group in self.groups(near, _DISTANCES["PIX"])]
            if len(switches) == 1:
                devices += switches
            else:
                devices.append(self.bridge(tuple(switches)))
        return devices

    def switch(self, members: list[int]) -> Pci:
        return self.bridge(tuple(self.device(member) for member in members))

    def bridge(self, children: tuple[Pci, ...]) -> Pci:
        self.switches += 1
        bus_id = f"ffff:{0x100 - 1 - (self.switches >> 5):02x}:{self.switches & 31:02x}.0"
        return Pci(bus_id=bus_id, class_code="0x060400", children=children)

    def device(self, member: int) -> Pci:
        device = self.matrix.devices[member]
        if device.is_gpu:
            gpu = Gpu(index=device.index, sm=self.sm, nvlinks=self.nvlinks(member))
            return Pci(bus_id=gpu_bus_id(device.index), class_code="0x030200", gpu=gpu)
        rate = self.matrix.rates.get(device.name)
        net = Net(name=device.name, index=device.index, mbit_per_s=rate and 1000 * rate)
        return Pci(bus_id=f"fff1:{device.index:02x}:00.0", class_code="0x020000", nets=(net,))

    def nvlinks(self, member: int) -> tuple[NvLink, ...]:
        counts = {}
        for other, cell in enumerate(self.matrix.cells[member]):
            found = _NVLINK.fullmatch(cell)
            if found is not None and self.matrix.devices[other].is_gpu and other != member:
                counts[other] = int(found.group(1))
        if sum(counts.values()) > _MOST_LINKS:
            most = max(counts.values())
            return (NvLink(target="fffffff:ffff:ff", count=most, target_class="0x068000"),)
        return tuple(
            NvLink(
                target=gpu_bus_id(self.matrix.devices[other].index),
                count=count,
                target_class="0x030200",
            )
            for other, count in counts.items()
        )

    def asymmetric(self) -> list[str]:
        names = [device.name for device in self.matrix.devices]
        cells = self.matrix.cells
        return [
            f"{names[i]} to {names[j]} is {cells[i][j]}, but back it is {cells[j][i]}"
            for i in range(len(names))
            for j in range(i)
            if cells[i][j] != cells[j][i] and _UNKNOWN not in (cells[i][j], cells[j][i])
        ][:20]


def gpu_bus_id(index: int) -> str:
    """Return the invented bus id of a GPU of a matrix."""
    return f"fff0:{index & 255:02x}:{index >> 8:02x}.0"
