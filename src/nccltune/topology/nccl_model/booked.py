# SPDX-License-Identifier: Apache-2.0
"""The bandwidth of ring and tree in NCCL's cost model.

At large sizes NCCL chooses the algorithm with the higher bandwidth. Source: `ncclTopoTuneModel` in
`graph/tuning.cc`, protocol Simple, NCCL 2.19 to 2.30.
"""

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.topology.nccl_model.search import SearchResult

_TREE = 0.92
_PLAIN_TREE = 0.85


def algbw_gb_per_s(
    found: SearchResult, algorithm: Algorithm, collective: Collective, nodes: int, ranks: int
) -> float:
    """Return the algorithm bandwidth (bytes over time) in NCCL's cost model, in GB/s.

    The value holds for large sizes. `algorithm` is ring or tree.
    """
    speed = found.intra_gb_per_s if nodes <= 2 else found.inter_gb_per_s
    bus = found.channels * speed
    if algorithm is Algorithm.TREE:
        return bus * _TREE * (_PLAIN_TREE if found.pattern is Pattern.TREE else 1.0) / 2
    steps = {
        Collective.ALLREDUCE: 2 * (ranks - 1),
        Collective.ALLGATHER: ranks - 1,
        Collective.REDUCESCATTER: ranks - 1,
    }
    return bus * ranks / steps.get(collective, ranks)
