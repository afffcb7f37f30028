# SPDX-License-Identifier: Apache-2.0
"""The topologies of tests/data, by name."""

from pathlib import Path

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.topology import Topology

FOLDER = Path(__file__).parents[2] / "data" / "topologies"
SHARED = Path(__file__).parents[4] / "shared" / "data"
"""Files of other projects and of real runs. They are beside the repository, not in it."""


def sample(name: str) -> Topology:
    """Read the topology `tests/data/topologies/NAME.xml`."""
    return read_topology((FOLDER / f"{name}.xml").read_bytes(), f"{name}.xml")
