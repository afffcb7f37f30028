# SPDX-License-Identifier: Apache-2.0
"""Predict times at more nodes from times that were measured at fewer, with an interval.

NCCL's model gives a call three terms: latency inside the node, latency between nodes, and bytes by
bandwidth. Here each term of each algorithm and protocol gets a factor, which depends on the size of
its messages and not on the number of nodes; curves of one node show the first. The factors have a
prior around 1 and are fitted to the logarithms of all measured times at once (a Gaussian process,
linear in the shares of the terms). So an algorithm and protocol that was not measured gets only
what all share, and a wide interval.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from nccltune.model.choice import Algorithm, Choice
from nccltune.model.collective import Collective
from nccltune.model.numbers import significant
from nccltune.model.topology import Topology
from nccltune.predict.constants import NEWEST, rules_of
from nccltune.predict.model import ring_steps
from nccltune.predict.prediction import Prediction, SizePrediction, predict
from nccltune.topology.hardware.bandwidth import Version

Array = NDArray[np.float64]

_SHARED = np.array([0.3, 0.4, 0.1]) ** 2
_OWN = np.array([0.3, 0.3, 0.1]) ** 2
_BY_SIZE = np.array([0.3, 0.7, 0.25]) ** 2
"""Prior variances of the logarithm of a factor (inside the node, between nodes, bandwidth): what
all algorithms share, what one has of its own, and what changes with the size of its messages."""
_SIZE_OCTAVES, _NODE_OCTAVES = 1.5, 2.0
"""Distances over which the factors change with the size, and the rest with the number of nodes."""
_REST, _NOISE = 0.1, 0.06
"""Standard deviations of the logarithm of a time: what no factor explains, and noise of timings."""
_ROUNDS = 8
"""Repetitions of the linear fit: more move a curve with factors up to 40 by less than 0.3 %."""
_OUTLIER = 1.5
"""From this many standard deviations on, a timing gets less weight (Huber)."""
_CLOSE = 1.15
"""Choices whose times in NCCL's model differ by less can be the other one on the real machine."""
_CLOSE_NOISE = 0.5
"""Noise of a timing that may be of such another choice: it can be several times as slow."""
_CONGESTION = 0.2
"""Assumed: each doubling beyond the measured nodes can add this much time (standard deviation)."""
_SLOW = 1.5
"""From this factor of the transfer on, the machine hardly is the one that the topology shows."""
_LEAST_US = 1e-6
"""A term that the model lacks, so that its logarithm exists."""


class ErrorQuantiles(NamedTuple):
    """The quantiles 10 % and 90 % of errors on other systems, in standard deviations of the fit."""

    low: float
    high: float


class TermErrors(NamedTuple):
    """Where nothing is measured: the quantiles 10 % and 90 % of measured by modelled time.

    Those of latency are of calls that consist of it in the model, those of transfer likewise.
    """

    latency: tuple[float, float]
    transfer: tuple[float, float]


USUAL_ERRORS = ErrorQuantiles(-1.24, 1.16)
MODEL_ERRORS = TermErrors(latency=(0.99, 6.4), transfer=(0.98, 1.18))
"""Those of all published systems, from fewer nodes and from the topology alone
(`benchmarks/predict_scoreboard.py` prints them)."""


class MeasuredCurve(NamedTuple):
    """Times in us by size, counted as NCCL's tuner counts them, at a number of nodes.

    `choice` is the choice that was forced; None is NCCL's default. `ran` is what NCCL's log or a
    profiler names for some of its sizes. For the others the default is that of NCCL's model.
    """

    nodes: int
    times_us: Mapping[int, float]
    choice: Choice | None = None
    ran: Mapping[int, Choice] = {}


class ExpectedSize(msgspec.Struct, frozen=True, kw_only=True):
    """The expected time of NCCL's default at a size, with an interval of 80 %.

    `measured` states whether its algorithm and protocol were measured at fewer, but several nodes.
    `others` are choices that are nearly as fast in NCCL's model: the interval covers them, too.
    `deviation` is the standard deviation of the logarithm of the time, without congestion.
    """

    size: int
    choice: Choice
    time_us: float
    low_us: float
    high_us: float
    deviation: float
    measured: bool
    others: tuple[Choice, ...] = ()


