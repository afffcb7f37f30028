# SPDX-License-Identifier: Apache-2.0
"""The race between settings of NCCL's send/recv: its scope, its workload and its verdict."""

import contextlib
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.settings import DEFAULT, Settings, log_settings
from nccltune.measure.engine.settings_experiment import (
    BenchProcess,
    RunningBench,
    SettingsExperiment,
    Starter,
)
from nccltune.measure.engine.workload import Workload, workload
from nccltune.measure.experiments.p2p.race import Race
from nccltune.measure.experiments.p2p.settings import candidates, memory_bytes
from nccltune.measure.experiments.p2p.verdict import RaceVerdict, default_effective, effects, judge


class RaceScope(NamedTuple):
    """A race at sizes of send/recv from `low` to `high` bytes.

    `threshold` is the least mean gain to recommend settings (0.01 is 1 %).
    """

    low: int
    high: int
    threshold: float = 0.01
    budget_s: float | None = None
    seed: int = 1


class RaceExperiment(SettingsExperiment[RaceScope, RaceVerdict]):
    """One race in one study."""

    def first_candidates(self) -> list[Settings]:
        """Return the candidates of the first stage."""
        return [candidate.settings for candidate in self._race.candidates]

    def verdict(self, reason: str) -> RaceVerdict:
        """Return the verdict on the results so far."""
        race, results = self._race, self._race.results
        ranks = self._processes.hello.ranks
        worth, why = judge(race, reason, math.log1p(self._scope.threshold))
        champion = race.champion
        gains = race.proof_gains() or (results.gains(champion) if champion is not None else [])
        parts = []
        if champion is not None:
            parts = [
                effects(results, candidate.settings, alone, ranks)
                for candidate in race.candidates
                if candidate.settings != champion
                and set(candidate.settings.values) <= set(champion.values)
                and (alone := results.gains(candidate.settings))
            ]
        made = default_effective(results)
        return RaceVerdict(
            **self._facts(reason),
            settings=champion.numbers if worth and champion else {},
            why=why,
            champion=effects(results, champion, gains, ranks) if champion and gains else None,
            parts=parts,
            default_effective=made,
            default_memory_bytes=memory_bytes(DEFAULT, made, ranks),
        )

    def _workload(self, hello: Hello) -> Workload:
        return workload(self._scope.low, self._scope.high, hello.ranks, hello.can.collectives)

    def _new_plan(self) -> Race:
        probe = self._processes.probe
        made = (probe.effective if probe is not None else None) or self._default_effective
        self._race = Race(
            NeighbourGains(list(self._processes.workload.calls())),
            candidates(self._processes.hello.nodes, made),
            threshold=math.log1p(self._scope.threshold),
            seed=self._scope.seed,
        )
        return self._race


def on_gpus(launch: Launch, *, program: list[str] | None = None) -> Starter:
    """Return a starter of `nccltune-bench` with the options in `launch`."""

    @contextlib.contextmanager
    def start(settings: Settings, process: int) -> Iterator[BenchProcess]:  # noqa: ARG001
        with tempfile.TemporaryDirectory(prefix="nccltune-") as name:
            folder = Path(name)
            variables = {**log_settings(folder), **settings.environment}
            with Bench(launch, program=program, settings=variables) as bench:
                yield RunningBench(bench, folder)

    return start
