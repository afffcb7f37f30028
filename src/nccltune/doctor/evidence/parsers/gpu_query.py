# SPDX-License-Identifier: Apache-2.0
"""Parse the query outputs of `nvidia-smi` for GPUs into one record type.

The formats are `--query-gpu=... --format=csv`, `-q -x` (XML) and `-q` (text), of drivers 450 to
580, the table of `nvidia-smi` and the list of `-L`. Elements of the XML are found by string search,
without an XML parser that a hostile file could attack.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import bus_id, lines_of, real, whole
from nccltune.doctor.facts.gpu import NodeGpu

# Bits in the mask of clock event reasons that mean a fault or a limit (nvml.h, driver 580).
_BITS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_MOST_GPUS = 256
SECTION = r"Fabric|ECC Errors|Remapped Rows|Clocks (?:Event|Throttle) Reasons"
"""Titles of sections of `nvidia-smi -q` that people cut out with `grep -A`."""
_NO_VALUE = frozenset({"", "N/A", "[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]"})
# Compute capability by architecture, for formats that do not print the compute capability.
_BY_ARCHITECTURE = {"Volta": 70, "Turing": 75, "Ada Lovelace": 89, "Ada": 89, "Hopper": 90}
_BY_NAME = (
    (re.compile(r"\b(?:A100|A800|A30)\b"), 80),
    (re.compile(r"\b(?:A10G?|A16|A2|A40|RTX A\d+|RTX 30\d0)\b"), 86),
    (re.compile(r"\bG?B300\b"), 103),
    (re.compile(r"\bG?B200\b"), 100),
    (re.compile(r"\b(?:RTX PRO|RTX 50\d0)\b"), 120),
)


class GpuQuery(NamedTuple):
    """GPUs and driver version of an output. `problem` is nvidia-smi's message if it failed."""

    gpus: list[NodeGpu]
    driver: str | None
    unread: int = 0
    problem: str | None = None


QUERY = (
    "index,pci.bus_id,name,driver_version,memory.total,persistence_mode,utilization.gpu,"
    "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,"
    "clocks_throttle_reasons.active,clocks.current.sm,clocks.max.sm,temperature.gpu,"
    "ecc.errors.uncorrected.volatile.total,mig.mode.current"
)
"""Fields that drivers 450 to 580 know. A field that a driver does not know makes the query fail."""
QUERY_CAPABILITY = "index,compute_cap"
QUERY_FABRIC = "index,fabric.state,fabric.status"
"""Fields of newer drivers. They have queries of their own, because an unknown field makes a query
fail."""


def parse_gpu_query(text: str) -> GpuQuery:
    """Parse any output of nvidia-smi that describes GPUs.

    Several CSV tables in one text are merged by GPU index.
    """
    if "<nvidia_smi_log" in text or "<gpu id=" in text:
        return _xml(text)
    if re.search(
        rf"^GPU [0-9a-fA-F]{{4,8}}:[0-9a-fA-F]{{2}}:|^[ \t]+(?:{SECTION})$|^\s+CliqueId\s+: ",
        text,
        re.M,
    ):
        return _text(text)
    table = parse_gpu_table(text)
    return _of_rows(dict(sorted(table.items())[:_MOST_GPUS])) if table else _csv(text)


def _of_rows(
    rows: dict[int, dict[str, str]], unread: int = 0, problem: str | None = None
) -> GpuQuery:
    """Return the GPUs of a table. `rows` has the fields of each GPU index, by CSV name."""
    drivers = (_value(row.get("driver_version")) for row in rows.values())
    driver = next((one for one in drivers if one is not None), None)
    gpus = [_made(index, row.get) for index, row in sorted(rows.items())]
    return GpuQuery(gpus, driver, unread, problem)


def _value(text: str | None) -> str | None:
    return None if text is None or text.strip() in _NO_VALUE else text.strip()


