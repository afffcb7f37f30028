# SPDX-License-Identifier: Apache-2.0
"""What names of files, `name: value` pairs and headers of tables state."""

from collections.abc import Callable

import pytest

from nccltune.formats.importing.detect import kind_of
from nccltune.formats.reading import table_header
from nccltune.formats.reading.collective_names import collective_of_name
from nccltune.formats.reading.file_names import named_choice, scale_of_name
from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.reading.pairs import pairs_of
from nccltune.formats.reading.table_header import column_of, header_of
from nccltune.model.choice import choice_label
from tests.unit.formats.reading_tools import csv_file, text


@pytest.mark.parametrize(
    ("name", "nodes", "ranks"),
    [
        ("job-n-00256-N-0064.csv", 64, 256),
        ("nccl_N2_G8_a_b.log", 2, None),
        ("allreduce_tcp_16gpu.csv", None, 16),
        ("2nodes_16gpus.txt", 2, 16),
        ("runs/nodes-4/out.log", None, None),
        ("node3.log", None, None),
        ("nccl-2.20.3-n1.5.log", None, None),
        ("n2-n4.log", None, None),
        ("run-nodes0.log", None, None),
    ],
)
def test_the_scale_in_a_name(name: str, nodes: int | None, ranks: int | None) -> None:
    assert scale_of_name(name) == (nodes, ranks)


@pytest.mark.parametrize("name", ["NVLS=0", "nvls=1", "tree: off", "NVLS_ENABLE=0", "LL128=0"])
def test_a_setting_that_is_named_after_a_choice_is_none(name: str) -> None:
    found = named_choice(name)
    assert found is not None
    assert not found.is_evidence
    assert not found.likely


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nt_Tree-LL128.txt", "tree/ll128"),
        ("tree_ll128", "tree/ll128"),
        ("ring-simple", "ring/simple"),
        ("allreduce_ring_ll.out", "ring/ll"),
        ("NVLSTree-Simple.log", "nvls_tree/simple"),
        ("nvls_tree_simple.log", "nvls_tree/simple"),
        ("nvls-simple", "nvls/simple"),
        ("CollnetDirect_Simple", "collnet_direct/simple"),
        ("collnet_chain-simple", "collnet_chain/simple"),
        ("pat_simple.txt", "pat/simple"),
        ("default.txt", "default"),
        ("nt_default_2.txt", "default"),
        ("tree_ll/out.txt", "tree/ll"),
        ("tree_ll/ring_ll.txt", "ring/ll"),
        ("defaults.txt", None),
        ("fattree_ll.txt", None),
        ("tree_llx.txt", None),
        ("tree_ll_ring_ll.txt", None),
        ("out.txt", None),
        ("allreduce_h200x4_tree_ll_r1.txt", "tree/ll"),
        ("2026-11-23_16n_ring_simple_8G.log", "ring/simple"),
        ("algo-tree_proto-ll.txt", "tree/ll"),
        ("RingSimple.txt", "ring/simple"),
        ("Tree/LL128.txt", "tree/ll128"),
        ("tuned.txt", "tuned"),
    ],
)
def test_file_names(name: str, label: str | None) -> None:
    named = named_choice(name)
    found = named.choice if named is not None else None
    assert (choice_label(found) if found is not None else None) == label


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("all_reduce_perf.txt", "allreduce"),
        ("AllGather.log", "allgather"),
        ("reduce-scatter_8.txt", "reducescatter"),
        ("alltoallv.txt", "alltoallv"),
        ("alltoall.txt", "alltoall"),
        ("bcast.txt", "broadcast"),
        ("sendrecv", "sendrecv"),
        ("reduce.txt", "reduce"),
        ("scatter.txt", "scatter"),
        ("out.txt", None),
    ],
)
def test_collectives_of_names(name: str, collective: str | None) -> None:
    assert collective_of_name(name) == collective


TIMES = {1024: 20.1, 65536: 25.0, 1048576: 80.0}
FORMS = {
    "equals": lambda size, us: f"[rank0] all_reduce size={size} time_us={us}",
    "colons": lambda size, us: f"all-reduce: size: {size}, time (us): {us}, note: ok",
    "units": lambda size, us: f"all_reduce bytes={size} latency={us}us gpu=H100",
    "seconds": lambda size,
    us: f"allreduce - Size (bytes): {size}, Elapsed time (s): {us / 1e6:.9f}",
    "words before =": lambda size,
    us: f"[rank0] all_reduce: size = {size} bytes, avg time = {us} us, rounds = 20",
    "bars": lambda size, us: f"all_reduce | bytes: {size} | avg_time_us: {us}",
}


