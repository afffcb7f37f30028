# SPDX-License-Identifier: Apache-2.0
"""Our paths against those of NCCL's own code for the same files (see tests/data/topologies)."""

import json
from typing import Any

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.links import LinkGraph, NodeKind
from nccltune.topology.nccl_model.paths import paths
from nccltune.topology.nccl_model.settings import parse_version, path_settings
from tests.unit.topology.samples import FOLDER

RECORDED = [
    json.loads(line) for line in (FOLDER / "nccl-paths" / "paths.jsonl").read_text().splitlines()
]


def names_of(graph: LinkGraph) -> dict[str, str]:
    """Return our name of each device, by the kind and number in the recording."""
    kinds = {NodeKind.GPU: "GPU", NodeKind.NET: "NET", NodeKind.CPU: "CPU"}
    return {
        f"{kinds[one.kind]}{one.numa if one.kind is NodeKind.CPU else one.index}": one.name
        for one in graph.vertices
        if one.kind in kinds
    }


def test_there_is_something_to_compare() -> None:
    assert len(RECORDED) >= 8 * 8 + 7 * 2
    assert {one["nccl"] for one in RECORDED} == {
        "2.19.4", "2.21.5", "2.26.2", "2.28.9", "2.30.7", "2.31.2",
    }  # fmt: skip


@pytest.mark.parametrize(
    "recorded", RECORDED, ids=lambda one: f"{one['file']}-{one['nccl']}-{len(one['settings'])}"
)
def test_paths_are_nccls(recorded: dict[str, Any]) -> None:
    file = FOLDER / "nccl-paths" / recorded["file"]
    version = parse_version(recorded["nccl"])
    graph = link_graph([read_topology(file.read_bytes(), file.name)], nccl_version=version)
    names = names_of(graph)
    found = paths(graph, settings=path_settings(recorded["settings"]), nccl_version=version)
    for source, others in recorded["paths"].items():
        for target, (kind, gb_per_s, hops) in others.items():
            path = found.between(names[source], names[target])
            assert (path.kind, path.hops) == (kind, hops), (source, target, path.why)
            assert path.gb_per_s == pytest.approx(gb_per_s, rel=1e-3, abs=6e-4)
    gdr = [
        f"{gpu} {net} {'read' if read else 'write'}"
        for gpu in names
        for net in names
        for read in (False, True)
        if gpu.startswith("GPU")
        and net.startswith("NET")
        and found.gdr(names[gpu], names[net], read=read).allowed
    ]
    assert sorted(gdr) == sorted(recorded["gdr"])
