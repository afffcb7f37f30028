# SPDX-License-Identifier: Apache-2.0
"""Read NCCL's topology XML, and the dialects of RCCL and FlagCX, into `model.topology.Topology`.

The elements are defined in `graph/xml.cc` (NCCL 2.30): `system` / `cpu` / `pci` (nested) / `gpu`,
`nic` / `net`. A *skeleton* has only the PCI tree; NCCL reads GPUs, links and NICs from the machine.
A *dump* has everything. RCCL's files have version 2 and `xgmi` instead of `nvlink`. FlagCX's files
have `apu` instead of `gpu`.
"""

from collections import Counter

from nccltune.formats.topology.xml_tree import Element, Integer, float_of, read_tree, shown
from nccltune.model.errors import InputError
from nccltune.model.topology import C2c, Cpu, Dialect, Gpu, Net, NvLink, Pci, Topology

MAX_UNREAD = 50
_GPU_TAGS = frozenset(("gpu", "apu"))
_LINK_TAGS = frozenset(("nvlink", "xgmi"))
_KNOWN = {
    "system": {"version", "name"},
    "cpu": {"numaid", "affinity", "arch", "vendor", "familyid", "modelid", "host_hash"},
    "pci": {
        "busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device",
        "link_speed", "link_width",
    },
    "gpu": {"dev", "sm", "rank", "gdr", "gcn", "arch"},
    "nvlink": {"target", "count", "tclass"},
    "c2c": {"bw", "count"},
    "pcilink": {"target"},
    "nic": set(),
    "net": {
        "name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "rail",
        "plane",
    },
}  # fmt: skip


def read_topology(data: bytes, source: str) -> Topology:
    """Return the topology in `data`; `source` is the file name for messages.

    Unknown items are skipped and listed in `unread`. Raises InputError, with the line, if `data` is
    not a topology file.
    """
    document = read_tree(data, source)
    root = document.root
    if root.name != "system":
        what = "a graph file" if root.name == "graphs" else f"<{root.name[:40]}>"
        raise InputError(
            f"is no topology: it begins with {what}, not <system>",
            where=f"{source}:{root.line}",
            hint="name what NCCL wrote to NCCL_TOPO_DUMP_FILE, or a file for NCCL_TOPO_FILE",
        )
    reader = _Reader(source)
    if document.declared:
        reader.skip("header <?xml ...?>", 1)
    reader.look_at(root, "system")
    cpus = tuple(
        reader.cpu(child) for child in root.children if reader.is_one_of(child, ("cpu",), root)
    )
    if not cpus:
        raise InputError(
            "has no <cpu>",
            where=f"{source}:{root.line}",
            hint="every topology of NCCL has at least one; was the file cut?",
        )
    return Topology(
        source=source,
        dialect=_dialect(root, reader.seen),
        cpus=cpus,
        version=root.get("version"),
        name=root.get("name"),
        unread=reader.unread(),
    )


def _dialect(root: Element, seen: set[str]) -> Dialect:
    if "apu" in seen:
        return Dialect.FLAGCX
    if root.get("version") == "2" or seen & {"xgmi", "gcn"}:
        return Dialect.RCCL
    return Dialect.NCCL


