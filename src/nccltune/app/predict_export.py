# SPDX-License-Identifier: Apache-2.0
"""Predictions in forms that simulators of training read."""

from collections.abc import Sequence

import msgspec

from nccltune.app.predict import Predicted, PredictRequest, predict_choices
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError

_SIMAI = (Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER)


def as_csv(found: Sequence[Predicted]) -> str:
    """Return every choice's times as CSV; `default` is 1 for NCCL's own.

    Bytes are counted as NCCL's tuner counts them. Choices that only a tuner takes are left out.
    """
    lines = ["collective,algorithm,protocol,nodes,ranks,bytes,time_us,default"]
    for one in found:
        comm = one.prediction.communicator
        for at in one.prediction.sizes:
            for choice, time_us in at.times_us.items():
                if one.prediction.modelled[choice].by_hand:
                    continue
                lines.append(
                    f"{one.prediction.collective},{choice.algorithm},{choice.protocol},"
                    f"{comm.nodes},{comm.ranks},{at.size},{time_us:.6g},{int(choice == at.choice)}"
                )
    return "\n".join(lines) + "\n"


def as_simai(request: PredictRequest) -> str:
    """Return bus bandwidths in GB/s at the last size, in the form of SimAI's `busbw.yaml`.

    Its group TP is one node, DP and EP are all nodes. NCCL's model has no figure for all-to-all and
    for send/recv (PP): they are null.
    """
    everywhere = _rates(request, request.nodes)
    try:
        one_node = _rates(request, 1)
    except InputError:
        # A node with one GPU has no peer in it.
        one_node = dict.fromkeys(_SIMAI, "null")
    lines = ["nccltune"]
    for group, rates in (("TP", one_node), ("DP", everywhere), ("EP", everywhere)):
        lines += [f"{group}:", *(f"  {name},: {rate}" for name, rate in rates.items())]
        lines.append("  alltoall,: null")
    return "\n".join([*lines, "PP:", "  busbw: null"]) + "\n"


def _rates(request: PredictRequest, nodes: int) -> dict[Collective, str]:
    size = request.sizes[1]
    asked = msgspec.structs.replace(
        request, collectives=_SIMAI, sizes=(size, size), nodes=nodes, against=None
    )
    return {
        one.prediction.collective: f"{one.prediction.sizes[0].busbw_gb_per_s:.4g}"
        for one in predict_choices(asked)
    }
