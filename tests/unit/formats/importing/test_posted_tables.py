# SPDX-License-Identifier: Apache-2.0
"""Tables as people post them: of which run, size, unit and scale a number is, or that none says it.

The inputs are own ones in the forms of issues, reports and logs of others.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nccltune.app.compare import SidesCompared, compare_paths
from nccltune.formats.importing.importer import import_files
from nccltune.formats.importing.inputs import find_inputs, read_inputs
from nccltune.formats.nccl_tests.rows import are_mixed
from nccltune.formats.reading.context import ReadOptions
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from tests.unit.formats.maker import Made, points
from tests.unit.formats.reading_tools import one

KIB, MIB = 1 << 10, 1 << 20
MADE = Made(points(MIB, 4 * MIB, 16 * MIB), ranks=8)
ROWS = "".join(f"{MADE.row(point)}\n" for point in MADE.points)
TABLE = f"#\n{ROWS}"


def markdown(*rows: Sequence[object]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def slower(rows: str) -> str:
    """Return rows of 1.25 times the time."""
    found = []
    for line in rows.splitlines():
        cells = line.split()
        for at in (5, 9):
            time = float(cells[at]) * 1.25
            rate = int(cells[0]) / (time * 1e3)
            cells[at : at + 3] = f"{time:.2f}", f"{rate:.2f}", f"{rate * 1.75:.2f}"
        found.append(" ".join(cells))
    return "\n".join(found) + "\n"


TIMED = "All-reduce, 8 GPUs, 1 node:\n"
SIZES = {
    # The only power of two that is printed so; with an algbw, only if that agrees.
    "rounded": (
        markdown(("size", "time (us)"), ("0.06 MiB", 40), ("1.0 MiB", 90)),
        [64 * KIB, MIB],
    ),
    "rounded decimals": (
        markdown(("size", "time (us)", "algbw"), ("1.05 MB", 100, 10.49), ("67 MB", 1000, 67.11)),
        [MIB, 64 * MIB],
    ),
    "of no power of two": (
        markdown(("size", "time (us)"), ("24.0kB", 7), ("1.1MB", 9)),
        [24 * KIB, round(1.1 * MIB)],
    ),
    "a column KiB, the unit of times in the text": (
        "Times are microseconds per\ncall.\n\n## Eager\n\n"
        + markdown(
            ("rows x hidden", "KiB", "default", "ring"), ("1 x 8", 4, 62, 59), ("9", 64, 83, 81)
        ),
        [4 * KIB, 64 * KIB] * 2,
    ),
    "other words": (markdown(("Payload Sz", "time (us)"), ("1KB", 7), ("1MB", 9)), [KIB, MIB]),
    "a column Message": (
        markdown(
            ("Message", "Avg ms", "algbw GB/s"), ("1.00 MiB", 0.03, 31.6), ("1 GiB", 4.07, 263.9)
        ),
        [MIB, 1 << 30],
    ),
    "more cells than names": ("size,time_us,algbw\n1048576,100,10.49,7,8\n", [MIB]),
    "the unit of aligned columns in a sentence": (
        "All times are in milliseconds (ms)\n"
        "Shape        Tensor Size    a_1     nccl     Best (Speedup)\n" + 60 * "-" + "\n"
        "(32, 8)      0.50 MB        0.007   0.009    a_1 (1.28x)\n"
        "(64, 8)      1.00 MB        0.010   0.011    a_1 (1.10x)\n",
        [MIB // 2, MIB] * 2,
    ),
    "the unit of aligned columns below": (
        "Size    ours   NCCL\n1K   0.16    0.2\n2K    0.17  0.31\n\nUnit: us\n",
        [KIB, 2 * KIB] * 2,
    ),
    "the mean of several": (
        "size_b,mean_us,p50_us,p95_us\n1024,7.5,7,9\n2048,8.5,8,9\n",
        [KIB, 2 * KIB],
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_that_a_text_shows(name: str, tmp_path: Path) -> None:
    data, sizes = SIZES[name]
    found = one(tmp_path, TIMED + data, collective=Collective.ALLREDUCE)
    assert sorted(sample.bytes for sample in found.samples) == sorted(sizes)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("latency avg/min/max (us)", ("12.5/11/14", "13.5 / 12 / 15")),
        ("Latency (us) min/avg/p99", ("11/12.5/14", "12/13.5/15")),
        ("time (us)", ("12.5\u00b10.4", "13.5 \u00b1 0.2")),
        ("time", ("12.5 +/- 0.4 us", "13.5us (\u00b1 2 %)")),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_the_mean_of_a_cell_of_several_values_is_read(
    name: str, cells: tuple[str, str], raw: bool, tmp_path: Path
) -> None:
    ranks = ("ranks", 8) if raw else ("x", 8)
    rows = [(size, cell, ranks[1]) for size, cell in zip((KIB, MIB), cells, strict=True)]
    found = one(tmp_path, TIMED + markdown(("size", name, ranks[0]), *rows))
    assert [sample.time_us for sample in found.samples] == [12.5, 13.5]


LISTS = {
    "by a cell": (("TP", "size", "latency (us)"), ("2/4", "1K", "9/12"), ("2/4", "1M", "30/50")),
    "by the name": (("size", "2/4 GPUs latency (us)"), ("1K", "9/12"), ("1M", "30 / 50")),
    "named after": (
        ("size", "us/call", "time (us) 2/4 GPUs"),
        ("1K", 1, "9/12"),
        ("1M", 1, "30/50"),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_each_value_of_a_cell_is_of_the_run_that_names_it(name: str, tmp_path: Path) -> None:
    data = f"All-reduce\n\n{markdown(*LISTS[name])}\nend\n"
    found = one(tmp_path, data)
    read = {(item.ranks, item.bytes): item.time_us for item in found.samples}
    assert read == {(2, KIB): 9, (4, KIB): 12, (2, MIB): 30, (4, MIB): 50}


def test_sections_of_several_scales_are_compared_by_their_titles(tmp_path: Path) -> None:
    names, sizes = ("TP", "size", "latency (us)"), [f"{4**k}K" for k in range(6)]
    text = ""
    for title, times in (("vLLM", "9/12"), ("custom allreduce", "6/8")):
        text += f"{title}\n" + markdown(names, *(("2/4", size, times) for size in sizes)) + "\n"
    path = tmp_path / "post.md"
    path.write_text(text)
    found = compare_paths([path], assumed_noise=0.05)
    assert isinstance(found, SidesCompared)
    assert (found.first, found.second) == ("vLLM", "custom allreduce")
    assert [[point.ratio for point in test.points] for test in found.tests] == [
        pytest.approx([6 / 9] * 6),
        pytest.approx([8 / 12] * 6),
    ]


def test_mixed_rows_of_runs_at_the_same_time_are_doubtful(tmp_path: Path) -> None:
    rows = ROWS.splitlines()
    plain = TABLE + ROWS
    assert one(tmp_path, plain).doubtful <= {"aborted"}
    mixed = TABLE.replace(ROWS, "\n".join(rows[at] for at in (0, 0, 1, 0, 2, 1, 2)) + "\n")
    assert "rows of several runs are mixed" not in str(one(tmp_path, mixed).report.flags)
    more = [MADE.row(point) for point in points(*(MIB << k for k in range(5)))]
    later = TABLE.replace(ROWS, "\n".join(more[at] for at in (0, 1, 0, 1, 2, 0, 1, 2, 3)) + "\n")
    assert "rows of several runs are mixed" not in str(one(tmp_path, later).report.flags)
    mixed = TABLE.replace(ROWS, "\n".join(more[at] for at in (0, 1, 0, 2, 1, 3, 2, 4)) + "\n")
    assert "rows of several runs are mixed" in str(one(tmp_path, mixed).report.flags)
    # Quadratic time would run into the timeout of the suite.
    assert not are_mixed([(at, at, 1, "float", "sum", -1) for at in range(500_000)])


def test_settings_that_name_the_sides_differ(tmp_path: Path) -> None:
    path = tmp_path / "post.txt"
    name = "CUDA_VISIBLE_DEVICES"
    path.write_text(
        f"export {name}=0,1\n./all_reduce_perf -g 8\n{TABLE}\n"
        f"export {name}=6,7\n./all_reduce_perf -g 8\n{TABLE.replace(ROWS, slower(ROWS))}"
    )
    found = compare_paths([path], assumed_noise=0.05)
    assert isinstance(found, SidesCompared)
    differing = [(item.fact, item.first, item.second) for item in found.different]
    assert differing == [(name, "0,1", "6,7")]


@pytest.mark.parametrize("words", [9, 10, 11, 12])
def test_a_row_cut_in_its_in_place_columns_is_read_out_of_place(words: int, tmp_path: Path) -> None:
    *whole, last = ROWS.splitlines()
    cut = " ".join(last.split()[:words])
    found = one(tmp_path, TABLE.replace(ROWS, "\n".join([*whole, cut]) + "\n"))
    sizes = [sample.bytes for sample in found.samples if not sample.in_place]
    assert sizes == [MIB, 4 * MIB, 16 * MIB]
    assert [sample.bytes for sample in found.samples if sample.in_place] == sizes[:-1]
    wrong = last.replace(last.split()[5], "1.00", 1)
    found = one(tmp_path, TABLE.replace(ROWS, "\n".join([*whole, " ".join(wrong.split()[:words])])))
    assert found.report.unreadable == 1


def test_a_time_glued_to_the_wrong_elements_is_no_number_of_them(tmp_path: Path) -> None:
    cells = ROWS.splitlines()[-1].split()
    glued = " ".join([*cells[:8], f"{cells[8]}{cells[9]}", *cells[10:]])
    found = one(tmp_path, TABLE.replace(ROWS, "".join(ROWS.splitlines(True)[:-1]) + glued + "\n"))
    assert len(found.samples) == 2 * (len(ROWS.splitlines()) - 1)
    assert not any(item.wrong for item in found.samples)


def test_scripts_and_verbs_name_no_collective(tmp_path: Path) -> None:
    text = "It can reduce time (bench_reduce.py):\n\nAll-gather, 8 GPUs\n\n"
    found = one(tmp_path, text + markdown(("size", "time (us)"), ("1K", 9), ("1M", 30)))
    assert {sample.collective for sample in found.samples} == {Collective.ALLGATHER}


def test_a_title_tells_an_old_all_to_all_whose_results_in_place_cannot_be_right(
    tmp_path: Path,
) -> None:
    text = (
        "all_reduce is fine\n\nalltoall result\n#  size  count  type  redop  time  algbw  busbw"
        "  error  time  algbw  busbw  error\n"
        "268435456 1048576 float 520935 0.52 0.51 0e+00 519562 0.52 0.51 1e+00\n"
        "536870912 2097152 float 1041974 0.52 0.51 0e+00 1041299 0.52 0.51 1e+00\n"
    )
    found = one(tmp_path, text)
    assert {(item.collective, item.ranks) for item in found.samples} == {(Collective.ALLTOALL, 64)}
    assert [item.wrong for item in found.samples if item.in_place] == [None, None]
    assert [item.wrong for item in found.samples if not item.in_place] == [0, 0]


def test_values_with_a_spread_have_the_measure_that_a_sentence_names(tmp_path: Path) -> None:
    text = "\n\n" + markdown(
        ("Size", "A: DEFAULT", "B: NCCL_NSOCKS=4", "B vs A", "> 2?"),
        ("1MB", "1.91\u00b10.02", "2.20\u00b10.04", "+15%", "No"),
    )
    for words in ("Summary metric: rank-0 algbw (GB/s)", "Values (in GB/s) in it are the algbw"):
        found = one(tmp_path, TIMED + words + text)
        assert [round(sample.time_us) for sample in found.samples] == [549, 477]


def test_a_time_of_few_digits_is_that_of_its_bandwidth(tmp_path: Path) -> None:
    data = markdown(("size", "avg ms", "algbw GB/s"), ("1 MiB", 0.03, 31.6), ("1 GiB", 4.07, 263.9))
    found = one(tmp_path, TIMED + data)
    assert [sample.time_us for sample in found.samples] == [pytest.approx(33.183, abs=1e-3), 4070]


def test_bits_and_bytes_of_a_unit_with_a_slash(tmp_path: Path) -> None:
    found = one(
        tmp_path, TIMED + markdown(("size", "algbw Gb/s"), ("1 MiB", 80.0), ("2 MiB", 88.0))
    )
    assert found.samples[0].time_us == pytest.approx(MIB / 10e3)


RATES = ("size", "time (us)", "algbw", "busbw")
SCALES = {
    "a column TP": (
        markdown(
            ("Kind", "TP", *RATES),
            ("ALLREDUCE", 4, "1 MiB", 100, 10.49, 15.73),
            ("ALLREDUCE", 8, "1 MiB", 100, 10.49, 18.35),
        ),
        {"?x4", "?x8"},
    ),
    "a column of ranks beside a count": (
        "world_size,dtype,bytes,count,time_us,algbw,busbw\n4,float,1048576,262144,100,10.49,15.73\n",
        {"?x4"},
    ),
    "assignments in a title": (f"=== ARM algo=Ring proto=LL nodes=2 ===\n{TABLE}", {"2x8"}),
    "nodes before the ranks in brackets": (
        "### AllReduce bus bandwidth in GB/s (2 nodes, 16 GPUs)\n\n"
        + markdown(("Size", "first"), ("1M", 20.7), ("16M", 76.7)).replace("first", "busbw"),
        {"2x16"},
    ),
    **{
        f"words above the names {names}": (
            "All-reduce, 2 nodes, 16 ranks\n\n" + markdown(names, ("1M", 90), ("2M", 99)),
            {"2x16"},
        )
        for names in (("Msg", "time (us)"), ("MsgSz", "avg us"), ("Octets", "\u65f6\u95f4 (us)"))
    },
    **{
        words: (f"{words}\n\n{TABLE}", {scale})
        for words, scale in (
            ("I have 2 DGX A100, and when I run all_reduce_perf", "2x8"),
            ("Results on 2 x HGX H100:", "2x8"),
            ("## Allreduce, 2 Knoten", "2x8"),
            ("2 n\u0153uds, all_reduce_perf :", "2x8"),
            ("8 GPUs (2 nodes x 4 A100), all_reduce.", "2x8"),
            ("nccl-tests results on two p5.48xlarge with EFA", "2x8"),
            ("I have 8 DGX A100 and run tests on 2 nodes:", "?x8"),
            ("I have a DGX A100 and ran all_reduce_perf", "?x8"),
        )
    },
    "the nodes of several tables": (
        f"2 nodes, 4 GPUs on each node:\n\n{TABLE}\n- again on each node\n{TABLE}",
        {"2x8"},
    ),
    "a placeholder of hosts": (
        f"mpirun -np 8 -H xxx ./all_reduce_perf -b 1M -e 16M -f 4 -g 1\n{TABLE}",
        {"?x8"},
    ),
    "a launcher that names host and rank": (
        "".join(f"h1.net 0: {line}\n" for line in MADE.lines()),
        {"1x8"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("collective", "column", "shares"),
    [("all_gather", "recv_bytes", 1), ("all_gather", "send_bytes", 8),
     ("reduce_scatter", "recv_bytes", 8), ("reduce_scatter", "send_bytes", 1)],
)  # fmt: skip
def test_what_a_rank_sends_or_receives_is_the_size_or_its_part(
    collective: str, column: str, shares: int, tmp_path: Path
) -> None:
    rows = f"op,{column},ranks,time_us\n{collective},{MIB},8,90\n"
    assert [item.bytes for item in one(tmp_path, rows).samples] == [shares * MIB]


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("node", ("1", "2")),
        ("choice,node", ("ring/ll,a", "ring/ll,b")),
        ("rank,node", ("0,a", "0,b")),
    ],
)
def test_machines_of_numbers_choices_and_ranks_are_no_runs(
    columns: str, values: tuple[str, str], tmp_path: Path
) -> None:
    rows = f"collective,size_bytes,ranks,{columns},time_us\n"
    rows += "".join(f"allreduce,{MIB},4,{value},90\n" for value in values)
    assert "the column 'node' differs" in str(one(tmp_path, rows).report.error)


@pytest.mark.parametrize("raw", [False, True])
def test_the_text_around_a_table_has_its_scale_and_version(raw: bool, tmp_path: Path) -> None:
    names, cells = ("size", "time (us)"), (MIB, 90)
    if raw:
        names, cells = ("\u64cd\u4f5c", *names), ("AllReduce", *cells)
    text = "NCCL version 2.18.3+cuda12, all-reduce\n\n\u4f7f\u7528 2 \u4e2aGPU\n"
    path = tmp_path / "a.md"
    path.write_text(text + markdown(names, cells), encoding="utf-8")
    [batch] = [
        each
        for reading in read_inputs(find_inputs([path]), ReadOptions(study="made"))
        for each in reading.batches()
    ]
    assert (batch.run.facts.nccl, [item.ranks for item in batch.samples]) == ("2.18.3", [2])


@pytest.mark.parametrize("name", SCALES)
def test_scales(name: str, tmp_path: Path) -> None:
    data, scales = SCALES[name]
    found = one(tmp_path, data)
    assert set(found.report.scales) == scales
    assert not found.doubtful & {"aborted", "bandwidth_mismatch", "scale_mismatch"}


def test_the_only_collective_of_a_text_and_tables_that_are_not_read(tmp_path: Path) -> None:
    other = markdown(("Size", "Apr-09", "Apr-16"), ("1 MB", 7.69, 7.61), ("2 MB", 13.6, 13.9))
    data = f"This is the all-reduce of our job, as measured by us.\n\n{other}\n## Reference\n\n"
    found = one(tmp_path, data + markdown(RATES[:2], ("1M", 9)))
    assert set(found.report.collectives) == {"allreduce"}
    notes = [flag.sentence for flag in found.report.flags if flag.kind == "note"]
    assert any("the only collective that the text names" in note for note in notes)
    assert any("not read: a table with the columns Size, Apr-09, Apr-16" in note for note in notes)


def test_a_text_names_no_collective_that_the_columns_contradict(tmp_path: Path) -> None:
    names = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
    row = "8192  1024  float  none  0  12.11  0.68  0.34  0\n"
    found = one(tmp_path, f"We wanted the all-reduce.\n\n{names}{row}")
    assert not found.samples
    assert "gather or scatter of 2 ranks" in found.sentence("collective_unknown")


def test_a_paragraph_about_several_runs_forces_nothing(tmp_path: Path) -> None:
    words = "We compared NCCL_ALGO=Ring to the default,\nand got with the default:\n\n"
    found = one(tmp_path, words + TABLE)
    assert found.labels == {"default"}
    assert "line 1 names NCCL_ALGO=Ring" in found.sentence("choice_unconfirmed")
    assert one(tmp_path, "Results with NCCL_ALGO=Ring NCCL_PROTO=LL:\n\n" + TABLE).labels == {
        "ring/ll"
    }


def test_rccl_tests_name_what_ran(tmp_path: Path) -> None:
    names = "size,type,redop,busbw,algo,proto,nchannels"
    rows = f"{names}\n1048576,float,sum,12.5,TREE,LL128,64\n".replace(",", "\t")
    (sample,) = one(tmp_path, rows, collective=Collective.ALLREDUCE, ranks=8).samples
    assert sample.choice == "default"
    assert sample.ran is not None
    assert sample.ran.label == "tree/ll128/64"


BOTH = markdown(("size", "time (us)"), ("1M", 95.5), ("2M", 120.4), ("4M", 160.5))
SLOWER = markdown(("size", "time (us)"), ("1M", 105.5), ("2M", 140.4), ("4M", 190.5))
APART = {
    "headings": f"## Before\n\n{BOTH}\n## After\n\n{SLOWER}",
    "a transport in the heading above": f"## 2 Hosts Over TCP\n\n### Sum\n\n{BOTH}"
    f"\n## 2 Hosts Over RDMA\n\n### Sum\n\n{SLOWER}",
    "a column of NCCL's times under each heading": "".join(
        f"## 2 hosts, {over}\n\n"
        + markdown(("Size", "NCCL time (us)", "NCCL busbw"), *(
            (f"{1 << at}M", time, round(1.75 * (MIB << at) / time / 1e3, 2))
            for at, time in enumerate(times)
        ))
        for over, times in (("TCP", (95.5, 120.4, 160.5)), ("RDMA", (105.5, 140.4, 190.5)))
    ),
    "medians beside means": markdown(
        ("size", "old_median_ms", "old_mean_ms", "new_median_ms", "new_mean_ms"),
        ("1M", 0.0955, 0.2, 0.1055, 0.1), ("2M", 0.1204, 0.2, 0.1404, 0.1),
    ),
    "lines with a colon": f"Result of NCCL 2.28:\n\n{BOTH}\nResult of NCCL 2.29:\n\n{SLOWER}",
    "a setting in a sentence": f"Without any setting:\n```\n{TABLE}```\n\nAfter"
    f" `export NCCL_PXN_DISABLE=1` I get:\n```\n{TABLE.replace(ROWS, slower(ROWS))}```\n",
    "rows without names": f"Ours:\n```\n{ROWS}```\nNCCL:\n```\n{slower(ROWS)}```\n",
    "versions as columns": "### Bus bandwidth in GB/s (8 GPUs)\n\n"
    + markdown(("Size", "2.28", "2.29"), ("1M", 30.7, 28.2), ("2M", 46.7, 40.5), ("4M", 80, 71)),
    "a diff": "".join(f"-{line}\n" for line in BOTH.splitlines()[2:])
    + "".join(f"+{line}\n" for line in SLOWER.splitlines()[2:]),
    **{
        f"a column {name}": f"collective,size_bytes,ranks,{name},time_us\n"
        + "".join(
            f"allreduce,{MIB << at},4,{config},{time * factor}\n"
            for config, factor in (("native-1", 1), ("shim-2", 1.15))
            for at, time in enumerate((95.5, 120.4, 160.5))
        )
        for name in ("config", "hostname", "node")
    },
    "a summary of SuperBench": "".join(
        json.dumps({"node": node, "gemm/fp32_8192_flops:0": 19.5} | {
            f"rccl-bw:default/allreduce_{size}_{what}:0": round(value, 3)
            for size, time in ((MIB, 95.5), (2 * MIB, 120.4), (4 * MIB, 160.5))
            for what, value in (("time", time * factor), ("algbw", size / time / factor / 1e3))
        }) + "\n"
        for node, factor in (("hgx-1", 1), ("hgx-2", 1.15))
    ),
}  # fmt: skip
APART["a diff"] = "\n".join([f" {line}" for line in BOTH.splitlines()[:2]]) + "\n" + APART["a diff"]


@pytest.mark.parametrize("name", APART)
def test_runs_under_titles_are_no_rounds_of_one_default(name: str, tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.md"
    path.write_text(APART[name])
    options = ReadOptions(study="made", ranks=8)
    with pytest.raises(InputError, match="of different conditions") as caught:
        import_files(tmp_path / "s", find_inputs([path]), options)
    assert f"nccltune compare {path}" in (caught.value.hint or "")
    found = compare_paths([path], assumed_noise=0.05, ranks=8)
    assert isinstance(found, SidesCompared)
    assert all(point.second_us > 1.08 * point.first_us for point in found.tests[0].points)


def test_exports_behind_a_prompt_differ(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.md"
    runs = ((1, ROWS), (0, slower(ROWS)))
    head = "\n".join(list(MADE.head())[-3:])
    path.write_text(
        "".join(f"me@h1:~$ export NCCL_P2P_DISABLE={on}\n{head}\n{rows}" for on, rows in runs)
    )
    found = compare_paths([path], assumed_noise=0.05, ranks=8)
    assert isinstance(found, SidesCompared)
    assert "NCCL_P2P_DISABLE" in str(found.different)


def test_numbered_repeats_under_titles_are_rounds(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.md"
    data = "".join(
        f"#### Rep {at}: `a-rep{at}.log`\n\n{table}\n" for at, table in ((1, BOTH), (2, SLOWER))
    )
    path.write_text(data)
    done = import_files(tmp_path / "s", find_inputs([path]), ReadOptions(study="made"))
    assert done.samples == 6


REFUSED = {
    "bandwidths of no kind": (
        markdown(("Size", "Rack 1 (GB/s)", "Status"), ("1 GiB", 738.7, "ok"), ("2 GiB", 805, "ok")),
        "which bandwidth a column is, is not known (not known: Rack 1 (GB/s))",
    ),
    "several values in a cell": (
        markdown(("size", "latency(ms)"), ("1K", "0.95/0.91/1.01"), ("2K", "0.88/0.85/0.93")),
        "'latency(ms)': '0.95/0.91/1.01' has 3 values (write a row for each, or name them",
    ),
    "several values in a cell of a raw table": (
        markdown(("tp size", "size", "latency(ms)"), ("2/4/8", "1K", "0.95/0.91")),
        "'latency(ms)': '0.95/0.91' has 2 values",
    ),
    "columns of settings": (
        markdown(("Size", "A: DEFAULT", "B: X=4"), ("1MB", "1.91\u00b10.02", "2.20\u00b10.04")),
        "no name or unit says which are times or bandwidths",
    ),
    "a target": (
        markdown(("size", "target latency (us)", "v5"), ("24kB", 7.7, 7.2), ("48kB", 7.7, 7.6)),
        "which one is the time of a call is not known",
    ),
    "no unit at all": (
        markdown(("Tensor Size", "pynccl", "symm"), (KIB, 21.1, 8.2), (64 * MIB, 620.2, 600)),
        "no name or unit says which are times or bandwidths",
    ),
    "tensor shapes": (
        markdown(("shape", "NCCL (us)", "own (us)"), ("(1, 8)", 21.3, 9.1), ("(64, 8)", 38.2, 27)),
        "add a column 'size (bytes)': elements of a call x bytes of their type",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_named(name: str, tmp_path: Path) -> None:
    data, reason = REFUSED[name]
    found = one(tmp_path, TIMED + data)
    assert not found.samples
    assert reason in f"{found.report.error} {found.report.hint} {found.reasons}"


LADDER = (KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB)


def test_sizes_of_models_are_no_messages(tmp_path: Path) -> None:
    rows = [("7B", 10, 9), ("13B", 11, 10), ("34B", 60, 50), ("70B", 160, 120)]
    assert not one(tmp_path, TIMED + markdown(("Size", "before", "after"), *rows)).samples


@pytest.mark.parametrize("mark", ["", "#"])
@pytest.mark.parametrize("measures", [("time(us)", "algbw"), ("(us)",)])
def test_runs_named_above_the_measures_of_each(
    mark: str, measures: tuple[str, ...], tmp_path: Path
) -> None:
    names, groups = ["NCCL", "ONESHOT"], len(measures)
    head = f"{mark:1}{'size':>11}{'ntok':>8}{names[0]:>{12 * groups}}{names[1]:>{12 * groups}}"
    under = f"{mark:1}{'':>19}" + "".join(f"{name:>12}" for name in measures * 2)
    rows = ""
    for size in LADDER:
        times = (20 + size / 1e5, 10 + size / 1e4)
        cells = [x for time in times for x in (time, size / time / 1e3)[:groups]]
        rows += f"{size:12d}{size // KIB:8d}{''.join(f'{x:12.3f}' for x in cells)}\n"
    found = one(tmp_path, f"{TIMED}{head}\n{under}\n{mark}{'-' * 60}\n{rows}")
    assert [item.bytes for item in found.samples] == [*LADDER, *LADDER]
    assert found.samples[0].time_us == pytest.approx(20.01, abs=0.001)


def test_arrows_between_two_values_are_two_runs_of_each_collective(tmp_path: Path) -> None:
    names = ("msg size", "all-gather off \u2192 on", "speedup", "reduce-scatter off \u2192 on")
    rows = [
        (f"{size} MiB", f"{2 * size} \u2192 {size}.5 \u00b5s", "1.9x", f"{3 * size} -> {size} us")
        for size in (8, 32, 128)
    ]
    found = one(tmp_path, TIMED + markdown(names, *rows))
    times = {(item.collective, item.bytes, item.time_us) for item in found.samples}
    assert times == {
        timed
        for size in (8, 32, 128)
        for timed in (
            (Collective.ALLGATHER, size * MIB, 2 * size),
            (Collective.ALLGATHER, size * MIB, size + 0.5),
            (Collective.REDUCESCATTER, size * MIB, 3 * size),
            (Collective.REDUCESCATTER, size * MIB, size),
        )
    }


SHAPES = {
    "two columns": markdown(("num_tokens", "hidden", "time (us)"), (1, 8192, 20), (64, 8192, 25)),
    "a shape": markdown(
        ("Shape", "dtype", "time (us)"), ("(1, 8192)", "", 20), ("64x8192", "", 25)
    ),
    "columns of blanks": "shape         nccl (us)   ours (us)\n[1, 8192]     20          20\n"
    "[64, 8192]    25          25\n",
}


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_of_all_reduces_are_those_of_their_shapes(name: str, tmp_path: Path) -> None:
    found = one(tmp_path, f"All-reduce (bf16), 8 GPUs, 1 node:\n\n{SHAPES[name]}")
    timed = {(item.bytes, item.time_us) for item in found.samples}
    assert timed == {(16 * KIB, 20.0), (MIB, 25.0)}
    assert "2 bytes an element" in "".join(flag.sentence for flag in found.report.flags)
    # Of other types and collectives the sizes are not known.
    for title in ("All-reduce (bf16 and fp32)", "All-gather (bf16)", "All-reduce"):
        assert not one(tmp_path, f"{title}, 8 GPUs, 1 node:\n\n{SHAPES[name]}").samples
