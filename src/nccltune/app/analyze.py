# SPDX-License-Identifier: Apache-2.0
"""Analyse a study: compute curves and findings.

Findings also use the topology of the study and doubts from its imports.
"""

import contextlib
import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

import nccltune
from nccltune.analyze import analyze
from nccltune.analyze.curves import ASSUMED_NOISE
from nccltune.analyze.expected import Expectation
from nccltune.analyze.result import Analysis, ConditionAnalysis
from nccltune.app.compare import (
    BASE,
    ChoicesCompared,
    FleetCompared,
    SidesCompared,
    compare_paths,
)
from nccltune.app.compare_reference import ReferenceCompared
from nccltune.app.importing import StatedFacts, studied
from nccltune.app.nccl_model import model_curve
from nccltune.app.reproduce import conditions_of_runs, sweep_again
from nccltune.app.study import OpenStudy, open_study, saving
from nccltune.formats.importing.importer import Imported
from nccltune.formats.importing.suspect import run_names, suspect_sentences
from nccltune.formats.reading.file_report import ImportRecord
from nccltune.formats.reading.platform_facts import joined
from nccltune.model.errors import InputError, StudyError, UnwritableError
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.report.remarks import REMARKS
from nccltune.study import names
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.calibration import read_calibration
from nccltune.topology.flows.measured import expectations

CALIBRATION = names.CALIBRATION
"""The file of a study with measured link efficiencies. They replace the built-in ones."""


# A setting of NCCL names no program.
_NCCL = re.compile(r"(?:column|under) '[^']*[nr]ccl(?!_\w+=)", re.IGNORECASE)
_OTHERS = re.compile(
    r"\bgloo\b|\buccl?\b|mscclpp|msccl\+\+|custom|symm_?mem|multimem|(?:one|two)[-_ ]?shot|deepep"
    r"|nvshmem|flashinfer|\bmpi\b|\bmsccl\b|\bvllm\b|\b(?:y?ours)\b",
    re.IGNORECASE,
)
"""Programs and kernels that run collectives instead of NCCL."""
_AMD = re.compile(rb"\brccl\b|\bMI\d{3}[AX]?\b", re.IGNORECASE)


class Analyzed(NamedTuple):
    """An analysis, and warnings. `measure` is a command that measures the choices, "" on AMD.

    `unsaved` has the error if findings.json could not be written. `of` names the runs of a part of
    an input: their conditions, else their files. `foreign`: they may be of another program.
    """

    analysis: Analysis
    warnings: list[str]
    unsaved: Sequence[UnwritableError] = ()
    measure: str = ""
    of: str = ""
    foreign: bool = False


class AnalyzedInput(NamedTuple):
    """The analyses of an input, several if it has runs of several platforms or conditions.

    `imported` is what was read of an input that is no study, and `compared` those runs side by
    side.
    """

    parts: list[Analyzed]
    imported: Imported | None = None
    compared: SidesCompared | FleetCompared | ChoicesCompared | None = None


def analyze_path(
    path: Path, *, assumed_noise: float, save: bool, stated: StatedFacts | None = None
) -> AnalyzedInput:
    """Analyse a study, a file or a folder of files. Raises StudyError and InputError.

    With `save` findings.json of a study is written. `stated` is what a file may not state.
    """
    parts: list[Analyzed] = []
    stated = stated or StatedFacts()
    with studied(path, stated, split=True) as given:
        for study in given.studies:
            opened = open_study(study, curves=True)
            analyzed = analyze_study(opened, assumed_noise=assumed_noise)
            unsaved: list[UnwritableError] = []
            if given.imported is not None:
                # The study is a temporary folder.
                said = [one.replace(f"{study}/", "") for one in analyzed.warnings]
                analyzed = analyzed._replace(warnings=said)
            elif save:
                with saving(unsaved):
                    opened.study.write_json(opened.study.findings_path, analyzed.analysis)
            beside = None if given.imported is None else Path(study.name)
            measure = "" if _is_amd(path) else sweep_again(opened.study, opened.samples, beside)
            of = _runs_of(opened.study, alone=len(given.studies) == 1)
            parts.append(analyzed._replace(unsaved=unsaved, measure=measure, of=of))
        compared = None
        scales = {item.condition.scale for part in parts for item in part.analysis.conditions}
        is_series = len(parts) == 1 and len({scale.nodes for scale in scales}) > 2
        if len(parts) > 1:
            # What is doubtful in a file is known of the file, and not of which of its runs.
            beside_nccl = any(map(_NCCL.search, (part.of for part in parts)))
            parts = [
                part._replace(
                    analysis=_without_doubts(part.analysis),
                    foreign=_is_foreign(part.of, beside_nccl=beside_nccl),
                )
                for part in parts
            ]
        if len(parts) > 1 or (given.imported is not None and len(scales) > 2):
            with contextlib.suppress(InputError):
                compared = compare_paths(
                    [path], assumed_noise=assumed_noise, copies=given.copies, **stated._asdict()
                )
    says = isinstance(compared, FleetCompared) and (
        compared.is_judged or (is_series and bool(compared.scaling))
    )
    if isinstance(compared, ReferenceCompared) or (len(parts) == 1 and not says):
        compared = None
    return AnalyzedInput(parts, given.imported, compared)


