# SPDX-License-Identifier: Apache-2.0
"""A rule: the choice for one collective, a range of sizes and a scale; and the state of a rule."""

from enum import StrEnum

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.collective import Collective


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
