# SPDX-License-Identifier: Apache-2.0
"""Samples of a layout, an effect and a noise."""

import zlib
from datetime import UTC, datetime, timedelta

import numpy as np

from nccltune.model.collective import Collective
from nccltune.model.sample import Sample, Source
from tests.simulation.effects import CHOICES, Effect
from tests.simulation.layouts import Layout, Plan
from tests.simulation.noises import Noise

START = datetime(2026, 3, 2, 8, 0, 0, tzinfo=UTC)
SWEEP_S, PROCESS_S = 60.0, 20.0
"""How long a sweep and one process of nccl-tests take."""
NODES, RANKS = 4, 32


def seed_of(*parts: object) -> int:
    """A seed that is the same in every process and version of Python."""
    return zlib.crc32("|".join(map(str, parts)).encode())


def study(layout: Layout, effect: Effect, noise: Noise, seed: int) -> list[Sample]:
    """The samples of one study, in the order in which a study holds them: that of time for a
    sweep, by choice for files."""
    rng = np.random.default_rng(seed)
    plan = layout.make(rng)
    sizes = np.array(plan.sizes, dtype=float)
    logs = effect.log_times(sizes)[plan.choice, plan.size] + noise(plan, rng)
    times_us = np.round(np.exp(logs), 4).tolist()
    order = range(plan.count)
    if layout.at != "timing" and layout.processes:
        order = np.lexsort((np.arange(plan.count), plan.choice)).tolist()
    return _samples(layout, plan, times_us, order)


def _samples(
    layout: Layout, plan: Plan, times_us: list[float], order: "range | list[int]"
) -> list[Sample]:
    starts = _starts(layout, plan)
    sources = [
        Source(
            tool="nccltune-bench"
            if layout.at == "timing" or not layout.processes
            else "nccl-tests",
            process=f"process-{number:03}" if layout.processes else None,
            in_rounds=layout.in_rounds,
        )
        for number in range(int(plan.process.max()) + 1)
    ]
    choice, size, process = plan.choice.tolist(), plan.size.tolist(), plan.process.tolist()
    round_, repeat, place = plan.round.tolist(), plan.repeat.tolist(), plan.in_place.tolist()
    return [
        Sample(
            study="simulation",
            collective=Collective.ALLREDUCE,
            bytes=plan.sizes[size[n]],
            dtype="float",
            redop="sum",
            nodes=NODES,
            ranks=RANKS,
            in_place=place[n],
            choice=CHOICES[choice[n]],
            round=round_[n],
            repeat=repeat[n],
            time_us=times_us[n],
            wrong=0,
            source=sources[process[n]],
            at=starts[n],
        )
        for n in order
    ]


def _starts(layout: Layout, plan: Plan) -> list[str | None]:
    """`Sample.at` of every timing."""
    if layout.at == "none":
        return [None] * plan.count
    if layout.at == "timing":
        seconds = (plan.time * SWEEP_S).astype(int).tolist()
    else:
        seconds = (plan.process * int(PROCESS_S)).tolist()
    texts = {
        second: (START + timedelta(seconds=second)).isoformat(timespec="seconds")
        for second in set(seconds)
    }
    return [texts[second] for second in seconds]
