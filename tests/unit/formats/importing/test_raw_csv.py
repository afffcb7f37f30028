# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's raw CSV."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.analyze import sort_samples
from nccltune.formats.importing.raw_csv import REQUIRED
from nccltune.formats.reading.file_report import FileKind
from nccltune.model.choice import (
    ALGORITHMS,
    DEFAULT,
    PROTOCOLS,
    Algorithm,
    Choice,
    Protocol,
    choice_label,
)
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.sample import Sample, Source
from tests.unit.formats.reading_tools import csv_file, files, one

HEADER = (
    "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,"
    "bandwidth_gbps,latency_us"
)
ROW = "allreduce,65536,tree,ll,-1,4,32,-1,-1,3.27,20.0"


def test_a_row() -> None:
    read = csv_file(f"{HEADER}\n{ROW}\n")
    assert read.report.kind is FileKind.RAW_CSV
    (sample,) = read.samples
    assert sample.collective is Collective.ALLREDUCE
    assert (sample.bytes, sample.nodes, sample.ranks, sample.time_us) == (65536, 4, 32, 20.0)
    assert sample.choice == Choice(Algorithm.TREE, Protocol.LL)
    assert not sample.registered
    assert sample.source.tool == "raw-csv"
    assert read.flags == set()


def test_columns_in_any_order_and_unknown_ones() -> None:
    names = HEADER.split(",")
    cells = ROW.split(",")
    turned = ",".join(reversed(names)) + ",cost_metric,site\n"
    read = csv_file(turned + ",".join(reversed(cells)) + ",0.5,lab\n")
    assert read.samples == csv_file(f"{HEADER}\n{ROW}\n").samples
    assert "site" in read.sentence("columns_unknown")
    assert "cost_metric" not in read.sentence("columns_unknown")


def test_only_the_needed_columns() -> None:
    read = csv_file(",".join(REQUIRED) + "\nallgather,1024,ring,simple,8,1,8,12.5\n")
    assert read.samples[0].choice == Choice(Algorithm.RING, Protocol.SIMPLE, 8)


@pytest.mark.parametrize(
    "names",
    [
        "algo,proto",
        "ALGO,PROTO",
        "NCCL_ALGO,NCCL_PROTO",
        "nccl algorithm,nccl protocol",
        "Algorithm/Protocol",
    ],
)
def test_choices_beside_the_columns_of_nccl_tests(names: str, tmp_path: Path) -> None:
    """Counts and types make no table of nccl-tests of it, whose rows would be of the default."""
    cells = ("ring/ll", "ring/ll128", "tree/ll")
    rows = [
        f"allreduce,{cell.replace('/', '/' if '/' in names else ',')},65536,16384,float,sum,4,32"
        f",{time}\n"
        for time, cell in enumerate(cells, 20)
    ]
    head = f"operation,{names},bytes,elements,datatype,redop,nnodes,nranks,usecs\n"
    read = one(tmp_path, head + "".join(rows))
    assert [(choice_label(each.choice), each.time_us) for each in read.samples] == [
        *zip(cells, (20.0, 21.0, 22.0), strict=True)
    ]


@pytest.mark.parametrize("collective", ["operation,", ""])
@pytest.mark.parametrize(
    ("names", "read"),
    [
        ("which_algo", False),
        ("force-proto", False),
        ("algo,proto,nchannels", False),
        ("nchannels", False),
        ("selected_algo", True),
        ("transport protocol", True),
    ],
)
def test_choices_that_cannot_be_read_are_no_rounds_of_the_default(
    names: str, read: bool, collective: str, tmp_path: Path
) -> None:
    cells = {
        "transport protocol": ("RoCE", "RoCE"),
        "algo,proto,nchannels": ("ring,LL,4", "ring,LL128,4"),
    }
    different = ("4", "8") if names == "nchannels" else ("LL", "LL" if read else "LL128")
    head = f"{collective}{names},bytes,elements,datatype,redop,time (us)\n"
    rows = [
        f"{collective and 'allreduce,'}{cell},65536,16384,float,sum,{time}\n"
        for time, cell in enumerate(cells.get(names, different), 20)
    ]
    found = one(tmp_path, head + "".join(rows), collective=Collective.ALLREDUCE)
    assert len(found.samples) == 2 * read


