# SPDX-License-Identifier: Apache-2.0
"""The calls that every process of an experiment times, whatever its settings are.

A *call* is one collective at one size.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nccltune.measure.adaptive.time_estimate import MOST_ITERATIONS, TARGET_US
from nccltune.measure.bench.conditions import PLAIN, CallKind, conditions
from nccltune.measure.bench.conversation import Measure
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective

REPEATS = 3
"""Timings of a call in one process; their median counts once, as processes differ more."""
_LEAST_ITERATIONS = 3
_WARMUP = 1
_FIRST_WARMUP = 3
"""Untimed calls before the first timing of a size, for connections and buffers."""
_GUESS_US = 10.0
_GUESS_BYTES_PER_US = 100e3
"""Assumed speed of a call before its first timing, about NVLink's."""
_TIMEOUT_S = 60.0

Call = tuple[Collective, int]


class Workload(NamedTuple):
    """The calls to time: sizes in bytes, by collective.

    With `load`, the GPUs run compute kernels during the calls. `kind` is how these are made.
    """

    sizes: Mapping[Collective, Sequence[int]]
    load: bool = False
    kind: CallKind = PLAIN

    def calls(self) -> Iterator[Call]:
        """Yield every call as (collective, bytes)."""
        for collective, sizes in self.sizes.items():
            for size in sizes:
                yield collective, size

    def requests(self, known_us: Mapping[Call, float], seed: int) -> Iterator[Measure]:
        """Yield the requests to the bench, sizes shuffled by `seed`.

        `known_us` decides how many calls make one timing, so all processes must get the same.
        """
        for collective, sizes in self.sizes.items():
            dtype, redop, root = conditions(collective)
            grouped: dict[int, list[int]] = {}
            for size in sizes:
                call_us = known_us.get((collective, size), _GUESS_US + size / _GUESS_BYTES_PER_US)
                wanted = min(max(round(TARGET_US / call_us), _LEAST_ITERATIONS), MOST_ITERATIONS)
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
                        registered=self.kind.registered,
                        graph=self.kind.graph,
                        first_round=repeat,
                        default_repeats=1,
                        warmup=_WARMUP if repeat else _FIRST_WARMUP,
                        iterations=iterations,
                        seed=seed,
                        check=repeat == 0,
                        timeout_s=_TIMEOUT_S,
                    )

    def only(self, calls: Mapping[Call, float]) -> "Workload":
        """Return this workload with only the calls that are keys of `calls`."""
        return self._replace(
            sizes={
                collective: [size for size in sizes if (collective, size) in calls]
                for collective, sizes in self.sizes.items()
            }
        )
