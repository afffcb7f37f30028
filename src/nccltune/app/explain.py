# SPDX-License-Identifier: Apache-2.0
"""Explain: load a tuner plugin and list its decisions at each size."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.analyze.default_runs import is_before
from nccltune.app.importing import StatedFacts, studied
from nccltune.app.nccl_model import why_default
from nccltune.app.study import open_study
from nccltune.app.tune import save_tuning, tune_study
from nccltune.formats.importing.detect import HEAD_BYTES, kind_of
from nccltune.formats.importing.inputs import READERS
from nccltune.formats.tuner_config.csv_rules import (
    COLUMNS,
    LEAST_COLUMNS,
    FileRule,
    foreign_rules,
    read_rules,
)
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError, StudyError
from nccltune.model.nccl_releases import FIRST_WITH_PLUGIN
from nccltune.model.rule import Rule, impossible
from nccltune.model.scale import Scale
from nccltune.native import tuner_path
from nccltune.study import names
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.nccl_model.settings import known_version
from nccltune.tune.explain import (
    NEWEST_KNOWN,
    ExplainResult,
    explain,
    sizes_to_ask,
    with_channels,
    with_states,
)
from nccltune.tune.lint import file_issue
from nccltune.tune.result import TuneOptions, Tuning

_FOREIGN_OCTAVE = 16
"""Sizes asked from one power of two to the next if the ends of a plugin's ranges are unknown."""


class ExplainRequest(NamedTuple):
    """The plugin to load, and the calls to ask about; None is taken from the rules.

    `config` is a study or a configuration. `tuner` None is our plugin.
    """

    config: Path | None = None
    tuner: Path | None = None
    nccl_version: str | None = None
    nodes: int | None = None
    ranks: int | None = None
    collectives: Sequence[Collective] | None = None
    sizes: tuple[int, int] = (1 << 10, 1 << 30)
    registered: bool = False
    pipe_ops: int = 1


def explain_config(request: ExplainRequest) -> list[ExplainResult]:
    """Return the decisions of the plugin at each scale and size.

    Raises InputError if there is nothing to explain, PlatformError without a plugin, LaunchError if
    the plugin ends its process.
    """
    config, tuner = request.config, request.tuner
    if config is None and tuner is None:
        raise InputError("nothing to explain", hint="name a study, a configuration, or ‹tuner›")
    if config is not None and config.is_file() and _is_measured(config):
        with studied(config, StatedFacts(nodes=request.nodes, ranks=request.ranks)) as given:
            opened = open_study(given.studies[0])
            save_tuning(opened.study, tune_study(opened, TuneOptions()))
            return explain_config(request._replace(config=opened.study.path))
    path, rules, header = _read(config, is_ours=tuner is None)
    low, high = request.sizes
    version = request.nccl_version or header.get("nccl") or NEWEST_KNOWN
    if is_before(version, FIRST_WITH_PLUGIN):
        raise InputError(
            f"NCCL {version} is older than any that explain can play, 2.21 or newer",
            where="‹nccl_version›" if request.nccl_version else str(path),
            hint=f"what a newer one would get: ‹nccl_version› {NEWEST_KNOWN}",
        )
    plain = [item.rule for item in rules]
    sizes = sizes_to_ask(plain, low, high, octave=1 if tuner is None else _FOREIGN_OCTAVE)
    found = [
        explain(
            tuner or tuner_path(),
            path,
            nccl_version=version,
            scale=scale,
            collectives=_collectives(request.collectives, rules),
            sizes=sizes,
            pipe_ops=request.pipe_ops,
            registered=request.registered,
        )
        for scale in _scales(request.nodes, request.ranks, plain, config)
    ]
    found = [with_states(item, rules, request.pipe_ops, request.registered) for item in found]
    for place, item in enumerate(found):
        never = [
            f"line {x.line}: {x.rule.choice.label} never runs for {x.rule.collective.value}: {why}"
            for x in rules
            if x.rule.nodes in (None, item.scale.nodes) and x.rule.ranks in (None, item.scale.ranks)
            if (why := impossible(x.rule.collective, x.rule.choice, item.scale))
        ]
        found[place] = msgspec.structs.replace(item, warnings=[*item.warnings, *never])
    if tuner is not None:
        return [msgspec.structs.replace(item, asked=len(sizes)) for item in found]
    tuning = None
    # What the study adds is optional: show the decisions even if tuning.json is damaged.
    with contextlib.suppress(StudyError):
        tuning = _tuning_of(config)
    if config is None or tuning is None:
        return found
    found = [with_channels(item, tuning) for item in found]
    is_plain = not request.registered and request.pipe_ops == 1
    if is_plain and low == high:
        measured = {group.scale for group in tuning.groups}
        with contextlib.suppress(StudyError, InputError):
            found = [
                _with_reason(item, Study(config), request) if item.scale in measured else item
                for item in found
            ]
    return found


