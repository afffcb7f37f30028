# SPDX-License-Identifier: Apache-2.0
"""Find settings of NCCL's own send/recv that beat its default; run comparisons of settings.

The search is a race: candidates run in alternating processes, and slower ones are dropped.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from nccltune.app.measuring import (
    ExperimentProgress,
    NoProgress,
    hold_study,
    platform_of_bench,
    refuse_file,
    saved_when_stopped,
)
from nccltune.formats.tuner_config.nccl_conf import render_conf
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.gains import ProcessGain
from nccltune.measure.engine.process_record import P2P, ProcessRecord, RecordKind
from nccltune.measure.engine.replay import replay
from nccltune.measure.engine.scheduler import StatusCallback, ignore_status
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.settings_experiment import (
    BenchProcess,
    ExperimentScope,
    SettingsExperiment,
    Starter,
)
from nccltune.measure.experiments.p2p.experiment import RaceExperiment, RaceScope, on_gpus
from nccltune.measure.experiments.p2p.settings import MEANING
from nccltune.measure.experiments.p2p.verdict import Effects, RaceVerdict
from nccltune.model.platform import Platform
from nccltune.model.sizes import format_bytes
from nccltune.study import names
from nccltune.study.files import Study

S = TypeVar("S", bound=ExperimentScope)
E = TypeVar("E")
V = TypeVar("V", bound=msgspec.Struct)


Make = Callable[[Starter, BenchProcess, ProcessRecord, S, StatusCallback], E]
"""The constructor of an experiment E with a scope S."""


@contextlib.contextmanager
def planned(
    make: Make[S, E], path: Path, launch: Launch, start: Starter, scope: S, kind: RecordKind
) -> Iterator[tuple[E, Platform]]:
    """Start the first process, and yield the experiment and the platform; write nothing."""
    with _default_process(path, launch, start) as (first, platform):
        record = ProcessRecord(Study(path), kind)
        yield make(start, first, record, scope, ignore_status), platform


def run_experiment(
    make: Make[S, SettingsExperiment[S, V]],
    path: Path,
    launch: Launch,
    start: Starter,
    scope: S,
    kind: RecordKind,
    progress: ExperimentProgress | None,
    *,
    command: str,
) -> tuple[Study, Platform, V]:
    """Measure into the study at `path`, and write the verdict to the result file of `kind`.

    An experiment that is stopped early also writes one. `command` is stored as what resumes it.
    Raises StudyError if the study is of another platform.
    """
    shown = progress or NoProgress()
    with contextlib.ExitStack() as stack:
        first, platform = stack.enter_context(_default_process(path, launch, start))
        study = stack.enter_context(hold_study(path, platform))
        shown.started(platform, first.hello.nccl.came_from)
        on_status = stack.enter_context(shown.watching())
        experiment = make(start, first, ProcessRecord(study, kind), scope, on_status)

        def save(reason: str) -> V:
            verdict = msgspec.structs.replace(experiment.verdict(reason), command=command)
            study.write_json(study.path / kind.result, verdict)
            return verdict

        def stop() -> None:
            try:
                save("interrupted")
            finally:
                shown.stopped("all timings so far")

        with saved_when_stopped(stack, stop):
            reason = experiment.measure()
    return study, platform, save(reason)


@contextlib.contextmanager
def _default_process(
    path: Path, launch: Launch, start: Starter
) -> Iterator[tuple[BenchProcess, Platform]]:
    refuse_file(path)
    with start(DEFAULT, 0) as first:
        yield first, platform_of_bench(path, launch, first.hello)


CONF = names.P2P_CONF


class RacePlan(NamedTuple):
    """What a race tries first, with estimated numbers of processes and seconds."""

    platform: Platform
    first: list[Settings]
    processes: int
    seconds: float


def plan_race(path: Path, launch: Launch, scope: RaceScope) -> RacePlan:
    """Return the plan of a race into the study at `path`; write nothing."""
    start = _starter(launch, scope)
    with planned(RaceExperiment, path, launch, start, scope, P2P) as (race, platform):
        return RacePlan(
            platform, race.first_candidates(), race.processes_to_come, race.seconds_to_come
        )


def race_settings(
    path: Path,
    launch: Launch,
    scope: RaceScope,
    progress: ExperimentProgress | None = None,
    *,
    command: str = "",
) -> RaceVerdict:
    """Compare settings of send/recv until some are proven better, or none can win.

    Writes p2p.json, and p2p.conf with the settings that won. Raises what stops the race early
    (`STOPPED_BY`); the study then has every timing.
    """
    start = _starter(launch, scope)
    study, platform, verdict = run_experiment(
        RaceExperiment, path, launch, start, scope, P2P, progress, command=command
    )
    _write_conf(study, platform, verdict)
    return verdict


def _starter(launch: Launch, scope: RaceScope) -> Starter:
    return replay(launch.replay, scope.seed) if launch.replay else on_gpus(launch)


def settings_in_force(platform: Platform) -> dict[str, str]:
    """Return the send/recv settings of this environment, on both sides; none in a replay."""
    if platform.replay:
        return {}
    return {name: platform.settings[name] for name in MEANING if name in platform.settings}


def _write_conf(study: Study, platform: Platform, verdict: RaceVerdict) -> None:
    """Write the settings that won to p2p.conf; if none won in the end, delete an earlier one."""
    conf = study.path / CONF
    if verdict.settings:
        values = {name: str(value) for name, value in verdict.settings.items()}
        study.write_text(conf, render_conf(values, _comments(platform, verdict)))
    elif verdict.reason == "done":
        conf.unlink(missing_ok=True)


def _comments(platform: Platform, verdict: RaceVerdict) -> Iterator[str]:
    origin = f"replay of {platform.replay}" if platform.replay else platform.title
    yield f"Settings of native send/recv by nccltune: {origin}"
    if verdict.champion is not None:
        for line in effect_lines(verdict.champion):
            yield line.strip()
    for name in verdict.settings:
        yield f"{name}: {MEANING[name]}"


def effect_lines(effects: Effects) -> Iterator[str]:
    """Yield a line for each range of sizes that is faster or slower; one if there is none."""
    for collective in effects.sizes:
        changed = [
            item
            for item in effects.ranges
            if item.collective is collective and item.effect != "same"
        ]
        for item in changed:
            low, high = format_bytes(item.from_bytes), format_bytes(item.to_bytes)
            sizes = low if low == high else f"{low} - {high}"
            yield f"{collective.prose:<11}{sizes:<20} {item.effect} {interval_words(item.gain)}"
        if not changed:
            overall = interval_words(effects.overall[collective])
            yield f"{collective.prose:<11}as before beyond noise: {overall} over all sizes"


def interval_words(gain: ProcessGain) -> str:
    """Return a gain such as `1.50x (1.45-1.55)`, with a note if the processes are too few."""
    unsure = "" if gain.known else ", few starts"
    return f"{gain.gain:.2f}x ({gain.low:.2f}-{gain.high:.2f}{unsure})"
