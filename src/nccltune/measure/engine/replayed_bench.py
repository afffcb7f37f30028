# SPDX-License-Identifier: Apache-2.0
"""A bench without GPUs: it draws timings from a recorded study and asks the tuner plugin for the
decisions of the rules."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Self

import msgspec

import nccltune
from nccltune.measure.bench.conversation import (
    SCHEMA_VERSION,
    Abilities,
    BenchGpu,
    BenchPoint,
    ExecutedChoice,
    Hello,
    Measure,
    Nccl,
    PointError,
    Predicted,
    TableRequest,
    TableRow,
    Tuner,
    TunerInputs,
)
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.recording import Recording
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample
from nccltune.model.sizes import format_bytes
from nccltune.native import PluginHost, TunerAnswer, tuner_path
from nccltune.native.plugin_host import Costs
from nccltune.study.files import Study


def open_bench(
    launch: Launch,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    settings: Mapping[str, str] | None = None,
) -> Bench:
    """Return the bench of a launch: a replayed one if the launch names a recording.

    The other arguments are those of `Bench`.

    >>> from nccltune.examples import example
    >>> with open_bench(Launch(replay=example("h200x4-1-node"))) as bench:
    ...     bench.hello.ranks
    4
    """
    if launch.replay is not None:
        return ReplayedBench(launch, launch.replay, meanwhile)
    return Bench(launch, meanwhile=meanwhile, settings=settings)


class ReplayedBench(Bench):
    """A bench that draws its timings from the study `replay`.

    Our plugin, in a process of its own, decides what the choice `tuned` runs. A draw depends only
    on the request's `seed`, the call, the choice, the round and the repeat. Entering raises
    StudyError, and the errors of `PluginHost`.
    """

    def __init__(self, launch: Launch, replay: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(launch, meanwhile=meanwhile)
        self._recording = Recording(Study.open(replay))
        self._host = PluginHost(
            tuner_path(),
            nccl_version=self._recording.nccl_version,
            scale=self._recording.scale,
            environment=launch.rule_variables,
        )

    def __enter__(self) -> Self:
        self._host.__enter__()
        try:
            self._meanwhile()
            self._hello = self._describe()
        except BaseException:
            self._host.__exit__(None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._host.__exit__(kind)

    def ask(self, request: Measure) -> None:
        """Keep a request for `answer`."""
        self._asked.append(request)

    def answer(self) -> tuple[list[BenchPoint], bool]:
        """Return all points of the oldest request; it is then finished."""
        request = self._asked.popleft()
        return list(self._points(request)), True

    def tables(self, request: TableRequest) -> list[TableRow]:
        """Return the recorded predictions; without any, the recorded combinations."""
        rows = [self._row(request, size) for size in request.bytes]
        return [row for row in rows if row.costs or row.error]

    def _describe(self) -> Hello:
        recorded = self._recording
        return Hello(
            schema_version=SCHEMA_VERSION,
            version=nccltune.__version__,
            backend="replay",
            replay=recorded.platform.name,
            nccl=Nccl(version=recorded.nccl_version, came_from="recording"),
            tuner=Tuner(path=str(tuner_path()), interface=self._host.init.interface),
            nodes=recorded.scale.nodes,
            ranks=recorded.scale.ranks,
            gpus=[BenchGpu(rank, recorded.platform.gpu) for rank in range(recorded.scale.ranks)],
            can=Abilities(
                collectives=[item.value for item in recorded.collectives],
                registered=recorded.registered,
                graph=recorded.graph,
                group_calls=recorded.grouped,
                chunk=recorded.chunks and self._host.init.has_chunk_size,
            ),
        )

    def _points(self, request: Measure) -> Iterator[BenchPoint]:
        for round_ in range(request.first_round, request.first_round + request.rounds):
            for size in request.bytes:
                for choice in request.choices:
                    for repeat in range(request.default_repeats if choice == DEFAULT else 1):
                        yield self._point(request, size, choice, round_, repeat)

    def _point(
        self, request: Measure, size: int, choice: AnyChoice, round_: int, repeat: int
    ) -> BenchPoint:
        point = BenchPoint(
            bytes=size, choice=choice, round=round_, repeat=repeat, iterations=request.iterations
        )
        running = self._decide(request, size, choice)
        if isinstance(running, PointError):
            return msgspec.structs.replace(point, error=running)
        series = self._recording.find(request, running, size)
        if series is None:
            text = f"the recording does not hold this call with {choice_label(running)} around "
            error = PointError("unsupported", text + format_bytes(size))
            return msgspec.structs.replace(point, error=error)
        # Default, tuned and forced timings are independent draws, even if the same choice runs.
        call = (request.collective, size, request.dtype, request.redop, request.root)
        # False is for calls in place, which requests once had: a seed draws what it drew then.
        kind = (False, request.registered, request.graph, request.group_calls)
        choices = (choice_label(choice), choice_label(running))
        name = " ".join(map(str, (request.seed, *call, *kind, *choices, round_, repeat)))
        time_us, sample = series.draw(size, Random(name))  # noqa: S311 - a draw, not a secret
        return msgspec.structs.replace(
            point,
            ran=_executed(running, sample),
            seen=self._seen(request),
            applied=running == choice or not isinstance(choice, Choice),
            # Clocks and CUDA events are not more precise than 0.1 ns.
            time_us=round(time_us, 4),
            wrong=0 if request.check and sample.wrong is not None else None,
        )

    def _decide(self, request: Measure, size: int, choice: AnyChoice) -> AnyChoice | PointError:
        """Return what NCCL with the plugin would run: the default if it refuses a choice."""
        collective = request.collective
        if choice == DEFAULT or not collective.tuned:
            return DEFAULT
        offered = self._offered(collective, size)
        if isinstance(choice, Choice):
            is_legal = not offered or (choice.algorithm, choice.protocol) in offered
            return choice if is_legal else DEFAULT
        seen = self._seen(request)
        decision = self._host.decide(
            collective,
            size,
            pipe_ops=seen.pipe_ops,
            registered=request.registered,
            costs=offered or None,
        )
        if decision.error is not None:
            return PointError("nccl", decision.error.text)
        if isinstance(decision.decided, TunerAnswer):
            # A part that the plugin leaves to NCCL was not recorded by itself.
            text = f"the plugin decides only a part: {decision.label}"
            return decision.decided.choice or PointError("unsupported", text)
        return DEFAULT

    def _offered(self, collective: Collective, size: int) -> Costs:
        """Return the combinations that can run, with predicted or nominal times."""
        recorded = self._recording
        return recorded.costs(collective, size) or recorded.combinations(collective)

    def _seen(self, call: Measure | TableRequest) -> TunerInputs:
        pipe_ops = self._recording.pipe_ops(
            registered=call.registered, group_calls=call.group_calls
        )
        return TunerInputs(pipe_ops=pipe_ops or 1, registered=call.registered)

    def _row(self, request: TableRequest, size: int) -> TableRow:
        recorded = self._recording
        calls = request.group_calls
        if recorded.pipe_ops(registered=request.registered, group_calls=calls) is None:
            what = f"groups of {calls} calls" if calls > 1 else "calls"
            what += " with registered buffers" if request.registered else ""
            error = PointError("unsupported", f"the recording holds no {what}")
            return TableRow(bytes=size, error=error)
        seen = self._seen(request)
        costs = recorded.costs(request.collective, size)
        if costs:
            algorithm, protocol = min(costs, key=costs.__getitem__)
            predicted: dict[str, float | None] = {
                f"{pair[0]}/{pair[1]}": cost for pair, cost in costs.items()
            }
            return TableRow(size, predicted, Predicted(algorithm, protocol), seen)
        known = recorded.combinations(request.collective)
        return TableRow(size, dict.fromkeys(f"{pair[0]}/{pair[1]}" for pair in known), seen=seen)


def _executed(running: AnyChoice, sample: Sample) -> ExecutedChoice | None:
    """Return what ran. For a choice without channels, the recorded number is NCCL's own."""
    recorded = sample.ran
    if not isinstance(running, Choice):
        if recorded is None:
            return None
        return ExecutedChoice(recorded.algorithm, recorded.protocol, recorded.channels)
    channels = running.channels or (recorded.channels if recorded is not None else None)
    return ExecutedChoice(running.algorithm, running.protocol, channels, running.chunk_bytes)
