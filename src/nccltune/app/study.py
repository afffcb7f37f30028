# SPDX-License-Identifier: Apache-2.0
"""Open a study with its samples sorted, and handle a study that cannot be written."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.analyze.timings import SortedSamples, sort_samples
from nccltune.formats.importing.hardware import hardware_hash
from nccltune.formats.importing.suspect import platform_doubts, run_names
from nccltune.formats.reading.file_report import ImportRecord
from nccltune.measure.engine.point_record import TableLine
from nccltune.measure.engine.record import LineFile
from nccltune.model.choice import DEFAULT, Choice, parse_choice, rest_of
from nccltune.model.errors import InputError, StudyError, UnwritableError
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale, count
from nccltune.study import names
from nccltune.study.files import Study
from nccltune.topology.files.load import read_file

_DEFAULT_NAMES = frozenset({"auto", "default"})
"""Words in the name of a file whose runs NCCL was left to decide."""


class OpenStudy(NamedTuple):
    """A study, and its samples sorted into conditions in which timings can be compared."""

    study: Study
    samples: SortedSamples


def open_study(path: Path, *, curves: bool = False) -> OpenStudy:
    """Return the study at `path` with its samples. Raises StudyError.

    With `curves` a default is enough, of an unknown number of nodes.
    """
    study = Study.open(path)
    samples = sort_samples(study.samples(), _default_runs(study), run_names(study))
    samples.doubts += platform_doubts(study)
    with contextlib.suppress(StudyError):
        # The prediction is only shown, so a damaged table does not matter.
        _add_predictions(study, samples)
    if not samples.timings and not (curves and samples.curves):
        why = (
            f"none of its samples can be compared: {_why_none(samples)}"
            if samples.samples
            else "it has no samples"
        )
        limited = next((item.condition.limits for item in samples.curves), None)
        hint = f"add measurements: nccltune import FILES... -o {path}"
        if samples.without_scale or samples.unscaled:
            hint = f"import the files again with their scale: nccltune import FILES... -o {path}"
            names = {item.condition.collective.value for item in samples.curves}
            hint += f" --collective {names.pop()}" if len(names) == 1 else ""
            hint += " --nodes N" + (" --ranks N" if _lacks_ranks(samples) else "")
            if samples.curves and not curves:
                hint += f"; or show the curves: nccltune analyze {path}"
        if not samples.curves and samples.wrong:
            hint = "nccltune doctor FILES..."
        if not samples.curves and samples.one_rank:
            hint = "start more ranks: -g with the GPUs of a node, or MPI (make MPI=1, and mpirun or"
            hint += " srun --mpi=pmix) over processes"
        if limited is not None and not (samples.unscaled or samples.without_scale):
            why = f"{limited} leaves the rest to NCCL ({rest_of(limited)}): no rule is made of it"
            hint = (
                f"show its curve: nccltune analyze {path}; for rules force NCCL_ALGO and NCCL_PROTO"
            )
        raise StudyError(why, where=str(path), hint=hint)
    return OpenStudy(study, samples)


def _lacks_ranks(samples: SortedSamples) -> bool:
    return not samples.unscaled or any(
        not timings.condition.scale.ranks for timings in samples.unscaled
    )


def _why_none(samples: SortedSamples) -> str:
    unscaled = samples.without_scale + sum(timings.samples for timings in samples.unscaled)
    unknown = "nodes or ranks" if _lacks_ranks(samples) else "nodes"
    reasons = [
        (unscaled, f"of an unknown number of {unknown}"),
        (samples.one_rank, "of one rank, where nothing is communicated"),
        (sum(len(one.sizes) for one in samples.wrong), "with wrong results"),
    ]
    found = [f"{count(number, 'timing')} {words}" for number, words in reasons if number]
    return ", ".join(found) or "all are of size 0"


def _default_runs(study: Study) -> set[str]:
    """Return the processes whose file is named for the default, such as `all_reduce_auto.log`."""
    return {
        run.process
        for record in study.imports(ImportRecord)
        if _DEFAULT_NAMES.intersection(re.split(r"[^a-z]+", record.file.lower()))
        for run in record.runs or ()
    }


def _add_predictions(study: Study, samples: SortedSamples) -> None:
    """Add the cheapest choice in NCCL's cost table where NCCL did not report what it ran."""
    lacking = [timings for timings in samples.timings if not any(timings.ran.values())]
    if not lacking:
        return
    for line in LineFile(study, names.TABLES, TableLine).stream():
        best = parse_choice(min(line.costs, key=lambda label: line.costs[label], default=DEFAULT))
        for timings in lacking:
            condition = timings.condition
            if isinstance(best, Choice) and (condition.collective, condition.scale) == (
                line.collective,
                Scale(line.nodes, line.ranks),
            ):
                timings.predicted[line.bytes] = best


def platform_with_hardware(study: Study) -> Platform:
    """Return the platform of a study with the hash of its hardware, as far as a file shows it."""
    platform, path = study.platform(), study.topology_path
    if platform.topology_hash is None and path is not None:
        with contextlib.suppress(InputError):
            found = hardware_hash(read_file(path))
            return msgspec.structs.replace(platform, topology_hash=found)
    return platform


def config_of(study: Study) -> Path:
    """Return the path of the study's configuration. Raises InputError if there is none."""
    if not study.config_path.is_file():
        raise InputError(
            "no such configuration",
            where=str(study.config_path),
            hint=f"make it: nccltune tune {study.path}",
        )
    return study.config_path


@contextlib.contextmanager
def saving(unsaved: list[UnwritableError], asked: Path | None = None) -> Iterator[None]:
    """Collect an UnwritableError of the block in `unsaved`, but not one about `asked`."""
    try:
        yield
    except UnwritableError as error:
        if asked is not None and error.where == str(asked):
            raise
        unsaved.append(error)