class ScaleOut(msgspec.Struct, frozen=True, kw_only=True):
    """Expected times of `prediction.collective` at the nodes of `prediction`.

    - `measured_nodes`: the numbers of nodes of the curves that were used.
    - `factors`: measured by modelled time of each choice: of its latency inside the node, of its
      latency between nodes, and of its transfer (the median of the sizes where the term counts).
    - `notes`: what was assumed.
    """

    prediction: Prediction
    measured_nodes: tuple[int, ...]
    factors: dict[Choice, tuple[float, float, float]]
    sizes: tuple[ExpectedSize, ...]
    notes: tuple[str, ...]


def scale_out(
    topology: Topology,
    curves: Iterable[MeasuredCurve],
    *,
    nodes: int,
    collective: Collective = Collective.ALLREDUCE,
    version: Version = NEWEST,
    ranks_per_node: int | None = None,
    settings: Mapping[str, str] | None = None,
    sizes: Sequence[int],
    errors: ErrorQuantiles | TermErrors | None = None,
) -> ScaleOut:
    """Return the expected times of NCCL's default on `nodes` nodes, from curves at fewer nodes.

    The choice at each size is that of NCCL's model at `nodes` nodes, so the curve switches where
    NCCL does. Curves of `nodes` or more nodes are left out. Without any curve of several nodes the
    result rests on the model alone: one node shows nothing of the network. `errors` are those on
    other systems, TermErrors for the model alone; None takes all published ones. The other
    arguments are those of `predict`.

    Raises InputError for what `predict` raises.
    """

    def model(count: int, at: Iterable[int]) -> Prediction:
        return predict(
            topology,
            collective=collective,
            nodes=count,
            version=version,
            ranks_per_node=ranks_per_node,
            settings=settings,
            sizes=at,
        )

    target = model(nodes, sizes)
    least = 1 if target.communicator.ppn > 1 else 2
    used = [curve for curve in curves if least <= curve.nodes < nodes and curve.times_us]
    if all(curve.nodes == 1 for curve in used):
        used = []
    points, unknown = _points(used, model)
    fit = _Fit(points)
    if points:
        span = math.log2(nodes / max(curve.nodes for curve in used))
        found = _expected(fit, target, span, errors or USUAL_ERRORS)
    else:
        found = expected_of(target, errors or MODEL_ERRORS)
    notes = list(target.notes)
    if any(one.assumed for one in points):
        notes.append("what ran at the measured sizes is not logged: taken from NCCL's model")
    if unknown:
        notes.append(f"left out, as NCCL's model has no {', '.join(sorted(unknown))} here")
    factors = fit.factors()
    slow = {choice: terms[2] for choice, terms in factors.items() if terms[2] > _SLOW}
    if slow and not all(one.measured for one in found):
        choice = max(slow, key=slow.__getitem__)
        notes.append(
            f"{choice.label} transfers {significant(slow[choice])}x as long as its model: if the"
            " network is slower than this topology, choices that were not measured are slower, too"
        )
    return ScaleOut(
        prediction=target,
        measured_nodes=tuple(sorted({curve.nodes for curve in used})),
        factors=factors,
        sizes=found,
        notes=tuple(notes),
    )


def expected_of(
    target: Prediction, errors: ErrorQuantiles | TermErrors = MODEL_ERRORS
) -> tuple[ExpectedSize, ...]:
    """Return the expected times of NCCL's default where nothing is measured."""
    return _expected(_Fit(()), target, math.log2(target.communicator.nodes), errors)


class _Point(NamedTuple):
    """A call: its choice, its terms in the model (us), and where it is on the axes of the fit."""

    choice: Choice
    terms: tuple[float, float, float]
    message: float
    octave: float
    time_us: float = 1.0
    noise: float = _NOISE
    assumed: bool = False


