# SPDX-License-Identifier: Apache-2.0
"""Which kinds of ceilings a published measurement confirms (`measured_kinds.json`).

The file is made from the published figures in `benchmarks/ceilings.toml`:
`python benchmarks/ceilings.py --kinds`. A test compares the two.
"""

import functools
from importlib import resources

import msgspec

from nccltune.model.choice import Algorithm
from nccltune.topology.hardware.bandwidth import nvlink_generation

UNMEASURED = (
    "assumed: the model holds here, too. No published measurement is known of a ceiling of this "
    "kind (algorithm, limiting link, generation of the GPUs, number of nodes)"
)
NEAR = 1.3
"""A measurement confirms a ceiling that is at most this many times the measured bandwidth."""
_OF_GPU = ("nvlink", "nvls", "nvls_blackwell")
"""Figures of links that differ by the generation of the GPU."""


def kind_of(algorithm: Algorithm, figure: str, sm: int, *, nodes: int, joined: bool) -> str:
    """Return the kind of a ceiling by its limiting link's figure, such as `nvls nvls sm90 node`."""
    reach = "domain" if joined else {1: "node", 2: "two"}.get(nodes, "more")
    # A ring over NICs or PCIe is alike on all GPUs. What NCCL gets out of the others is not.
    is_alike = algorithm is Algorithm.RING and figure not in _OF_GPU
    generation = [] if is_alike else [f"sm{nvlink_generation(sm)}"]
    return " ".join([algorithm.value, figure, *generation, reach])


@functools.cache
def _measured_kinds() -> frozenset[str]:
    data = resources.files("nccltune.topology.flows").joinpath("measured_kinds.json").read_bytes()
    return frozenset(msgspec.json.decode(data, type=list[str]))


def is_measured(kind: str) -> bool:
    """Return whether a published measurement confirms a ceiling of this kind."""
    return kind in _measured_kinds()
