# SPDX-License-Identifier: Apache-2.0
"""Find the message size from which send/recv is faster on copy engines than with NCCL."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.app.measuring import (
    ExperimentProgress,
    NoProgress,
    hold_study,
    platform_of_bench,
    refuse_file,
    saved_when_stopped,
)
from nccltune.formats.tuner_config.nccl_conf import read_conf, render_conf
from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.copies.experiment import (
    CopiesExperiment,
    CopiesScope,
    check_scope,
)
from nccltune.measure.experiments.copies.processes import BenchProcess, Starter, on_gpus, replay
from nccltune.measure.experiments.copies.record import (
    SENDRECV,
    UNDER_LOAD,
    ProcessRecord,
    RecordKind,
)
from nccltune.measure.experiments.copies.settings import (
    CHUNK,
    MEANING,
    ON,
    POLICY,
    Carrier,
    check_environment,
)
from nccltune.measure.experiments.copies.verdict import CopiesVerdict
from nccltune.model.platform import Platform
from nccltune.native import sendrecv_path
from nccltune.study import names
from nccltune.study.files import Study


class CopiesPlan(NamedTuple):
    """Pairs of processes to start, with estimated numbers of processes and seconds."""

    platform: Platform
    pairs: int
    processes: int
    seconds: float


def plan_copies(
    path: Path, launch: Launch, scope: CopiesScope, *, library: Path | None = None
) -> CopiesPlan:
    """Return the plan of a comparison into the study at `path`; write nothing."""
    kept = _kept(scope)
    start = copies_starter(launch, library, scope.seed, kept)
    with _first_process(path, launch, start) as (first, platform):
        made = CopiesExperiment(start, first, ProcessRecord(Study(path), kept), scope)
        return CopiesPlan(platform, scope.pairs, made.processes_to_come, made.seconds_to_come)


def compare_copies(
    path: Path,
    launch: Launch,
    scope: CopiesScope,
    progress: ExperimentProgress | None = None,
    *,
    library: Path | None = None,
    command: str = "",
) -> CopiesVerdict:
    """Compare NCCL with copy engines by size; write the result, and sendrecv.conf if decided.

    `library` is libnccltune-sendrecv.so (None: the installed one); `command` is stored as what
    resumes a comparison. Raises InputError for a scope that cannot lead to a decision, StudyError
    if the study is of another platform, and what stops it early (`STOPPED_BY`); the study then has
    every timing.
    """
    kept = _kept(scope)
    start = copies_starter(launch, library, scope.seed, kept)
    shown = progress or NoProgress()
    with contextlib.ExitStack() as stack:
        first, platform = stack.enter_context(_first_process(path, launch, start))
        study = stack.enter_context(hold_study(path, platform))
        shown.started(platform, first.hello.nccl.came_from)
        on_status = stack.enter_context(shown.watching())
        experiment = CopiesExperiment(start, first, ProcessRecord(study, kept), scope, on_status)

        def save(reason: str) -> CopiesVerdict:
            verdict = msgspec.structs.replace(experiment.verdict(reason), command=command)
            study.write_json(study.path / kept.result, verdict)
            return verdict

        def stop() -> None:
            try:
                save("interrupted")
            finally:
                shown.stopped("all timings so far")

        with saved_when_stopped(stack, stop):
            reason = experiment.measure()
    verdict = save(reason)
    if verdict.decided:
        keep_threshold(study, platform, verdict.settings)
    return verdict


@contextlib.contextmanager
def _first_process(
    path: Path, launch: Launch, start: Starter
) -> Iterator[tuple[BenchProcess, Platform]]:
    refuse_file(path)
    with start(Carrier.NATIVE, 0) as first:
        yield first, platform_of_bench(path, launch, first.hello)


def _kept(scope: CopiesScope) -> RecordKind:
    check_scope(scope)
    return UNDER_LOAD if scope.load else SENDRECV


def copies_starter(launch: Launch, library: Path | None, seed: int, kept: RecordKind) -> Starter:
    """Return what starts the processes, on GPUs or in a replay.

    Raises InputError if the environment sets what is compared, PlatformError without a library.
    """
    if launch.replay is not None:
        return replay(launch.replay, seed, kept)
    check_environment(os.environ)
    return on_gpus(launch, library or sendrecv_path())


_INTRODUCED = {SENDRECV: "", UNDER_LOAD: "While the GPUs compute: "}


class _Result(msgspec.Struct):
    """The fields that the result files of all comparisons have."""

    settings: dict[str, int | str]
    why: str


def keep_threshold(study: Study, platform: Platform, settings: Mapping[str, int | str]) -> None:
    """Replace the result of a comparison in sendrecv.conf; a chunk size of the user stays.

    Raises InputError if the file cannot be read, UnwritableError if it cannot be written.
    """
    values, path = _as_text(settings), study.path / names.SENDRECV_CONF
    before = read_conf(path) if path.is_file() else {}
    if CHUNK in before and POLICY not in before and values.get(ON) != "0":
        values[CHUNK] = before[CHUNK]
    study.write_text(path, render_conf(values, _comments(study, platform, values)))


def _as_text(settings: Mapping[str, int | str]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}


def _comments(study: Study, platform: Platform, values: Mapping[str, str]) -> Iterator[str]:
    origin = f"replay of {platform.replay}" if platform.replay else platform.title
    yield f"Settings of the library before NCCL by nccltune: {origin}"
    for kept, introduced in _INTRODUCED.items():
        path = study.path / kept.result
        if path.is_file():
            found = study.read_json(path, _Result)
            # Skip a comparison whose settings a later comparison has replaced.
            if found.settings and _as_text(found.settings).items() <= values.items():
                yield introduced + found.why
    for name in values:
        if name in MEANING:
            yield f"{name}: {MEANING[name]}"