def test_the_default_registration_and_repeats() -> None:
    rows = [
        "allreduce,1024,default,default,-1,1,8,1,1,0.1,10.0",
        "allreduce,1024,default,default,-1,1,8,1,1,0.1,10.5",
    ]
    read = csv_file("\r\n".join([HEADER, "", "# a comment", *rows]))
    assert [sample.choice for sample in read.samples] == [DEFAULT, DEFAULT]
    assert [sample.round for sample in read.samples] == [0, 1]
    assert all(sample.registered for sample in read.samples)


@pytest.mark.parametrize(
    ("row", "column", "hint"),
    [
        (ROW.replace("tree", "treee"), "column 3 (algorithm): 'treee'", "'tree'"),
        (ROW.replace("65536", ""), "column 2 (size_bytes): empty", "number"),
        (ROW.replace("65536", "-1"), "column 2 (size_bytes)", "bytes"),
        (ROW.replace(",-1,4,", ",0,4,"), "column 5 (channels)", "1 to 64"),
        (ROW.replace(",4,32,", ",0,32,"), "column 6 (nodes)", "1 or more"),
        (ROW.replace(",4,32,", ",4,x,"), "column 7 (ranks)", "1 or more"),
        (ROW.replace("20.0", "0"), "column 11 (latency_us)", "above 0"),
        (ROW.replace("20.0", "-4"), "column 11 (latency_us)", "above 0"),
        (ROW.replace("20.0", "nan"), "column 11 (latency_us)", "above 0"),
        (ROW.replace("20.0", "inf"), "column 11 (latency_us)", "above 0"),
        (ROW.replace("20.0", "fast"), "column 11 (latency_us)", "above 0"),
        (ROW.replace("20.0", ""), "column 11 (latency_us): empty", "number"),
        (ROW.replace("3.27", "-3"), "column 10 (bandwidth_gbps)", "above 0"),
        (ROW.replace("tree,ll", "default,ll"), "column 4 (protocol)", "default"),
        (ROW.replace(",-1,-1,3", ",-1,2,3"), "column 9 (regBuff)", "0 to 1"),
        (ROW + ",1", "12 fields", "every row"),
        (ROW.rpartition(",")[0], "10 fields", "every row"),
    ],
)
def test_strict_rows(row: str, column: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        csv_file(f"{HEADER}\n{ROW}\n\n{row}\n")
    assert caught.value.where == "raw.csv:4"
    assert column in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("header", "message", "hint"),
    [
        (
            HEADER.replace(",latency_us", ""),
            "'latency_us' is missing",
            "computed from a column algbw or busbw",
        ),
        (HEADER + ",ranks", "twice", "delete"),
        ("size_bytes,busbw,algo,proto", "'collective' is missing", "--collective and --ranks ("),
        (HEADER.replace("size_bytes", "how_much"), "'size_bytes' is missing", "how_much"),
        (HEADER.replace("latency_us", "t"), "'latency_us' is missing", "t)"),
        (HEADER + ",Time (us)", "twice", "delete"),
        (HEADER.replace("protocol", "p"), "'protocol' is missing", "p)"),
    ],
)
def test_strict_headers(header: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        csv_file(f"{header}\n{ROW}\n")
    assert caught.value.where == "raw.csv:1"
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_inconsistent_values_are_flagged() -> None:
    assert "bandwidth_mismatch" in csv_file(f"{HEADER}\n{ROW.replace('3.27', '45.2')}\n").doubtful
    # The column may hold bus or algorithm bandwidth.
    assert csv_file(f"{HEADER}\n{ROW.replace('3.27', '6.35')}\n").flags == set()
    assert "scale_unknown" in csv_file(f"{HEADER}\n{ROW.replace(',4,32,', ',-1,-1,')}\n").flags
    assert csv_file(f"{HEADER}\n{ROW.replace('65536', '0')}\n").report.rows_size_0 == 1
    assert "note" in csv_file(f"{HEADER}\n{ROW}\n", choice=DEFAULT).flags


samples = st.builds(
    Sample,
    study=st.just("made"),
    collective=st.sampled_from(TUNED),
    bytes=st.integers(1, 1 << 40),
    nodes=st.integers(1, 64),
    ranks=st.integers(2, 512),
    registered=st.booleans(),
    choice=st.just(DEFAULT)
    | st.builds(
        Choice,
        st.sampled_from(ALGORITHMS),
        st.sampled_from(PROTOCOLS),
        st.none() | st.integers(1, 64),
    ),
    time_us=st.floats(0.5, 1e7),
    source=st.just(Source(tool="raw-csv")),
)


def written(shown: Iterable[Sample]) -> str:
    """Return the samples as rows of a raw CSV file."""
    rows = [HEADER]
    for sample in shown:
        names, channels = [DEFAULT, DEFAULT], None
        if isinstance(sample.choice, Choice):
            names = [sample.choice.algorithm.value, sample.choice.protocol.value]
            channels = sample.choice.channels
        numbers = (-1 if each is None else each for each in (channels, sample.nodes, sample.ranks))
        bandwidth = f"{sample.bytes / (sample.time_us * 1e3):.4f}"
        cells = [sample.collective.value, sample.bytes, *names, *numbers, 1]
        cells += [int(sample.registered), bandwidth, repr(sample.time_us)]
        rows.append(",".join(map(str, cells)))
    return "\n".join(rows) + "\n"


@settings(max_examples=100, deadline=None)
@given(st.lists(samples, max_size=6))
def test_every_sample_is_read(shown: list[Sample]) -> None:
    read = csv_file(written(shown))
    from msgspec.structs import replace

    # Rows are grouped by run.
    given_back = [replace(sample, round=0) for sample in read.samples]
    assert sorted(given_back, key=repr) == sorted(shown, key=repr)
    assert read.doubtful == set()


@pytest.mark.parametrize(
    ("operations", "pipe_ops"), [("-1", 1), ("0", 1), ("1", 1), ("2", 2), ("8", 8)]
)
def test_grouped_operations_are_samples_of_their_own_condition(
    operations: str, pipe_ops: int
) -> None:
    grouped = ROW.replace(",-1,-1,3.27", f",{operations},-1,3.27")
    read = csv_file(f"{HEADER}\n{ROW}\n{grouped}\n")
    assert [sample.pipe_ops for sample in read.samples] == [1, pipe_ops]
    # A second row with the same conditions is a second round.
    assert [sample.round for sample in read.samples] == [0, int(pipe_ops == 1)]
    titles = {item.condition.title for item in sort_samples(read.samples).timings}
    assert len(titles) == (1 if pipe_ops == 1 else 2)
    assert any(f"{pipe_ops} pipe ops" in title for title in titles) == (pipe_ops > 1)


VARIANTS = {
    "other separators": (HEADER.replace(",", ";"), ROW.replace(",", ";")),
    "tabs": (HEADER.replace(",", "\t"), ROW.replace(",", "\t")),
    "blanks": (HEADER.replace(",", " "), ROW.replace(",", "  ")),
    "Markdown": (f"| {HEADER.replace(',', ' | ')} |", f"| {ROW.replace(',', ' | ')} |"),
    "upper case": (HEADER.upper(), ROW.upper()),
    "quotes": (HEADER, ",".join(f'"{cell}"' for cell in ROW.split(","))),
    "NCCL's names": (HEADER, ROW.replace("allreduce", "AllReduce").replace("tree,ll", "TREE,LL")),
    "program": (HEADER, ROW.replace("allreduce", "all_reduce_perf")),
    "units": (HEADER, ROW.replace("65536", "64K").replace("20.0", "20 us")),
    "unit of the column": (HEADER.replace("latency_us", "Time (ms)"), ROW.replace("20.0", "0.02")),
    "unit of the size": (HEADER.replace("size_bytes", "Size (KiB)"), ROW.replace("65536", "64")),
    "a unit that the bandwidth shows": (HEADER.replace("latency_us", "latency"), ROW),
    "other names": (
        "Coll,Msg Size,Algo,Proto,nChannels,nNodes,nRanks,NumPipeOps,Registered,BW (GB/s),Lat (us)",
        ROW,
    ),
    "a rule below the header": (f"|{HEADER.replace(',', '|')}|\n|---|---|", ROW.replace(",", "|")),
    "text above": (f"Measured on Monday, see below:\n\n{HEADER}", ROW),
    "a header with a comment sign": (f"#{HEADER}", ROW),
    "one column for the choice": (
        HEADER.replace("algorithm,protocol", "choice"),
        ROW.replace("tree,ll", "Tree/LL"),
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_give_the_same_sample(name: str, tmp_path: Path) -> None:
    header, row = VARIANTS[name]
    path = tmp_path / "raw.csv"
    path.write_text(f"{header}\n{row}\n")
    (read,) = files(path)
    assert read.report.error is None
    (expected,) = csv_file(f"{HEADER}\n{ROW}\n").samples
    assert [item.choice for item in read.samples] == [expected.choice]
    (sample,) = read.samples
    assert (sample.collective, sample.bytes, sample.time_us) == (expected.collective, 65536, 20.0)
    assert (sample.nodes, sample.ranks, sample.registered) == (4, 32, False)
    assert read.doubtful == set()


def test_rows_without_a_header_name_the_columns_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text(f"{ROW}\n")
    (read,) = files(path)
    assert read.samples == []
    assert "no line before it names the columns" in (read.report.error or "")
    assert read.report.error_line == 1
    assert "collective,?,algorithm,protocol,?,?,?" in (read.report.hint or "")


def test_a_unit_that_nothing_names_is_asked_for() -> None:
    header = HEADER.replace("latency_us", "latency").replace("bandwidth_gbps", "x")
    with pytest.raises(InputError, match="unit of this time is not named") as caught:
        csv_file(f"{header}\n{ROW}\n")
    assert "'latency (us)'" in (caught.value.hint or "")
    with pytest.raises(InputError, match="65536 bytes in 0.02 us") as caught:
        csv_file(f"{HEADER.replace('latency_us', 'latency')}\n{ROW.replace('20.0', '0.02')}\n")
    assert "latency (ms)" in (caught.value.hint or "")


@pytest.mark.parametrize(("bandwidth", "size"), [("1000.00", 10**6), ("1048.58", 1 << 20)])
def test_the_bandwidth_decides_what_a_prefix_means(bandwidth: str, size: int) -> None:
    header = "collective,size,algorithm,protocol,nodes,ranks,algbw (GB/s),time (us)"
    read = csv_file(f"{header}\nallreduce,1MB,ring,ll,1,8,{bandwidth},1.0\n")
    assert [sample.bytes for sample in read.samples] == [size]
    assert read.flags == set()


def test_the_user_adds_what_the_file_does_not_state() -> None:
    header = "size_bytes,algorithm,protocol,latency_us"
    row = "1024,ring,ll,8.5"
    with pytest.raises(InputError, match="'collective' is missing"):
        csv_file(f"{header}\n{row}\n")
    read = csv_file(f"{header}\n{row}\n", collective=Collective.BROADCAST, nodes=2, ranks=16)
    assert [(item.nodes, item.ranks) for item in read.samples] == [(2, 16)]
    read = csv_file("collective,size_bytes,latency_us\nreduce,1024,9.5\n", choice=DEFAULT)
    assert [item.choice for item in read.samples] == [DEFAULT]
    assert "scale_unknown" in read.flags


def test_rows_that_a_column_of_no_known_name_separates_are_no_repeats() -> None:
    header = "op,gpus,size_bytes,time_us"
    rows = "all_reduce,2,1024,8.5\nall_reduce,4,1024,9.5\n"
    with pytest.raises(InputError, match="the column 'gpus' differs") as caught:
        csv_file(f"{header}\n{rows}")
    assert caught.value.where == "raw.csv:3"
    assert "ranks" in (caught.value.hint or "")
    read = csv_file(f"{header.replace('gpus', 'nRanks')}\n{rows}")
    assert [sample.ranks for sample in read.samples] == [2, 4]
    # Repeats may be numbered, and what was measured besides differs in each.
    read = csv_file("op,run,size_bytes,time_us,GPU util %\nreduce,1,8,8.5,9\nreduce,2,8,9,7\n")
    assert [sample.round for sample in read.samples] == [0, 1]


def test_times_are_computed_from_bandwidths() -> None:
    rows = "allreduce,65536,0.01,2,8\nallreduce,1048576,2.00,2,8\nallreduce,2097152,3.00,2,8\n"
    read = csv_file(f"collective,size_bytes,busbw_gbs,nodes,gpus_per_node\n{rows}")
    times = {sample.bytes: sample.time_us for sample in read.samples}
    # 2 x 15/16 of the bytes cross the links of 16 ranks. 0.01 GB/s has too few digits.
    assert times == {
        1048576: pytest.approx(1048576 * 1.875 / 2e3),
        2097152: pytest.approx(2097152 * 1.875 / 3e3),
    }
    assert {(sample.nodes, sample.ranks) for sample in read.samples} == {(2, 16)}
    assert read.report.unreadable == 1
    with pytest.raises(InputError, match="needs the number of ranks"):
        csv_file("collective,size_bytes,busbw,nodes\nallreduce,1048576,2.00,2\n")
    drawn = (
        "| collective | size | busbw (GB/s) | nodes | ranks |\n| --- | --- | --- | --- | --- |\n"
    )
    assert csv_file(f"{drawn}| allreduce | 1048576 | 2.00 | 2 | 16 |\n").samples


def test_each_column_of_times_beside_the_scale_is_a_run() -> None:
    header = "collective,nodes,ranks,size,ring_us,tree/ll_us,default_us\n"
    read = csv_file(f"{header}all_reduce,2,16,1024,20.1,15.2,-\nall_gather,2,16,1024,30.1,25.2,9\n")
    assert sorted((item.collective.value, item.time_us) for item in read.samples) == [
        ("allgather", 9.0),
        ("allgather", 25.2),
        ("allgather", 30.1),
        ("allreduce", 15.2),
        ("allreduce", 20.1),
    ]
    assert read.labels == {"NCCL_ALGO=Ring", "tree/ll", "default"}
    assert (read.report.rows, read.report.tables) == (2, 1)


@pytest.mark.parametrize(
    ("names", "units", "row"),
    [
        ("size_bytes\talgorithm\tprotocol\ttime", "(B)\t\t\t(ms)", "1024\tring\tll\t0.0102"),
        ("size,algo,proto,time", "KiB,-,-,us", "1,ring,ll,10.2"),
        ("| size | algo | proto | time |", "| B | | | us |", "| 1024 | ring | ll | 10.2 |"),
        ("size;algo;proto;time;busbw", "[bytes];;;[s];[GB/s]", "1024;ring;ll;0.0000102;0.1"),
        ("size,algo,proto,time,test", "B,,,us,", "1024,ring,ll,10.2,all_reduce"),
    ],
)
def test_a_line_below_the_names_has_the_units(names: str, units: str, row: str) -> None:
    stated = None if "test" in names else Collective.ALLREDUCE
    read = csv_file(f"{names}\n{units}\n{row}\n", collective=stated)
    assert [(item.bytes, item.time_us) for item in read.samples] == [(1024, pytest.approx(10.2))]
    assert read.samples[0].collective is Collective.ALLREDUCE


@pytest.mark.parametrize(
    ("names", "row", "times"),
    [
        ("size,time_us,test,ranks,transport", "1024,10.5,all_reduce_perf,16,TCP", [10.5]),
        ("collective,ranks,size,A_time_us,A_busbw,B_time_us,B_busbw",
         "all_reduce,16,1048576,120.1,16.37,150.2,13.09", [120.1, 150.2]),
        ("ranks,size,all_reduce_us,all_gather_us", "16,1048576,120.1,62.1", [120.1, 62.1]),
        ("test,ranks,size,algbw_mean,algbw_std", "all_reduce,16,1048576,10.000,0.100", [104.858]),
        ("test,ranks,size,busbw avg (GB/s),busbw p99 (GB/s)",
         "all_reduce,16,1048576,18.750,20.000", [104.858]),
        ("test,ranks,size,time (us),algbw,algbw_mean",
         "all_reduce,16,1048576,104.858,10.000,12.000", [104.858]),
    ],
)  # fmt: skip
def test_columns_name_collectives_and_runs(names: str, row: str, times: list[float]) -> None:
    read = csv_file(f"{names}\n{row}\n")
    assert [item.time_us for item in read.samples] == pytest.approx(times, rel=1e-3)
    collectives = ["allreduce", "allgather" if "gather" in names else "allreduce"]
    assert [item.collective.value for item in read.samples] == collectives[: len(times)]
    assert {item.ranks for item in read.samples} == {16}
    assert "bandwidth_mismatch" not in read.flags


SECTION = "collective,size_bytes,algorithm,protocol,nodes,ranks,latency_us\n"
RING = "allreduce,1024,ring,simple,2,16,40.1\n"
TREE = "allreduce,1024,tree,ll,2,16,25.3\n"
BARE = "collective,size_bytes,ranks,latency_us\n"


@pytest.mark.parametrize(
    "text",
    [
        SECTION + RING + SECTION + TREE,
        f"# first\n{SECTION}{RING}\n# second\n{SECTION}{TREE}",
        f"Ring,,,,,,\n{SECTION}{RING},,,,,,\nTree,,,,,,\n{SECTION}{TREE}".replace(
            "\n,,,,,,\n", "\n\n"
        ),
        f"{SECTION}{RING}\nTree:\n\n{SECTION.replace('nodes,ranks', 'ranks,nodes')}"
        + TREE.replace("2,16", "16,2"),
    ],
)
def test_the_tables_of_a_file_are_read(text: str) -> None:
    read = csv_file(text)
    assert [str(sample.choice) for sample in read.samples] == [
        str(Choice(Algorithm.RING, Protocol.SIMPLE)),
        str(Choice(Algorithm.TREE, Protocol.LL)),
    ]
    assert {(sample.nodes, sample.ranks) for sample in read.samples} == {(2, 16)}


def test_the_title_of_a_section_states_what_its_rows_do_not() -> None:
    rows = "allreduce,1024,16,40.1\n"
    read = csv_file(f"Ring Simple\n{BARE}{rows}\nTree LL\n{BARE}{rows}")
    assert [sample.choice for sample in read.samples] == [
        Choice(Algorithm.RING, Protocol.SIMPLE),
        Choice(Algorithm.TREE, Protocol.LL),
    ]
    read = csv_file(f"2 nodes\n{BARE}{rows}\n4 nodes\n{BARE}{rows}")
    assert [sample.nodes for sample in read.samples] == [2, 4]


def test_a_row_of_one_cell_is_no_title() -> None:
    with pytest.raises(InputError, match="0 fields"):
        csv_file(f"{SECTION}{RING}Tree\n{TREE}")


@pytest.mark.parametrize(
    ("gpus", "scales"),
    [((8, 16, 32), [(1, 8), (2, 16), (4, 32)]), ((8, 8, 8), [(1, 8), (2, 16), (4, 32)])],
)
def test_rows_show_whether_gpus_are_all_or_those_of_a_node(
    gpus: tuple[int, ...], scales: list[tuple[int, int]], tmp_path: Path
) -> None:
    rows = "".join(
        f"{nodes},{number},8192,{busbw}\n"
        for nodes, number, busbw in zip((1, 2, 4), gpus, (460, 372, 361), strict=True)
    )
    found = one(tmp_path, f"Nodes,GPUs,Size (MB),all_reduce busbw (GB/s)\n{rows}", "scales.csv")
    assert [(item.nodes, item.ranks) for item in found.samples] == scales
    assert {item.collective for item in found.samples} == {Collective.ALLREDUCE}
    # One number of nodes does not tell, so the ranks that a busbw needs are unknown.
    unsure = one(tmp_path, "Nodes,GPUs,Size (MB),all_reduce busbw (GB/s)\n2,8,8192,372\n")
    assert not unsure.samples
