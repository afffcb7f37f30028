# SPDX-License-Identifier: Apache-2.0
"""The bench's name in samples, and the properties of the calls that it measures."""

from typing import NamedTuple

from nccltune.model.collective import Collective

TOOL = "nccltune-bench"
REPLAY_TOOL = "nccltune-bench replay"
DTYPE = "float"
REDOP = "sum"
_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE})


class CallKind(NamedTuple):
    """How a program makes its calls, as far as NCCL's tuner may see it.

    `registered` is whether the buffers are registered. `group_calls` is the number of equal calls
    between `ncclGroupStart` and `ncclGroupEnd`.

    >>> CallKind(registered=True, group_calls=4).title
    'registered, 4 calls a group'
    """

    registered: bool = False
    group_calls: int = 1

    @property
    def title(self) -> str:
        """Return a title such as `registered, 4 calls a group`; empty for plain calls."""
        parts = ["registered"] if self.registered else []
        parts += [f"{self.group_calls} calls a group"] if self.group_calls > 1 else []
        return ", ".join(parts)


PLAIN = CallKind()


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