class _Reader:
    """A converter of elements to structs. It records the elements and attributes that it skips."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.seen: set[str] = set()
        self._lines: dict[str, int] = {}
        self._counts: Counter[str] = Counter()

    def skip(self, what: str, line: int) -> None:
        """Record something that is not read, with the line of its first occurrence."""
        self._lines.setdefault(what, line)
        self._counts[what] += 1

    def unread(self) -> tuple[str, ...]:
        """Return descriptions of the skipped items, at most MAX_UNREAD."""
        said = [
            f"line {line}: {what}"
            + (f" (and {self._counts[what] - 1} more)" if self._counts[what] > 1 else "")
            for what, line in list(self._lines.items())[:MAX_UNREAD]
        ]
        if len(self._lines) > MAX_UNREAD:
            said.append(f"and {len(self._lines) - MAX_UNREAD} other kinds of things")
        return tuple(said)

    def look_at(self, element: Element, kind: str) -> None:
        """Record the attributes and words of `element` that are not read."""
        for name in element.attributes:
            if name not in _KNOWN[kind]:
                self.skip(f"attribute {name[:40]} of <{element.name}>", element.line)
        if element.text:
            self.skip(f"words inside <{element.name}>", element.line)

    def is_one_of(
        self, child: Element, names: tuple[str, ...] | frozenset[str], parent: Element
    ) -> bool:
        """Return whether the name of `child` is in `names`. If not, record `child` as skipped."""
        if child.name in names:
            return True
        self.skip(f"element <{child.name[:40]}> in <{parent.name}>", child.line)
        return False

    def integer(self, element: Element, name: str) -> int | None:
        """Return an integer as NCCL reads it; None if the attribute is absent."""
        text = element.get(name)
        if text is None:
            return None
        number = Integer(text)
        if not number.clean:
            self.skip(
                f"{name}={shown(text)} of <{element.name}> is no integer, read as {number.value}",
                element.line,
            )
        return number.value

    def flag(self, element: Element, name: str) -> bool | None:
        number = self.integer(element, name)
        return None if number is None else number != 0

    def real(self, element: Element, name: str) -> float | None:
        text = element.get(name)
        if text is None:
            return None
        number = float_of(text)
        if number is None:
            self.skip(
                f"{name}={shown(text)} of <{element.name}> is no number, read as 0", element.line
            )
        return number or 0.0

    def needed(self, element: Element, name: str) -> str:
        """Return an attribute that NCCL requires. Raises InputError if it is absent."""
        text = element.get(name)
        if text is None:
            raise InputError(
                f"<{element.name}> has no {name}",
                where=f"{self.source}:{element.line}",
                hint=f"NCCL refuses the file as well: add {name}, or dump the topology again",
            )
        return text

    def cpu(self, element: Element) -> Cpu:
        self.look_at(element, "cpu")
        devices = []
        nets: list[Net] = []
        for child in element.children:
            if not self.is_one_of(child, ("pci", "nic"), element):
                continue
            if child.name == "pci":
                devices.append(self.pci(child))
            else:
                nets += self.nic(child)
        return Cpu(
            numa=self.integer(element, "numaid"),
            affinity=element.get("affinity"),
            arch=element.get("arch"),
            vendor=element.get("vendor"),
            family=self.integer(element, "familyid"),
            model=self.integer(element, "modelid"),
            host_hash=element.get("host_hash"),
            devices=tuple(devices),
            nets=tuple(nets),
            line=element.line,
        )

    def pci(self, element: Element) -> Pci:
        self.look_at(element, "pci")
        gpu: Gpu | None = None
        nets: list[Net] = []
        children = []
        switch_links = []
        for child in element.children:
            if child.name == "pci":
                children.append(self.pci(child))
            elif child.name in _GPU_TAGS and gpu is None:
                gpu = self.gpu(child)
            elif child.name in _GPU_TAGS:
                self.skip(f"a second <{child.name}> in one <pci>", child.line)
            elif child.name == "nic":
                nets += self.nic(child)
            elif child.name == "pcilink":
                self.look_at(child, "pcilink")
                switch_links.append(self.needed(child, "target"))
            else:
                self.skip(f"element <{child.name[:40]}> in <pci>", child.line)
        return Pci(
            bus_id=self.needed(element, "busid"),
            class_code=element.get("class"),
            vendor=element.get("vendor"),
            device=element.get("device"),
            subsystem_vendor=element.get("subsystem_vendor"),
            subsystem_device=element.get("subsystem_device"),
            speed=element.get("link_speed"),
            width=self.integer(element, "link_width"),
            gpu=gpu,
            nets=tuple(nets),
            children=tuple(children),
            switch_links=tuple(switch_links),
            line=element.line,
        )

    def gpu(self, element: Element) -> Gpu:
        self.look_at(element, "gpu")
        self.seen.add(element.name)
        self.seen.update(name for name in ("gcn",) if name in element.attributes)
        nvlinks = []
        c2c = []
        for child in element.children:
            if child.name in _LINK_TAGS:
                nvlinks.append(self.nvlink(child))
            elif child.name == "c2c":
                self.look_at(child, "c2c")
                c2c.append(
                    C2c(
                        mb_per_s=self.integer(child, "bw") or 0,
                        count=self.integer(child, "count") or 0,
                    )
                )
            else:
                self.skip(f"element <{child.name[:40]}> in <{element.name}>", child.line)
        return Gpu(
            index=self.integer(element, "dev"),
            sm=self.integer(element, "sm"),
            rank=self.integer(element, "rank"),
            gdr=self.flag(element, "gdr"),
            nvlinks=tuple(nvlinks),
            c2c=tuple(c2c),
            name=element.get("gcn"),
        )

    def nvlink(self, element: Element) -> NvLink:
        self.look_at(element, "nvlink")
        self.seen.add(element.name)
        return NvLink(
            target=self.needed(element, "target"),
            count=self.integer(element, "count") or 0,
            target_class=element.get("tclass"),
        )

    def nic(self, element: Element) -> list[Net]:
        self.look_at(element, "nic")
        return [
            self.net(child)
            for child in element.children
            if self.is_one_of(child, ("net",), element)
        ]

    def net(self, element: Element) -> Net:
        self.look_at(element, "net")
        return Net(
            name=element.get("name"),
            index=self.integer(element, "dev"),
            mbit_per_s=self.integer(element, "speed"),
            port=self.integer(element, "port"),
            guid=element.get("guid"),
            latency_us=self.real(element, "latency"),
            max_connections=self.integer(element, "maxconn"),
            gdr=self.flag(element, "gdr"),
            coll=self.flag(element, "coll"),
            rail=self.integer(element, "rail"),
            plane=self.integer(element, "plane"),
        )
