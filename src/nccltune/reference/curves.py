# SPDX-License-Identifier: Apache-2.0
"""Curves of reference systems: the published ones of the package, and files of users."""

import functools
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.errors import InputError

_SATURATED = 1 << 30
"""From this size on, the bus bandwidth of the nearest measured size stands for others."""
_GAP = 4
"""Largest ratio of neighbouring sizes between which times are interpolated."""


class ReferenceCurve(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The times of one collective on one system; one line of a reference file.

    - `system`: the name of the system. Several curves of one system count once.
    - `gpu`: the GPU model. `gpus` is the number of all GPUs.
    - `nic_gbps_per_gpu`: the rate of a node's NICs in Gbit/s, divided by its GPUs; None if unknown.
    - `settings`: settings that differ from the defaults. Such a curve counts only if its system has
      no other one.
    - `source`: where it was published.
    - `read`: how: from a row of a table or log, a figure stated in a text, or an own run.
    - `time_derived`: the times were computed from bus bandwidths.
    - `fault`: what the source reports to be wrong. Such a curve is no measure of what is normal.
    - `points`: sizes in bytes, as NCCL's tuner counts them, and times in us.
    - `busbw_gb_per_s`: a bus bandwidth at large sizes that is stated without a size.
    """

    system: str
    gpu: str
    gpus: int
    nodes: int
    nic_gbps_per_gpu: float | None = None
    nccl: str | None = None
    settings: str | None = None
    collective: Collective
    source: str
    read: Literal["table", "stated", "own"]
    time_derived: bool = False
    in_place: bool = False
    note: str | None = None
    fault: str | None = None
    points: tuple[tuple[int, float], ...] = ()
    busbw_gb_per_s: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that no measurement has."""
        if not 1 <= self.nodes <= self.gpus or self.gpus < 2:
            raise ValueError(f"{self.gpus} GPUs on {self.nodes} nodes")
        if not self.points and self.busbw_gb_per_s is None:
            raise ValueError("neither points nor busbw_gb_per_s")
        if any(size < 1 or not time_us > 0 for size, time_us in self.points):
            raise ValueError("a size or time is not above 0")
        if any(one >= other for (one, _), (other, _) in pairwise(self.points)):
            raise ValueError("the sizes of the points do not rise")

    def busbw_at(self, size: int) -> float | None:
        """Return the bus bandwidth in GB/s at a size; None if no measured size is near."""
        sizes = [at for at, _ in self.points]
        if size in sizes:
            return self._busbw(sizes.index(size))
        if size >= _SATURATED:
            large = [i for i, at in enumerate(sizes) if at >= _SATURATED]
            if large:
                return self._busbw(min(large, key=lambda i: abs(sizes[i] - size)))
            return self.busbw_gb_per_s
        for i, (low, high) in enumerate(pairwise(sizes)):
            if low < size < high <= _GAP * low:
                share = (size - low) / (high - low)
                one, other = self.points[i][1], self.points[i + 1][1]
                return self.collective.busbw_gb_per_s(size, one + share * (other - one), self.gpus)
        return None

    def least_us(self, low: int, high: int) -> float | None:
        """Return the least time of the sizes from `low` to `high`; None if none was measured."""
        return min((time_us for size, time_us in self.points if low <= size <= high), default=None)

    def _busbw(self, place: int) -> float:
        return self.collective.busbw_gb_per_s(*self.points[place], self.gpus)


@functools.cache
def published_curves() -> tuple[ReferenceCurve, ...]:
    """Return the published curves that are in the package."""
    text = resources.files("nccltune.reference").joinpath("curves.jsonl").read_bytes()
    return tuple(msgspec.json.decode(line, type=ReferenceCurve) for line in text.splitlines())


def read_curves(path: Path) -> list[ReferenceCurve]:
    """Read a reference file, or a folder's `*.jsonl`. Raises InputError with file and line."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    found = []
    for file in files:
        try:
            lines = file.read_bytes().splitlines()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found.append(msgspec.json.decode(line, type=ReferenceCurve))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(
                    f"no curve of a reference system: {error}",
                    where=f"{file}:{number}",
                    hint="nccltune compare LOG -o FILE.jsonl writes such a file",
                ) from error
    return found


def add_curves(path: Path, curves: Sequence[ReferenceCurve]) -> int:
    """Append curves to a reference file, and return how many it did not have yet."""
    known = set(read_curves(path)) if path.exists() else set()
    new = [curve for curve in dict.fromkeys(curves) if curve not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(curve) + b"\n" for curve in new)
    return len(new)
