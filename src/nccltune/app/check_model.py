# SPDX-License-Identifier: Apache-2.0
"""What NCCL's own model chooses otherwise in another release than the one that rules rest on."""

from itertools import groupby

import msgspec

from nccltune.app.nccl_model import own_prediction
from nccltune.formats.tuner_config.csv_rules import RuleFile
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.predict import NEWEST, changes
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.nccl_model.settings import known_version

SIZES = tuple(1 << power for power in range(10, 31))
"""The sizes that are predicted: 1 KiB to 1 GiB by powers of two."""


class ModelChange(msgspec.Struct, frozen=True):
    """Sizes at which the model of another release chooses `after` and not `before`.

    `ruled` is whether a rule decides at any of these sizes; elsewhere NCCL's default changes.
    """

    collective: Collective
    scale: Scale
    min_bytes: int
    max_bytes: int
    before: str
    after: str
    ruled: bool


class ModelChanges(msgspec.Struct, frozen=True):
    """The choices that differ; `note` is why nothing is known, or what was assumed."""

    before: str | None
    after: str
    changes: list[ModelChange] = []
    note: str | None = None


def model_changes(study: Study | None, read: RuleFile, version: str) -> ModelChanges:
    """Return what the model of `version` chooses otherwise, for every scale of the rules.

    The machine is that of the study.
    """
    platform = study.platform() if study is not None else None
    before = platform.nccl_version if platform is not None else read.header.get("nccl")
    if study is None or platform is None or study.topology_path is None:
        return ModelChanges(before, version, note="no study with a topology is beside the rules")
    if known_version(before) is None:
        return ModelChanges(before, version, note="the release of the study is not known")
    if platform.emulated_nodes:
        return ModelChanges(before, version, note="the model does not follow emulated nodes")
    rules = [item.rule for item in read.rules]
    scales = dict.fromkeys(
        Scale(rule.nodes, rule.ranks) for rule in rules if rule.nodes and rule.ranks
    )
    found: list[ModelChange] = []
    notes = []
    if (known_version(version) or NEWEST) > NEWEST:
        newest = ".".join(map(str, NEWEST))
        notes.append(f"the newest release that is modelled is {newest}; it stands for {version}")
    for scale in scales:
        for collective in reversed(TUNED):
            try:
                found += _changes(study, platform, collective, scale, version, rules)
            except InputError as error:
                notes.append(f"{collective.prose}, {scale}: {error}")
    return ModelChanges(before, version, found, "; ".join(dict.fromkeys(notes)) or None)


def _changes(
    study: Study,
    platform: Platform,
    collective: Collective,
    scale: Scale,
    version: str,
    rules: list[Rule],
) -> list[ModelChange]:
    assert study.topology_path is not None
    topology = load_topology(study.topology_path)
    other = msgspec.structs.replace(platform, nccl_version=version)
    now = own_prediction(topology, platform, collective, scale, SIZES)
    after = own_prediction(topology, other, collective, scale, SIZES)
    found = []
    for (one, two), group in groupby(
        changes(now, after), key=lambda item: (item.before.label, item.after.label)
    ):
        sizes = [item.size for item in group]
        if one == two:
            continue
        ruled = any(
            rule.matches(collective, size, scale.nodes, scale.ranks)
            for rule in rules
            for size in sizes
        )
        found.append(ModelChange(collective, scale, sizes[0], sizes[-1], one, two, ruled))
    return found
