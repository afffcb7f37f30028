# SPDX-License-Identifier: Apache-2.0
"""NCCL's XML of topologies and of graphs: dialects, damage, hostile files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.formats.topology.graph_xml import GraphGpu, GraphId, Pattern, read_graphs
from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.xml_tree import blank_comments
from nccltune.model.errors import InputError
from nccltune.model.topology import Cpu, Dialect, NvLink, Pci, Topology
from tests.unit.topology.samples import FOLDER, SHARED, sample


def read(text: str | bytes) -> Topology:
    return read_topology(text.encode() if isinstance(text, str) else text, "topo.xml")


def devices(topology: Topology) -> list[Pci]:
    found = []
    waiting = [device for cpu in topology.cpus for device in cpu.devices]
    while waiting:
        device = waiting.pop(0)
        found.append(device)
        waiting += device.children
    return found


def one_pci(attributes: str = "", inside: str = "") -> Pci:
    text = f'<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" {attributes}>'
    return read(f"{text}{inside}</pci></cpu></system>").cpus[0].devices[0]


def test_a_dump() -> None:
    topology = sample("h200x4-dump")
    (cpu,) = topology.cpus
    assert (topology.dialect, topology.version, topology.unread) == (Dialect.NCCL, "1", ())
    assert (cpu.numa, cpu.arch, cpu.family, cpu.model) == (-1, "x86_64", 6, 207)
    assert [net.name for net in cpu.nets] == ["eth0"]
    assert cpu.nets[0].mbit_per_s == 10000
    assert cpu.nets[0].gdr is False
    first = cpu.devices[0]
    assert (first.bus_id, first.speed, first.width) == ("0000:00:06.0", "32.0 GT/s PCIe", 0)
    assert first.gpu is not None
    assert (first.gpu.index, first.gpu.rank, first.gpu.sm, first.gpu.gdr) == (0, 0, 90, True)
    link = NvLink(target="fffffff:ff:ff.0", count=18, target_class="0x068000")
    assert first.gpu.nvlinks == (link,)
    assert [device.line for device in cpu.devices] == [3, 5, 6, 7]


def test_attributes_missing_in_a_skeleton_stay_unknown() -> None:
    topology = sample("skeleton-vm")
    found = devices(topology)
    assert [device.gpu for device in found] == [None] * 6
    assert {device.speed for device in found} == {"16 GT/s"}
    nothing = sample("skeleton-no-class")
    assert {device.class_code for device in devices(nothing)} == {None}
    assert devices(nothing)[0].speed is None
    assert devices(nothing)[0].width is None


def test_other_dialects() -> None:
    rccl = sample("rccl")
    assert rccl.dialect is Dialect.RCCL
    assert rccl.version == "2"
    gpu = devices(rccl)[0].gpu
    assert gpu is not None
    assert gpu.name == "gfx90a"
    assert [(link.target, link.count) for link in gpu.nvlinks] == [
        ("0000:09:00.0", 4), ("0000:13:00.0", 1), ("0000:17:00.0", 1),
    ]  # fmt: skip
    flagcx = sample("flagcx")
    assert flagcx.dialect is Dialect.FLAGCX
    apus = [device.gpu.index for device in devices(flagcx) if device.gpu is not None]
    assert apus == [0, 1]
    assert [net.name for device in devices(flagcx) for net in device.nets] == ["mlx5_2"]


def test_c2c_and_pcilink() -> None:
    device = one_pci(inside='<gpu dev="0"><c2c bw="44712" count="5"/></gpu><pcilink target="x"/>')
    assert device.gpu is not None
    assert (device.gpu.c2c[0].mb_per_s, device.gpu.c2c[0].count) == (44712, 5)
    assert device.switch_links == ("x",)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in FOLDER.glob("*.xml") if "-graph" not in path.stem)
)
def test_every_sample_reads(name: str) -> None:
    topology = sample(name)
    assert topology.cpus
    assert topology.unread == ()


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no files of others at {SHARED}")
def test_files_of_others_read_completely() -> None:
    paths = [p for p in (SHARED / "topologies").glob("*.xml") if "graph" not in p.name]
    assert len(paths) >= 4
    for path in paths:
        assert read_topology(path.read_bytes(), path.name).unread == ()


def test_numbers_are_read_as_nccl_does() -> None:
    assert one_pci('link_width="0x10"').width == 16
    assert one_pci('link_width="16 lanes"').width == 16
    assert one_pci('link_width=""').width == 0
    assert one_pci('link_width="010"').width == 8
    assert one_pci(f'link_width="{"9" * 200}"').width == (1 << 63) - 1


def test_skipped_content_is_named() -> None:
    topology = read(
        '<?xml version="1.0"?>\n<system version="1" color="red">\n<cpu numaid="zero">\n'
        '<pci busid="1"><gpu dev="0"><fan/></gpu><gpu dev="1"/><cable/></pci>\n'
        '<nic><net name="a" gin="1"/>\n<net name="b" gin="1"/></nic>words</cpu><rack/></system>'
    )
    assert topology.unread == (
        "line 1: header <?xml ...?>",
        "line 2: attribute color of <system>",
        "line 3: words inside <cpu>",
        "line 4: element <fan> in <gpu>",
        "line 4: a second <gpu> in one <pci>",
        "line 4: element <cable> in <pci>",
        "line 5: attribute gin of <net> (and 1 more)",
        "line 3: numaid='zero' of <cpu> is no integer, read as 0",
        "line 6: element <rack> in <system>",
    )


def test_the_list_of_skipped_content_is_bounded() -> None:
    kinds = "".join(f"<e{number}/>" for number in range(1000))
    unread = read(f'<system version="1"><cpu numaid="0">{kinds}</cpu></system>').unread
    assert len(unread) == 51
    assert unread[-1] == "and 950 other kinds of things"


def test_comments_hold_anything() -> None:
    topology = read('<!-- a -- b <&\n\n--><system version="1"><cpu numaid="0"/></system>')
    assert topology.cpus[0].line == 3


def test_comments_without_an_end_cost_no_more_than_others() -> None:
    with pytest.raises(InputError, match="is no well-formed XML"):
        read("<system>" + "<!--" * 500_000)
    assert blank_comments("a<!--\nb-->c<!--d") == "a    \n    c<!--d"


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">'
        for n in range(9)
    )
    + ']><system version="1"><cpu numaid="0" arch="&j;"/></system>'
)  # fmt: skip
CPU = b'<system version="1"><cpu numaid="0" name="%s"/></system>'


@pytest.mark.parametrize(
    ("data", "message", "where"),
    [
        (b"", "is empty", "topo.xml"),
        (b" \n\n", "is empty", "topo.xml"),
        (b"hello", "is no well-formed XML: syntax error at column 1", "topo.xml:1"),
        (b"<system>\n<cpu", "is no well-formed XML: unclosed token", "topo.xml:2"),
        (b'<system version="1">', "is no well-formed XML: no element found", "topo.xml:1"),
        (b"<system/><system/>", "is no well-formed XML: junk after document element", "topo.xml:1"),
        (b'<system version="1"/>', "has no <cpu>", "topo.xml:1"),
        (b"<cpu/>", "is no topology: it begins with <cpu>, not <system>", "topo.xml:1"),
        (b'<graphs version="1"/>', "is no topology: it begins with a graph file", "topo.xml:1"),
        (BOMB.encode(), "has a document type", "topo.xml:1"),
        (b'<!DOCTYPE s SYSTEM "/etc/passwd"><s/>', "has a document type", "topo.xml:1"),
        (CPU % b"&a;", "is no well-formed XML: undefined entity", "topo.xml:1"),
        (b"<a>" * 10_000, "is nested deeper than 64 levels", "topo.xml:1"),
        (b"<a>" + b"<b/>" * (1 << 17), "has more than 131072 elements", "topo.xml:1"),
        (b" " * (8 << 20) + b"<a/>", "has 8388612 bytes", "topo.xml"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00", "is a binary file", "topo.xml"),
        (b"\x1f\x8b\x08\x00", "is compressed (gzip)", "topo.xml"),
        (b"\n" + CPU % b"caf\xe9", "is not UTF-8: invalid continuation byte at", "topo.xml:2"),
        (CPU % b"\x01", "is no well-formed XML: not well-formed", "topo.xml:1"),
        (b"<system/>".decode().encode("utf-16-le"), "looks like UTF-16", "topo.xml"),
        (
            b'<system version="1"><cpu numaid="0">\n<pci/></cpu></system>',
            "<pci> has no busid",
            "topo.xml:2",
        ),
    ],
)  # fmt: skip
def test_files_that_are_no_topology_are_refused(data: bytes, message: str, where: str) -> None:
    with pytest.raises(InputError) as caught:
        read(data)
    assert caught.value.message.startswith(message)
    assert caught.value.where == where
    assert caught.value.hint


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_gives_the_encoding(encoding: str) -> None:
    text = '<system version="1"><cpu numaid="0" arch="é"/></system>'
    assert read(text.encode(encoding)).cpus == (Cpu(numa=0, arch="é", line=1),)


TAGS = st.sampled_from(
    ["system", "cpu", "pci", "gpu", "apu", "nic", "net", "nvlink", "xgmi", "c2c", "pcilink", "x"]
)
NAMES = st.sampled_from(
    ["version", "busid", "link_speed", "link_width", "numaid", "dev", "target", "count", "gdr"]
)
VALUES = st.text(
    st.characters(exclude_characters='<&"', exclude_categories=["Cs", "Cc"]), max_size=9
)


@st.composite
def trees(draw: st.DrawFn, depth: int = 0) -> str:
    tag = draw(TAGS) if depth else "system"
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    words = "".join(f' {name}="{draw(VALUES)}"' for name in names)
    inside = "".join(draw(st.lists(trees(depth + 1), max_size=3))) if depth < 4 else ""
    return f"<{tag}{words}>{inside}</{tag}>"


def tried(data: bytes) -> tuple[Topology | None, InputError | None]:
    try:
        return read(data), None
    except InputError as error:
        return None, error


@given(trees())
def test_any_tree_reads_or_is_refused_in_words(text: str) -> None:
    topology, error = tried(text.encode())
    if error is None:
        assert topology is not None
        assert topology.cpus
    else:
        assert error.hint
        assert (error.where or "").startswith("topo.xml:")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        read(data)
    assert caught.value.hint


@given(st.data())
def test_a_damaged_file_reads_or_is_refused_in_words(data: st.DataObject) -> None:
    good = bytearray((FOLDER / "superchip.xml").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=4))
    topology, error = tried(bytes(good))
    assert topology is not None or (error is not None and error.hint)


HEAD = (
    '<graph id="0" pattern="4" crossnic="1" nchannels="1" speedintra="12.5" speedinter="6" '
    'typeintra="PIX" typeinter="PXB" samechannels="1">'
)
RING_IN_WORDS = HEAD.replace('"4"', '"ring"')
FAST = HEAD.replace("12.5", "fast")


def test_a_dump_of_graphs() -> None:
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
