# SPDX-License-Identifier: Apache-2.0
"""What both comparisons of copy engines share."""

import math
from typing import Protocol, TypeVar

from nccltune.measure.conversation import Hello
from nccltune.measure.p2p.process_sweep import Asked, OrderT, ProcessSweep, VerdictT
from nccltune.model.errors import PlatformError


class AskedOfBoth(Asked, Protocol):
    """What is wanted of either."""

    @property
    def noise_floor(self) -> float:
        """Smaller differences are none (0.02 is 2 %)."""


AskedOfBothT = TypeVar("AskedOfBothT", bound=AskedOfBoth)


class Comparison(ProcessSweep[AskedOfBothT, OrderT, VerdictT]):
    """One comparison in one study, on one node."""

    retry = True

    @property
    def _floor(self) -> float:
        return math.log1p(self._wanted.noise_floor)

    def _check(self, hello: Hello) -> None:
        if hello.nodes > 1:
            raise PlatformError(
                f"copy engines reach the GPUs of one node; this bench is on {hello.nodes}",
                hint="measure on one node: a threshold holds for all that are alike",
            )
