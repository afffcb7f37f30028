# SPDX-License-Identifier: Apache-2.0
"""Record processes that each run with their own settings, and read the records.

NAME-samples.jsonl   every timing, with the settings of its process; in a separate file because the
                     timings in samples.jsonl have the default settings, except those of A/B tests
NAME-runs.jsonl      every process that has ended: its settings, and the reason if it failed

NAME is `p2p` for the comparison of NCCL's send/recv settings. For comparisons with copy engines it
starts with `sendrecv`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.bench.conditions import conditions
from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.engine.record import LineFile, source_of, timestamp
from nccltune.measure.engine.settings import Effective, Settings
from nccltune.measure.engine.workload import Call
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Source
from nccltune.study.files import Study


class RecordKind(NamedTuple):
    """The kind of experiment: start of its file names, words for messages, nccltune's verb."""

    name: str
    what: str
    verb: str

    @property
    def result(self) -> str:
        """Return the name of the file with the verdict."""
        return f"{self.name}.json"


COMPUTE = "compute"
"""The value of `load` if the GPUs ran compute kernels during the calls."""
P2P = RecordKind("p2p", "race of send/recv settings", "sendrecv settings")


class ProcessSample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One timing in a process with its own settings.

    `repeat` counts the timings of one call in the process. `load_slower` is the time of a compute
    kernel during the calls over its time without them.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    study: str
    process: int
    settings: dict[str, int | str]
    load: str | None = None
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
    wrong: int | None = None
    error: str | None = None
    source: Source
    at: str | None = None


class ProcessLine(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"probe": "look"}
):
    """A process that has ended.

    Only processes of one `session`, a run of nccltune, are compared as neighbours. The first
    process of a study, the `probe` (JSON: `look`), is not. `carried` has messages by carrier.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    process: int
    session: int
    settings: dict[str, int | str] = {}
    load: str | None = None
    probe: bool = False
    effective: Effective | None = None
    carried: dict[str, int] | None = None
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class ProcessRun:
    """A process with its results: medians over the timings, by call."""

    process: int
    session: int
    settings: Settings
    times_us: Mapping[Call, float]
    loads_slower: Mapping[Call, float] = field(default_factory=dict)
    effective: Effective | None = None
    carried: Mapping[str, int] | None = None
    seconds: float = 0.0
    probe: bool = False
    error: str | None = None


class ProcessRecord:
    """The processes of one kind of experiment in a study: timings and lines, oldest first."""

    def __init__(self, study: Study, kept: RecordKind = P2P) -> None:
        self.study = study
        self.kept = kept
        self.samples = LineFile(study, f"{kept.name}-samples.jsonl", ProcessSample)
        self.lines = LineFile(study, f"{kept.name}-runs.jsonl", ProcessLine)

    def finished(self) -> list[ProcessRun]:
        """Return every process that has ended, with its results. Raises StudyError."""
        times: dict[int, list[ProcessSample]] = defaultdict(list)
        for sample in self.samples.stream():
            times[sample.process].append(sample)
        return [as_run(line, times[line.process]) for line in self.lines.stream()]

    def next_process(self) -> int:
        """Return an unused process number; interrupted processes have timings but no line."""
        used = [line.process for file in (self.samples, self.lines) for line in file.stream()]
        return max(used, default=-1) + 1


def as_run(line: ProcessLine, samples: Iterable[ProcessSample]) -> ProcessRun:
    """Return a process with its results; one with a wrong result counts as failed."""
    by_call: dict[Call, list[float]] = defaultdict(list)
    loads: dict[Call, list[float]] = defaultdict(list)
    error = line.error
    for sample in samples:
        call = (sample.collective, sample.bytes)
        if sample.wrong:
            error = error or f"{sample.wrong} elements of {call[0].value} came out wrong"
        elif sample.time_us is not None:
            by_call[call].append(sample.time_us)
            if sample.load_slower is not None:
                loads[call].append(sample.load_slower)
    return ProcessRun(
        process=line.process,
        session=line.session,
        settings=Settings.of(line.settings),
        times_us=_medians(by_call),
        loads_slower=_medians(loads),
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
    return ProcessSample(
        study=study,
        process=process,
        settings=settings.recorded,
        load=COMPUTE if request.load else None,
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
        wrong=point.wrong,
        error=point.error.kind if point.error else None,
        source=source_of(hello),
        at=timestamp(),
    )
