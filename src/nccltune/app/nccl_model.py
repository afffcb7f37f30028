# SPDX-License-Identifier: Apache-2.0
"""Put what NCCL's own cost model says beside what was measured."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nccltune.analyze.result import ConditionAnalysis, CurvePoint, ModelCurve
from nccltune.model.choice import DEFAULT, PARTIAL_CHOICES, Choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.numbers import counted, significant
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.model.topology import Topology
from nccltune.predict import NEWEST, LimitKind, Prediction, expected_of, predict
from nccltune.predict.choice import CallTime
from nccltune.predict.communicator import SETTINGS
from nccltune.report.words import time_text
from nccltune.topology.hardware.classify import with_named_gpus
from nccltune.topology.nccl_model.settings import known_version, version_text

_NOT_FOLLOWED = (
    "NCCL_GRAPH_FILE",
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_MIN_NRINGS",
    "NCCL_MAX_NRINGS",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_NET_OVERHEAD",
    "NCCL_PAT_ENABLE",
)
"""Settings that change NCCL's choice or its model, and that the prediction does not follow."""


_NEAR = 1.1
_CORRECTED = 0.99
"""Below this part of its bandwidth, a choice is corrected for the size."""


class ModelFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a choice in NCCL's model, and the measured one."""

    bytes: int
    choice: str
    time_us: float
    busbw_gb_per_s: float
    measured_us: float


class ModelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What NCCL's model gives one collective: no measurement, and never a verdict.

    `figures` are those at the largest size and at the latency; without a model, `sentence` has the
    reason. `expected_gb_per_s` holds 80 % of published systems; None but for the default.
    """

    nccl: str
    figures: list[ModelFigure]
    sentence: str
    expected_gb_per_s: tuple[float, float] | None = None


def own_prediction(
    topology: Topology,
    platform: Platform,
    collective: Collective,
    scale: Scale,
    sizes: Iterable[int],
) -> Prediction:
    """Return what NCCL's model says of `collective` on a platform, under its settings.

    Raises InputError if a setting decides otherwise or the nodes differ.
    """
    for name in _NOT_FOLLOWED:
        if platform.settings.get(name):
            raise InputError(f"{name} is set, and the model does not follow it")
    if scale.ranks % scale.nodes:
        raise InputError("the nodes have different numbers of ranks")
    return predict(
        with_named_gpus(topology, platform.gpu),
        collective=collective,
        nodes=scale.nodes,
        version=known_version(platform.nccl_version) or NEWEST,
        ranks_per_node=scale.ranks // scale.nodes,
        settings={name: text for name, text in platform.settings.items() if name in SETTINGS},
        sizes=sizes,
    )


def beside(
    topology: Topology,
    platform: Platform,
    collective: Collective,
    scale: Scale,
    times_us: Mapping[int, float],
    label: str,
) -> ModelFigures:
    """Return the model's figures for the choice `label` beside measured times (us by size)."""
    version = version_text(NEWEST)
    lead = f"NCCL's own cost model ({version}, as the version is not known)"
    if platform.nccl_version and known_version(platform.nccl_version):
        version = platform.nccl_version
        lead = f"NCCL's own cost model ({version})"
    half = label in PARTIAL_CHOICES
    if half:
        name, _, value = label.partition("=")
        settings = {**platform.settings, name: value}
        platform = msgspec.structs.replace(platform, settings=settings)
    try:
        found = own_prediction(topology, platform, collective, scale, sorted(times_us))
    except InputError as error:
        words = f"{lead} is left out: {error}"
        return ModelFigures(nccl=version, figures=[], sentence=words)
    figures = []
    for one in found.sizes:
        times = {choice.label: choice for choice in one.times_us}
        choice = one.choice if label == DEFAULT or half else times.get(label)
        if choice is None or found.modelled[choice].by_hand:
            words = f"{lead} is left out: it has no {label} here"
            return ModelFigures(nccl=version, figures=[], sentence=words)
        if not found.modelled[choice].latency_us:
            words = f"{lead} is left out: it gives {choice.label} no latency here"
            return ModelFigures(nccl=version, figures=[], sentence=words)
        time_us = one.times_us[choice]
        figures.append(
            ModelFigure(
                bytes=one.size,
                choice=choice.label,
                time_us=time_us,
                busbw_gb_per_s=collective.busbw_gb_per_s(one.size, time_us, scale.ranks),
                measured_us=times_us[one.size],
            )
        )
    last, small = figures[-1], figures[:-1]
    busbw = collective.busbw_gb_per_s(last.bytes, last.measured_us, scale.ranks)
    measured = f"{significant(last.busbw_gb_per_s)} GB/s {_at(last)}, measured {significant(busbw)}"
    texts = [
        f"{time_text(one.time_us)} {_at(one)}, measured {time_text(one.measured_us)}"
        for one in small
    ]
    expected = None
    if label == DEFAULT:
        at = expected_of(found)[-1]
        low, high = (
            collective.busbw_gb_per_s(at.size, time_us, scale.ranks)
            for time_us in (at.high_us, at.low_us)
        )
        expected = (low, high)
        measured += f" (expected {significant(low)} to {significant(high)})"
    sentence = "; ".join((f"{lead}, no verdict: {measured}", *texts, *found.notes))
    return ModelFigures(
        nccl=version, figures=figures, sentence=sentence, expected_gb_per_s=expected
    )


