# SPDX-License-Identifier: Apache-2.0
"""The sizes that can be measured: a grid, and the size halfway between two others."""

import math
from dataclasses import dataclass

from nccltune.model.collective import Collective

_SCATTERED = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER})
ELEMENT_BYTES = 4
"""Bytes of one element of the measured data type (float)."""
_VECTOR_BYTES = 16
"""Bytes that NCCL's kernels load at once, so sizes are multiples, as those of most programs."""


@dataclass(frozen=True)
class Grid:
    """Sizes of one collective of `ranks` ranks, from `low` to `high` bytes inclusive.

    The size of an all-gather or reduce-scatter is the sum over all ranks, that of a group the sum
    over its `group_calls` calls; sizes are multiples accordingly.

    >>> Grid(Collective.ALLREDUCE, 4, 1024, 65536).every(4)
    [1024, 4096, 16384, 65536]
    """

    collective: Collective
    ranks: int
    low: int
    high: int
    group_calls: int = 1

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
        """Return the largest measurable size below `edge` (else 0) and the smallest one from it
        on."""
        near = self.aligned(edge)
        step = self._step(near)
        low, high = near, near
        while low >= edge:
            low -= step
        while high < edge:
            high += step
        return max(0, low), high

    def enclosing(self, size: int) -> tuple[int, int]:
        """Return the largest measurable size up to `size`, and the smallest one from it on.

        A size below one element of each rank has that element on both sides.
        """
        low = self.around(size + 1)[0] or self.aligned(1)
        return low, self.around(size)[1]

    def middle(self, left: int, right: int) -> int | None:
        """Return the measurable size halfway (log) between two sizes; None if there is none."""
        size = self.aligned(round(math.sqrt(left * right)))
        return size if left < size < right else None

    def _step(self, size: int) -> int:
        parts = self.group_calls * (self.ranks if self.collective in _SCATTERED else 1)
        return parts * (_VECTOR_BYTES if size >= 16 * parts * _VECTOR_BYTES else ELEMENT_BYTES)
