# SPDX-License-Identifier: Apache-2.0
"""What the choices truly cost: equal everywhere, or one of them faster in a range of sizes."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nccltune.model.choice import DEFAULT, AnyChoice, Choice, parse_choice

Floats = NDArray[np.float64]

CHOICES: tuple[AnyChoice, ...] = (
    DEFAULT,
    *(parse_choice(f"{a}/{p}") for a in ("tree", "ring") for p in ("ll", "ll128", "simple")),
)
"""The default is number 0."""
PLANTED = 4
"""The number of the choice that has the effect: ring/ll."""
FIRST, LAST = 64 << 10, 4 << 20
"""The range of sizes of an effect, both included."""
LATENCY_US, BYTES_PER_US = 20.0, 150e3
"""Of the default: as on a few nodes with one fast port each."""


@dataclass(frozen=True)
class Effect:
    """The planted choice is `gain` faster from FIRST to LAST and `elsewhere` faster at other sizes
    (0.1: 10 %; below 0: slower). `others` are the gains of the choices 1 to 6 that have none."""

    name: str
    gain: float = 0.0
    elsewhere: float = 0.0
    others: tuple[float, ...] = (0.0,) * 6

    def planted(self, sizes: Floats) -> NDArray[np.bool_]:
        return (sizes >= FIRST) & (sizes <= LAST) & (self.gain > 0)

    def log_gains(self, sizes: Floats) -> Floats:
        """The true log of default over choice time, shape (choices, sizes)."""
        found = np.zeros((len(CHOICES), len(sizes)))
        found[1:] = np.log1p(self.others)[:, None]
        found[PLANTED] = np.where(
            self.planted(sizes), math.log1p(self.gain), math.log1p(self.elsewhere)
        )
        return found

    def log_times(self, sizes: Floats) -> Floats:
        """The true log of the time in us, shape (choices, sizes)."""
        return np.log(LATENCY_US + sizes / BYTES_PER_US) - self.log_gains(sizes)

    def gain_over(self, choice: Choice, sizes: list[int]) -> float:
        gains = self.log_gains(np.array(sizes, dtype=float))[CHOICES.index(choice)]
        return float(gains.mean())


NULL = Effect("null")
SLOWER = (-0.03, -0.1, -0.25, 0.0, -0.05, -0.4)

EFFECTS: dict[str, Effect] = {
    effect.name: effect
    for effect in (
        NULL,
        Effect("gain-4", 0.04),
        Effect("gain-10", 0.10),
        Effect("gain-30", 0.30),
        Effect("gain-10-slower", 0.10, -0.05, SLOWER),
    )
}