def _made(index: int, said: Callable[[str], str | None]) -> NodeGpu:
    """Return a GPU. `said` returns the value of a field by its CSV name, or None."""

    def value(name: str) -> str | None:
        return _value(said(name))

    name = value("name")
    capability = real(value("compute_cap"))
    place = value("pci.bus_id")
    persistence = value("persistence_mode")
    pending = [_yes(value(name)) for name in ("remap.pending", "retired_pages.pending")]
    return NodeGpu(
        index=index,
        bus_id=bus_id(place) if place else None,
        name=name,
        sm=round(capability * 10) if capability else _sm(name, value("architecture")),
        pcie_gen=whole(value("pcie.link.gen.current")),
        pcie_gen_max=whole(value("pcie.link.gen.max")),
        pcie_width=whole(value("pcie.link.width.current")),
        pcie_width_max=whole(value("pcie.link.width.max")),
        utilization_pct=whole(value("utilization.gpu")),
        persistence=None if persistence is None else persistence.lower() in ("enabled", "yes"),
        slowdowns=_slowdowns(value("clocks_event_reasons.active")),
        sm_clock_mhz=whole(value("clocks.current.sm")),
        sm_clock_max_mhz=whole(value("clocks.max.sm")),
        temperature_c=whole(value("temperature.gpu")),
        power_w=_watts(value("power.draw")),
        power_limit_w=_watts(value("enforced.power.limit") or value("power.limit")),
        power_default_w=_watts(value("power.default_limit")),
        ecc_uncorrected=whole(value("ecc.errors.uncorrected.volatile.total")),
        remap_pending=True if True in pending else False if False in pending else None,
        remap_failed=_yes(value("remap.failed")),
        recovery_action=_word(value("gpu_recovery_action")),
        mig={"Enabled": True, "Disabled": False}.get((value("mig.mode.current") or "").rstrip("*")),
        fabric_state=_word(value("fabric.state")),
        fabric_health=_word(value("fabric.health")),
        fabric_status=_word(value("fabric.status")),
    )


def _watts(text: str | None) -> float | None:
    return None if text is None else real(text.removesuffix("W").strip())


def _word(text: str | None) -> str | None:
    return None if text is None else "_".join(text.lower().split())


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "Yes"


def _sm(name: str | None, architecture: str | None) -> int | None:
    if architecture in _BY_ARCHITECTURE:
        return _BY_ARCHITECTURE[architecture]
    return next((sm for pattern, sm in _BY_NAME if name and pattern.search(name)), None)


def _slowdowns(mask: str | None) -> list[str] | None:
    if mask is None:
        return None
    if "," in mask or not mask[:1].isdigit():
        # Not a mask but names of reasons, separated by commas. The XML and text formats have names.
        return [name for name in mask.split(",") if name in _BITS.values()]
    bits = whole(mask)
    return None if bits is None else [name for bit, name in _BITS.items() if bits & bit]


_QUERIED = re.compile(r"\bnvidia-smi .{0,80}--query-gpu[= ](?P<fields>[\w.]+(?:,[\w.]+)*)")
_NUMBER = re.compile(r"memory\.|utilization\.|temperature\.|power\.draw|pcie\.link|clocks\.")
_CELL = re.compile(r"-?\d|\[|N/A|$")
_REMARK = re.compile(r"\s(?:<=|<-|#|//).*")


def _csv(text: str) -> GpuQuery:
    header: list[str] = []
    rows: dict[int, dict[str, str]] = {}
    unread, problem, count, is_asked = 0, None, 0, False
    for _, line in lines_of(text):
        if (match := _QUERIED.search(line)) is not None:
            # With `noheader` the columns are named by the command alone, for the lines below it.
            header, count = [_field(name) for name in match["fields"].split(",")], 0
            is_asked, header = True, header if "noheader" in line else []
            continue
        cells = [cell.strip() for cell in _REMARK.sub("", line).split(",")]
        names = [_field(cell) for cell in cells]
        if cells[0] == "index" or _FIELDS.issuperset(names):
            header, count, is_asked = names, 0, False
        elif header and not _is_failure(line) and _fits(header, cells):
            row = dict(zip(header, cells, strict=True))
            # A table without an index column lists the GPUs in the order of their indices.
            index = row.get("index", str(count))
            count += 1
            if not index.isdecimal() or len(index) > 5:
                unread += 1
                header = [] if is_asked else header
                continue
            rows.setdefault(int(index), {}).update(row)
        elif _is_failure(line):
            problem = line.strip()[:200]
        else:
            unread += 1
            header = [] if is_asked else header
    return _of_rows(rows, unread, problem)


def _fits(header: list[str], cells: list[str]) -> bool:
    """Return whether each column has a cell: that of a number a number, or a mark of none."""
    pairs = zip(header, cells, strict=False)
    return len(cells) == len(header) and all(
        _CELL.match(cell) for name, cell in pairs if _NUMBER.match(name)
    )


