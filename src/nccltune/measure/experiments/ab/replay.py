# SPDX-License-Identifier: Apache-2.0
"""Replay a recorded trial: each process is drawn from the recorded processes with its settings."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from nccltune.measure.bench.conversation import SCHEMA_VERSION, BenchGpu, Hello, Nccl
from nccltune.measure.experiments.ab.experiment import ProcessResult
from nccltune.measure.experiments.ab.runs import TrialFiles, TrialRun
from nccltune.measure.experiments.ab.settings import LIBRARY, SettingChanges, label
from nccltune.model.errors import InputError, StudyError
from nccltune.model.sample import Purpose, Sample
from nccltune.study.files import Study

_REPLAY = " replay"
_Key = tuple[tuple[str, str | None], ...]
_Recorded = tuple[TrialRun, list[Sample]]


class ReplayRunner:
    """Draws processes from the trials of a study. Raises StudyError if the study holds no trial."""

    def __init__(self, recording: Path, seed: int) -> None:
        self.study = Study.open(recording)
        self._seed = seed
        runs = TrialFiles(self.study)
        by_round: dict[tuple[int, _Key], list[Sample]] = defaultdict(list)
        for sample in runs.samples():
            by_round[sample.round, _key(sample.settings)].append(sample)
        self._trials: dict[str, dict[_Key, list[_Recorded]]] = defaultdict(dict)
        for line in runs.lines.stream():
            key = _key(line.settings)
            samples = by_round[line.round, key]
            if samples or line.error is not None:
                self._trials[line.trial].setdefault(key, []).append((line, samples))
        self._recorded: dict[_Key, list[_Recorded]] = {}
        if not self._trials:
            raise StudyError(
                "holds no recorded trial of settings or libraries",
                where=str(recording),
                hint="record one on a machine with GPUs: nccltune ab NAME=VALUE -o STUDY, or "
                "nccltune ab --nccl A --nccl B -o STUDY; two studies that are there are compared "
                "by nccltune compare A B",
            )

    def choose(self, default: SettingChanges, proposed: SettingChanges) -> None:
        """Select the latest recorded trial of these two sets. Raises InputError without one."""
        sides = {_key(default), _key(proposed)}
        for recorded in self._trials.values():
            if sides <= recorded.keys():
                self._recorded = recorded
        if not self._recorded:
            known = [" against ".join(map(_words, trial)) for trial in self._trials.values()]
            raise InputError(
                f"{self.study.path} has no trial of {_words(_key(proposed))} against "
                f"{_words(_key(default))}",
                where="‹replay›",
                hint=f"recorded: {'; '.join(known)}",
            )

    def library(self, named: str) -> str:
        """Return the path of a library of a recorded trial, by path or release; else InputError."""
        known: dict[str, set[str]] = {}
        for sides in self._trials.values():
            for key, found in sides.items():
                path = dict(key).get(LIBRARY)
                if path is not None:
                    versions = {sample.source.nccl_version for _, own in found for sample in own}
                    known.setdefault(path, set()).update(filter(None, versions))
        for path, releases in known.items():
            if named == path or named in releases:
                return path
        words = [f"{path} ({', '.join(sorted(found))})" for path, found in known.items()]
        raise InputError(
            f"{self.study.path} has no trial of NCCL {named}",
            where="‹replay›",
            hint=f"recorded: {'; '.join(words) or 'no trial of two libraries'}",
        )

    def run(
        self,
        settings: SettingChanges,
        number: int,
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,
    ) -> ProcessResult:
        """Draw one process; if possible both of a round from one recorded round.

        The machine was then in one state. Raises StudyError for a study without a platform.
        """
        # With `choices`, NCCL's log slowed a process down: its times count only as a probe.
        recorded = {
            key: [item for item in found if item[0].choices == choices] or found
            for key, found in self._recorded.items()
        }
        mine = recorded[_key(settings)]
        rounds = [{line.round for line, _ in found} for found in recorded.values()]
        whole = sorted(set.intersection(*rounds)) or [line.round for line, _ in mine]
        # The random number only draws a round, so it needs no secure generator.
        drawn = random.Random(f"{self._seed} {number // 2}").choice(whole)  # noqa: S311
        line, samples = next((item for item in mine if item[0].round == drawn), mine[0])
        keep(_as_replay(sample) for sample in samples)
        return ProcessResult(self._hello(samples), line.facts, line.error, line.seconds)

    def _hello(self, samples: list[Sample]) -> Hello:
        platform = self.study.platform()
        first = next(iter(samples), None)
        ranks = (first.ranks if first is not None else None) or platform.gpus or 1
        return Hello(
            schema_version=SCHEMA_VERSION,
            version=(first.source.version if first is not None else None) or "unknown",
            backend="replay",
            replay=self.study.name,
            nccl=Nccl(version=platform.nccl_version, came_from="recording"),
            nodes=(first.nodes if first is not None else None) or platform.nodes or 1,
            ranks=ranks,
            gpus=[BenchGpu(rank, platform.gpu) for rank in range(ranks)],
        )


def _key(settings: SettingChanges) -> _Key:
    return tuple(sorted(settings.items()))


def _words(key: _Key) -> str:
    return label(dict(key))


def _as_replay(sample: Sample) -> Sample:
    tool = f"{sample.source.tool.removesuffix(_REPLAY)}{_REPLAY}"
    source = msgspec.structs.replace(sample.source, tool=tool, purpose=Purpose.TUNE)
    return msgspec.structs.replace(sample, source=source)