def _point(model: Prediction, at: SizePrediction, choice: Choice) -> _Point:
    """Return a call. A ring's messages are those of one rank."""
    terms = at.terms[choice]
    comm = model.communicator
    parts, net_us = 1, terms.net_us
    if choice.algorithm is Algorithm.RING:
        parts, net_us = comm.ranks, net_us * _crossings(model)
    local = terms.latency_us - terms.net_us
    values = tuple(max(_LEAST_US, one) for one in (local, net_us, terms.transfer_us))
    return _Point(
        choice, (values[0], values[1], values[2]), math.log2(at.size / parts), math.log2(comm.nodes)
    )


def _crossings(model: Prediction) -> float:
    """Return how often a ring's bytes cross between nodes, by how often NCCL's model counts it.

    Every step in `ppn` is between nodes. The model counts the links between nodes instead, which
    differs on few nodes: 2 crossings of an all-reduce on two nodes where bytes cross 4 times.
    """
    comm = model.communicator
    if comm.nodes == 1:
        return 1.0
    twice = model.collective is Collective.ALLREDUCE
    links = comm.nodes if twice and rules_of(comm.version).all_inter_steps else comm.nodes - 1
    steps = ring_steps(model.collective, comm.ranks)
    return -(-steps // comm.ppn) / (2 * links if twice else links)


def _close(at: SizePrediction) -> tuple[Choice, ...]:
    """Return the choices that are nearly as fast as the default in NCCL's model."""
    limit = _CLOSE * at.time_us
    return tuple(one for one, us in at.times_us.items() if us < limit and one != at.choice)


def _points(
    curves: Sequence[MeasuredCurve], model: Callable[[int, Iterable[int]], Prediction]
) -> tuple[list[_Point], set[str]]:
    """Return one point for each choice, scale and size, with the median time.

    The second result are the labels of choices that the model does not have.
    """
    times: dict[tuple[int, int, Choice | None], list[float]] = defaultdict(list)
    for curve in curves:
        for size, time_us in curve.times_us.items():
            choice = curve.choice or curve.ran.get(size)
            times[curve.nodes, size, choice and choice.without_channels()].append(time_us)
    scales: dict[int, set[int]] = defaultdict(set)
    for nodes, size, _ in times:
        scales[nodes].add(size)
    models = {nodes: model(nodes, sorted(sizes)) for nodes, sizes in scales.items()}
    by_size = {(nodes, at.size): at for nodes, one in models.items() for at in one.sizes}
    points, unknown = [], set()
    for (nodes, size, known), values in times.items():
        at = by_size[nodes, size]
        choice = known or at.choice
        if choice not in at.terms or models[nodes].modelled[choice].by_hand:
            unknown.add(choice.label)
            continue
        point = _point(models[nodes], at, choice)
        noise = _CLOSE_NOISE if known is None and _close(at) else _NOISE
        time_us = float(np.median(values))
        points.append(point._replace(time_us=time_us, noise=noise, assumed=known is None))
    return points, unknown


def _expected(
    fit: "_Fit", target: Prediction, span: float, errors: ErrorQuantiles | TermErrors
) -> tuple[ExpectedSize, ...]:
    found = []
    for at in target.sizes:
        others = _close(at)
        points = [_point(target, at, choice) for choice in (at.choice, *others)]
        means, deviations = fit.at(points)
        spread = float(np.hypot(deviations[0], _NOISE))
        congestion = _CONGESTION * span
        if isinstance(errors, TermErrors):
            low, high = _by_terms(points[0], errors, congestion)
        else:
            low, high = errors.low * spread, errors.high * math.hypot(spread, congestion)
        found.append(
            ExpectedSize(
                size=at.size,
                choice=at.choice,
                time_us=math.exp(means[0]),
                low_us=math.exp(min(means[0] + low, *means)),
                high_us=math.exp(max(means[0] + high, *means)),
                deviation=spread,
                measured=at.choice in fit.choices,
                others=others,
            )
        )
    return tuple(found)


def _by_terms(point: _Point, errors: TermErrors, congestion: float) -> tuple[float, float]:
    """Return the ends of the interval from the model alone, as logarithms by the modelled time."""
    local, net, transfer = point.terms
    ends = [
        math.log((latency * (local + net) + longer * transfer) / (local + net + transfer))
        for latency, longer in zip(errors.latency, errors.transfer, strict=True)
    ]
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)
    return -math.hypot(low, _REST, _NOISE), math.hypot(high, _REST, _NOISE, congestion)


