# SPDX-License-Identifier: Apache-2.0
"""What else would pay for a job: the send/recv library, settings that were tested, the net plugin.

Only what a study measured counts. For anything else the result names what to measure.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from nccltune.measure.bench.conditions import PLAIN
from nccltune.measure.experiments.ab.judge import SizeGain, TrialVerdict, title
from nccltune.measure.experiments.ab.settings import LIBRARY
from nccltune.measure.experiments.copies.record import SENDRECV
from nccltune.measure.experiments.copies.verdict import CopiesVerdict, SizePoint
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.native.locate import NET_NAME
from nccltune.study import names
from nccltune.study.files import Study
from nccltune.tune.result import LeverWorth
from nccltune.tune.worth import GainPoint, Lever, lever_worth
from nccltune.workload.call import CommGroup
from nccltune.workload.table import Workload

SENDRECV_LIBRARY, NET_PLUGIN = "send/recv library", "net plugin"
S = TypeVar("S", bound=msgspec.Struct)
_SOCKETS = "Socket"
_LINES = f"NCCL_NET={NET_NAME} NCCL_NET_PLUGIN=PATH"
_MESSAGES = (Collective.SENDRECV, Collective.ALLTOALL, Collective.ALLTOALLV)


def job_levers(job: Workload, study: Study | None) -> list[LeverWorth]:
    """Return what else would pay for a job, by what `study` measured.

    What the job has no call for is left out. Raises StudyError for a damaged file.
    """
    collectives = {row.operation.collective for row in job.rows}
    found: list[LeverWorth] = []
    if collectives.intersection(_MESSAGES):
        found.append(_library(job, study))
    tested = list(_tested(study)) if study is not None else []
    found += [
        lever_worth(job, lever) for lever in tested if not collectives.isdisjoint(lever.points)
    ]
    if not any(lever.name == NET_PLUGIN for lever in tested):
        found += _unmeasured_net(job, study)
    return found


def _library(job: Workload, study: Study | None) -> LeverWorth:
    """Return the worth of the send/recv library: it carries messages within a node."""
    where = "STUDY" if study is None else shlex.quote(str(study.path))
    verdict = _read(study, SENDRECV.result, CopiesVerdict)
    command = f"nccltune sendrecv sweep -o {where}"
    if verdict is None or not verdict.decided:
        sizes = [row.bytes for row in job.rows if row.operation.collective is Collective.SENDRECV]
        what = f"messages of up to {format_bytes(max(sizes))}" if sizes else "all-to-all only"
        how = "no study compared it" if verdict is None else "its comparison is not complete"
        return LeverWorth(SENDRECV_LIBRARY, f"the job sends {what}; {how}", measure=command)
    points = [
        GainPoint(point.bytes, point.native_us, *_gain(point))
        if verdict.from_bytes is not None and point.bytes >= verdict.from_bytes
        else GainPoint(point.bytes, point.native_us)
        for point in verdict.points
    ]
    if verdict.from_bytes is not None:
        # A message just below the threshold gains nothing.
        first = next(at for at, one in enumerate(points) if one.bytes >= verdict.from_bytes)
        points.insert(first, GainPoint(verdict.from_bytes - 1, points[first].default_us))
    why = f"{verdict.why}. What compute gains from SMs that it leaves free is not counted"
    lever = Lever(SENDRECV_LIBRARY, {Collective.SENDRECV: points}, _within_a_node, why)
    return lever_worth(job, lever)


def _within_a_node(group: CommGroup) -> bool:
    """Return whether messages stay in a node: those between nodes are NCCL's with the library."""
    return group.nodes in (0, 1)


def _tested(study: Study) -> Iterator[Lever]:
    """Yield the settings that an A/B test of a study compared with NCCL's default."""
    trial = _read(study, names.AB_RESULT, TrialVerdict)
    if trial is None or LIBRARY in trial.settings or trial.decision in ("open", "failed"):
        return
    name = NET_PLUGIN if _is_net_plugin(trial.settings) else title(trial)
    for scale in dict.fromkeys(item.scale for item in trial.collectives):
        measured = {
            item.collective: [
                GainPoint(one.bytes, one.default_us, *_gain(one)) for one in item.sizes
            ]
            # Of several kinds of calls the plain ones come last, so that they count.
            for item in sorted(trial.collectives, key=lambda item: item.calls == PLAIN)
            if item.scale == scale
        }
        yield Lever(name, measured, _at(scale), trial.why)


def _is_net_plugin(settings: Mapping[str, str | None]) -> bool:
    named = [settings.get(name) or "" for name in ("NCCL_NET", "NCCL_NET_PLUGIN")]
    return named[0] == NET_NAME or f"libnccl-net-{NET_NAME}" in named[1] or named[1] == NET_NAME


def _unmeasured_net(job: Workload, study: Study | None) -> Iterator[LeverWorth]:
    """Yield what to measure for the net plugin, if the job may run on several nodes."""
    nodes = {row.group.nodes for row in job.rows}
    if nodes == {1}:
        return
    has_platform = study is not None and study.platform_path.is_file()
    network = study.platform().network if study is not None and has_platform else None
    if network and not network.startswith(_SOCKETS):
        why = f"it replaces TCP sockets, and NCCL uses {network} on the platform of the study"
        yield LeverWorth(NET_PLUGIN, why)
        return
    why = "the job runs on several nodes" if max(nodes) > 1 else "the recording states no nodes"
    where = "STUDY" if study is None else shlex.quote(str(study.path))
    yield LeverWorth(
        NET_PLUGIN,
        f"{why}, and no test compared it; it is for networks without RDMA",
        measure=f"nccltune ab -o {where} {_LINES} -- all_reduce_perf ...",
    )


def _at(scale: Scale) -> Callable[[CommGroup], bool]:
    return lambda group: group.ranks == scale.ranks and group.nodes in (0, scale.nodes)


def _gain(one: SizePoint | SizeGain) -> tuple[float, float, float]:
    return one.gain.gain, one.gain.low, one.gain.high


def _read(study: Study | None, name: str, kind: type[S]) -> S | None:
    path = None if study is None else study.path / name
    return study.read_json(path, kind) if study is not None and path and path.is_file() else None
