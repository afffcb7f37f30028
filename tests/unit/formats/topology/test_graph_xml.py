# SPDX-License-Identifier: Apache-2.0
"""NCCL's graph XML."""

import pytest

from nccltune.formats.topology.graph_xml import GraphGpu, GraphId, Pattern, read_graphs
from nccltune.model.errors import InputError
from tests.unit.topology.samples import FOLDER

HEAD = (
    '<graph id="0" pattern="4" crossnic="1" nchannels="1" speedintra="12.5" speedinter="6" '
    'typeintra="PIX" typeinter="PXB" samechannels="1">'
)
RING_IN_WORDS = HEAD.replace('"4"', '"ring"')
FAST = HEAD.replace("12.5", "fast")


def test_a_dump() -> None:
    graphs = read_graphs((FOLDER / "h200x4-graph.xml").read_bytes(), "graph.xml")
    assert [graph.id for graph in graphs.graphs] == [0, 1, 4, 2, 3]
    ring = graphs.find(GraphId.RING)
    assert ring is not None
    assert (ring.pattern, ring.channel_count, len(ring.channels)) == (Pattern.RING, 12, 12)
    assert (ring.intra_gb_per_s, ring.intra_type, ring.inter_type) == (30.0, "NVL", "PIX")
    assert [gpu.index for gpu in ring.channels[0].gpus] == [0, 1, 2, 3]
    assert ring.channels[0].net_in is None
    empty = graphs.find(GraphId.NVLS)
    assert empty is not None
    assert empty.channels == ()
    assert graphs.find(9) is None


def test_several_nodes_and_hosts() -> None:
    text = (
        f'<graphs version="1">{HEAD}<channel><net dev="0x2"/><gpu dev="0xa" rank="10"/>'
        '<gpu dev="0x100000000000003" rank="3"/><net dev="10"/><light/></channel></graph></graphs>'
    )
    graphs = read_graphs(text.encode(), "g.xml")
    (channel,) = graphs.graphs[0].channels
    assert (channel.net_in, channel.net_out) == (2, 16)
    assert channel.gpus == (
        GraphGpu(index=10, host=0, rank=10),
        GraphGpu(index=3, host=1, rank=3),
    )
    assert graphs.graphs[0].cross_nic == 1
    assert graphs.graphs[0].inter_latency_us is None
    assert graphs.unread == ("line 1: element <light> in <channel>",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<system version="1"/>', "is no graph file: it begins with a topology"),
        ("<graphs><graph/></graphs>", "<graph> has no id"),
        (
            f"<graphs>{FAST}</graph></graphs>",
            "speedintra='fast' of <graph>",
        ),
        (f"<graphs>{RING_IN_WORDS}</graph></graphs>", "pattern='ring' of <graph>"),
        (f'<graphs>{HEAD}<channel><gpu dev="x"/></channel></graph></graphs>', "dev='x' of <gpu>"),
        (f"<graphs>{HEAD}<channel><gpu/></channel></graph></graphs>", "<gpu> has no dev"),
        (
            f'<graphs>{HEAD}<channel><net dev="0"/></channel></graph></graphs>',
            "a channel names 1 NICs",
        ),
    ],
)
def test_files_that_are_no_graph_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_graphs(text.encode(), "g.xml")
    assert caught.value.message.startswith(message)
    assert caught.value.where == "g.xml:1"
    assert caught.value.hint
