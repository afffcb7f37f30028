# SPDX-License-Identifier: Apache-2.0
"""The topologies of tests/data, by name."""

from pathlib import Path

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.topology import Topology

FOLDER = Path(__file__).parents[2] / "data" / "topologies"
SHARED = Path(__file__).parents[4] / "shared" / "data"
"""Files of other projects and of real runs. They are beside the repository, not in it."""

MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\n"
    "GPU0\t X \tPIX\tPIX\t0-7\nGPU1\tPIX\t X \tPIX\t0-7\nNIC0\tPIX\tPIX\t X \t\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)
"""Output of `nvidia-smi topo -m`: two GPUs and a NIC on one switch."""


def sample(name: str) -> Topology:
    """Read the topology `tests/data/topologies/NAME.xml`."""
    return read_topology((FOLDER / f"{name}.xml").read_bytes(), f"{name}.xml")


def changed(name: str, *changes: tuple[str, str], count: int = -1) -> Topology:
    """Read a topology with text replaced. Each replacement must change something."""
    return read_topology(changed_text(name, *changes, count=count).encode(), "x.xml")


def changed_text(name: str, *changes: tuple[str, str], count: int = -1) -> str:
    text = (FOLDER / f"{name}.xml").read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, count)
    return text


SKYLAKE = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"'
SAPPHIRE_RAPIDS = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
ROME = 'arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"'


def skeleton_xml(
    *,
    cpus: int,
    switches: int,
    gpus: int,
    nics: int,
    speed: str,
    cpu: str,
    gpu_facts: str = 'class="0x030200"',
    nic_facts: str = 'class="0x020700"',
    gpu_inside: str = "",
) -> str:
    """Return the XML of a node with GPUs and NICs spread in order over its switches, and switches
    over its CPUs.

    The numbers are those of the whole node. Without switches, GPUs are directly below CPUs.
    `gpu_inside` is the content of a GPU's `<pci>`.
    """
    link = f'link_speed="{speed}" link_width="16"'
    groups = switches or cpus
    lines = ['<system version="1">']
    for number in range(cpus):
        lines.append(f'<cpu numaid="{number}" affinity="ffff" {cpu}>')
        for group in range(number * groups // cpus, (number + 1) * groups // cpus):
            if switches:
                lines.append(f'<pci busid="ffff:ff:{group + 1:02x}.0" class="0x060400" {link}>')
            for gpu in range(group * gpus // groups, (group + 1) * gpus // groups):
                lines.append(
                    f'<pci busid="{gpu + 1:04x}:00:00.0" {gpu_facts} {link}>{gpu_inside}</pci>'
                )
            for nic in range(-(-group * nics // groups), -(-(group + 1) * nics // groups)):
                lines.append(f'<pci busid="{nic + 0x101:04x}:00:00.0" {nic_facts} {link}/>')
            if switches:
                lines.append("</pci>")
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>"])


def skeleton(**facts: object) -> Topology:
    """Return the topology of `skeleton_xml`."""
    return read_topology(skeleton_xml(**facts).encode(), "skeleton.xml")  # type: ignore[arg-type]


P4D = {
    "cpus": 2, "switches": 4, "gpus": 8, "nics": 4, "speed": "8 GT/s", "cpu": SKYLAKE,
    "nic_facts": 'class="0x020000"',
}  # fmt: skip
NDV2 = {"cpus": 2, "switches": 0, "gpus": 8, "nics": 1, "speed": "16 GT/s", "cpu": SKYLAKE}
NDV4 = {"cpus": 4, "switches": 4, "gpus": 8, "nics": 8, "speed": "16 GT/s", "cpu": ROME}
NDV5 = {
    "cpus": 2, "switches": 8, "gpus": 8, "nics": 8, "speed": "32.0 GT/s PCIe",
    "cpu": SAPPHIRE_RAPIDS,
}  # fmt: skip
L40S = {
    "cpus": 2, "switches": 2, "gpus": 4, "nics": 2, "speed": "16.0 GT/s PCIe",
    "cpu": SAPPHIRE_RAPIDS,
    "gpu_facts": 'class="0x030200" vendor="0x10de" device="0x26b9"',
}  # fmt: skip
