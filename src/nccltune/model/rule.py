# SPDX-License-Identifier: Apache-2.0
"""A rule: the choice for one collective, a range of sizes and a scale; and the state of a rule."""

from enum import StrEnum

import msgspec

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale


class RuleState(StrEnum):
    """How much is known about a rule, in ascending order.

    - `CANDIDATE`: the best of the choices measured; the noise or the gain is not known.
    - `SURE`: faster than the default beyond measured noise.
    - `PROVEN`: `verify` measured it against the default, and it holds.
    """

    CANDIDATE = "candidate"
    SURE = "sure"
    PROVEN = "proven"


class Rule(msgspec.Struct, frozen=True):
    """One line of a tuner configuration; None matches all (`-1`).

    Sizes are in bytes, both ends included, counted as NCCL's tuner counts them.
    """

    collective: Collective
    min_bytes: int
    max_bytes: int
    choice: Choice
    nodes: int | None = None
    ranks: int | None = None
    pipe_ops: int | None = None
    registered: bool | None = None

    def matches(
        self,
        collective: Collective,
        size: int,
        nodes: int,
        ranks: int,
        pipe_ops: int = 1,
        registered: bool = False,
    ) -> bool:
        """Return whether a call meets every condition; of several rules the first one applies."""
        return (
            self.collective is collective
            and self.min_bytes <= size <= self.max_bytes
            and self.nodes in (None, nodes)
            and self.ranks in (None, ranks)
            and self.pipe_ops in (None, pipe_ops)
            and self.registered in (None, registered)
        )


_RING_ONLY = frozenset({Collective.BROADCAST, Collective.REDUCE})
_GATHERING = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER})
_NOT_GATHERING = frozenset({Algorithm.TREE, Algorithm.NVLS_TREE, Algorithm.COLLNET_CHAIN})


def impossible(collective: Collective, choice: Choice, scale: Scale) -> str | None:
    """Return why NCCL never runs a choice for a collective at a scale, else None.

    Source: NCCL 2.30, src/graph/tuning.cc and src/transport/nvls.cc. NCCL marks unsupported
    combinations as unusable in the cost table that it passes to a tuner. The plugin then skips the
    rule.
    """
    algorithm = choice.algorithm
    if collective in _RING_ONLY and algorithm is not Algorithm.RING:
        return f"NCCL runs {collective.value} on rings only"
    if collective in _GATHERING and algorithm in _NOT_GATHERING:
        return f"NCCL has no {algorithm.value} algorithm for {collective.value}"
    if collective is Collective.ALLREDUCE and algorithm is Algorithm.PAT:
        return "NCCL has no pat algorithm for allreduce"
    other = algorithm not in (Algorithm.RING, Algorithm.TREE)
    if other and choice.protocol is not Protocol.SIMPLE:
        return f"{algorithm.value} runs with the simple protocol only"
    if algorithm is Algorithm.NVLS_TREE and scale.nodes == 1:
        return "nvls_tree needs more than one node"
    is_nvls = algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE)
    if is_nvls and 0 < scale.nodes <= scale.ranks < 2 * scale.nodes:
        return f"{algorithm.value} needs 2 GPUs or more in each node, as NCCL counts nodes"
    return None
