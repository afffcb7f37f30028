# SPDX-License-Identifier: Apache-2.0
"""The topologies of tests/data, by name."""

from pathlib import Path

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.topology import Topology

FOLDER = Path(__file__).parents[2] / "data" / "topologies"
SHARED = Path(__file__).parents[4] / "shared" / "data"
"""Files of others and of real runs, where they lie beside the repository; not part of it."""


def sample(name: str) -> Topology:
    """The topology in `tests/data/topologies/NAME.xml`."""
    return read_topology((FOLDER / f"{name}.xml").read_bytes(), f"{name}.xml")
