# SPDX-License-Identifier: Apache-2.0
"""The files that a trial writes to its study.

samples.jsonl   every timing, with the purpose `ab` and the settings of its process; analyses and
                sweeps ignore samples with this purpose
try.jsonl       every process that has ended, with the trial to which it belongs
"""

import hashlib
from typing import Literal

import msgspec

from nccltune.measure.engine.record import LineFile
from nccltune.measure.experiments.ab.facts import StartFacts
from nccltune.measure.experiments.ab.settings import LIBRARY
from nccltune.measure.experiments.ab.speed import JobSpeed
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.study import names
from nccltune.study.files import Study

Side = Literal["default", "set"]
SIDES: tuple[Side, Side] = ("default", "set")


class SettingTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial: the `settings` that only one side has, beside the `baseline` of both.

    None unsets a setting. `what` is the measured command, as words.
    """

    settings: dict[str, str | None]
    baseline: dict[str, str | None]
    what: list[str]

    @property
    def key(self) -> str:
        """Return a hash that identifies the trial in a study."""
        raw = msgspec.json.encode([self.settings, self.baseline, self.what], order="sorted")
        return hashlib.sha256(raw).hexdigest()[:12]

    def of(self, side: Side) -> dict[str, str | None]:
        """Return the settings of one side."""
        return self.baseline | (self.settings if side == "set" else {})

    @property
    def compares_releases(self) -> bool:
        """Return whether the two sides have two NCCL libraries."""
        return LIBRARY in self.settings


class TrialRun(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"probe": "look"}
):
    """A process of a trial that has ended.

    trial  the trial's `key`
    round  number of the round, counted over all trials of the study
    probe  True for the first process of a trial, which is not compared; `look` in the file
    speed  how fast a job was; None for a program that prints timings
    choices  True for a probe for which NCCL logged what each call ran
    error  the reason if the process does not count
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    trial: str
    settings: dict[str, str | None]
    side: Side
    round: int
    probe: bool = False
    choices: bool = False
    seconds: float
    facts: StartFacts | None = None
    speed: JobSpeed | None = None
    error: str | None = None
    at: str | None = None


class TrialFiles:
    """The files of a study with all its trials, oldest first."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.lines = LineFile(study, names.AB_RUNS, TrialRun)
        self.timings = LineFile(study, study.samples_path.name, Sample)

    def samples(self) -> list[Sample]:
        """Return every timing of every trial, without imported ones. Raises StudyError."""
        return [
            sample
            for sample in self.timings.stream()
            # Round numbers of samples imported from another study mean other rounds.
            if sample.source.purpose is Purpose.AB and sample.source.file_hash is None
        ]
