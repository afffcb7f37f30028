# SPDX-License-Identifier: Apache-2.0
"""The command that measures a study again."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nccltune.analyze.timings import SortedSamples
from nccltune.formats.reading.file_report import ImportRecord
from nccltune.measure.engine.record import Summary
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.study import names
from nccltune.study.files import Study

SUFFIX = "-again"
"""A sweep does not measure again what a study has, so the new study has another name."""
_GROUPED = re.compile(r"-m (\d+): ")
_LAUNCHER = "NAME"
"""Stands for the launcher, which imported timings do not name."""


class Reproduction(NamedTuple):
    """A command to copy, and a note to read before running the command."""

    command: str
    note: str


def measure_again(
    study: Study, found: SortedSamples, tune_options: Sequence[str], *, proven: bool
) -> Reproduction:
    """Return the command that measures `study` again into a new study.

    It is that of its sweep, or `nccltune auto` with the same collectives and sizes. `tune_options`
    are those of the rule search. Raises StudyError.
    """
    target = _beside(study.path)
    platform = study.platform()
    recorded = _recorded_command(study)
    if recorded is None:
        words = _new_sweep(found, platform, target)
        note = _new_note(study, platform, words)
    else:
        words = _redirected(recorded, target)
        note = "The command that measured this study, with a new study to write."
        if platform.replay:
            note = f"It draws timings from the recording {platform.replay} again, in a new order."
    settings = {} if platform.replay else platform.settings
    before = [f"{name}={shlex.quote(value)}" for name, value in sorted(settings.items())]
    # Without a recorded command, `words` is `nccltune auto`, which searches rules and needs these
    # options. A recorded command already has its options.
    search = tune_options if recorded is None else ()
    command = " ".join([*before, shlex.join(words), *search])
    if words[1] == "auto":
        return Reproduction(command, note)
    new = shlex.quote(target)
    steps = [command, " ".join(["nccltune tune", new, *tune_options])]
    steps += [f"nccltune verify {new}"] if proven else []
    return Reproduction(" && ".join([*steps, f"nccltune report {new}"]), note)


def sweep_again(study: Study, found: SortedSamples, beside: Path | None = None) -> str:
    """Return the command that sweeps the collectives and sizes of `found` into a new study.

    The new study is beside `study`, or beside the path given.
    """
    words = _new_sweep(found, study.platform(), _beside(beside or study.path))
    grouped = [_GROUPED.match(condition) for condition in conditions_of_runs(study)]
    calls = ["--pipe-ops", grouped[0][1]] if len(grouped) == 1 and grouped[0] else []
    return shlex.join([words[0], "sweep", *words[2:], *calls])


def conditions_of_runs(study: Study) -> list[str]:
    """Return the conditions of the imported runs of a study: `-m 10: 10 calls in a group`."""
    runs = [run for record in study.imports(ImportRecord) for run in record.runs or ()]
    return [*dict.fromkeys(words for run in runs for words in run.facts.conditions or ())]


def _beside(path: Path) -> str:
    name = str(path).rstrip("/") + SUFFIX
    number = 2
    while Path(name).exists():
        name = f"{str(path).rstrip('/')}{SUFFIX}-{number}"
        number += 1
    return name


def _recorded_command(study: Study) -> list[str] | None:
    """Return the command that swept the study; None if no `nccltune` command is recorded."""
    path = study.path / names.SWEEP
    if not path.is_file():
        return None
    try:
        words = shlex.split(study.read_json(path, Summary).command)
    except (StudyError, ValueError):
        return None
    return words if len(words) > 1 and words[0] == "nccltune" else None


def _redirected(words: list[str], target: str) -> list[str]:
    """Return `words` with `target` as the study to write."""
    end = words.index("--") if "--" in words else len(words)
    for place in range(end - 1):
        if words[place] in ("--output", "-o"):
            return [*words[: place + 1], target, *words[place + 2 :]]
    return [*words[:2], "--output", target, *words[2:]]


def _new_sweep(found: SortedSamples, platform: Platform, target: str) -> list[str]:
    """Return an `auto` command that measures the collectives and sizes of `found`."""
    words = ["nccltune", "auto", "--output", target]
    tuned = [item for item in found.timings if item.condition.collective.tuned]
    if not tuned:
        return words
    names = dict.fromkeys(item.condition.collective.value for item in tuned)
    sizes = [size for item in tuned for size in item.sizes]
    words += [
        "--collectives",
        ",".join(names),
        "--sizes",
        "-".join(map(_size_option, (min(sizes), max(sizes)))),
    ]
    scale = max((item.condition.scale for item in tuned), key=lambda scale: scale.ranks)
    if platform.replay:
        words += ["--replay", platform.replay]
    elif platform.emulated_nodes:
        if platform.ranks_per_gpu > 1:
            words += ["--ranks-per-gpu", str(platform.ranks_per_gpu)]
            words += ["--mps"] if platform.mps else []
        if scale.nodes < scale.ranks or platform.ranks_per_gpu == 1:
            words += ["--emulate-nodes", str(scale.nodes)]
    elif scale.nodes > 1:
        words += ["--launcher", _LAUNCHER, "--nodes", str(scale.nodes)]
        words += ["--gpus", str(scale.ranks // scale.nodes)]
    return words


def _size_option(size: int) -> str:
    """Return a size as `--sizes` accepts it: `64K`, `1000`."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _new_note(study: Study, platform: Platform, words: Sequence[str]) -> str:
    if platform.replay:
        return f"It draws timings from the recording {platform.replay}, in a new order."
    why = "The study does not name the command that measured it."
    if study.imports_path.is_file():
        why = "The timings were imported."
    named = "--launcher" in words
    launcher = f" {_LAUNCHER} is the cluster's: openmpi, hydra or slurm." if named else ""
    return f"{why} Run on the same machines, this measures the same sizes.{launcher}"