def model_curve(
    topology: Topology, platform: Platform, item: ConditionAnalysis
) -> ModelCurve | None:
    """Return what NCCL's model gives the default of a condition; None if the model is of others."""
    condition, default = item.condition, item.curve(DEFAULT)
    plain = not (condition.graph or condition.registered) and condition.group_calls == 1
    if default is None or not condition.collective.tuned or not plain:
        return None
    if condition.scale.nodes < 1 or condition.scale.ranks < 2 or platform.emulated_nodes:
        return None
    sizes = [point.bytes for point in default.points]
    try:
        found = own_prediction(topology, platform, condition.collective, condition.scale, sizes)
    except InputError:
        return None
    modelled = []
    for at, point in zip(found.sizes, default.points, strict=True):
        ran = point.ran if point.ran in at.terms and point.ran is not None else at.choice
        modelled.append(_ModelledPoint(ran, at.terms[ran], point))
    if any(found.modelled[one.choice].by_hand for one in modelled):
        return None
    version = platform.nccl_version or version_text(NEWEST)
    return ModelCurve(
        bytes=sizes,
        choices=[one.choice.label for one in modelled],
        times_us=[one.terms.total_us for one in modelled],
        sentence=_model_sentence(found, modelled, version),
    )


class _ModelledPoint(NamedTuple):
    choice: Choice
    terms: CallTime
    point: CurvePoint

    @property
    def ratio(self) -> float:
        """Return the measured time by that of the model."""
        return self.point.time_us / max(self.terms.total_us, 1e-9)


def _model_sentence(found: Prediction, modelled: Sequence[_ModelledPoint], version: str) -> str:
    near = sum(1 / _NEAR < one.ratio < _NEAR for one in modelled)
    words = f"NCCL's own cost model ({version}) is within 10 % at {near} of "
    words += counted(len(modelled), "size")
    if near == len(modelled):
        return words
    worst = max(modelled, key=lambda one: abs(math.log(one.ratio)))
    limit = found.modelled[worst.choice]
    transfer = worst.terms.transfer_us
    if worst.terms.latency_us >= transfer:
        blamed = "latency"
        if worst.terms.net_us > worst.terms.latency_us / 2:
            blamed = "latency between nodes"
    elif worst.point.bytes / (1000 * transfer) < _CORRECTED * limit.gb_per_s:
        blamed = "bandwidth with the factor for trees of this size"
    elif limit.limit.kind in (LimitKind.CHANNEL_CAP, LimitKind.GRAPH):
        blamed = f"bandwidth by channels ({limit.limit.words})"
    else:
        blamed = f"bandwidth ({limit.limit.words})"
    return (
        f"{words}; furthest at {format_bytes(worst.point.bytes)}, {worst.choice.label}: measured "
        f"{time_text(worst.point.time_us)}, model {time_text(worst.terms.total_us)}, most of which "
        f"is its {blamed}"
    )


def why_default(
    topology: Topology,
    platform: Platform,
    collective: Collective,
    scale: Scale,
    size: int,
    ran: Sequence[str],
) -> str:
    """Return why NCCL's default has the least time in its model, and why choices are missing.

    If `ran` are others, the sentence states that the model does not explain them.
    """
    lead = f"NCCL's own cost model ({platform.nccl_version}) "
    try:
        found = own_prediction(topology, platform, collective, scale, [size])
    except InputError as error:
        return f"{lead}is left out: {error}"
    (one,) = found.sizes
    if ran and list(ran) != [one.choice.label]:
        lead += f"does not explain {', '.join(ran)}: it "
    words = [f"{lead}chooses {one.choice.label}, {time_text(one.time_us)}"]
    others = [
        choice
        for choice, modelled in found.modelled.items()
        if choice != one.choice and not modelled.by_hand
    ]
    if others:
        second = min(others, key=lambda item: one.times_us[item])
        words[0] += f"; the next best is {second.label}, {time_text(one.times_us[second])}"
        words[0] += f" ({one.reason})"
    missing: dict[str, list[str]] = {}
    for choice, reason in found.excluded.items():
        missing.setdefault(reason, []).append(choice.label)
    words += [f"no {', '.join(labels)}: {reason}" for reason, labels in missing.items()]
    return "; ".join((*words, *found.notes))


def _at(one: ModelFigure) -> str:
    return f"at {format_bytes(one.bytes)} by {one.choice}"