def _is_measured(path: Path) -> bool:
    """Return whether a file holds measurements, from which rules can be found."""
    with path.open("rb") as file, contextlib.suppress(InputError):
        return kind_of(file.read(HEAD_BYTES)) in READERS
    return False


def _with_reason(found: ExplainResult, study: Study, request: ExplainRequest) -> ExplainResult:
    """Return `found` with what NCCL's cost model says of the default on the study's machine."""
    if study.topology_path is None or not study.platform_path.is_file():
        return found
    measured = study.platform()
    version = request.nccl_version or measured.nccl_version
    if known_version(version) is None or measured.emulated_nodes:
        return found
    topology = load_topology(study.topology_path)
    platform = msgspec.structs.replace(measured, nccl_version=version)
    why = {}
    for collective, ranges in found.collectives.items():
        ran = ranges[0].default_ran if version == measured.nccl_version else []
        size = request.sizes[0]
        why[collective] = why_default(topology, platform, collective, found.scale, size, ran)
    return msgspec.structs.replace(found, why_default=why)


def _read(
    config: Path | None, *, is_ours: bool
) -> tuple[Path | None, Sequence[FileRule], dict[str, str]]:
    if config is None:
        return None, [], {}
    path = config / names.TUNER_CONF if config.is_dir() else config
    read = read_rules(path)
    if read.problems and not read.rules and is_ours:
        first, text = read.problems[0], path.read_text(encoding="utf-8-sig", errors="replace")
        if text.lstrip()[:1] == "{":
            raise InputError(
                "is JSON, and holds no rules in CSV",
                where=str(path),
                hint=f"if a job recorded it, what it sent: nccltune workload show {path}",
            )
        if (foreign := foreign_rules(text)) is not None:
            raise InputError(
                f"is a configuration of {foreign[0]}, not of a plugin that reads CSV",
                where=f"{path}:{foreign[1]}",
                hint=f"a CSV row has {','.join(COLUMNS[:LEAST_COLUMNS])}",
            )
        whole = file_issue(text, str(path))
        raise InputError(
            f"no line is a rule: {whole.message if whole is not None else first.message}",
            where=str(path) if whole is not None else f"{path}:{first.line}",
            hint=whole.hint if whole is not None else first.hint,
        )
    return path, read.rules, read.header


def _collectives(named: Sequence[Collective] | None, rules: Sequence[FileRule]) -> list[Collective]:
    if named:
        return list(named)
    return list(dict.fromkeys(item.rule.collective for item in rules)) or list(reversed(TUNED))


def _scales(
    nodes: int | None, ranks: int | None, rules: Sequence[Rule], config: Path | None
) -> list[Scale]:
    """Return the given scale, else those of the rules, else those of tuning.json. Raises
    InputError."""
    if nodes is not None and ranks is not None:
        return [Scale(nodes, ranks)]
    named = [
        Scale(rule.nodes, rule.ranks)
        for rule in rules
        if rule.nodes is not None and rule.ranks is not None
    ]
    if not named and (tuning := _tuning_of(config)) is not None:
        named = [group.scale for group in tuning.groups]
    chosen = [
        scale
        for scale in dict.fromkeys(named)
        if nodes in (None, scale.nodes) and ranks in (None, scale.ranks)
    ]
    if not chosen:
        raise InputError("the scale is not known: no rule names it", hint="add ‹nodes› N ‹ranks› R")
    return chosen


def _tuning_of(config: Path | None) -> Tuning | None:
    """Return the tuning of a study; None for a single file, or if tuning.json does not exist."""
    if config is None or not config.is_dir():
        return None
    study = Study.open(config)
    return study.read_json(study.tuning_path, Tuning) if study.tuning_path.is_file() else None
