# SPDX-License-Identifier: Apache-2.0
"""What a trial keeps in its study.

samples.jsonl   every timing, under a tool name of its own and with the settings in force: neither
                an analysis nor a sweep takes them for its own
try.jsonl       every process that came to its end, and which trial it was of
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from nccltune.measure.trial.facts import Facts
from nccltune.model.sample import SCHEMA_VERSION, Sample
from nccltune.model.study import Study

Side = Literal["default", "set"]
SIDES: tuple[Side, Side] = ("default", "set")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared: `baseline` are settings kept from earlier trials, which both sides have;
    `settings` what is proposed beside them; `what` the words of what is run."""

    settings: dict[str, str | None]
    baseline: dict[str, str | None]
    what: list[str]

    @property
    def key(self) -> str:
        """Tells trials of a study apart."""
        raw = msgspec.json.encode([self.settings, self.baseline, self.what], order="sorted")
        return hashlib.sha256(raw).hexdigest()[:12]

    def of(self, side: Side) -> dict[str, str | None]:
        """The settings of one side."""
        return self.baseline | (self.settings if side == "set" else {})


class TrialRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A process that came to its end. `round` counts over the study's life; `look` marks the first
    default of a trial, which is not compared. `error` says why it does not count."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    trial: str
    settings: dict[str, str | None]
    side: Side
    round: int
    look: bool = False
    seconds: float
    facts: Facts | None = None
    error: str | None = None
    at: str | None = None


class Runs:
    """The files of a study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.path: Path = study.path / "try.jsonl"

    def lines(self) -> list[TrialRun]:
        """Every process that came to its end, in order."""
        return list(self.study.read_lines(self.path, TrialRun)) if self.path.exists() else []

    def samples(self) -> list[Sample]:
        """Every timing of every trial, in the order measured."""
        if not self.study.samples_path.exists():
            return []
        return [
            sample
            for sample in self.study.samples()
            # What was imported from another study has rounds of its own.
            if sample.source.tries and sample.source.file_hash is None
        ]

    def keep(self, samples: Iterable[Sample]) -> None:
        """Keep timings, on disk when this returns."""
        self.study.append_samples(samples)

    def end(self, line: TrialRun) -> None:
        """Keep that a process came to its end."""
        self.study.append_lines(self.path, [line])
