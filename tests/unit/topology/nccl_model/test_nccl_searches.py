# SPDX-License-Identifier: Apache-2.0
"""The search and the paths against NCCL's own code on the same files (tests/data)."""

import functools
import json
from typing import Any

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.topology import Topology
from nccltune.topology.flows.settings import flow_settings
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.links import LinkGraph, NodeKind
from nccltune.topology.nccl_model.paths import paths
from nccltune.topology.nccl_model.routes import NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import SearchResult, search, search_collnet, search_nvls
from nccltune.topology.nccl_model.settings import parse_version, path_settings
from tests.unit.topology.samples import FOLDER

GRAPHS = FOLDER.parent / "graphs"
CASES = [json.loads(line) for line in (GRAPHS / "searches.jsonl").read_text().splitlines()]
BY_VERSION = [json.loads(line) for line in (GRAPHS / "by-version.jsonl").read_text().splitlines()]


@functools.cache
def topology(file: str) -> Topology:
    return read_topology((FOLDER / file).read_bytes(), file)


def version_of(text: str) -> Version:
    one, two, three = (int(part) for part in text.split("."))
    return one, two, three


def recorded_form(
    found: SearchResult, node: NodeRoutes, count: int, *, several: bool
) -> list[object]:
    """Return a result in the recorded format, with `count` channels before both are cut to the same
    number."""
    channels = []
    for ring in found.rings:
        words = " ".join(str(node.gpus[gpu].index) for gpu in ring.gpus)
        if several:
            assert ring.net_in is not None
            assert ring.net_out is not None
            words += f" | {node.nets[ring.net_in].index} {node.nets[ring.net_out].index}"
        channels.append(words)
    numbers = [
        *(found.pattern, found.cross_nic, count),
        *(found.intra_gb_per_s, found.inter_gb_per_s),
        *(found.intra_type, found.inter_type, found.same_channels),
    ]
    return [[float(number) for number in numbers], channels]


@pytest.mark.parametrize("nccl", ["2.28.9", "2.30.7"])
@pytest.mark.parametrize("file", sorted({case["file"] for case in CASES}))
def test_rings_and_trees_are_those_of_nccls_code(nccl: str, file: str):
    mine = [case for case in CASES if (case["nccl"], case["file"]) == (nccl, file)]
    assert mine
    for case in mine:
        settings = flow_settings(case["settings"])
        version = version_of(nccl)
        node = node_routes(topology(file), settings.path, version=version)
        searched = search(
            node, nodes=2 if case["several"] else 1, cross_nic=settings.cross_nic, version=version
        )
        channels = min(len(case["ring"][1]), len(case["tree"][1]))
        for found, recorded in ((searched.ring, case["ring"]), (searched.tree, case["tree"])):
            numbers, order = recorded
            shown = recorded_form(found, node, int(numbers[2]), several=case["several"])
            assert shown[0] == pytest.approx(numbers, abs=1e-3), case
            assert shown[1] == order[:channels], case


Found = list[Any]
"""A graph as recorded: pattern, crossNic, speeds, path types, sameChannels, and its channels.

A channel is the GPUs in order between its NICs. Equal channels in a row are counted.
"""


def found_form(found: SearchResult, node: NodeRoutes) -> Found:
    """Return a result in the recorded form."""
    channels: list[list[Any]] = []
    for ring in found.rings:
        words = [str(node.gpus[gpu].index) for gpu in ring.gpus]
        if ring.net_in is not None and ring.net_out is not None:
            ends = [f"N{node.nets[net].index:x}" for net in (ring.net_in, ring.net_out)]
            words = [ends[0], *words, ends[1]]
        if channels and channels[-1][0] == " ".join(words):
            channels[-1][1] += 1
        else:
            channels.append([" ".join(words), 1])
    return [
        *(found.pattern.value, found.cross_nic),
        *(round(found.intra_gb_per_s, 4), round(found.inter_gb_per_s, 4)),
        *(found.intra_type.name, found.inter_type.name),
        *(int(found.same_channels), channels),
    ]


def found_forms(
    node: NodeRoutes, version: Version, *, several: bool, collnet: bool
) -> dict[str, Found]:
    """Return all graphs that the search finds, in the recorded form."""
    nodes = 2 if several else 1
    searched = search(node, nodes=nodes, version=version)
    found: dict[str, SearchResult | None] = {"ring": searched.ring, "tree": searched.tree}
    found["nvls"] = search_nvls(node, nodes=nodes, version=version)
    if collnet:
        channels = searched.ring.channels
        both = search_collnet(node, nodes=nodes, channels=channels, version=version)
        found |= {"collnet_chain": both.chain, "collnet_direct": both.direct}
    return {name: found_form(one, node) for name, one in found.items() if one is not None}


@pytest.mark.parametrize(
    "recorded", BY_VERSION, ids=lambda one: f"{one['file']}-{one['several']}-{one['nccl'][0]}"
)
def test_all_graphs_are_those_of_nccls_code_by_version(recorded: dict[str, Any]):
    path = FOLDER.parent / recorded["file"]
    # Rules hold from a version on or up to one: between two with one result there is no other.
    for nccl in {recorded["nccl"][0], recorded["nccl"][-1]}:
        version = version_of(nccl)
        node = node_routes(topology(str(path)), version=version)
        graphs = found_forms(
            node, version, several=recorded["several"], collnet=recorded["collnet"]
        )
        assert graphs == recorded["graphs"], nccl


def test_versions_and_machines_recorded():
    """Each rule that differs by version has a version before and one after it."""
    versions = {nccl for one in BY_VERSION for nccl in one["nccl"]}
    assert len(versions) == 13
    assert {"nvls", "collnet_chain", "collnet_direct"} <= {
        name for one in BY_VERSION for name in one["graphs"]
    }
    assert len({one["file"] for one in BY_VERSION}) >= 15


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