def _field(cell: str) -> str:
    """Return a column's name without its unit. Older names are mapped to newer ones."""
    name = cell.partition(" [")[0].replace("clocks_throttle_reasons.", "clocks_event_reasons.")
    name = {"clocks.sm": "clocks.current.sm"}.get(name, name.replace(".gpucurrent", ".current"))
    return {"gpu_name": "name", "gpu_bus_id": "pci.bus_id"}.get(name, name)


_FIELDS = frozenset(
    {
        *(_field(name) for name in f"{QUERY},{QUERY_CAPABILITY},{QUERY_FABRIC}".split(",")),
        *("timestamp", "uuid", "gpu_uuid", "gpu_name", "gpu_bus_id", "serial", "count", "pstate"),
        *("memory.used", "memory.free", "utilization.memory", "power.draw", "power.limit"),
        *("enforced.power.limit", "power.default_limit", "power.max_limit", "power.min_limit"),
        *("ecc.mode.current", "vbios_version", "clocks.mem", "clocks.gr"),
        *("ecc.errors.uncorrected.aggregate.total", "ecc.errors.corrected.volatile.total"),
        *("pcie.link.gen.gpumax", "pcie.link.gen.hostmax"),
        *(
            "temperature.memory",
            "compute_mode",
            "gpu_recovery_action",
            "clocks_event_reasons.hw_slowdown",
        ),
    }
)
"""Known column names. A line that has only these names, in any order, is the header of a table."""


def _is_failure(line: str) -> bool:
    return line.startswith(
        ("NVIDIA-SMI has failed", "Failed to ", "No devices were found", "Field ", "Unable to ")
    )


# Place of each field in the XML: section ("" means anywhere in the GPU), elements to try.
_ELEMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pci.bus_id": ("pci", ("pci_bus_id",)),
    "name": ("", ("product_name",)),
    "architecture": ("", ("product_architecture",)),
    "persistence_mode": ("", ("persistence_mode",)),
    "utilization.gpu": ("utilization", ("gpu_util",)),
    "pcie.link.gen.current": ("pcie_gen", ("current_link_gen",)),
    "pcie.link.gen.max": ("pcie_gen", ("max_link_gen",)),
    "pcie.link.width.current": ("link_widths", ("current_link_width",)),
    "pcie.link.width.max": ("link_widths", ("max_link_width",)),
    "clocks.current.sm": ("clocks", ("sm_clock",)),
    "clocks.max.sm": ("max_clocks", ("sm_clock",)),
    "temperature.gpu": ("temperature", ("gpu_temp",)),
    "power.draw": ("", ("power_draw", "average_power_draw", "instant_power_draw")),
    "power.limit": ("", ("enforced_power_limit", "current_power_limit", "power_limit")),
    "power.default_limit": ("", ("default_power_limit",)),
    "remap.pending": ("remapped_rows", ("remapped_row_pending", "pending")),
    "remap.failed": ("remapped_rows", ("remapped_row_failure", "remap_failure")),
    "retired_pages.pending": ("retired_pages", ("pending_blacklist", "pending_retirement")),
    "gpu_recovery_action": ("", ("gpu_recovery_action",)),
    "mig.mode.current": ("mig_mode", ("current_mig",)),
    "fabric.state": ("fabric", ("state",)),
    "fabric.health": ("fabric", ("summary",)),
    "fabric.status": ("fabric", ("status",)),
}
_ECC = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")


def _xml(text: str) -> GpuQuery:
    driver = _element(text[:4096], "driver_version")
    gpus, unread = [], 0
    blocks = re.split(r"(?=<gpu id=)", text)[1:]
    for index, block in enumerate(blocks[:_MOST_GPUS]):
        gpu = _made(index, _finder(block))
        if gpu.bus_id is None and gpu.name is None:
            unread += 1
        else:
            gpus.append(gpu)
    if len(blocks) < (whole(_element(text[:4096], "attached_gpus")) or 0):
        for gpu in gpus:
            gpu.index = None
    return GpuQuery(gpus, _value(driver), unread + max(0, len(blocks) - _MOST_GPUS))


