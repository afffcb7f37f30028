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
