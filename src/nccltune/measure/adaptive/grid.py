# SPDX-License-Identifier: Apache-2.0
"""The sizes that are measured: grids, and the middle between two sizes."""

import math
from dataclasses import dataclass

from nccltune.model.collective import Collective

_SCATTERED = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER})
ELEMENT_BYTES = 4
"""Bytes of one element of the measured data type (float)."""
_VECTOR_BYTES = 16
"""Bytes that NCCL's kernels load at once. Sizes of real messages are multiples of it, except tiny
ones. Another size would time the slow remainder of the loop."""


@dataclass(frozen=True)
class Grid:
    """Sizes of one collective of `ranks` ranks, from `low` to `high` bytes inclusive.

    All-gather and reduce-scatter count bytes over all ranks, so their sizes are multiples of
    `ranks` elements.

    >>> Grid(Collective.ALLREDUCE, 4, 1024, 65536).every(4)
    [1024, 4096, 16384, 65536]
    """

    collective: Collective
    ranks: int
    low: int
    high: int

    def every(self, factor: int) -> list[int]:
        """Return the sizes `low`, `low * factor`, `low * factor**2`, ..., and `high`."""
        sizes = []
        size = self.low
        while size < self.high:
            sizes.append(self.aligned(size))
            size *= factor
        return sorted({*sizes, self.aligned(self.high)})

    def aligned(self, size: int) -> int:
        """Return the nearest size that can be measured, with at least one element on each rank."""
        step = self._step(size)
        return max(1, round(size / step)) * step

    def around(self, edge: int) -> tuple[int, int]:
        """Return the measurable sizes on both sides of `edge`: the largest below it, and the
        smallest at or above it. The first is 0 where there is none."""
        near = self.aligned(edge)
        step = self._step(near)
        low, high = near, near
        while low >= edge:
            low -= step
        while high < edge:
            high += step
        return max(0, low), high

    def middle(self, left: int, right: int) -> int | None:
        """Return the size halfway between two sizes on a log axis; None where no size lies between
        them."""
        size = self.aligned(round(math.sqrt(left * right)))
        return size if left < size < right else None

    def _step(self, size: int) -> int:
        parts = self.ranks if self.collective in _SCATTERED else 1
        return parts * (_VECTOR_BYTES if size >= 16 * parts * _VECTOR_BYTES else ELEMENT_BYTES)