def _finder(block: str) -> Callable[[str], str | None]:
    def said(name: str) -> str | None:
        if name == "clocks_event_reasons.active":
            return _reasons(block)
        if name == "ecc.errors.uncorrected.volatile.total":
            return _volatile(block)
        if name not in _ELEMENTS:
            return None
        section, elements = _ELEMENTS[name]
        part = _section(block, section) if section else block
        found = (_element(part, element) for element in elements)
        return next((value for value in found if value is not None), None)

    return said


def _section(block: str, name: str) -> str:
    start = block.find(f"<{name}>")
    end = block.find(f"</{name}>", start)
    return block[start:end] if 0 <= start < end else ""


def _element(block: str, name: str) -> str | None:
    start = block.find(f"<{name}>")
    if start < 0:
        return None
    start += len(name) + 2
    end = block.find("<", start, start + 200)
    return block[start:end].strip() if end >= 0 else None


def _reasons(block: str) -> str | None:
    part = _section(block, "clocks_event_reasons") or _section(block, "clocks_throttle_reasons")
    if not part:
        return None
    names = re.findall(r"_reason_([a-z_]+)>\s*Active\s*<", part)
    return ",".join(names) + ","


def _volatile(block: str) -> str | None:
    part = _section(block, "volatile")
    counts = [whole(_element(part, name)) for name in (*_ECC, "dram_uncorrectable")]
    if all(count is None for count in counts):
        # Older GPUs report one sum for DRAM and SRAM.
        return _element(_section(part, "double_bit"), "total")
    return str(sum(count or 0 for count in counts))


# Place of each field in the text format: titles of sections and label, joined by slashes.
_LABELS = {
    "name": "Product Name",
    "architecture": "Product Architecture",
    "pci.bus_id": "PCI/Bus Id",
    "persistence_mode": "Persistence Mode",
    "utilization.gpu": "Utilization/GPU",
    "pcie.link.gen.current": "PCI/GPU Link Info/PCIe Generation/Current",
    "pcie.link.gen.max": "PCI/GPU Link Info/PCIe Generation/Max",
    "pcie.link.width.current": "PCI/GPU Link Info/Link Width/Current",
    "pcie.link.width.max": "PCI/GPU Link Info/Link Width/Max",
    "clocks.current.sm": "Clocks/SM",
    "clocks.max.sm": "Max Clocks/SM",
    "temperature.gpu": "Temperature/GPU Current Temp",
    "remap.pending": "Remapped Rows/Pending",
    "remap.failed": "Remapped Rows/Remapping Failure Occurred",
    "retired_pages.pending": "Retired Pages/Pending Page Blacklist",
    "gpu_recovery_action": "GPU Recovery Action",
    "mig.mode.current": "MIG Mode/Current",
    "fabric.state": "Fabric/State",
    "fabric.health": "Fabric/Health/Summary",
    "fabric.status": "Fabric/Status",
}


# Labels of older and newer drivers.
_POWER = {
    "power.draw": ("Power Draw", "Average Power Draw", "Instantaneous Power Draw"),
    "power.limit": ("Enforced Power Limit", "Current Power Limit", "Power Limit"),
    "power.default_limit": ("Default Power Limit",),
}


def _text(text: str) -> GpuQuery:
    gpus: list[NodeGpu] = []
    driver = re.search(r"^Driver Version\s*: (\S+)", text, re.M)
    fields: dict[str, str] = {}
    titles: list[tuple[int, str]] = []

    def done() -> None:
        if fields:
            gpus.append(_made(len(gpus), _labels(dict(fields))))
        fields.clear()

    for _, line in lines_of(text):
        if line.startswith("GPU "):
            done()
            titles = []
            # Take the bus id from the title: all drivers print it there.
            fields["PCI/Bus Id"] = line[4:].strip()
            continue
        if "PCI/Bus Id" not in fields and re.fullmatch(SECTION, line.strip()):
            # `nvidia-smi -q | grep -A9 Fabric` has no titles of GPUs: a section comes once a GPU.
            if any(path.startswith(line.strip()) for path in fields):
                done()
            titles, fields[""] = [], ""
        if not fields or line == "--":
            continue
        indent = len(line) - len(line.lstrip(" "))
        label, sign, value = line.strip().partition(" : ")
        while titles and titles[-1][0] >= indent:
            titles.pop()
        label = label.strip()
        if not sign:
            titles.append((indent, label))
        else:
            fields.setdefault("/".join([*(title for _, title in titles), label]), value.strip())
    done()
    attached = re.search(r"^Attached GPUs\s*: (\d{1,4})\s*$", text, re.M)
    if attached and len(gpus) > 1 and int(attached[1]) > len(gpus):
        for gpu in gpus:
            gpu.index = None
    elif len(gpus) == 1 and (gpus[0].bus_id is None or (attached and attached[1] != "1")):
        # A section alone may be of any GPU, unless the command is there, too.
        asked = set(re.findall(r"\bnvidia-smi [^|\n]*-i[ =]?(\d{1,4})\b", text))
        gpus[0].index = int(asked.pop()) if len(asked) == 1 else None
    return GpuQuery(gpus, driver[1] if driver else None)


