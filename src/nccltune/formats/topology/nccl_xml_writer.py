# SPDX-License-Identifier: Apache-2.0
"""Write a topology as XML that NCCL's parser accepts: no XML declaration, one tag per line."""

from collections.abc import Iterable, Iterator

from nccltune.formats.topology.nccl_xml_rules import refusals
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Pci, Topology

_FORBIDDEN = frozenset("<>&\"'\t\n\r")


def write_topology(topology: Topology, comments: Iterable[str] = ()) -> str:
    """Return the text of a file for NCCL_TOPO_FILE.

    It has only the PCI tree. NCCL adds the GPUs that a job uses, their NVLinks and the NICs.
    Raises InputError if NCCL would refuse the file.
    """
    lines = [f"<!-- {comment.replace('--', '- -')} -->" for comment in comments]
    inside = [line for cpu in topology.cpus for line in _cpu(cpu)]
    facts: dict[str, object] = {"version": topology.version or "1", "name": topology.name}
    lines += _element("system", facts, inside)
    text = "".join(f"{line}\n" for line in lines)
    refused = [refusal for refusal in refusals(text) if refusal.fatal]
    if refused:
        raise InputError(
            f"NCCL would refuse the file: it {refused[0].message}",
            where=f"line {refused[0].line}",
            hint=refused[0].hint,
        )
    return text


def _element(name: str, facts: dict[str, object], inside: list[str]) -> Iterator[str]:
    words = "".join(
        f' {key}="{_value(key, value)}"' for key, value in facts.items() if value is not None
    )
    if not inside:
        yield f"<{name}{words}/>"
        return
    yield f"<{name}{words}>"
    yield from (f"  {line}" for line in inside)
    yield f"</{name}>"


def _value(key: str, value: object) -> str:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    # NCCL's parser supports no entities, so nothing can be escaped.
    if not _FORBIDDEN.isdisjoint(text):
        raise InputError(
            f"{key} '{text[:60]}' has a character that NCCL's parser cannot read",
            hint="leave out quotes, < > & and line ends",
        )
    return text


def _cpu(cpu: Cpu) -> Iterator[str]:
    facts: dict[str, object] = {
        "numaid": cpu.numa if cpu.numa is not None else -1,
        "affinity": cpu.affinity,
        "arch": cpu.arch,
        "vendor": cpu.vendor,
        "familyid": cpu.family,
        "modelid": cpu.model,
    }
    inside = [line for device in cpu.devices for line in _pci(device)]
    yield from _element("cpu", facts, inside)


def _pci(device: Pci) -> Iterator[str]:
    facts: dict[str, object] = {
        "busid": device.bus_id,
        "class": device.class_code,
        "vendor": device.vendor,
        "device": device.device,
        "subsystem_vendor": device.subsystem_vendor,
        "subsystem_device": device.subsystem_device,
        "link_speed": device.speed,
        "link_width": device.width,
    }
    inside = [line for child in device.children for line in _pci(child)]
    for target in device.switch_links:
        inside += _element("pcilink", {"target": target}, [])
    yield from _element("pci", facts, inside)
