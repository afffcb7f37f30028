# SPDX-License-Identifier: Apache-2.0
"""The files that a trial writes to its study.

samples.jsonl   every timing, with the purpose `ab` and the settings in force; neither an analysis
                nor a sweep uses these
try.jsonl       every process that ran to its end, and the trial it belongs to
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from nccltune.measure.engine.record import LineFile
from nccltune.measure.experiments.ab.facts import StartFacts
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.study import names
from nccltune.study.files import Study

Side = Literal["default", "set"]
SIDES: tuple[Side, Side] = ("default", "set")


class SettingTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared.

    `baseline` are settings kept from earlier trials, which both sides have. `settings` are the
    proposed ones, in addition. `what` is the command that runs, as words.
    """

    settings: dict[str, str | None]
    baseline: dict[str, str | None]
    what: list[str]

    @property
    def key(self) -> str:
        """Return a hash that distinguishes the trials of a study."""
        raw = msgspec.json.encode([self.settings, self.baseline, self.what], order="sorted")
        return hashlib.sha256(raw).hexdigest()[:12]

    def of(self, side: Side) -> dict[str, str | None]:
        """Return the settings of one side."""
        return self.baseline | (self.settings if side == "set" else {})


class TrialRun(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename={"probe": "look"}
):
    """A process that ran to its end.

    `round` counts over the life of the study. `probe` (in the file: `look`) marks the first default
    of a trial, which is not compared. `error` is the reason why the process does not count.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    trial: str
    settings: dict[str, str | None]
    side: Side
    round: int
    probe: bool = False
    seconds: float
    facts: StartFacts | None = None
    error: str | None = None
    at: str | None = None


class TrialFiles:
    """The files of a study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._runs = LineFile(study, names.AB_RUNS, TrialRun)
        self._samples = LineFile(study, study.samples_path.name, Sample)

    def lines(self) -> list[TrialRun]:
        """Return every process that ran to its end, in order.

        Raises StudyError for a damaged line.
        """
        return self._runs.read()

    def samples(self) -> list[Sample]:
        """Return every timing of every trial, in the order measured.

        Raises StudyError for a damaged line.
        """
        return [
            sample
            for sample in self._samples.stream()
            # Samples imported from another study have different rounds.
            if sample.source.purpose is Purpose.AB and sample.source.file_hash is None
        ]

    def record_samples(self, samples: Iterable[Sample]) -> None:
        """Record timings. They are on disk when this returns.

        Raises StudyError for a failed write.
        """
        self._samples.append(samples)

    def record_end(self, line: TrialRun) -> None:
        """Record that a process ran to its end.

        Raises StudyError for a failed write.
        """
        self._runs.append([line])