def _labels(fields: dict[str, str]) -> Callable[[str], str | None]:
    def said(name: str) -> str | None:
        if name == "clocks_event_reasons.active":
            reasons = [
                path.rpartition("/")[2].lower().replace(" ", "_")
                for path, value in fields.items()
                if path.startswith(("Clocks Event Reasons/", "Clocks Throttle Reasons/"))
                and value.strip() == "Active"
            ]
            known = any(path.startswith(("Clocks Event R", "Clocks Throttle R")) for path in fields)
            return ",".join(reasons) + "," if known else None
        if name == "ecc.errors.uncorrected.volatile.total":
            counts = [
                count
                for path, value in fields.items()
                if path.startswith("ECC Errors/Volatile/")
                and "Uncorrectable" in path
                and (count := whole(value)) is not None
            ]
            return str(sum(counts)) if counts else None
        if name in _POWER:
            words = [
                fields[path]
                for path in (f"{title}Power Readings/{one}" for title in ("", "GPU ")
                             for one in _POWER[name])
                if path in fields
            ]  # fmt: skip
            return next(iter(words), None)
        label = _LABELS.get(name)
        return fields.get(label) if label else None

    return said


_DRIVER = re.compile(r"Driver Version: (?P<driver>\d[\d.]{0,20})")
_FIRST = re.compile(
    r"^\|\s+(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|ERR!|N/A)\s*\|"
    r"\s+(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s[^|]*\|"
    r"\s*(?P<ecc>\S+)\s*\|\s*$"
)
_SECOND = re.compile(
    r"^\|\s*\S+\s+(?P<temperature>\d{1,3})C\s+P\d\s*"
    r"(?:(?P<draw>\d+)W / +(?P<limit>\d+)W)?[^|]*\|[^|/]*/\s*\d{1,9}MiB\s*\|"
    r"\s*(?P<busy>\d{1,3})%"
)
_MIG = re.compile(
    r"^\|\s*\|\s*\|\s*(?P<mode>(?:En|Dis)abled\*?)\s*\|\s*$|\s+MIG \S+\s+Device\s+\d+: \(UUID: "
)
_LISTED = re.compile(r"^GPU (?P<index>\d{1,3}): (?P<name>\S.*?) \(UUID: ")


def parse_gpu_table(text: str) -> dict[int, dict[str, str]]:
    """Return fields by GPU index. Fields have the names of `nvidia-smi --query-gpu`.

    The result is empty if the text has neither the table nor the list.
    """
    found: dict[int, dict[str, str]] = {}
    driver = _DRIVER.search(text)
    current: dict[str, str] = {}
    for _, line in lines_of(text):
        if (match := _FIRST.match(line)) is not None:
            current = {
                "name": match["name"],
                "pci.bus_id": match["bus"],
                "persistence_mode": {"On": "Enabled", "Off": "Disabled"}.get(
                    match["persistence"], ""
                ),
                "ecc.errors.uncorrected.volatile.total": match["ecc"],
                "driver_version": driver["driver"] if driver is not None else "",
            }
            found[int(match["index"])] = current
        elif current and (match := _SECOND.match(line)) is not None:
            current["temperature.gpu"] = match["temperature"]
            current["utilization.gpu"] = match["busy"]
            current |= {"power.draw": match["draw"] or "", "power.limit": match["limit"] or ""}
        elif (match := _LISTED.match(line)) is not None:
            current = found.setdefault(int(match["index"]), {"name": match["name"]})
        elif current and (match := _MIG.match(line)) is not None:
            current["mig.mode.current"] = match["mode"] or "Enabled"
    return found
