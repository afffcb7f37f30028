# SPDX-License-Identifier: Apache-2.0
"""Record the processes of a comparison, and read the records.

NAME-samples.jsonl   every timing, with the settings of its process; in a separate file because the
                     timings in samples.jsonl have the default settings, except those of A/B tests
NAME-runs.jsonl      every process that has ended: its settings, and the reason if it failed
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.measure.bench.conditions import conditions
from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.engine.record import LineFile, source_of, timestamp
from nccltune.measure.experiments.copies.settings import Carrier
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Source
from nccltune.study.files import Study


class RecordKind(NamedTuple):
    """The kind of comparison: start of its file names, words for messages, nccltune's verb."""

    name: str
    what: str
    verb: str

    @property
    def result(self) -> str:
        """Return the name of the file with the verdict."""
        return f"{self.name}.json"


SENDRECV = RecordKind("sendrecv", "comparison of NCCL with copy engines", "sendrecv sweep")
UNDER_LOAD = RecordKind(
    "sendrecv-load", "comparison of NCCL with copy engines under load", "sendrecv sweep --load"
)
COMPUTE = "compute"
"""The value of `load` if the GPUs ran compute kernels during the calls."""


class ProcessSample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One timing in a process with its own settings.

    `repeat` counts the timings of one size in the process. `load_slower` is the time of a compute
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
    carried: dict[str, int] | None = None
    seconds: float
    error: str | None = None

    @property
    def carrier(self) -> Carrier | None:
        """Return what carried the messages; None for settings that are no longer compared."""
        return Carrier.of(self.settings)


@dataclass(frozen=True)
class ProcessRun:
    """A process with its results: medians over the timings, by message size in bytes."""

    line: ProcessLine
    carrier: Carrier
    times_us: Mapping[int, float]
    loads_slower: Mapping[int, float]
    error: str | None


class ProcessRecord:
    """The processes of one kind of comparison in a study: timings and lines, oldest first."""

    def __init__(self, study: Study, kept: RecordKind) -> None:
        self.study = study
        self.samples = LineFile(study, f"{kept.name}-samples.jsonl", ProcessSample)
        self.lines = LineFile(study, f"{kept.name}-runs.jsonl", ProcessLine)

    def finished(self) -> list[ProcessRun]:
        """Return every process that has ended, with its results. Raises StudyError."""
        times: dict[int, list[ProcessSample]] = defaultdict(list)
        for sample in self.samples.stream():
            times[sample.process].append(sample)
        return [
            as_run(line, line.carrier, times[line.process])
            for line in self.lines.stream()
            if line.carrier is not None
        ]

    def next_process(self) -> int:
        """Return an unused process number; interrupted processes have timings but no line."""
        used = [line.process for file in (self.samples, self.lines) for line in file.stream()]
        return max(used, default=-1) + 1


def as_run(line: ProcessLine, carrier: Carrier, samples: Iterable[ProcessSample]) -> ProcessRun:
    """Return a process with its results; one with a wrong result counts as failed."""
    times: dict[int, list[float]] = defaultdict(list)
    loads: dict[int, list[float]] = defaultdict(list)
    error = line.error
    for sample in samples:
        if sample.wrong:
            what = f"{sample.wrong} elements of {sample.collective.value} came out wrong"
            error = error or what
        elif sample.time_us is not None:
            times[sample.bytes].append(sample.time_us)
            if sample.load_slower is not None:
                loads[sample.bytes].append(sample.load_slower)
    return ProcessRun(line, carrier, _medians(times), _medians(loads), error)


def _medians(values: Mapping[int, list[float]]) -> dict[int, float]:
    return {size: median(found) for size, found in values.items()}


def sample_of(
    point: BenchPoint, request: Measure, hello: Hello, study: str, process: int, carrier: Carrier
) -> ProcessSample:
    """Return the sample to record for an answer of the bench."""
    dtype, redop, _ = conditions(request.collective)
    slower = None
    if point.load_us is not None and point.load_alone_us:
        slower = point.load_us / point.load_alone_us
    return ProcessSample(
        study=study,
        process=process,
        settings=carrier.settings,
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
