# SPDX-License-Identifier: Apache-2.0
"""Tune a study: find its rules, and write them as a configuration."""

import contextlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from nccltune.analyze.default_runs import is_before
from nccltune.analyze.timings import SortedSamples
from nccltune.app.analyze import stored_analysis
from nccltune.app.importing import StatedFacts, studied
from nccltune.app.job_levers import job_levers
from nccltune.app.study import OpenStudy, open_study, platform_with_hardware, saving
from nccltune.app.workload import recorded
from nccltune.formats.importing.importer import Imported
from nccltune.formats.importing.suspect import suspect_sentences
from nccltune.model.choice import DEFAULT, Choice, PartialChoice, rest_of
from nccltune.model.errors import StudyError, UnwritableError
from nccltune.model.nccl_releases import FIRST_WITH_PLUGIN
from nccltune.model.rule import RuleState, impossible
from nccltune.model.scale import count
from nccltune.model.sizes import exact_bytes
from nccltune.prove.check_drops import drops_in_force, overlapping
from nccltune.prove.edit import proof_marks, with_proof, without_failed
from nccltune.prove.result import Proof
from nccltune.prove.run import read_proof
from nccltune.prove.stock import PASSED
from nccltune.study.files import Study
from nccltune.tune.result import JobWorth, TunedGroup, TuneOptions, Tuning
from nccltune.tune.study import tune, write
from nccltune.tune.worth import job_worth
from nccltune.workload.table import Workload


class SavedTuning(NamedTuple):
    """A tuning, its configuration, errors of writing, and which timings no rule can be made of.

    `config` is None if there is no study to write it into and no other file was named; `imported`
    is what was read of an input that is no study. `doubts` are sentences on the runs.
    `models` has what `analyze` found of NCCL's own model where a rule is.
    """

    tuning: Tuning
    config: Path | None
    unsaved: list[UnwritableError]
    left_out: Sequence[str] = ()
    imported: Imported | None = None
    models: Sequence[str] = ()
    doubts: Sequence[str] = ()


def tune_path(
    path: Path,
    options: TuneOptions,
    config: Path | None = None,
    *,
    save: bool,
    stated: StatedFacts | None = None,
) -> SavedTuning:
    """Find the rules of a study, a file or a folder of files; with `save` write them.

    `stated` is what a file may not state. Raises StudyError, InputError for weights,
    UnwritableError if `config` cannot be written.
    """
    with studied(path, stated) as given:
        opened = open_study(given.studies[0])
        tuning = tune_study(opened, options)
        if given.imported is not None and tuning.worth is not None:
            # The study is a temporary folder.
            folder, levers = shlex.quote(str(opened.study.path)), tuning.worth.levers
            named = [
                replace(one, measure=one.measure and one.measure.replace(folder, "STUDY"))
                for one in levers
            ]
            tuning = replace(tuning, worth=replace(tuning.worth, levers=named))
        unsaved: list[UnwritableError] = []
        target = config or (opened.study.config_path if given.imported is None else None)
        if save and target is not None:
            with saving(unsaved, config):
                tuning = save_tuning(opened.study, tuning, config)
        analysis, _ = stored_analysis(opened)
        doubts = suspect_sentences(opened.study)
    ruled = {(group.collective, group.scale) for group in tuning.groups if group.rules}
    models = [
        f"{item.title}: {item.model.sentence}"
        for item in (analysis.conditions if analysis else ())
        if item.model and (item.condition.collective, item.condition.scale) in ruled
    ]
    left_out = _left_out(opened.samples)
    return SavedTuning(tuning, target, unsaved, left_out, given.imported, models, doubts)


def _left_out(samples: SortedSamples) -> list[str]:
    defaults = {timings.condition: timings for timings in samples.timings}
    limited: dict[PartialChoice, int] = {}
    gains: dict[PartialChoice, float] = {}
    for timings in samples.curves:
        if (limits := timings.condition.limits) is None:
            continue
        limited[limits] = limited.get(limits, 0) + timings.samples
        beside = defaults.get(replace(timings.condition, limits=None), timings)
        for size in timings.sizes if limits not in timings.wrong else ():
            own, default = timings.median(size, limits), beside.median(size, DEFAULT)
            gains[limits] = max(gains.get(limits, 0), default / own if own and default else 0)
    found = []
    for limits, number in limited.items():
        words = f"of {limits}, {rest_of(limits)}: neither the default nor a whole choice"
        if gains.get(limits, 0) > 1.03:
            words += f", but looks up to {gains[limits]:.2f}x faster; for a rule set both variables"
        found.append((words, number))
    never = Counter(
        f"of {choice.label}, {one.scale}: no rule, {why}"
        for timings in samples.timings
        for one in [timings.condition]
        for choice in (key for cells in timings.cells.values() for key in cells for _ in cells[key])
        if isinstance(choice, Choice) and (why := impossible(one.collective, choice, one.scale))
    )
    found += never.items()
    unscaled = samples.without_scale + sum(
        timings.samples for timings in samples.unscaled if timings.condition.limits is None
    )
    found.append(("of an unknown number of nodes or ranks", unscaled))
    return [f"{count(number, 'timing')} {words}" for words, number in found if number]


