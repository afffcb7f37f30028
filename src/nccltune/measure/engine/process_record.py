# SPDX-License-Identifier: Apache-2.0
"""What processes with their own settings write to a study.

NAME-samples.jsonl   every timing, with the settings in force; separate from samples.jsonl, whose
                     default has no such settings
NAME-runs.jsonl      every process that ran to its end: what it ran with, or why it failed

NAME is `p2p` for a race of NCCL's settings, `sendrecv` for the comparison with copy engines.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.bench.conditions import REPLAY_TOOL, TOOL, conditions
from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.engine.effective import Effective
from nccltune.measure.engine.record import LineFile, timestamp
from nccltune.measure.engine.settings import Settings
from nccltune.measure.engine.workload import Call
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Source
from nccltune.study.files import Study


class RecordKind(NamedTuple):
    """The kind of recording that files of a study belong to.

    `name` starts the file names, `what` describes the recording, and `verb` is the nccltune command
    that writes it.
    """

    name: str
    what: str
    verb: str

    @property
    def result(self) -> str:
        """Return the name of the result file."""
        return f"{self.name}.json"


COMPUTE = "compute"
"""The name of the bench's only load."""
P2P = RecordKind("p2p", "race of send/recv settings", "sendrecv settings")


class ProcessSample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One timing in a process with its own settings.

    process             number of the start, counted over the life of the study
    repeat              number of the timing of this call in the process
    time_us             time of one call; None where `error` gives the reason
    load                what the GPUs computed at the same time; None for nothing
    load_slower         how many times longer the load took beside the call (1.2 is 20 % longer)
    traffic             bytes of messages that were sent at the same time; None for none
    traffic_us          time of one exchange of these messages during the calls
    traffic_alone_us    time of one exchange before the calls began
    """

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


class ProcessLine(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"probe": "look"}
):
    """A process that ran to its end.

    `session` counts starts of `nccltune`; defaults of another session are not neighbours of this
    process. `probe` (in the file: `look`) marks the first process of a study, which is not
    compared. `load` and `traffic` are as in its timings. `carried` counts messages by carrier,
    where the send/recv library reports it.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    process: int
    session: int
    settings: dict[str, int | str] = {}
    load: str | None = None
    traffic: int | None = None
    probe: bool = False
    effective: Effective | None = None
    carried: dict[str, int] | None = None
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class ProcessRun:
    """A process with its results, each the median over its timings, by call.

    times_us            time of one call
    loads_slower        how many times longer a load took beside the call
    traffic_us          time of one exchange of traffic during the calls
    traffic_alone_us    time of one exchange before the calls
    """

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
    probe: bool = False
    error: str | None = None


class ProcessRecord:
    """The files of a study for one kind of recording."""

    def __init__(self, study: Study, kept: RecordKind = P2P) -> None:
        self.study = study
        self.kept = kept
        self._samples = LineFile(study, f"{kept.name}-samples.jsonl", ProcessSample)
        self._runs = LineFile(study, f"{kept.name}-runs.jsonl", ProcessLine)

    def samples(self) -> list[ProcessSample]:
        """Return every timing, in the order measured.

        Raises StudyError for a damaged line.
        """
        return self._samples.read()

    def lines(self) -> list[ProcessLine]:
        """Return every process that ran to its end, in order.

        Raises StudyError for a damaged line.
        """
        return self._runs.read()

    def finished(self) -> list[ProcessRun]:
        """Return the processes that ran to their end, with their results.

        Raises StudyError for a damaged line.
        """
        times: dict[int, list[ProcessSample]] = defaultdict(list)
        for sample in self.samples():
            times[sample.process].append(sample)
        return [as_run(line, times[line.process]) for line in self.lines()]

    def next_process(self) -> int:
        """Return an unused process number. An interrupted process has timings but no line of its
        own.

        Raises StudyError for a damaged line.
        """
        used = [sample.process for sample in self.samples()] + [run.process for run in self.lines()]
        return max(used, default=-1) + 1

    def record_samples(self, samples: Iterable[ProcessSample]) -> None:
        """Record timings. They are on disk when this returns.

        Raises StudyError for a failed write.
        """
        self._samples.append(samples)

    def record_end(self, line: ProcessLine) -> None:
        """Record that a process ran to its end.

        Raises StudyError for a failed write.
        """
        self._runs.append([line])


def as_run(line: ProcessLine, samples: Iterable[ProcessSample]) -> ProcessRun:
    """Return a process from its lines. A process with a wrong result counts as failed."""
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
    return ProcessRun(
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
        probe=line.probe,
        error=error,
    )


def _medians(values: Mapping[Call, list[float]]) -> dict[Call, float]:
    return {call: median(found) for call, found in values.items()}


def sample_of(
    point: BenchPoint, request: Measure, hello: Hello, study: str, process: int, settings: Settings
) -> ProcessSample:
    """Return the sample to record for an answer of the bench."""
    dtype, redop, _ = conditions(request.collective)
    slower = None
    if point.load_us is not None and point.load_alone_us:
        slower = point.load_us / point.load_alone_us
    hosts = [gpu.host_hash for gpu in hello.gpus if gpu.host_hash]
    return ProcessSample(
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
        at=timestamp(),
    )