@pytest.mark.parametrize("name", FORMS)
def test_lines_of_pairs_are_rows(name: str) -> None:
    lines = [FORMS[name](size, us) for size, us in TIMES.items()]
    data = "started\n" + "\n".join(lines) + "\ndone\n"
    assert kind_of(data.encode()) is FileKind.NCCL_TESTS_TEXT
    read = text(data, ranks=8)
    assert {size: time for size, _, time in read.times} == pytest.approx(TIMES)
    assert {sample.collective.value for sample in read.samples} == {"allreduce"}


def test_pairs_that_name_their_choice_are_a_raw_csv() -> None:
    data = "".join(
        f"algo={algo} proto=ll collective=allreduce bytes=1024 latency={us}us nodes=2 ranks=16\n"
        for algo, us in (("ring", 20.1), ("tree", 15.1))
    )
    assert kind_of(data.encode()) is FileKind.RAW_CSV
    assert [sample.time_us for sample in csv_file(data).samples] == [20.1, 15.1]


def test_the_unit_tells_which_pairs_are_times() -> None:
    line = "size = 512, world_size = 2, our time = 0.0130ms,their time = 11.9us"
    assert pairs_of(line) == (
        "",
        ["size", "world_size", "our time (ms)", "their time (us)"],
        ["512", "2", "0.0130", "11.9"],
    )


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_ALGO=Ring NCCL_BUFFSIZE=4194304",
        "mpirun -x NCCL_BUFFSIZE=1 ./all_reduce_perf -b 8 size=1 time",
        "h:1:2 [0] NCCL INFO size=1024 time_us=20",
        "size: 1024",
        "buffer size: 4 MiB, window: 3",
        "test_size = 512, ours time = 0.0130ms",
        "bytes = 512, ours time = 7, theirs = 8",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5",
    ],
)
def test_other_pairs_stay(line: str) -> None:
    assert pairs_of(line) is None


@pytest.mark.parametrize(
    ("cell", "role", "unit", "placement"),
    [
        ("消息大小（字节）", "size", "bytes", ""),
        ("数据量", "size", "", ""),
        ("平均时间 (us)", "time", "us", ""),
        ("时间（微秒）", "time", "us", ""),
        ("非原地时间(us)", "time", "us", "out-of-place"),
        ("原地时间(us)", "time", "us", "in-place"),
        ("总线带宽(GB/s)", "busbw", "GB/s", ""),
        ("算法带宽", "algbw", "", ""),
        ("サイズ", "size", "", ""),
        ("帯域幅 (GB/s)", "bandwidth", "GB/s", ""),
        ("크기", "size", "", ""),
        ("время, мкс", "time", "us", ""),
        ("Größe", "size", "", ""),
        ("Taille (octets)", "size", "bytes", ""),
        ("Δ time (us)", "", "us", ""),
        ("A0 基线 (µs)", "", "µs", ""),
        ("时间 %", "", "", ""),
        ("kleinzeit", "", "", ""),
    ],
)
def test_columns_in_other_languages(cell: str, role: str, unit: str, placement: str) -> None:
    found = column_of(cell)
    assert (found.role, found.unit, found.placement) == (role, unit, placement)


@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
@pytest.mark.parametrize("form", ["| {} | time (us) |", "{}\tring (us)\ttree (us)", "{},busbw"])
def test_each_name_of_a_size_is_that_of_a_header(form: str, case: Callable[[str], str]) -> None:
    names = [name for name, role in table_header._ROLES.items() if role == "size"]
    names += ["Msg Sz", "octets", "Message (KiB)", "\u5927\u5c0f"]
    lines = [form.format(case(name)) for name in names]
    assert [line for line in lines if header_of(line) is None] == []


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,25165824,100663296,<algo>,<proto>,<ch>,1,8,-1,-1",
        "collective,bytesPerRank,algorithm,protocol,channels",
        "collective_type,min_bytes,max_bytes,algorithm,protocol",
    ],
)
def test_rules_and_templates_are_no_header_of_measurements(line: str) -> None:
    assert header_of(line) is None


def test_a_table_in_chinese_is_a_header() -> None:
    header = header_of("| 数据量 | 时间（微秒） | 总线带宽 (GB/s) |")
    assert header is not None
    assert header.roles == {"size", "time", "busbw"}
    assert not header.raw
