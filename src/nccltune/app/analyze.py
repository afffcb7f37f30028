# SPDX-License-Identifier: Apache-2.0
"""Analyse a study: compute curves and findings.

Findings also use the topology of the study and doubts from its imports.
"""

import hashlib
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
from nccltune.app.nccl_model import model_curve
from nccltune.app.reproduce import sweep_again
from nccltune.app.study import OpenStudy, open_study, saving
from nccltune.formats.importing.suspect import run_names, suspect_sentences
from nccltune.model.errors import InputError, StudyError, UnwritableError
from nccltune.report.remarks import REMARKS
from nccltune.study import names
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.calibration import read_calibration
from nccltune.topology.flows.measured import expectations

CALIBRATION = names.CALIBRATION
"""The file of a study with measured link efficiencies. They replace the built-in ones."""


class Analyzed(NamedTuple):
    """An analysis, and warnings. `measure` is a command that measures the choices.

    `unsaved` has the error if findings.json could not be written.
    """

    analysis: Analysis
    warnings: list[str]
    unsaved: Sequence[UnwritableError] = ()
    measure: str = ""


def analyze_path(path: Path, *, assumed_noise: float, save: bool) -> Analyzed:
    """Analyse the study at `path`; with `save` write findings.json. Raises StudyError."""
    opened = open_study(path, curves=True)
    analyzed = analyze_study(opened, assumed_noise=assumed_noise)
    unsaved: list[UnwritableError] = []
    if save:
        with saving(unsaved):
            opened.study.write_json(opened.study.findings_path, analyzed.analysis)
    measure = sweep_again(opened.study, opened.samples)
    return analyzed._replace(unsaved=unsaved, measure=measure)


def is_serious(analysis: Analysis) -> bool:
    """Return whether the user should act on any finding."""
    return any(REMARKS[finding.kind].is_serious for finding in analysis.findings)


def analyze_study(opened: OpenStudy, *, assumed_noise: float = ASSUMED_NOISE) -> Analyzed:
    """Return curves and findings; with a topology also against what its links allow.

    `assumed_noise` is the relative noise of a timing where timings are too few to measure it.
    """
    expected, warnings = _expectations(opened)
    analysis = analyze(
        opened.study.platform(),
        opened.samples,
        suspect=suspect_sentences(opened.study),
        expected=expected,
        assumed_noise=assumed_noise,
        names=run_names(opened.study),
    )
    conditions = _with_model(opened, analysis.conditions)
    found = msgspec.structs.replace(analysis, basis=_basis(opened.study), conditions=conditions)
    return Analyzed(found, warnings)


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
    asked = [(item.condition.collective, item.condition.scale) for item in opened.samples.timings]
    figures = study.path / CALIBRATION
    try:
        calibration = read_calibration(figures) if figures.is_file() else None
        found = expectations(load_topology(path), platform, asked, calibration)
    except InputError as error:
        return [], [str(error)]
    return found.expectations, [f"{path}: {sentence}" for sentence in found.silent]
