# SPDX-License-Identifier: Apache-2.0
"""The sizes that are measured: grids, and the middle between two sizes."""

import math
from dataclasses import dataclass

from nccltune.model.collective import Collective

_SCATTERED = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER})
ELEMENT_BYTES = 4
"""Of the data type that is measured (float)."""
_VECTOR_BYTES = 16
"""What NCCL's kernels load at once. Sizes of real messages are multiples of it but for tiny ones;
an odd one would time the slow ends of the loop."""


@dataclass(frozen=True)
class Grid:
    """Sizes from `low` to `high` bytes, both included, that one collective of `ranks` can have.

    All-gather and reduce-scatter count bytes over all ranks, so that these come in steps of ranks.
    """

    collective: Collective
    ranks: int
    low: int
    high: int

    def every(self, factor: int) -> list[int]:
        """`low`, then by `factor` up to `high`, which is always included."""
        sizes = []
        size = self.low
        while size < self.high:
            sizes.append(self.aligned(size))
            size *= factor
        return sorted({*sizes, self.aligned(self.high)})

    def aligned(self, size: int) -> int:
        """The nearest size that can be measured, at least one element on each rank."""
        step = self._step(size)
        return max(1, round(size / step)) * step

    def around(self, edge: int) -> tuple[int, int]:
        """The largest size below `edge` and the smallest from it on that can be measured; the first
        is 0 where there is none."""
        near = self.aligned(edge)
        step = self._step(near)
        low, high = near, near
        while low >= edge:
            low -= step
        while high < edge:
            high += step
        return max(0, low), high

    def middle(self, left: int, right: int) -> int | None:
        """The size halfway between two on a log axis; None where there is none in between."""
        size = self.aligned(round(math.sqrt(left * right)))
        return size if left < size < right else None

    def _step(self, size: int) -> int:
        parts = self.ranks if self.collective in _SCATTERED else 1
        return parts * (_VECTOR_BYTES if size >= 16 * parts * _VECTOR_BYTES else ELEMENT_BYTES)
