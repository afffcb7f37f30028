# SPDX-License-Identifier: Apache-2.0
"""A rule: for one collective, a range of sizes and a scale, the choice to make."""

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.collective import Collective


class Rule(msgspec.Struct, frozen=True):
    """One line of a tuner configuration; None matches anything (`-1` in the file).

    The range is inclusive at both ends and counts bytes as NCCL's tuner does.
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
        """Return whether a call of `size` bytes meets every condition of this rule.

        Of a configuration the first rule that matches applies, as NVIDIA documents it for its
        example plugin.
        """
        return (
            self.collective is collective
            and self.min_bytes <= size <= self.max_bytes
            and self.nodes in (None, nodes)
            and self.ranks in (None, ranks)
            and self.pipe_ops in (None, pipe_ops)
            and self.registered in (None, registered)
        )
