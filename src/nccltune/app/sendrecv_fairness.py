# SPDX-License-Identifier: Apache-2.0
"""Find the chunk size of copies that lets other messages pass between the parts of large ones."""

import os
from pathlib import Path
from typing import NamedTuple

from nccltune.app.measuring import ExperimentProgress
from nccltune.app.sendrecv_conf import keep_chunk
from nccltune.app.sendrecv_sweep import copies_starter
from nccltune.app.settings_experiment import planned, run_experiment
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.settings import Settings
from nccltune.measure.engine.settings_processes import Starter
from nccltune.measure.experiments.copies.fairness import FairnessVerdict
from nccltune.measure.experiments.copies.fairness_experiment import (
    FairnessExperiment,
    FairnessScope,
    check_fairness_scope,
)
from nccltune.measure.experiments.copies.preload import BESIDE_TRAFFIC, CONNECTIONS
from nccltune.model.platform import Platform


class FairnessPlan(NamedTuple):
    """What a comparison would do: `rounds` of processes, one for NCCL, one for whole messages and
    one for each of `chunks`; about how many these are, and about how long they take."""

    platform: Platform
    rounds: int
    chunks: list[Settings]
    processes: int
    seconds: float


class FairnessResult(NamedTuple):
    """The verdict, and why its settings were not written (None: they were, or there are none)."""

    verdict: FairnessVerdict
    not_written: str | None


def plan_fairness(
    path: Path, launch: Launch, scope: FairnessScope, *, library: Path | None = None
) -> FairnessPlan:
    """Return what a comparison into the study at `path` would do; write nothing.

    Raises as `compare_fairness` does.
    """
    start = _starter(launch, library, scope)
    with planned(FairnessExperiment, path, launch, start, scope, BESIDE_TRAFFIC) as (
        made,
        platform,
    ):
        rounds, chunks = made.order.rounds, made.order.chunks
        seconds = made.seconds_to_come
        return FairnessPlan(platform, rounds, chunks, made.processes_to_come, seconds)


def compare_fairness(
    path: Path,
    launch: Launch,
    scope: FairnessScope,
    progress: ExperimentProgress | None = None,
    *,
    library: Path | None = None,
    command: str = "",
) -> FairnessResult:
    """Compare chunk sizes while other messages are sent, into the study at `path`.

    `library` is libnccltune-sendrecv.so (None: the installed one). Writes
    STUDY/sendrecv-fairness.json, and adds a recommended chunk to STUDY/sendrecv.conf where its
    other lines allow that. `command` resumes it. Raises as `compare_copies`.
    """
    study, platform, verdict = run_experiment(
        FairnessExperiment,
        path,
        launch,
        _starter(launch, library, scope),
        scope,
        BESIDE_TRAFFIC,
        progress,
        command=command,
    )
    settings = verdict.settings
    return FairnessResult(verdict, keep_chunk(study, platform, settings) if settings else None)


def _starter(launch: Launch, library: Path | None, scope: FairnessScope) -> Starter:
    check_fairness_scope(scope)
    more = {name: value for name, value in CONNECTIONS.items() if name not in os.environ}
    return copies_starter(launch, library, scope.seed, BESIDE_TRAFFIC, more)