def tune_study(
    opened: OpenStudy, options: TuneOptions | None = None, job: Workload | None = None
) -> Tuning:
    """Return the rules of a study with their evidence; write nothing.

    Rules that an earlier `verify` of this study proved are proven. Those that `check` removed are
    left out until they are measured again. `job` is what `options.workload` recorded, if it was
    read before. Raises InputError if a file that `options` name cannot be read, and StudyError for
    a damaged file.
    """
    options = options or TuneOptions()
    job = job or recorded(options.workload)
    found = tune(
        opened.study.name,
        platform_with_hardware(opened.study),
        opened.samples,
        options,
        created=datetime.now(UTC).date().isoformat(),
        job=job,
    )
    proof = _proof(opened.study)
    found = found if proof is None else with_proof(found, proof)
    found = without_failed(found, drops_in_force(opened.study), overlapping)
    return found if job is None else replace(found, worth=worth_to(job, found, opened.study))


def worth_to(job: Workload, tuning: Tuning, study: Study) -> JobWorth:
    """Return what the rules of a tuning, and what else `study` measured, are worth to a job."""
    return replace(job_worth(job, tuning.groups), levers=job_levers(job, study))


def save_tuning(study: Study, tuning: Tuning, config: Path | None = None) -> Tuning:
    """Write tuning.json and the configuration; return the tuning with its hash."""
    proof = _proof(study)
    return write(study, tuning, config, None if proof is None else proof_marks(proof))


def _proof(study: Study) -> Proof | None:
    """Return the proof of a study; None without one, or if it is damaged."""
    with contextlib.suppress(StudyError):
        return read_proof(study)
    return None


def verify_command(study: Study, tuning: Tuning) -> str:
    """Return the command that proves the rules that are not, at the sizes of the rules' job.

    Imported rules are run by nccl-tests, once for each collective and scale.
    """
    command = f"nccltune verify {shlex.quote(str(study.path))}"
    if study.path.is_dir() and not study.imports_path.is_file():
        job = [word for path in tuning.options.workload for word in ("--workload", path)]
        return " ".join([command, *map(shlex.quote, job)])
    settings = study.platform().settings
    programs = [
        _nccl_tests(group, settings)
        for group in tuning.groups
        if any(item.state is not RuleState.PROVEN for item in group.rules)
    ]
    return " && ".join(f"{command} -- {program}" for program in dict.fromkeys(programs)) or command


def too_old(nccl: str | None) -> str:
    """Return what to do if the NCCL of the measurement cannot load rules; empty if it can."""
    if not is_before(nccl, FIRST_WITH_PLUGIN):
        return ""
    return (
        "update NCCL and repeat the measurement: these rules can only be loaded by NCCL"
        f" {'{}.{}'.format(*FIRST_WITH_PLUGIN)} or newer, and were measured with {nccl}"
    )


def _nccl_tests(group: TunedGroup, settings: Mapping[str, str]) -> str:
    """Return the command of a group, under the settings that were measured.

    Studies do not keep host names.
    """
    sizes = [row.bytes for row in group.decisions]
    factors = {right / left for left, right in pairwise(sizes)}
    factor = factors.pop() if len(factors) == 1 else 2.0
    words = ["mpirun", "-n", str(group.scale.ranks)]
    if group.scale.nodes > 1:
        # Without -x, Open MPI passes no setting on to other nodes.
        words += ["-H", "HOSTS"]
        words += [word for name in PASSED for word in ("-x", name)]
    for name, value in settings.items():
        if not name.startswith(("NCCL_ALGO", "NCCL_PROTO", "NCCL_DEBUG", "NCCL_TUNER")):
            words += ["-x", shlex.quote(f"{name}={value}")]
    words += [f"{group.collective.nccl_tests_name}_perf"]
    words += ["-b", exact_bytes(sizes[0]), "-e", exact_bytes(sizes[-1])]
    words += ["-f", f"{factor:.0f}" if factor >= 2 and factor.is_integer() else "2", "-g", "1"]
    return " ".join([*words, "-R", "1"] if group.registered else words)
