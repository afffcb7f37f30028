# SPDX-License-Identifier: Apache-2.0
"""The name of our bench in samples, and the conditions under which it measures a collective."""

from nccltune.model.collective import Collective

TOOL = "nccltune-bench"
REPLAY_TOOL = "nccltune-bench replay"
DTYPE = "float"
REDOP = "sum"
_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE})


def conditions(collective: Collective) -> tuple[str, str | None, int | None]:
    """Return the data type, reduction and root that a collective is measured with.

    Reduction and root are None for collectives without one.
    """
    return (
        DTYPE,
        REDOP if collective in _REDUCING else None,
        0 if collective in _ROOTED else None,
    )
