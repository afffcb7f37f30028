# SPDX-License-Identifier: Apache-2.0
"""The picture of a machine, and its tree."""

import re
import xml.etree.ElementTree as ET

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.topology.files.picture import svg
from nccltune.topology.files.picture_layout import Box, place
from nccltune.topology.files.tree import Branch, headline, layout
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.links import NodeKind
from tests.unit.topology.samples import FOLDER, sample

NAMES = sorted(path.stem for path in FOLDER.glob("*.xml") if not path.stem.endswith("-graph"))


def members(branch: Branch) -> list[str]:
    return [branch.vertex.name, *(name for child in branch.children for name in members(child))]


@pytest.mark.parametrize("name", NAMES)
def test_every_vertex_is_in_one_tree(name: str) -> None:
    graph = link_graph([sample(name)])
    trees, across = layout(graph)
    placed = [name for tree in trees for name in members(tree)]
    apart = (NodeKind.NVS, NodeKind.MEMORY)
    assert sorted(placed) == sorted(v.name for v in graph.vertices if v.kind not in apart)
    # The graph has both directions of a link. The trees and the links beside them have one.
    assert 2 * (len(placed) - len(trees) + len(across)) == len(graph.links)


@pytest.mark.parametrize("name", NAMES)
def test_boxes_do_not_overlap(name: str) -> None:
    trees, _ = layout(link_graph([sample(name)]))
    picture = place(trees, 100.0)
    boxes = list(picture.boxes.values())

    def apart(one: Box, other: Box) -> bool:
        return (
            one.x + one.width <= other.x
            or other.x + other.width <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )

    for place_, one in enumerate(boxes):
        assert all(apart(one, other) for other in boxes[:place_])
        assert one.x >= 0
        assert one.x + one.width <= picture.width
        assert one.bottom <= picture.floor


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_well_formed_and_names_everything(name: str) -> None:
    graph = link_graph([sample(name)])
    text = svg(graph, title=name)
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    words = " ".join(root.itertext())
    for vertex in graph.vertices:
        if vertex.kind is NodeKind.GPU:
            assert vertex.name in words
        if vertex.kind is NodeKind.NET:
            assert vertex.name.removeprefix("NET ")[:12] in words
    assert "prefers-color-scheme:dark" in text
    assert headline(graph) in words


def test_bandwidths_and_guesses_show() -> None:
    text = svg(link_graph([sample("flat-vm")]), title="flat")
    assert text.count(">12.0?<") == 4
    assert "each two CPUs: 24.0" in text
    assert 'class="pci guess"' in text
    assert "link_speed &#x27;&#x27; read as Gen3" in text
    sure = svg(link_graph([sample("dgx")]), title="dgx")
    assert "guess of NCCL" not in sure
    assert sure.count(">370.8<") == 8


def test_columns_of_nics() -> None:
    trees, _ = layout(link_graph([sample("skeleton-no-class")]))
    picture = place(trees, 100.0)
    columns = [box for box in picture.boxes.values() if box.stack]
    assert [len(box.stack) for box in columns] == [4, 4]
    assert len({box.x for box in columns[0].stack}) == 1


def test_text_of_a_file_is_not_markup() -> None:
    data = (FOLDER / "switch-l40s.xml").read_text()
    data = data.replace('name="mlx5_0"', 'name="&lt;script&gt;&quot;"')
    topology = read_topology(data.encode(), "<script>")
    text = svg(link_graph([topology]), title=topology.source)
    assert "<script" not in text
    ET.fromstring(text)


def test_no_scripts_no_addresses() -> None:
    text = svg(link_graph([sample("dgx")]), title="dgx")
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text


def test_headlines() -> None:
    assert headline(link_graph([sample("dgx")])) == (
        "8 GPUs (sm90) · NVLink through NVSwitches · 8 NIC ports · 2 CPUs"
    )
    assert headline(link_graph([sample("switch-l40s")])) == (
        "4 GPUs (sm89) · no NVLink · 2 NIC ports · 2 CPUs"
    )
    assert "NVLink from GPU to GPU" in headline(link_graph([sample("nvlink-pairs")]))
    assert "xGMI from GPU to GPU" in headline(link_graph([sample("rccl")]))
