# SPDX-License-Identifier: Apache-2.0
"""What every process of a race measures: the same calls, whatever its settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nccltune.measure.conversation import Measure
from nccltune.measure.outlook import MOST_ITERATIONS, TARGET_US
from nccltune.measure.record import conditions
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

RACED = Collective.SENDRECV
ELSEWHERE = (Collective.ALLTOALL, Collective.ALLREDUCE)
"""What the settings may cost: all-to-all is made of send/recv, and the buffer is everybody's."""
REPEATS = 3
"""Timings of every call in one process. Their median is one value: what differs from process to
process is what an interval has to tell."""
_LEAST_ITERATIONS = 3
_WARMUP = 1
_FIRST_WARMUP = 3
"""Untimed calls where a size comes first: connections are made, buffers mapped."""
_ELEMENT_BYTES = 4
_VECTOR_BYTES = 16
_GUESS_US = 10.0
_GUESS_BYTES_PER_US = 100e3
"""A call before anything is known of it, on NVLink: the first process only looks."""
_TIMEOUT_S = 60.0
_TRAFFIC_TARGET_US = 5000.0
_TRAFFIC_MOST_ITERATIONS = 100
"""Beside traffic a timing is as long as several of its exchanges, which calls come between."""

Call = tuple[Collective, int]


class Workload(NamedTuple):
    """Sizes in bytes by collective; with `load` they are timed while the GPUs compute, with
    `traffic` while messages of so many bytes go round."""

    sizes: Mapping[Collective, Sequence[int]]
    load: bool = False
    traffic: int = 0

    def calls(self) -> Iterator[Call]:
        """Every call."""
        for collective, sizes in self.sizes.items():
            for size in sizes:
                yield collective, size

    def requests(self, known_us: Mapping[Call, float], seed: int) -> Iterator[Measure]:
        """What to ask of the bench. `known_us` says how long a call takes, which decides how many
        of them make one timing: the same in every process, so that they can be compared."""
        target_us = _TRAFFIC_TARGET_US if self.traffic else TARGET_US
        most = _TRAFFIC_MOST_ITERATIONS if self.traffic else MOST_ITERATIONS
        for collective, sizes in self.sizes.items():
            dtype, redop, root = conditions(collective)
            grouped: dict[int, list[int]] = {}
            for size in sizes:
                call_us = known_us.get((collective, size), _GUESS_US + size / _GUESS_BYTES_PER_US)
                wanted = min(max(round(target_us / call_us), _LEAST_ITERATIONS), most)
                grouped.setdefault(wanted, []).append(size)
            for repeat in range(REPEATS):
                for iterations, group in grouped.items():
                    yield Measure(
                        id=0,
                        collective=collective,
                        bytes=group,
                        choices=[DEFAULT],
                        dtype=dtype,
                        redop=redop or "sum",
                        root=root or 0,
                        load=self.load,
                        traffic=self.traffic,
                        first_round=repeat,
                        default_repeats=1,
                        warmup=_WARMUP if repeat else _FIRST_WARMUP,
                        iterations=iterations,
                        seed=seed,
                        check=repeat == 0,
                        timeout_s=_TIMEOUT_S,
                    )

    def only(self, calls: Mapping[Call, float]) -> "Workload":
        """The same without the sizes that could not be measured."""
        return self._replace(
            sizes={
                collective: [size for size in sizes if (collective, size) in calls]
                for collective, sizes in self.sizes.items()
            }
        )


def workload(
    low: int,
    high: int,
    ranks: int,
    able: Sequence[str],
    elsewhere: Sequence[Collective] = ELSEWHERE,
    *,
    factor: int = 2,
    load: bool = False,
    traffic: int = 0,
) -> Workload:
    """Send/recv from `low` to `high` bytes by powers of `factor`, the collectives `elsewhere` (as
    far as the bench is able) by powers of four; with `load` while the GPUs compute, with `traffic`
    while messages of so many bytes go round."""
    raced = _sizes(low, high, factor, _VECTOR_BYTES if low >= _VECTOR_BYTES else _ELEMENT_BYTES)
    found = {RACED: raced}
    for collective in elsewhere:
        if collective.value in able:
            step = ranks * _VECTOR_BYTES if collective is Collective.ALLTOALL else _VECTOR_BYTES
            found[collective] = _sizes(max(low, step), max(high, step), 4, step)
    return Workload(found, load, traffic)


def _sizes(low: int, high: int, factor: int, step: int) -> list[int]:
    sizes = []
    size = low
    while size < high:
        sizes.append(size)
        size *= factor
    return sorted({max(1, round(size / step)) * step for size in (*sizes, high)})