class _Fit:
    """The factors of all terms, fitted to measured times."""

    def __init__(self, points: Sequence[_Point]) -> None:
        self.points = points
        # One node shows nothing of a choice's latency between nodes: octave 0.
        self.choices = {one.choice for one in points if one.octave}
        terms = np.array([one.terms for one in points]).reshape(-1, 3)
        times = np.log([one.time_us for one in points])
        variance = np.array([one.noise for one in points]) ** 2
        weights = np.ones(len(points))
        self.logs = np.zeros((len(points), 3))
        # The shares of the terms depend on their factors, so the linear fit is repeated.
        for _ in range(_ROUNDS):
            scaled = terms * np.exp(self.logs)
            self.shares = scaled / scaled.sum(1, keepdims=True)
            aim = times - np.log(scaled.sum(1)) + (self.shares * self.logs).sum(1)
            covariance = self._covariance(points, self.shares)
            self.matrix = covariance + np.diag(variance / weights)
            self.solved = np.linalg.solve(self.matrix, aim)
            missed = np.abs(aim - covariance @ self.solved) / np.sqrt(variance)
            weights = np.minimum(1.0, _OUTLIER / np.maximum(missed, _OUTLIER))
            self.logs += np.clip(self._logs(points) - self.logs, -1, 1)

    def at(self, points: Sequence[_Point]) -> tuple[Array, Array]:
        """Return the logarithm of the time of calls, and its standard deviation."""
        logs = self._logs(points)
        scaled = np.array([one.terms for one in points]) * np.exp(logs)
        shares = scaled / scaled.sum(1, keepdims=True)
        across = self._covariance(points, shares)
        means = np.log(scaled.sum(1)) - (shares * logs).sum(1) + across @ self.solved
        prior = (shares**2 * (_SHARED + _OWN + _BY_SIZE)).sum(1) + _REST**2
        known = (across * np.linalg.solve(self.matrix, across.T).T).sum(1)
        return means, np.sqrt(np.maximum(prior - known, 0.0))

    def factors(self) -> dict[Choice, tuple[float, float, float]]:
        """Return the factors of each choice: the median of the points where the term counts."""
        found: dict[Choice, tuple[float, float, float]] = {}
        for choice in sorted(self.choices, key=lambda one: one.label):
            rows = np.array([one.choice == choice for one in self.points])
            logs, shares = self.logs[rows], self.shares[rows]
            counts = shares >= np.minimum(0.2, shares.max(0))
            medians = [float(np.median(logs[counts[:, k], k])) for k in range(3)]
            found[choice] = (math.exp(medians[0]), math.exp(medians[1]), math.exp(medians[2]))
        return found

    def _kernels(self, points: Sequence[_Point]) -> tuple[Array, Array]:
        """Return the covariances of the factors of `points` and of the measured points.

        The first is [points, measured, terms], the second that of the size of messages.
        """
        same = np.array([[a.choice == b.choice for b in self.points] for a in points], float)
        same = same.reshape(len(points), len(self.points))
        near = same * _near(points, self.points, "message", _SIZE_OCTAVES)
        return _SHARED + same[..., None] * _OWN + near[..., None] * _BY_SIZE, near

    def _logs(self, points: Sequence[_Point]) -> Array:
        """Return the logarithms of the factors of calls."""
        kernels, _ = self._kernels(points)
        return np.asarray(np.einsum("ijk,jk,j->ik", kernels, self.shares, self.solved))

    def _covariance(self, points: Sequence[_Point], shares: Array) -> Array:
        kernels, near = self._kernels(points)
        rest = _REST**2 * near * _near(points, self.points, "octave", _NODE_OCTAVES)
        return np.asarray(np.einsum("ijk,ik,jk->ij", kernels, shares, self.shares) + rest)


def _near(points: Sequence[_Point], others: Sequence[_Point], axis: str, distance: float) -> Array:
    one, other = (np.array([getattr(item, axis) for item in x]) for x in (points, others))
    return np.asarray(np.exp(-0.5 * ((one[:, None] - other[None, :]) / distance) ** 2))
