# SPDX-License-Identifier: Apache-2.0
"""Tune a study: find its rules, and write them as a configuration."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from nccltune.app.study import OpenStudy, open_study, saving
from nccltune.model.errors import StudyError, UnwritableError
from nccltune.prove.edit import proof_marks, with_proof
from nccltune.prove.run import read_proof
from nccltune.study.files import Study
from nccltune.tune.result import TuneOptions, Tuning
from nccltune.tune.study import tune, write


class SavedTuning(NamedTuple):
    """A tuning, the path of its configuration, and errors if a file could not be written.

    The tuning has the hash of the configuration only if the configuration was written.
    """

    tuning: Tuning
    config: Path
    unsaved: list[UnwritableError]


def tune_path(
    path: Path, options: TuneOptions, config: Path | None = None, *, save: bool
) -> SavedTuning:
    """Find the rules of the study at `path`; with `save` write them as `save_tuning` does.

    Raises StudyError if there is nothing to tune, InputError if the weights cannot be read, and
    UnwritableError if `config` cannot be written.
    """
    opened = open_study(path)
    tuning = tune_study(opened, options)
    unsaved: list[UnwritableError] = []
    if save:
        with saving(unsaved, config):
            tuning = save_tuning(opened.study, tuning, config)
    return SavedTuning(tuning, config or opened.study.config_path, unsaved)


def tune_study(opened: OpenStudy, options: TuneOptions | None = None) -> Tuning:
    """Return the rules of a study with their evidence; write nothing.

    Raises InputError if the file `options.weights` cannot be read.
    """
    return tune(
        opened.study.name,
        opened.study.platform(),
        opened.samples,
        options or TuneOptions(),
        created=datetime.now(UTC).date().isoformat(),
    )


def save_tuning(study: Study, tuning: Tuning, config: Path | None = None) -> Tuning:
    """Write STUDY/tuning.json and the configuration: `config`, or STUDY/tuner.conf.

    Rules that an earlier `verify` of this study proved stay proven. Return the tuning with the hash
    of the configuration. Raises UnwritableError if a file cannot be written.
    """
    proof = None
    with contextlib.suppress(StudyError):
        proof = read_proof(study)
    if proof is None:
        return write(study, tuning, config)
    return write(study, with_proof(tuning, proof), config, proof_marks(proof))
