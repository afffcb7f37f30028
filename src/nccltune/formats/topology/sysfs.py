# SPDX-License-Identifier: Apache-2.0
"""Read the PCI tree of the running machine from sysfs, as NCCL builds it (`graph/xml.cc`, 2.30).

Neither root rights nor a driver are needed. A switch is one device with the name of its upstream
port: NCCL skips the downstream port between the switch and a device. Speeds and widths are the
smaller of the values of the device and of its port. NVLink and compute capability are not in sysfs.
"""

import re
from pathlib import Path

from nccltune.model.topology import Cpu, Dialect, Gpu, Net, Pci, Topology

_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_VENDORS = {"0x10de": ("0x03",), "0x1002": ("0x03", "0x12")}
_SPEED = re.compile(r"([\d.]+)\s*GT/s")
_RATE = re.compile(r"([\d.]+)\s*Gb/sec")


def read_sysfs(root: Path = Path("/")) -> Topology:
    """Return the machine's topology; `root` is the folder that has `sys` and `proc`.

    The topology of a machine without GPUs and NICs has only CPUs.
    """
    return _Machine(root).topology()


class _Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys = root / "sys"
        self.unread: list[str] = []
        self.paths: dict[str, Path] = {}
        self.children: dict[str, list[str]] = {}
        self.roots: dict[int, list[str]] = {}
        self.nets: dict[str, list[Net]] = {}
        self.other_nets: list[Net] = []
        self.gpus: list[str] = []
        self._ports = 0

    def topology(self) -> Topology:
        folder = self.sys / "bus" / "pci" / "devices"
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            entries = []
            self.unread.append(f"{folder}: {error.strerror}: no PCI device is seen")
        found = {entry.name: entry.resolve() for entry in entries}
        self.gpus = [name for name, path in found.items() if self._is_gpu(path)]
        self._network()
        for name in [*self.gpus, *self.nets]:
            if name in found:
                self._place(found[name])
        known = self._numa_nodes()
        numas = sorted({*self.roots, *known} if known else self.roots) or [-1]
        if -1 in self.roots and numas == [-1, 0]:
            # With one NUMA node, devices without a node number can only belong to that node.
            self.roots[0] = self.roots.get(0, []) + self.roots.pop(-1)
            numas = [0]
        cpu = _cpu_facts(self.root)
        cpus = [
            Cpu(
                numa=numa,
                affinity=known.get(numa),
                devices=tuple(self._pci(name) for name in self.roots.get(numa, ())),
                nets=tuple(self.other_nets) if place == 0 else (),
                **cpu,  # type: ignore[arg-type]
            )
            for place, numa in enumerate(numas)
        ]
        return Topology(
            source=str(self.root / "sys"),
            dialect=Dialect.SYSFS,
            cpus=tuple(cpus),
            unread=tuple(self.unread),
        )

    def _is_gpu(self, path: Path) -> bool:
        classes = _GPU_VENDORS.get(_text(path / "vendor") or "")
        return classes is not None and (_text(path / "class") or "").startswith(classes)

    def _place(self, path: Path) -> None:
        """Add a device to its switch, this switch to the switch above, and so on up to a CPU."""
        name = path.name
        if name in self.paths:
            return
        self.paths[name] = path
        numa = _number(_text(path / "numa_node"))
        above = path.parent
        if _BDF.fullmatch(above.name) and _BDF.fullmatch(above.parent.name):
            switch = above.parent
            self.children.setdefault(switch.name, []).append(name)
            self._place(switch)
        else:
            self.roots.setdefault(-1 if numa is None else numa, []).append(name)

    def _pci(self, name: str) -> Pci:
        path = self.paths[name]
        gpu = Gpu(index=self.gpus.index(name)) if name in self.gpus else None
        width = _smaller(path / "max_link_width", path.parent / "max_link_width")
        code = _text(path / "class")
        return Pci(
            bus_id=name,
            class_code=code,
            vendor=_text(path / "vendor"),
            device=_text(path / "device"),
            subsystem_vendor=_text(path / "subsystem_vendor"),
            subsystem_device=_text(path / "subsystem_device"),
            speed=_slower(path / "max_link_speed", path.parent / "max_link_speed"),
            width=width,
            gpu=gpu,
            nets=tuple(self.nets.get(name, ())),
            children=tuple(self._pci(child) for child in self.children.get(name, ())),
        )

    def _network(self) -> None:
        """Collect RDMA devices by their own names, and other NICs by their interface names.

        Ports and interfaces that are down are not collected; they are listed in `unread`.
        """
        cards = set()
        for entry in _entries(self.sys / "class" / "infiniband"):
            path = (entry / "device").resolve()
            cards.add(path)
            for port in _entries(entry / "ports"):
                state = _text(port / "state")
                if state is not None and "ACTIVE" not in state:
                    self.unread.append(f"{entry.name} port {port.name} is {state}: NCCL skips it")
                    continue
                rate = _RATE.match(_text(port / "rate") or "")
                self._add(
                    path,
                    Net(
                        name=entry.name,
                        index=self._ports,
                        port=_number(port.name),
                        mbit_per_s=int(float(rate.group(1)) * 1000) if rate else None,
                        guid=_guid(_text(entry / "node_guid")),
                    ),
                )
        for entry in _entries(self.sys / "class" / "net"):
            device = entry / "device"
            if not device.exists():
                continue
            path = device.resolve()
            if _text(entry / "operstate") == "down":
                if path not in cards:
                    self.unread.append(f"{entry.name} is down: NCCL skips it")
            elif path not in cards:
                speed = _number(_text(entry / "speed"))
                self._add(path, Net(name=entry.name, index=self._ports, mbit_per_s=speed))

    def _add(self, path: Path, net: Net) -> None:
        self._ports += 1
        if _BDF.fullmatch(path.name) is None:
            # NCCL attaches a NIC that is not a PCI device (virtio) to the first CPU.
            self.other_nets.append(net)
            return
        # Like NCCL, treat the PCI functions of a card as ports of one device.
        name = path.name[:-1] + "0"
        target = name if (path.parent / name).exists() else path.name
        self.nets.setdefault(target, []).append(net)

    def _numa_nodes(self) -> dict[int, str | None]:
        folder = self.sys / "devices" / "system" / "node"
        found = {}
        for entry in _entries(folder):
            number = re.fullmatch(r"node(\d{1,6})", entry.name)
            if number is not None:
                found[int(number.group(1))] = _text(entry / "cpumap")
        return found


