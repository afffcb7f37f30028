# SPDX-License-Identifier: Apache-2.0
"""Tune a study: find its rules, and write them as a configuration."""

from datetime import UTC, datetime
from pathlib import Path

from nccltune.app.study import OpenStudy, open_study
from nccltune.study.files import Study
from nccltune.tune.result import TuneOptions, Tuning
from nccltune.tune.study import tune, write


def tune_path(path: Path, options: TuneOptions | None = None) -> tuple[Study, Tuning]:
    """Open the study at `path` and find its rules; write nothing."""
    opened = open_study(path)
    return opened.study, tune_study(opened, options)


def tune_study(opened: OpenStudy, options: TuneOptions | None = None) -> Tuning:
    """Return the rules of a study with their evidence; write nothing.

    Raises InputError where the weights that `options` names cannot be read.
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

    Return the tuning with the hash of the configuration.
    """
    return write(study, tuning, config)
