# SPDX-License-Identifier: Apache-2.0
"""What is added to the true log of each timing."""

import math
from collections.abc import Callable

import numpy as np

from tests.simulation.effects import CHOICES, Floats
from tests.simulation.layouts import Plan

Noise = Callable[[Plan, np.random.Generator], Floats]
"""Logs to add, one for each timing of the plan."""

ROW = 0.01
"""Of single timings, beneath every other kind of noise."""
STEPS = 56
"""Of slow autocorrelation in a study: the processes of 7 choices in 8 rounds."""


def lognormal(sd: float) -> Noise:
    """Independent timings."""
    return lambda plan, rng: rng.normal(0, sd, plan.count)


def student(plan: Plan, rng: np.random.Generator) -> Floats:
    """Heavy tails: Student's t with 3 degrees of freedom."""
    return 0.03 * rng.standard_t(3, plan.count)


def hiccups(plan: Plan, rng: np.random.Generator) -> Floats:
    """5 % of the timings take 50 to 300 % longer."""
    hit = rng.random(plan.count) < 0.05
    return np.where(hit, np.log(rng.uniform(1.5, 4.0, plan.count)), 0.0)


def drift(change: float) -> Noise:
    """The machine's speed changes evenly over the study; `change` 0.05: 5 % slower at its end."""
    return lambda plan, _: math.log1p(change) * plan.time


def sinus(plan: Plan, rng: np.random.Generator) -> Floats:
    """Three periods of 5 % either way."""
    return 0.05 * np.sin(2 * np.pi * (3 * plan.time + rng.random()))


def _correlated(count: int, rng: np.random.Generator, phi: float = 0.9) -> Floats:
    from scipy.signal import lfilter

    steps = rng.normal(0, math.sqrt(1 - phi**2), count)
    steps[0] = rng.normal()
    return np.asarray(lfilter([1.0], [1.0, -phi], steps))


def correlated_timings(plan: Plan, rng: np.random.Generator) -> Floats:
    """Autocorrelation of 0.9 from one timing to the next, 3 %."""
    return 0.03 * _correlated(plan.count, rng)


def correlated_runs(plan: Plan, rng: np.random.Generator) -> Floats:
    """Autocorrelation of 0.9 from one 56th of the study to the next, 3 %."""
    steps = 0.03 * _correlated(STEPS, rng)
    return steps[np.minimum((plan.time * STEPS).astype(int), STEPS - 1)]


def slow_node(plan: Plan, rng: np.random.Generator) -> Floats:
    """A node slows: everything takes 15 % longer from some time on."""
    return np.where(plan.time > rng.random(), math.log(1.15), 0.0)


def process_offsets(plan: Plan, rng: np.random.Generator) -> Floats:
    """Each process is faster or slower as a whole, 3 %."""
    return 0.03 * rng.normal(size=plan.process.max() + 1)[plan.process]


def process_size_offsets(plan: Plan, rng: np.random.Generator) -> Floats:
    """Each process is faster or slower at each size by itself, 3 %."""
    offsets = rng.normal(size=(plan.process.max() + 1, len(plan.sizes)))
    return 0.03 * offsets[plan.process, plan.size]


def process_smooth_offsets(plan: Plan, rng: np.random.Generator) -> Floats:
    """Offsets of a process that change slowly with size: 3 % at either end of the axis."""
    ends = rng.normal(size=(plan.process.max() + 1, 2))[plan.process]
    share = plan.size / (len(plan.sizes) - 1)
    return 0.03 * (ends[:, 0] * np.cos(share * np.pi / 2) + ends[:, 1] * np.sin(share * np.pi / 2))


def bimodal_processes(plan: Plan, rng: np.random.Generator) -> Floats:
    """Every other process, by chance, takes 8 % longer."""
    return np.where(rng.random(plan.process.max() + 1) < 0.5, math.log(1.08), 0.0)[plan.process]


def bimodal_rows(plan: Plan, rng: np.random.Generator) -> Floats:
    """Every other timing, by chance, takes 8 % longer."""
    return np.where(rng.random(plan.count) < 0.5, math.log(1.08), 0.0)


def _with_rows(noise: Noise, sd: float = ROW) -> Noise:
    return lambda plan, rng: noise(plan, rng) + rng.normal(0, sd, plan.count)


NOISES: dict[str, Noise] = {
    "lognormal-1": lognormal(0.01),
    "lognormal-5": lognormal(0.05),
    "lognormal-15": lognormal(0.15),
    "student": student,
    "hiccups": _with_rows(hiccups),
    "drift-up-5": _with_rows(drift(0.05)),
    "drift-down-5": _with_rows(drift(-0.05)),
    "drift-up-20": _with_rows(drift(0.20)),
    "drift-down-20": _with_rows(drift(-0.20)),
    "drift-down-5-noisy": _with_rows(drift(-0.05), 0.05),
    "sinus": _with_rows(sinus),
    "correlated-timings": _with_rows(correlated_timings),
    "correlated-runs": _with_rows(correlated_runs),
    "slow-node": _with_rows(slow_node),
    "process": _with_rows(process_offsets),
    "process-size": _with_rows(process_size_offsets),
    "process-smooth": _with_rows(process_smooth_offsets),
    "bimodal-processes": _with_rows(bimodal_processes),
    "bimodal-rows": _with_rows(bimodal_rows),
}
assert len(CHOICES) * 8 == STEPS