def _cpu_facts(root: Path) -> dict[str, str | int | None]:
    """Return architecture, vendor, family and model of the first CPU in `/proc/cpuinfo`.

    On arm64 and ppc64, return only the architecture. Return nothing if it is unknown.
    """
    facts: dict[str, str] = {}
    try:
        with (root / "proc" / "cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                name, colon, value = line.partition(":")
                if colon:
                    facts.setdefault(name.strip(), value.strip("\n").removeprefix(" "))
                elif facts:
                    break
    except OSError:
        return {}
    if "vendor_id" in facts:
        return {
            "arch": "x86_64",
            "vendor": facts["vendor_id"],
            "family": _number(facts.get("cpu family")),
            "model": _number(facts.get("model")),
        }
    if "CPU implementer" in facts:
        return {"arch": "arm64"}
    return {"arch": "ppc64"} if "POWER" in facts.get("cpu", "") else {}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `mlx5_10` after `mlx5_9`."""
    parts = re.split(r"(\d{1,9})", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _text(path: Path) -> str | None:
    """Return a file's first 4 KiB without outer white space; None if unreadable or empty."""
    try:
        with path.open("rb") as file:
            text = file.read(4096).decode("utf-8", errors="replace").strip()
    except OSError:
        return None
    return text or None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,12}", text) else None


def _smaller(*paths: Path) -> int | None:
    found = [number for path in paths if (number := _number(_text(path))) is not None]
    return min(found, default=None)


def _slower(device: Path, port: Path) -> str | None:
    """Return the link speed as text: the slower of device and port; None if both are unknown."""
    mine, above = _text(device), _text(port)
    return above if above is not None and _speed(above) < _speed(mine) else mine or above


def _speed(text: str | None) -> float:
    number = _SPEED.match(text or "")
    return float(number.group(1)) if number else float("inf")


def _guid(text: str | None) -> str | None:
    return "0x" + text.replace(":", "").lstrip("0") if text else None
