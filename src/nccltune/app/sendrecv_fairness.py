# SPDX-License-Identifier: Apache-2.0
"""Find the chunk size for copies of large messages, so that other messages need not wait long.

Other messages can be sent between two chunks.
"""

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
    """The plan of a comparison, with estimated numbers of processes and seconds.

    Each of the `rounds` has a process for NCCL, one for whole messages, and one for each chunk
    size in `chunks`.
    """

    platform: Platform
    rounds: int
    chunks: list[Settings]
    processes: int
    seconds: float


class FairnessResult(NamedTuple):
    """The verdict of a comparison.

    `not_written` is the reason why the recommended settings were not written. It is None if they
    were written, or if the verdict recommends no settings.
    """

    verdict: FairnessVerdict
    not_written: str | None


def plan_fairness(
    path: Path, launch: Launch, scope: FairnessScope, *, library: Path | None = None
) -> FairnessPlan:
    """Return the plan of a comparison into the study at `path`; write nothing.

    Raises what `compare_fairness` raises.
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

    `library` is libnccltune-sendrecv.so (None: the installed one). `command` is stored as the
    command line that resumes the comparison. Writes STUDY/sendrecv-fairness.json. Adds a
    recommended chunk size to STUDY/sendrecv.conf, if the settings in this file allow one. Raises
    what `compare_copies` raises.
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
