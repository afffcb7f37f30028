# SPDX-License-Identifier: Apache-2.0
"""What processes of settings of their own leave in a study.

NAME-samples.jsonl   every timing, with the settings in force; apart from samples.jsonl, whose
                     default is without them
NAME-runs.jsonl      every process that came to its end: what it ran with, or why it failed

NAME is `p2p` for a race of NCCL's settings, `sendrecv` for the comparison with copy engines.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.conversation import Hello, Measure, Point
from nccltune.measure.p2p.effective import Effective
from nccltune.measure.p2p.settings import Settings
from nccltune.measure.p2p.workload import Call
from nccltune.measure.record import REPLAY_TOOL, TOOL, conditions
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Source
from nccltune.model.study import Study


class Kept(NamedTuple):
    """What the files of a study belong to: their `name`, `what` they record in words, and the
    `option` of `nccltune sweep` that writes them."""

    name: str
    what: str
    option: str

    @property
    def result(self) -> str:
        """The file of the result."""
        return f"{self.name}.json"


COMPUTE = "compute"
"""The load that a bench has."""
P2P = Kept("p2p", "race of send/recv settings", "--p2p")


class P2pSample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One timing in a process of its own settings. `process` counts starts over the study's life,
    `repeat` timings of one call in it; `time_us` is of one call, None where `error` says why.
    `load` is what the GPUs computed meanwhile, None for nothing; `load_slower` by how much that
    took longer beside the call (1.2 is 20 %). `traffic` are the bytes of messages that went round
    meanwhile, None for none; `traffic_us` is of one exchange of them, `traffic_alone_us` before the
    calls began."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    study: str
    process: int
    settings: dict[str, int | str]
    load: str | None = None
    traffic: int | None = None
    collective: Collective
    bytes: int
    dtype: str
    redop: str | None = None
    nodes: int
    ranks: int
    repeat: int
    iterations: int | None = None
    time_us: Annotated[float, msgspec.Meta(gt=0)] | None = None
    load_slower: Annotated[float, msgspec.Meta(gt=0)] | None = None
    traffic_us: Annotated[float, msgspec.Meta(gt=0)] | None = None
    traffic_alone_us: Annotated[float, msgspec.Meta(gt=0)] | None = None
    wrong: int | None = None
    error: str | None = None
    source: Source
    at: str | None = None


class P2pRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A process that came to its end. `session` counts starts of `nccltune`: defaults of another
    one are not beside it. `look` marks the first one of all, which is not compared. `load` and
    `traffic` are as in its timings; `carried` counts messages by who carried them, where a library
    before NCCL tells.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    process: int
    session: int
    settings: dict[str, int | str] = {}
    load: str | None = None
    traffic: int | None = None
    look: bool = False
    effective: Effective | None = None
    carried: dict[str, int] | None = None
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Run:
    """A process with what it measured: by call the median time in us of one call, by how much a
    load was slower beside it, and the time of an exchange of traffic beside and before it."""

    process: int
    session: int
    settings: Settings
    times_us: Mapping[Call, float]
    loads_slower: Mapping[Call, float] = field(default_factory=dict)
    traffic_us: Mapping[Call, float] = field(default_factory=dict)
    traffic_alone_us: Mapping[Call, float] = field(default_factory=dict)
    effective: Effective | None = None
    carried: Mapping[str, int] | None = None
    seconds: float = 0.0
    look: bool = False
    error: str | None = None


class Runs:
    """The files of a study."""

    def __init__(self, study: Study, kept: Kept = P2P) -> None:
        self.study = study
        self.kept = kept
        self.samples_path: Path = study.path / f"{kept.name}-samples.jsonl"
        self.runs_path: Path = study.path / f"{kept.name}-runs.jsonl"

    def samples(self) -> list[P2pSample]:
        """Every timing, in the order measured."""
        if not self.samples_path.exists():
            return []
        return list(self.study.read_lines(self.samples_path, P2pSample))

    def lines(self) -> list[P2pRun]:
        """Every process that came to its end, in order."""
        if not self.runs_path.exists():
            return []
        return list(self.study.read_lines(self.runs_path, P2pRun))

    def finished(self) -> list[Run]:
        """The processes that came to their end, with what they measured."""
        times: dict[int, list[P2pSample]] = defaultdict(list)
        for sample in self.samples():
            times[sample.process].append(sample)
        return [as_run(line, times[line.process]) for line in self.lines()]

    def next_process(self) -> int:
        """A number that no process has: of those cut short there are only timings."""
        used = [sample.process for sample in self.samples()] + [run.process for run in self.lines()]
        return max(used, default=-1) + 1

    def keep(self, samples: Iterable[P2pSample]) -> None:
        """Keep timings, on disk when this returns."""
        self.study.append_lines(self.samples_path, samples)

    def end(self, line: P2pRun) -> None:
        """Keep that a process came to its end."""
        self.study.append_lines(self.runs_path, [line])


def as_run(line: P2pRun, samples: Iterable[P2pSample]) -> Run:
    """A process from its lines. A wrong result makes the process one that failed."""
    by_call: dict[Call, list[float]] = defaultdict(list)
    loads: dict[Call, list[float]] = defaultdict(list)
    beside: dict[Call, list[float]] = defaultdict(list)
    alone: dict[Call, list[float]] = defaultdict(list)
    error = line.error
    for sample in samples:
        call = (sample.collective, sample.bytes)
        if sample.wrong:
            error = error or f"{sample.wrong} elements of {call[0].value} came out wrong"
        elif sample.time_us is not None:
            by_call[call].append(sample.time_us)
            if sample.load_slower is not None:
                loads[call].append(sample.load_slower)
            if sample.traffic_us is not None:
                beside[call].append(sample.traffic_us)
            if sample.traffic_alone_us is not None:
                alone[call].append(sample.traffic_alone_us)
    return Run(
        process=line.process,
        session=line.session,
        settings=Settings.of(line.settings),
        times_us=_medians(by_call),
        loads_slower=_medians(loads),
        traffic_us=_medians(beside),
        traffic_alone_us=_medians(alone),
        effective=line.effective,
        carried=line.carried,
        seconds=line.seconds,
        look=line.look,
        error=error,
    )


def _medians(values: Mapping[Call, list[float]]) -> dict[Call, float]:
    return {call: median(found) for call, found in values.items()}


def sample_of(
    point: Point, request: Measure, hello: Hello, study: str, process: int, settings: Settings
) -> P2pSample:
    """What to keep of a bench's answer."""
    dtype, redop, _ = conditions(request.collective)
    slower = None
    if point.load_us is not None and point.load_alone_us:
        slower = point.load_us / point.load_alone_us
    hosts = [gpu.host_hash for gpu in hello.gpus if gpu.host_hash]
    return P2pSample(
        study=study,
        process=process,
        settings=settings.recorded,
        load=COMPUTE if request.load else None,
        traffic=request.traffic or None,
        collective=request.collective,
        bytes=point.bytes,
        dtype=dtype,
        redop=redop,
        nodes=hello.nodes,
        ranks=hello.ranks,
        repeat=point.round,
        iterations=point.iterations,
        time_us=point.time_us,
        load_slower=slower,
        traffic_us=point.traffic_us,
        traffic_alone_us=point.traffic_alone_us,
        wrong=point.wrong,
        error=point.error.kind if point.error else None,
        source=Source(
            tool=REPLAY_TOOL if hello.replay else TOOL,
            version=hello.version,
            nccl_version=hello.nccl.version,
            host_hash=hosts[0] if hosts else None,
        ),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
