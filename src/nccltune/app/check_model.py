# SPDX-License-Identifier: Apache-2.0
"""What NCCL's own model chooses otherwise in another release than the one that rules rest on."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from nccltune.app.nccl_model import own_prediction
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.model.topology import Topology
from nccltune.predict import changes
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology

SIZES = tuple(1 << power for power in range(10, 31))
"""The sizes that are predicted: 1 KiB to 1 GiB by powers of two."""


class ModelChange(msgspec.Struct, frozen=True):
    """Sizes at which the other release's model chooses `after`; `ruled`: a rule decides there."""

    collective: Collective
    scale: Scale
    min_bytes: int
    max_bytes: int
    before: str
    after: str
    ruled: bool


class ModelChanges(msgspec.Struct, frozen=True):
    """The choices that differ, and notes. Where the model is not asked, a note has the reason."""

    changes: list[ModelChange] = []
    notes: list[str] = []
    is_asked: bool = True


def calls_of(rules: Sequence[Rule]) -> list[tuple[Collective, Scale]]:
    """Return every collective that NCCL tunes, at every scale of the rules."""
    scales = dict.fromkeys((rule.nodes, rule.ranks) for rule in rules)
    return [
        (collective, Scale(nodes, ranks))
        for nodes, ranks in scales
        if nodes and ranks
        for collective in reversed(TUNED)
    ]


def model_changes(
    study: Study | None,
    calls: Iterable[tuple[Collective, Scale]],
    rules: Sequence[Rule],
    version: str,
) -> ModelChanges:
    """Return what the model of `version` chooses otherwise for `calls` on the study's machine."""
    if study is None or study.topology_path is None:
        return ModelChanges(notes=["no study with a topology is known"], is_asked=False)
    platform = study.platform()
    if platform.emulated_nodes or platform.nccl_version is None:
        why = "follow emulated nodes" if platform.emulated_nodes else "know the study's release"
        return ModelChanges(notes=[f"the model does not {why}"], is_asked=False)
    topology = load_topology(study.topology_path)
    found: list[ModelChange] = []
    notes: dict[str, None] = {}
    for collective, scale in calls:
        try:
            found += _changes(topology, platform, collective, scale, version, rules, notes)
        except InputError as error:
            notes[f"{collective.prose}, {scale}: {error}"] = None
    return ModelChanges(found, list(notes))


def _changes(
    topology: Topology,
    platform: Platform,
    collective: Collective,
    scale: Scale,
    version: str,
    rules: Sequence[Rule],
    notes: dict[str, None],
) -> Iterator[ModelChange]:
    other = msgspec.structs.replace(platform, nccl_version=version)
    before = own_prediction(topology, platform, collective, scale, SIZES)
    after = own_prediction(topology, other, collective, scale, SIZES)
    notes |= dict.fromkeys(after.notes)
    pairs = groupby(changes(before, after), lambda item: (item.before.label, item.after.label))
    for (one, two), group in pairs:
        sizes = [item.size for item in group]
        if one != two:
            ruled = any(
                rule.matches(collective, size, scale.nodes, scale.ranks)
                for rule in rules
                for size in sizes
            )
            yield ModelChange(collective, scale, sizes[0], sizes[-1], one, two, ruled)
