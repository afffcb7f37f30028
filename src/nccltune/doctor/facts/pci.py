# SPDX-License-Identifier: Apache-2.0
"""Facts of PCI bridges and links."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, records


class HostBridge(FactRecord):
    """One record of the fact `vm_host.bridges`."""

    bus_id: Annotated[str | None, "bus id"] = None
    acs_source_validation: Annotated[
        bool | None, ("ACSCtl SrcValid+; false also where it has no ACS")
    ] = None
    acs_request_redirect: Annotated[
        bool | None, ("ACSCtl ReqRedir+ or CmpltRedir+; false also where it has no ACS")
    ] = None
    acs_control: Annotated[str | None, "the whole ACSCtl line"] = None


class PciBridge(HostBridge):
    """One record of the fact `pci.bridges`."""

    vendor: Annotated[str | None, "0x1000"] = None
    device: Annotated[str | None, "0xc010"] = None
    leads_on: Annotated[bool | None, "a GPU or NIC is below it"] = None


PCI_BRIDGES = records(
    "pci.bridges",
    PciBridge,
    meaning="PCI bridges and switch ports",
    read="lspci -vvv; /sys/bus/pci/devices",
)


class AcsLine(FactRecord):
    """One record of the fact `pci.acs_lines`."""

    text: Annotated[str | None, "the flags: SrcValid+ TransBlk- ReqRedir+ ..."] = None
    count: Annotated[int | None, "how many such lines there are"] = None
    redirects: Annotated[bool | None, "ReqRedir+ or CmpltRedir+: peer traffic goes to the CPU"] = (
        None
    )


PCI_ACS_LINES = records(
    "pci.acs_lines",
    AcsLine,
    meaning="ACS of bridges whose addresses are not known",
    read="lspci -vvv | grep ACSCtl",
)


class LinkLine(FactRecord):
    """One record of the fact `pci.link_lines`."""

    text: Annotated[str | None, "LnkSta: Speed 8GT/s (ok), Width x8 (downgraded)"] = None
    most: Annotated[str | None, "after the LnkCap before it"] = None
    count: Annotated[int | None, "how many such lines there are"] = None
    fewer_lanes: Annotated[bool | None, "the device has more lanes"] = None
    slower: Annotated[bool | None, "the device could go faster"] = None


PCI_LINK_LINES = records(
    "pci.link_lines",
    LinkLine,
    meaning="PCIe links of devices whose addresses, or whose own limits, are not known",
    read="lspci -vvv | grep -E 'LnkCap|LnkSta'",
)


class PciLink(FactRecord):
    """One record of the fact `pci.links`."""

    bus_id: Annotated[str | None, "bus id"] = None
    kind: Annotated[str | None, "gpu, nic, bridge"] = None
    name: Annotated[str | None, "GPU 0, mlx5_0, eth0"] = None
    speed_gt_per_s: Annotated[float | None, "now, a lane"] = None
    speed_gt_per_s_max: Annotated[
        float | None, ("the device's own limit, or the slot's where that is lower and known")
    ] = None
    width: Annotated[int | None, "lanes now"] = None
    width_max: Annotated[int | None, "lanes it has"] = None
    max_read_request: Annotated[int | None, "bytes, DevCtl MaxReadReq"] = None
    ats: Annotated[
        bool | None, ("ATSCtl Enable+; absent where the device has no ATS capability")
    ] = None


PCI_LINKS = records(
    "pci.links",
    PciLink,
    meaning=("links of GPUs, NICs and the bridges above them as they are and as both ends could"),
    read="LnkSta and LnkCap of lspci -vvv; {current,max}_link_{speed,width} in sysfs",
)
VM_HOST_BRIDGES = records(
    "vm_host.bridges",
    HostBridge,
    meaning=("PCI bridges of the machine that carries this VM, where somebody collected its lspci"),
    read="lspci -vvv taken on the VM's host",
)
