# SPDX-License-Identifier: Apache-2.0
"""Find settings of NCCL's own send/recv that beat its default.

The search is a race: candidates run in alternating processes, and slower ones are dropped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.app.measuring import ExperimentProgress
from nccltune.app.settings_experiment import planned, run_experiment
from nccltune.formats.tuner_config.nccl_conf import render_conf
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.gains import ProcessGain
from nccltune.measure.engine.process_record import P2P
from nccltune.measure.engine.replay import replay
from nccltune.measure.engine.settings import Settings
from nccltune.measure.engine.settings_processes import Starter
from nccltune.measure.experiments.p2p.experiment import RaceExperiment, RaceScope, on_gpus
from nccltune.measure.experiments.p2p.settings import MEANING
from nccltune.measure.experiments.p2p.verdict import Effects, RaceVerdict
from nccltune.model.platform import Platform
from nccltune.model.sizes import format_bytes
from nccltune.study import names
from nccltune.study.files import Study

CONF = names.P2P_CONF


class RacePlan(NamedTuple):
    """What a race tries first, with estimated numbers of processes and seconds."""

    platform: Platform
    first: list[Settings]
    processes: int
    seconds: float


def plan_race(path: Path, launch: Launch, scope: RaceScope) -> RacePlan:
    """Return the plan of a race into the study at `path`; write nothing."""
    start = _starter(launch, scope)
    with planned(RaceExperiment, path, launch, start, scope, P2P) as (race, platform):
        return RacePlan(
            platform, race.first_candidates(), race.processes_to_come, race.seconds_to_come
        )


def race_settings(
    path: Path,
    launch: Launch,
    scope: RaceScope,
    progress: ExperimentProgress | None = None,
    *,
    command: str = "",
) -> RaceVerdict:
    """Compare settings of send/recv until some are proven better, or none can win.

    Writes p2p.json, and p2p.conf with the settings that won. Raises what stops the race early
    (`STOPPED_BY`); the study then has every timing.
    """
    start = _starter(launch, scope)
    study, platform, verdict = run_experiment(
        RaceExperiment, path, launch, start, scope, P2P, progress, command=command
    )
    _write_conf(study, platform, verdict)
    return verdict


def _starter(launch: Launch, scope: RaceScope) -> Starter:
    return replay(launch.replay, scope.seed) if launch.replay else on_gpus(launch)


def settings_in_force(platform: Platform) -> dict[str, str]:
    """Return the send/recv settings of this environment, on both sides; none in a replay."""
    if platform.replay:
        return {}
    return {name: platform.settings[name] for name in MEANING if name in platform.settings}


def _write_conf(study: Study, platform: Platform, verdict: RaceVerdict) -> None:
    """Write the settings that won to p2p.conf; if none won in the end, delete an earlier one."""
    conf = study.path / CONF
    if verdict.settings:
        values = {name: str(value) for name, value in verdict.settings.items()}
        study.write_text(conf, render_conf(values, _comments(platform, verdict)))
    elif verdict.reason == "done":
        conf.unlink(missing_ok=True)


def _comments(platform: Platform, verdict: RaceVerdict) -> Iterator[str]:
    origin = f"replay of {platform.replay}" if platform.replay else platform.title
    yield f"Settings of native send/recv by nccltune: {origin}"
    if verdict.champion is not None:
        for line in effect_lines(verdict.champion):
            yield line.strip()
    for name in verdict.settings:
        yield f"{name}: {MEANING[name]}"


def effect_lines(effects: Effects) -> Iterator[str]:
    """Yield a line for each range of sizes that is faster or slower; one if there is none."""
    for collective in effects.sizes:
        changed = [
            item
            for item in effects.ranges
            if item.collective is collective and item.effect != "same"
        ]
        for item in changed:
            low, high = format_bytes(item.from_bytes), format_bytes(item.to_bytes)
            sizes = low if low == high else f"{low} - {high}"
            yield f"{collective.prose:<11}{sizes:<20} {item.effect} {interval_words(item.gain)}"
        if not changed:
            overall = interval_words(effects.overall[collective])
            yield f"{collective.prose:<11}as before beyond noise: {overall} over all sizes"


def interval_words(gain: ProcessGain) -> str:
    """Return a gain such as `1.50x (1.45-1.55)`, with a note if the processes are too few."""
    unsure = "" if gain.known else ", few starts"
    return f"{gain.gain:.2f}x ({gain.low:.2f}-{gain.high:.2f}{unsure})"
