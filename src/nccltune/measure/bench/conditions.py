# SPDX-License-Identifier: Apache-2.0
"""The bench's name in samples, and the data type, reduction and root that it measures with."""

from nccltune.model.collective import Collective

TOOL = "nccltune-bench"
REPLAY_TOOL = "nccltune-bench replay"
DTYPE = "float"
REDOP = "sum"
_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE})


def conditions(collective: Collective) -> tuple[str, str | None, int | None]:
    """Return the data type, reduction and root that a collective is measured with.

    The reduction is None for collectives that do not reduce. The root is None for collectives
    without a root.
    """
    return (
        DTYPE,
        REDOP if collective in _REDUCING else None,
        0 if collective in _ROOTED else None,
    )