def _is_foreign(name: str, *, beside_nccl: bool) -> bool:
    """Return whether the name of runs is that of another program: a known one, or beside `NCCL`."""
    words = name.partition("'")[2].removesuffix("'")
    quoted = name.startswith(("column ", "under ")) and "=" not in words
    if not quoted or BASE.match(words) or _NCCL.search(name):
        return False
    return beside_nccl or _OTHERS.search(words) is not None


def _without_doubts(analysis: Analysis) -> Analysis:
    kept = [item for item in analysis.findings if item.kind is not FindingKind.SUSPECT_RUN]
    return msgspec.structs.replace(analysis, findings=kept)


def _runs_of(study: Study, *, alone: bool) -> str:
    """Return the conditions of the runs of a study, else what else sets them apart from others."""
    records = study.imports(ImportRecord)
    named = conditions_of_runs(study)
    settings = [f"{name}={value}" for name, value in study.platform().settings.items()]
    files = [] if alone else [*(record.file for record in records), *settings]
    return joined(named or files, 3)


def is_serious(analysis: Analysis) -> bool:
    """Return whether the user should act on any finding."""
    return any(REMARKS[finding.kind].is_serious for finding in analysis.findings)


def analyze_study(opened: OpenStudy, *, assumed_noise: float = ASSUMED_NOISE) -> Analyzed:
    """Return curves and findings; with a topology also against what its links allow.

    `assumed_noise` is the relative noise of a timing where timings are too few to measure it.
    """
    expected, warnings = _expectations(opened)
    analysis = analyze(
        _platform_of(opened.study),
        opened.samples,
        suspect=suspect_sentences(opened.study),
        expected=expected,
        assumed_noise=assumed_noise,
        names=run_names(opened.study),
    )
    conditions = _with_model(opened, analysis.conditions)
    found = msgspec.structs.replace(analysis, basis=_basis(opened.study), conditions=conditions)
    return Analyzed(found, warnings)


def _is_amd(path: Path) -> bool:
    """Return whether the first 64 KiB of a file name RCCL or a GPU of AMD."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _AMD.search(file.read(1 << 16)) is not None


def _platform_of(study: Study) -> Platform:
    """Return the platform; without one, of runs of an unknown scale, the settings they share."""
    platform = study.platform()
    records = study.imports(ImportRecord)
    runs = [dict(run.facts.settings or {}) for item in records for run in item.runs or ()]
    if study.platform_path.is_file() or not runs:
        return platform
    shared = [item for item in runs[0].items() if all(item in run.items() for run in runs)]
    return msgspec.structs.replace(platform, settings=dict(shared))


def _with_model(opened: OpenStudy, conditions: list[ConditionAnalysis]) -> list[ConditionAnalysis]:
    path, platform = opened.study.topology_path, opened.study.platform()
    if path is None:
        return conditions
    try:
        topology = load_topology(path)
    except InputError:
        # The expectations have warned of it.
        return conditions
    return [
        msgspec.structs.replace(item, model=model_curve(topology, platform, item))
        for item in conditions
    ]


def stored_analysis(opened: OpenStudy) -> tuple[Analysis | None, list[str]]:
    """Return what findings.json has, and warnings; None if its inputs have changed since."""
    study = opened.study
    if not study.findings_path.is_file():
        return None, []
    try:
        stored = study.read_json(study.findings_path, Analysis)
    except StudyError as error:
        return None, [f"{error}; the findings shown here are new"]
    if stored.samples == opened.samples.samples and stored.basis == _basis(study):
        return stored, []
    return None, [
        "findings.json is older than the study; the findings shown here are new: "
        f"nccltune analyze {shlex.quote(str(study.path))}"
    ]


def _basis(study: Study) -> str:
    digest = hashlib.sha256(nccltune.__version__.encode())
    others = (study.path / CALIBRATION, study.path / names.TABLES)
    paths = (study.platform_path, study.imports_path, study.topology_path, *others)
    for path in paths:
        content = path.read_bytes() if path is not None and path.is_file() else b""
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:16]


def _expectations(opened: OpenStudy) -> tuple[list[Expectation], list[str]]:
    """Return the bandwidths that the study's topology allows, and warnings."""
    study = opened.study
    path, platform = study.topology_path, study.platform()
    if path is None or platform.emulated_nodes:
        return [], []
    # A forced protocol may carry less than the links; how much less is not known.
    asked = [
        (one.collective, one.scale, one.limits)
        for one in (item.condition for item in opened.samples.curves)
        if one.scale.nodes and one.scale.ranks and "PROTO" not in (one.limits or "")
    ]
    figures = study.path / CALIBRATION
    try:
        calibration = read_calibration(figures) if figures.is_file() else None
        found = expectations(load_topology(path), platform, asked, calibration)
    except InputError as error:
        return [], [str(error)]
    return found.expectations, [f"{path}: {sentence}" for sentence in found.silent]
