# SPDX-License-Identifier: Apache-2.0
"""Nodes and ranks of a table, also with an incomplete device list."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.nccl_tests.rank_bounds import RankBounds, rank_bounds
from nccltune.formats.nccl_tests.run import listed_hosts
from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, Point, points, without_devices
from tests.unit.formats.reading_tools import Read, text

SIZES = tuple(1 << shift for shift in range(20, 34))
HOSTS = tuple(f"node{number:03d}" for number in range(1, 181))
BY_FACTOR = (Collective.ALLREDUCE,)
BY_COUNT = (
    Collective.ALLGATHER,
    Collective.REDUCESCATTER,
    Collective.ALLTOALL,
    Collective.GATHER,
    Collective.SCATTER,
)


def made(
    ranks: int, collective: Collective = Collective.ALLREDUCE, era: str = "2.17", **changes: object
) -> Made:
    """Return a run on nodes of 8 GPUs, one process per GPU."""
    sizes = tuple(size // (4 * ranks) * 4 * ranks for size in SIZES)
    return Made(
        points(*sizes), collective, era, ranks, HOSTS[: max(1, ranks // 8)], one_process=False
    ).with_(**changes)


def without_list(whole: Made, *kept: int) -> str:
    """Return the output with only the lines `kept` of the device list."""
    listed = list(whole.devices())
    return "\n".join(
        line for line in whole.lines() if line not in listed or listed.index(line) in kept
    )


def scales(read: Read) -> set[tuple[int | None, int | None]]:
    return {(sample.nodes, sample.ranks) for sample in read.samples}


@pytest.mark.parametrize("ranks", [64, 72, 1440])
def test_the_last_line_of_a_list_is_not_one_node(ranks: int) -> None:
    read = text(without_list(made(ranks), ranks - 1))
    # It is device 7, the last one of its node.
    assert scales(read) == {(ranks // 8, ranks)}
    assert read.doubtful == set()
    assert "last line of the device list" in read.sentence("scale_inferred")


def test_an_abridged_list() -> None:
    whole = made(16)
    listed = list(whole.devices())
    data = whole.text().replace("\n".join(listed[1:15]), "...")
    assert scales(text(data)) == {(2, 16)}
    other = re.sub(r"(?m)(Rank 15.* device) +7 ", r"\1 15 ", data)
    assert scales(text(other)) == {(None, 16)}
    # Dots after complete lines: the list continues.
    data = whole.text().replace("\n".join(listed[8:]), "...")
    assert scales(text(data)) == {(None, 16)}


def test_a_list_that_ends_early_is_not_complete() -> None:
    read = text(without_list(made(16), *range(8)))
    assert scales(read) == {(None, 16)}
    assert "scale_mismatch" in read.doubtful


def test_a_list_of_which_2_kib_were_printed() -> None:
    whole = made(32, one_process=True, hosts=("alpha",))
    read = text(without_list(whole, *range(24)))
    assert scales(read) == {(1, 32)}
    assert read.doubtful == set()


@pytest.mark.parametrize("era", ["old", "2.13", "2.17"])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64, 96, 128])
def test_ranks_by_the_bandwidths(era: str, ranks: int) -> None:
    read = text(without_list(made(ranks, era=era)), collective=Collective.ALLREDUCE)
    assert scales(read) == {(None, ranks)}
    assert read.doubtful == set()


@pytest.mark.parametrize("collective", BY_COUNT)
@pytest.mark.parametrize("ranks", [2, 16, 1440])
def test_ranks_by_the_counts(collective: Collective, ranks: int) -> None:
    read = text(without_list(made(ranks, collective)))
    assert scales(read) == {(None, ranks)}
    assert read.doubtful == set()


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.SENDRECV])
def test_collectives_without_evidence_of_ranks(collective: Collective) -> None:
    read = text(without_list(made(16, collective)))
    assert scales(read) == {(None, None)}
    assert "--nodes and --ranks" in read.sentence("scale_unknown")
    assert scales(text(without_list(made(16, collective)), nodes=2, ranks=16)) == {(2, 16)}


def test_many_ranks_are_bounded_from_below() -> None:
    read = text(without_list(made(1440)))
    assert scales(read) == {(None, None)}
    assert "--ranks" in read.sentence("scale_unknown")
    assert scales(text(without_list(made(1440)), nodes=180, ranks=1440)) == {(180, 1440)}
    wrong = text(without_list(made(1440)), nodes=8, ranks=64)
    assert "scale_mismatch" in wrong.doubtful


def test_ranks_that_are_given_and_not_those_of_the_table() -> None:
    read = text(without_list(made(96)), nodes=8, ranks=64)
    assert scales(read) == {(8, 96)}
    assert "scale_mismatch" in read.doubtful


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -np 64 all_reduce_perf -b 8 -g 1",
        "mpirun -np 8 \\\n  -x NCCL_DEBUG=WARN \\\n  ./all_reduce_perf -b 8 -g 8",
        "srun --ntasks=64 ./all_reduce_perf_mpi -g 1 -t 1",
    ],
)
def test_a_command_line_of_other_ranks_is_doubtful(command: str) -> None:
    read = text(f"{command}\n{without_list(made(96))}")
    assert scales(read) == {(None, 96)}
    assert "scale_mismatch" in read.doubtful
    read = text(f"{command}\n{without_list(made(64))}")
    assert scales(read) == {(None, 64)}
    assert read.doubtful == set()
    assert "as the command line states" in read.sentence("scale_inferred")


def test_a_table_that_contradicts_itself() -> None:
    one, other = made(8), made(64)
    rows = [*map(one.row, one.points[:7]), *map(other.row, other.points[7:])]
    read = text("\n".join([*one.columns(), *rows]), collective=Collective.ALLREDUCE)
    assert "contradicts itself" in read.sentence("bandwidth_mismatch")
    assert "bandwidth_mismatch" in read.doubtful
    assert scales(read) == {(None, None)}


def test_bandwidths_that_a_person_cut_to_one_digit_are_those_of_the_ranks() -> None:
    row = (1, 1 << 31, 1 << 29, "float", "sum", -1, None, 5432.1, 741.2, 0, 5429.8, 741.5, 0)
    assert rank_bounds([row], Collective.ALLREDUCE) == RankBounds(16, 16)


def test_complete_lists_are_used_without_inference() -> None:
    for ranks in (8, 16, 1440):
        read = text(made(ranks).text())
        assert scales(read) == {(ranks // 8, ranks)}
        assert "scale_inferred" not in read.flags
        assert read.doubtful == set()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 3000),
    st.sampled_from([*BY_FACTOR, *BY_COUNT]),
    st.sampled_from(["old", "2.13", "2.17"]),
    st.lists(st.floats(1.5, 900.0), min_size=4, max_size=4),
)
def test_the_ranks_that_printed_a_table_are_never_excluded(
    ranks: int, collective: Collective, era: str, algbws: list[float]
) -> None:
    sizes = [(1 << shift) // (4 * ranks) * 4 * ranks for shift in (20, 26, 30, 33)]
    rows = tuple(
        Point(size, round(size / algbw / 1e3, 2), round(size / algbw / 1.1e3, 2))
        for size, algbw in zip(sizes, algbws, strict=True)
    )
    whole = Made(rows, collective, era, ranks, one_process=False)
    read = text(without_list(whole), collective=collective)
    assert read.samples
    assert {sample.ranks for sample in read.samples} <= {ranks, None}
    assert not read.doubtful & {"bandwidth_mismatch", "scale_mismatch"}


def test_bounds_in_words() -> None:
    assert RankBounds(96, 96).words == "96 ranks"
    assert RankBounds(180, 210).words == "180 to 210 ranks"
    assert RankBounds(900, None).words == "at least 900 ranks"
    assert RankBounds(900, None).allow(5000)
    assert not RankBounds(9, 9, rows_disagree=True).allow(9)
    assert rank_bounds([], Collective.ALLREDUCE) is None


def named_guest(places: list[tuple[int, int]], gpu: str = "NVIDIA H200", each: int = 1) -> str:
    """Return a run whose ranks are on machines called `guest`, each on (device, bus number)."""
    run = made(len(places))
    lines = [
        f"#  Rank {rank:2d} Group  0 Pid {900 + rank // each} on guest device {device:2d}"
        f" [0000:{bus:02x}:00] {gpu}"
        for rank, (device, bus) in enumerate(places)
    ]
    listed = list(run.devices())
    kept = [line for line in run.lines() if line not in listed]
    at = kept.index("# Using devices") + 1
    whole = "\n".join([*kept[:at], *lines, *kept[at:]])
    return whole.replace("nGpus 1 ", f"nGpus {each} ")


EIGHT = [(device, device + 5) for device in range(8)]


@pytest.mark.parametrize(
    ("places", "each", "nodes"),
    [
        (EIGHT, 1, 1),
        (EIGHT * 2, 1, 2),
        (EIGHT * 2, 8, 2),
        (EIGHT * 3, 1, 3),
        ([place for place in EIGHT for _ in range(2)], 1, 2),
        (EIGHT + EIGHT[:4], 1, 2),
        # CUDA_VISIBLE_DEVICES selects one or two GPUs of each process.
        ([(0, bus) for _, bus in EIGHT], 1, 1),
        ([(device % 2, bus) for device, bus in EIGHT], 2, 1),
        # Bus numbers are unknown.
        ([(device, 0) for device, _ in EIGHT * 2], 1, 2),
        ([(0, 0)] * 8, 1, 1),
    ],
)
def test_machines_with_one_host_name(places: list[tuple[int, int]], each: int, nodes: int) -> None:
    read = text(named_guest(places, each=each))
    assert scales(read) == {(nodes, len(places))}
    assert ("scale_inferred" in read.flags) is (nodes > 1)
    assert "one_host" not in read.flags if nodes > 1 else True
    assert scales(text(named_guest(places, each=each), nodes=1)) == {(1, len(places))}


@pytest.mark.parametrize(
    ("places", "gpu"),
    [
        ([(0, bus) for _, bus in EIGHT] * 2, "NVIDIA H200"),
        ([(0, 5)] * 4, "NVIDIA H200"),
        ([(0, 5), (1, 5), (2, 5), (3, 5)], "NVIDIA H200"),
        (EIGHT[:2] * 2, "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
    ],
)
def test_ranks_may_share_gpus_under_one_host_name(places: list[tuple[int, int]], gpu: str) -> None:
    read = text(named_guest(places, gpu))
    assert scales(read) == {(None, len(places))}
    assert "scale_unknown" in read.doubtful
    assert "machines of one name, or ranks that share it" in read.sentence("scale_unknown")
    assert "one_host" not in read.flags
    assert scales(text(named_guest(places, gpu), nodes=2)) == {(2, len(places))}


@pytest.mark.parametrize("each", [1, 8])
def test_virtual_machines_whose_gpus_have_no_bus_number(each: int) -> None:
    output = named_guest(EIGHT * 2, each=each)
    for _, bus in EIGHT:
        output = output.replace(f"[0000:{bus:02x}:00]", f"[0000:00:{bus:02x}]")
    assert scales(text(output)) == {(2, 16)}


def test_bus_numbers_without_a_domain_may_be_equal() -> None:
    output = named_guest([(device, 1) for device in range(4)] * 2)
    read = text(output.replace("[0000:01:00]", "[0x01]"))
    assert scales(read) == {(2, 8)}


def test_each_process_that_sees_one_gpu_without_its_domain_is_a_gpu_of_the_node() -> None:
    output = named_guest([(0, 1)] * 4, "NVIDIA GH200 120GB")
    read = text(output.replace("[0000:01:00]", "[0x01]"))
    assert scales(read) == {(1, 4)}
    assert "lists its only GPU as device 0" in read.sentence("note")
    given = text(output.replace("[0000:01:00]", "[0x01]"), nodes=2)
    assert "lists its only GPU" not in " ".join(flag.sentence for flag in given.report.flags)


def test_a_low_bus_bandwidth_contradicts_a_single_rank() -> None:
    rows = "".join(
        f"{size} {size // 4} float sum -1" + f" {size / 8e2:.1f} 0.80 0.80 0" * 2 + "\n"
        for size in (262144, 524288)
    )
    output = (
        "./all_reduce_perf -b 256K -e 512K -g 1\n# out-of-place in-place\n"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    )
    read = text(output + rows)
    assert scales(read) == {(None, 2)}
    assert "those of 2 ranks" in read.sentence("scale_mismatch")


def test_the_file_s_name_states_a_scale_that_the_table_allows() -> None:
    made = without_devices(Made(points(1 << 20, 1 << 22), ranks=4).text())
    assert scales(text(made, "job-n-0004-N-0002.out")) == {(2, 4)}
    assert scales(text(made, "job-n-0008-N-0003.out")) == {(None, 4)}
    read = text(made, "job-n-0008-N-0002.out")
    assert scales(read) == {(2, 4)}
    assert "scale_mismatch" not in read.flags


@pytest.mark.parametrize(
    ("below", "ranks"),
    [(Made(points(64, 512), ranks=16), 16), (Made(points(1 << 20, 1 << 22), ranks=4), 4)],
)
def test_one_command_above_two_tables_states_the_ranks_of_both(below: Made, ranks: int) -> None:
    tables = [without_devices(made.text()) for made in (Made(points(64, 512), ranks=16), below)]
    read = text("mpirun -np 16 ./all_reduce_perf -g 1\n" + "After:\n".join(tables))
    assert scales(read) == {(None, 16), (None, ranks)}
    assert "scale_mismatch" not in read.flags


def test_a_sentence_states_the_nodes_of_unknown_ranks_and_never_contradicts_a_table() -> None:
    small = without_devices(Made(points(64, 512), ranks=16).text())
    read = text(f"We test it on 8 nodes\n{small}")
    assert {item.nodes for item in read.samples} == {8}
    assert "number of ranks is unknown" in read.sentence("scale_unknown")
    large, other = (
        without_devices(Made(points(1 << 20, 1 << 22), ranks=ranks).text()) for ranks in (4, 16)
    )
    assert scales(text(f"## 64 GPU (8 node) runs\n{other}")) == {(None, 16)}
    assert scales(text(f"We test it on 8 nodes\n{large}")) == {(None, 4)}


@pytest.mark.parametrize(
    ("between", "nodes"),
    [("After the upgrade:", 2), ("but it is fine inside a node:", None), ("On one node:", 1)],
)
def test_a_sentence_holds_until_another_names_machines(between: str, nodes: int | None) -> None:
    table = without_devices(Made(points(1 << 20, 1 << 22), ranks=8).text())
    read = text(f"We test it on 2 nodes\n{table}{between}\n{table}")
    assert [item.nodes for item in read.samples] == [2] * 4 + [nodes] * 4


def test_host_names_with_blanks_and_other_characters_are_listed() -> None:
    lines = [
        f"#  Rank  {at} Group  0 Pid  4{at} on {host} device  0 [0000:1b:00] NVIDIA H100"
        for at, host in enumerate(["node a(1)", "kn\u00f6ten#2.example", "host-3"])
    ]
    found = listed_hosts("\n".join([*lines, '{"hostname": "json 4"}']))
    assert set(found.values()) == {"node a(1)", "kn\u00f6ten#2", "host-3", "json 4"}


@pytest.mark.parametrize(
    ("columns", "scale"),
    [
        ({"Devices per Node": 4, "Ranks": 8}, (2, 8)),
        ({"GPUs per Node": 8, "Ranks": 8}, (1, 8)),
        ({"Ranks": 8, "ppn": 3}, (None, 8)),
        ({"Ranks": 8, "ppn": 0}, (None, 8)),
        ({"Ranks": 8, "ppn": ""}, (None, 8)),
        ({"Nodes": 4, "Ranks": 8, "ppn": 8}, (4, 8)),
        ({"Nodes": 2, "ppn": 4}, (2, 8)),
    ],
)
def test_ranks_of_a_node_in_a_column_give_the_nodes(
    columns: dict[str, object], scale: tuple[int | None, int]
) -> None:
    names = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    table = Made(points(1 << 10, 1 << 20, 1 << 24), ranks=8)
    rows = [[*table.row(point).split(), *map(str, columns.values())] for point in table.points]
    lines = [",".join(line) for line in ([*names, *columns], *rows)]
    found = text("\n".join(["# all_reduce", *lines]) + "\n")
    assert {(item.nodes, item.ranks) for item in found.samples} == {scale}
