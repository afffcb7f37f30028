# SPDX-License-Identifier: Apache-2.0
"""Find the message size from which send/recv is faster on copy engines than with NCCL."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.app.measuring import ExperimentProgress
from nccltune.app.sendrecv_settings import planned, run_experiment
from nccltune.formats.tuner_config.nccl_conf import read_conf, render_conf
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.process_record import RecordKind
from nccltune.measure.engine.replay import replay
from nccltune.measure.engine.settings import Settings
from nccltune.measure.engine.settings_experiment import Starter
from nccltune.measure.experiments.copies.experiment import (
    CopiesExperiment,
    CopiesScope,
    check_scope,
)
from nccltune.measure.experiments.copies.preload import SENDRECV, UNDER_LOAD, on_gpus
from nccltune.measure.experiments.copies.settings import (
    CHUNK,
    MEANING,
    ON,
    POLICY,
    check_environment,
)
from nccltune.measure.experiments.copies.verdict import CopiesVerdict
from nccltune.model.platform import Platform
from nccltune.native import sendrecv_path
from nccltune.study import names
from nccltune.study.files import Study


class CopiesPlan(NamedTuple):
    """Pairs of processes and policies to try, with estimated numbers of processes and seconds."""

    platform: Platform
    pairs: int
    policies: list[Settings]
    processes: int
    seconds: float


def plan_copies(
    path: Path, launch: Launch, scope: CopiesScope, *, library: Path | None = None
) -> CopiesPlan:
    """Return the plan of a comparison into the study at `path`; write nothing."""
    kept = _kept(scope)
    start = copies_starter(launch, library, scope.seed, kept)
    with planned(CopiesExperiment, path, launch, start, scope, kept) as (made, platform):
        pairs, policies = made.order.pairs, made.order.policies
        return CopiesPlan(platform, pairs, policies, made.processes_to_come, made.seconds_to_come)


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

    `library` is libnccltune-sendrecv.so (None: the installed one). Raises InputError for a scope
    that cannot lead to a decision, and what stops it early (`STOPPED_BY`).
    """
    kept = _kept(scope)
    start = copies_starter(launch, library, scope.seed, kept)
    study, platform, verdict = run_experiment(
        CopiesExperiment, path, launch, start, scope, kept, progress, command=command
    )
    if verdict.decided:
        keep_threshold(study, platform, verdict.settings)
    return verdict


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


_INTRODUCED = {
    SENDRECV: "",
    UNDER_LOAD: "While the GPUs compute: ",
}


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
