# SPDX-License-Identifier: Apache-2.0
"""The search against NCCL's own code on the same files (tests/data/graphs/searches.jsonl)."""

import functools
import json

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.topology import Topology
from nccltune.topology.flows.settings import flow_settings
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.routes import NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import SearchResult, search
from tests.unit.topology.samples import FOLDER

LINES = (FOLDER.parent / "graphs" / "searches.jsonl").read_text().splitlines()
CASES = [json.loads(line) for line in LINES]


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
            node,
            nodes=2 if case["several"] else 1,
            cross_nic=settings.cross_nic,
            version=version,
        )
        channels = min(len(case["ring"][1]), len(case["tree"][1]))
        for found, recorded in ((searched.ring, case["ring"]), (searched.tree, case["tree"])):
            numbers, order = recorded
            shown = recorded_form(found, node, int(numbers[2]), several=case["several"])
            assert shown[0] == pytest.approx(numbers, abs=1e-3), case
            assert shown[1] == order[:channels], case
