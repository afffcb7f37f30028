# SPDX-License-Identifier: Apache-2.0
"""Several runs of one test in one file are compared with each other at each size."""

from pathlib import Path

import pytest

from nccltune.app.compare import (
    ChoicesCompared,
    FleetCompared,
    SidesCompared,
    compare_paths,
    read_runs,
)
from nccltune.cli import run
from nccltune.compare.runs import MeasuredRun
from nccltune.formats.reading.context import ReadOptions
from nccltune.model.errors import InputError

TITLE = "All-reduce on 8 x H100, 1 node\n\n"
TIMES = {
    65536: (21.3, 18.1, 25.0),
    262144: (30.2, 27.5, 28.8),
    1048576: (55.0, 60.3, 48.2),
    4194304: (120.4, 150.9, 101.3),
}
ROWS = "".join(f"| {size} | {' | '.join(map(str, own))} |\n" for size, own in TIMES.items())
RULE = "|---|---|---|---|\n"
NAMED = "| size | ring (us) | tree (us) | nvls (us) |\n"


def read(folder: Path, text: str, name: str = "table.md", **options: int | str) -> ChoicesCompared:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = compare_paths([path], assumed_noise=0.05, **options)
    assert isinstance(found, ChoicesCompared)
    return found


TABLES = {
    "markdown": TITLE + NAMED + RULE + ROWS,
    "units in the cells": TITLE
    + "| size | ring | tree | nvls |\n"
    + RULE
    + "".join(f"| {s} | {' | '.join(f'{x} us' for x in own)} |\n" for s, own in TIMES.items()),
    "unit in the title": "All-reduce latency (us), 8 GPUs, 1 node\n\n"
    + "| size | ring | tree | nvls |\n"
    + RULE
    + ROWS,
    "csv": TITLE
    + "size,ring (us),tree (us),nvls (us)\n"
    + "".join(f"{s},{','.join(map(str, own))}\n" for s, own in TIMES.items()),
    "with cells that were not measured": TITLE
    + NAMED
    + RULE
    + ROWS
    + "| 16777216 | 1300 | 1400 | - |\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_table_is_compared(tmp_path: Path, name: str) -> None:
    (table,) = read(tmp_path, TABLES[name]).tables
    assert table.title == "all-reduce, 1 node, 8 ranks"
    assert list(table.times_us) == ["ring", "tree", "nvls"]
    assert [(side.first, side.second) for side in table.sides] == [
        ("ring", "tree"),
        ("ring", "nvls"),
    ]
    assert table.times_us["nvls"][1048576] == pytest.approx(48.2)
    first, second = table.fastest[:2]
    assert (first.low_bytes, first.high_bytes, first.names) == (65536, 262144, ("tree",))
    assert (second.low_bytes, second.high_bytes, second.names) == (1048576, 4194304, ("nvls",))
    assert first.least == pytest.approx(28.8 / 27.5)
    assert second.most == pytest.approx(120.4 / 101.3)


def test_others_are_compared_with_the_column_of_the_default(tmp_path: Path) -> None:
    text = TABLES["markdown"].replace("tree (us)", "default (us)")
    (table,) = read(tmp_path, text).tables
    assert {side.first for side in table.sides} == {"default"}


def test_names_of_columns_are_no_settings_of_the_others(tmp_path: Path) -> None:
    text = TABLES["csv"].replace("ring (us)", "default (us)").replace("tree", "NCCL_ALGO=Tree")
    (table,) = read(tmp_path, text, "table.csv").tables
    (side,) = (side for side in table.sides if side.second == "nvls")
    assert "Tree" not in "".join(item.first + item.second for item in side.different)


def test_columns_of_counts_and_ratios_are_no_runs(tmp_path: Path) -> None:
    text = (
        "All-reduce, 8 GPUs, 1 node, median time in us:\n\n"
        "| tokens | MiB | nccl+norm | fused | other | speedup |\n|--|--|--|--|--|--|\n"
        "| 64 | 1 | 271 | 19 | 23 | 14.2x |\n| 128 | 2 | 269 | 29 | 30 | 9.2x |\n"
    )
    found = read(tmp_path, text)
    (table,) = found.tables
    assert list(table.times_us) == ["nccl+norm", "fused", "other"]
    assert [item.names for item in table.fastest] == [("fused",)]
    assert "table.md: columns not known and not read: tokens, speedup" in found.warnings


@pytest.mark.parametrize("name", ["MSCCL++", "NCCL + SHARP", "+SHARP", "ours+", "C&D", "A/B"])
@pytest.mark.parametrize("kind", ["markdown", "csv", "unit in the title"])
def test_every_heading_that_names_no_other_quantity_is_a_run(
    tmp_path: Path, kind: str, name: str
) -> None:
    (table,) = read(tmp_path, TABLES[kind].replace("nvls", name)).tables
    assert list(table.times_us) == ["ring", "tree", name]


def test_equal_times_have_no_winner(tmp_path: Path) -> None:
    rows = "| 65536 | 21 | 21 | 30 |\n| 1048576 | 50 | 50 | 50 |\n"
    (table,) = read(tmp_path, TITLE + NAMED + RULE + rows).tables
    assert [item.names for item in table.fastest] == [("ring", "tree"), ("ring", "tree", "nvls")]
    assert table.fastest[1].most == 1


def test_each_table_of_a_file_is_compared_by_itself(tmp_path: Path) -> None:
    second = TABLES["markdown"].replace("8 x H100, 1 node", "16 GPUs, 1 node")
    found = read(tmp_path, TABLES["markdown"] + "\n" + second)
    assert [item.title for item in found.tables] == [
        "all-reduce, 1 node, 8 ranks",
        "all-reduce, 1 node, 16 ranks",
    ]


def test_two_columns_are_two_sides(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("size,before (us),after (us)\n1024,10,9\n2048,11,9.5\n4096,12,10\n")
    found = compare_paths([path], assumed_noise=0.05, collective="allreduce", nodes=1, ranks=8)
    assert isinstance(found, SidesCompared)
    assert (found.first, found.second) == ("before", "after")


def test_columns_of_several_files_stay_apart(tmp_path: Path) -> None:
    for name, times in (("h100", "10,8"), ("a100", "30,38")):
        rows = "".join(f"{size},{times}\n" for size in (1024, 2048, 4096))
        (tmp_path / f"{name}.csv").write_text(f"size,nccl (us),msccl (us)\n{rows}")
    found = compare_paths([tmp_path], assumed_noise=0.05, collective="allreduce", nodes=1, ranks=8)
    assert not isinstance(found, SidesCompared)


def test_the_screen_and_the_line_name_the_fastest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.md"
    path.write_text(TABLES["markdown"], encoding="utf-8")
    assert run(["compare", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "fastest 64 KiB to 256 KiB: tree, 1.05x to 1.18x faster than the next by one run of each"
        in shown
    )
    assert "fastest 1 MiB to 4 MiB: nvls, 1.14x to 1.19x faster than the next" in shown
    assert "55.0 us 60.3 us 48.2 us" in shown
    assert run(["compare", str(path), "--oneline"]) == 0
    assert capsys.readouterr().out.startswith(
        "1 table: all-reduce, 1 node, 8 ranks: fastest 64 KiB"
    )


def test_analyze_says_where_a_limited_run_is_the_fastest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, study = tmp_path / "table.md", tmp_path / "study"
    path.write_text(TABLES["markdown"], encoding="utf-8")
    assert run(["import", str(path), "-o", str(study)]) == 0
    assert run(["analyze", str(study)]) in (0, 1)
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "NCCL_ALGO=NVLS, NCCL_ALGO=Ring, NCCL_ALGO=Tree: fastest NCCL_ALGO=Tree at 64 KiB" in shown
    )
    assert ", fastest NCCL_ALGO=NVLS at 1 MiB to 4 MiB (by up to 1.19x); protocol chosen" in shown


SECTION = "| size | time (us) |\n|---|---|\n"


FORMS = ["### {}\n", "## {} ##\n\n", "**{}:**\n\n", "# {}\n", "- {}\n", "* **{}**\n", "_{}_\n"]
FORMS += [
    "==== {} ====\n",
    "-- x\n--- {}\n",
    "[{}]\n",
    "<h3>{}</h3>\n\n",
    "{}\n=====\n\n",
    "{}\n\n",
]
FORMS += ["<details><summary>{}</summary>\n\n", "{}:\n", "Results of {}.\n"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [("Ring", "Tree", "NVLS"), ("run A", "run B", "run C")])
def test_sections_with_headings_are_set_beside_each_other(
    tmp_path: Path, form: str, names: tuple[str, ...]
) -> None:
    text = "".join(
        form.format(name)
        + SECTION
        + "".join(f"| {size} | {own[at]} |\n" for size, own in TIMES.items())
        + "\n"
        for at, name in enumerate(names)
    )
    (table,) = read(tmp_path, text, collective="allreduce", ranks=8).tables
    shown = [f"Results of {name}" if "Results" in form else name for name in names]
    assert list(table.times_us) == shown
    assert [side.second for side in table.sides] == shown[1:]


@pytest.mark.parametrize("words", ["export {}\n", "$ {} ./all_gather_perf -g 2\n", "{}\n"])
@pytest.mark.parametrize("name", ["CUDA", "HIP"])
def test_runs_of_other_gpus_are_no_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    text = "".join(
        words.format(f"{name}_VISIBLE_DEVICES={devices}")
        + SECTION
        + "".join(f"| {size} | {own[at]} |\n" for size, own in TIMES.items())
        for at, devices in enumerate(("0,1", "6,7"))
    )
    path = tmp_path / "pairs.md"
    path.write_text(text, encoding="utf-8")
    run(["analyze", str(path), "--collective", "allgather", "--ranks", "2", "--nodes", "1"])
    shown = capsys.readouterr().out
    assert f"first      {name}_VISIBLE_DEVICES=0,1\nsecond     {name}_VISIBLE_DEVICES=6,7" in shown
    assert "rounds of one state" not in shown


@pytest.mark.parametrize(
    ("each", "apart"),
    [
        (((1, "8"), (8, "1")), True),
        (((1, "4 -t 2"), (1, "8")), False),
        (((4, "2"), (4, "2")), False),
    ],
)
def test_runs_of_other_launches_are_no_rounds(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    each: tuple[tuple[int, str], ...],
    apart: bool,
) -> None:
    text = "".join(
        f"$ mpirun -np {processes} ./all_reduce_perf -b 64K -e 256K -g {gpus}\n"
        + SECTION
        + "".join(f"| {size} | {own[at]} |\n" for size, own in TIMES.items())
        for at, (processes, gpus) in enumerate(each)
    )
    (path := tmp_path / "launches.md").write_text(text, encoding="utf-8")
    run(["analyze", str(path), "--nodes", "1"])
    shown = capsys.readouterr().out
    assert ("differs    GPUs of a process: 8 first, 1 second" in shown) is apart
    assert shown.startswith("platform") is not apart


def test_sides_that_differ_in_one_setting_are_named_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "$ {}mpirun -np 8 ./all_reduce_perf -b 64K -e 256K\n"
    text = "".join(
        command.format(setting)
        + SECTION
        + "".join(f"| {size} | {own[0] * factor} |\n" for size, own in TIMES.items())
        for setting, factor in (("", 2), ("NCCL_IB_ECE_ENABLE=0 ", 1))
    )
    path = tmp_path / "ece.md"
    path.write_text(text, encoding="utf-8")
    run(["analyze", str(path), "--nodes", "1"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "NCCL_IB_ECE_ENABLE=0 is 2.00x faster than without NCCL_IB_ECE_ENABLE" in shown


@pytest.mark.parametrize(
    "line", ["Job 4711 on node{}", "run {}", "Warning: {} of 4", "| {} |", "see log {}/x.txt"]
)
def test_lines_of_logs_and_numbers_of_repeats_are_no_titles(tmp_path: Path, line: str) -> None:
    rows = "".join(f"| {size} | {own[0]} |\n" for size, own in TIMES.items())
    text = "".join(f"{line.format(at)}\n\n{SECTION}{rows}\n" for at in (1, 2))
    path, study = tmp_path / "runs.md", tmp_path / "study"
    path.write_text(text, encoding="utf-8")
    words = ["import", str(path), "-o", str(study), "--collective", "allreduce", "--ranks", "8"]
    assert run([*words, "--nodes", "1"]) == 0


@pytest.mark.parametrize(
    ("heading", "notice"),
    [("Ring", "the heading names Ring: it limits"), ("NCCL_ALGO=Ring", "NCCL_ALGO=Ring is set")],
)
def test_a_heading_alone_sets_no_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], heading: str, notice: str
) -> None:
    path = tmp_path / "one.md"
    path.write_text(f"### {heading}\n{SECTION}| 1M | 40.0 |\n| 4M | 65.0 |\n", encoding="utf-8")
    run(["compare", str(path), "--collective", "allreduce", "--ranks", "8"])
    assert notice in " ".join(capsys.readouterr().out.split())


def test_what_an_assumed_difference_comes_from_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.csv"
    path.write_text("size,before (us),after (us)\n1024,10,9\n2048,11,9.5\n4096,12,10\n")
    run(["compare", str(path), "--collective", "allreduce", "--ranks", "8"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "(by an assumed scatter of three times --assume-noise)" in shown


def test_each_type_of_a_table_is_compared_at_all_its_sizes(tmp_path: Path) -> None:
    """Each launch configuration is a run of its own; the columns have all of them in common."""
    rows = "".join(
        f"| {kind} | {mib} | threads={threads} | {own[0]} | {own[1]} | {own[2]} |\n"
        for kind, threads in (("bf16", (256, 512, 512, 512)), ("fp16", (512, 256, 512, 256)))
        for mib, threads, own in zip((1, 4, 16, 64), threads, TIMES.values(), strict=True)
    )
    head = "| type | MiB | launch | old (us) | new (us) | third (us) |\n|---|---|---|---|---|---|\n"
    found = read(tmp_path, head + rows, collective="allreduce", ranks=8)
    assert [table.title.rpartition(", ")[2] for table in found.tables] == ["bfloat16", "half"]
    for table in found.tables:
        assert list(table.times_us) == ["old", "new", "third"]
        assert [*map(list, table.times_us.values())] == [[1 << at for at in (20, 22, 24, 26)]] * 3


@pytest.mark.parametrize("options", [[], ["--nodes", "2"]])
def test_analyze_names_the_settings_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    path = tmp_path / "one.md"
    rows = "".join(f"| {size} | {own[0]} |\n" for size, own in TIMES.items())
    path.write_text("NCCL_CROSS_NIC=0\n" + SECTION + rows, encoding="utf-8")
    run(["analyze", str(path), "--collective", "allreduce", "--ranks", "8", *options])
    assert "settings   NCCL_CROSS_NIC=0\n" in capsys.readouterr().out


def test_runs_of_a_folder_are_named_by_the_version_in_which_they_differ(tmp_path: Path) -> None:
    factors = {"22203": 1.0, "22501": 1.4, "22703": 1.3}
    for version, factor in factors.items():
        log = (
            f"# nccl-tests version 2.17.6 nccl-headers={version} nccl-library={version}\n"
            "All-reduce, 8 GPUs, 1 node:\n| size | time (us) |\n|---|---|\n"
        )
        rows = (f"| {1 << k} | {(20 + (1 << k) / 1e4) * factor:.2f} |\n" for k in range(12, 24))
        (tmp_path / f"{version}.log").write_text(log + "".join(rows), encoding="utf-8")
    found = compare_paths([tmp_path], assumed_noise=0.05)
    assert isinstance(found, ChoicesCompared)
    (table,) = found.tables
    assert list(table.times_us) == ["NCCL 2.22.3", "NCCL 2.25.1", "NCCL 2.27.3"]
    assert [side.tests[0].ranges[0].ratio for side in table.sides] == pytest.approx(
        [1.4, 1.3], rel=0.01
    )


def test_the_only_file_of_a_folder_is_read_as_it_is_alone(tmp_path: Path) -> None:
    rows = "".join(
        f"| {1 << k} | {' | '.join(str(x * k) for x in (20, 9, 31, 44, 50))} |\n"
        for k in range(12, 20)
    )
    names = "| size | a (us) | b (us) | c (us) | d (us) | e (us) |\n|---|---|---|---|---|---|\n"
    alone = read(tmp_path, TITLE + names + rows)
    found = compare_paths([tmp_path], assumed_noise=0.05)
    assert isinstance(found, ChoicesCompared)
    assert found.tables == alone.tables


def test_columns_of_numbers_of_nodes_are_a_series(tmp_path: Path) -> None:
    rows = "".join(
        f"{1 << k},{','.join(f'{x * (k - 20):.1f}' for x in (38.0, 37.1, 20.1))}\n"
        for k in range(26, 31)
    )
    title = "AllReduce BusBW (GB/s), H100, 8 GPUs per node\n\n"
    path = tmp_path / "table.csv"
    path.write_text(f"{title}size (bytes),2 nodes,4 nodes,8 nodes\n{rows}")
    found = compare_paths([path], assumed_noise=0.05)
    assert isinstance(found, FleetCompared)
    (series,) = found.scaling
    assert [(row.nodes, row.ranks) for row in series.rows] == [(2, 16), (4, 32), (8, 64)]
    assert any("46 % lost" in sentence for sentence in series.sentences)


def columns(folder: Path, title: str, names: str, *rows: tuple[object, ...]) -> list[MeasuredRun]:
    """Return the runs of a table with these names of columns below a title."""
    text = f"{title}\n\n{names}\n|{'---|' * (names.count('|') - 1)}\n"
    (folder / "x.md").write_text(text + "".join(f"|{'|'.join(map(str, row))}|\n" for row in rows))
    return read_runs([folder / "x.md"], ReadOptions(study="x", comparing=True)).runs


@pytest.mark.parametrize("versions", ["NCCL 2.28.9|nccl-v2.29.2-1", "2.28.9|2.29.2"])
def test_columns_of_versions_by_the_shapes_of_xla(versions: str, tmp_path: Path) -> None:
    rows = (("bf16[8192]", 14, 20), ("bf16[64,1024]", 15, 21))
    runs = columns(tmp_path, "All-reduce, 8 GPUs, us per call:", f"|shape|{versions}|", *rows)
    assert [run.facts.nccl for run in runs] == ["2.28.9", "2.29.2"]
    (curve,) = runs[0].curves.values()
    assert [point.bytes for point in curve.times] == [1 << 14, 1 << 17]


@pytest.mark.parametrize(
    ("names", "columns_named", "placements"),
    [
        ("|Message|NCCL (PXB)|push()|ring x|gaps|", ["NCCL (PXB)", "push", "ring x", "gaps"], 1),
        ("|bytes|on_oop|off_oop|on_inp|off_inp|", ["on", "off"], 2),
    ],
)
def test_names_of_runs_in_columns(
    names: str, columns_named: list[str], placements: int, tmp_path: Path
) -> None:
    rows = [(f"{k} KB", *(f"{k + at} us" for at in range(4))) for k in (4, 8, 16)]
    runs = columns(tmp_path, "All-reduce, 8 GPUs, 1 node:", names, *rows)
    assert [run.column for run in runs] == columns_named
    (curve,) = runs[0].curves.values()
    assert [round(curve.time_us(point)) for point in curve.times if point.bytes == 4096] == [
        4 + 2 * at for at in range(placements)
    ]


def test_the_base_of_a_table_lacks_what_a_text_sets(tmp_path: Path) -> None:
    rows = [(f"{k} KB", f"{k} us", f"{k + 1} us") for k in (4, 8, 16)]
    text = "```\nNCCL_PROTO=LL\n```\n\n## All-reduce\n\nexport NCCL_GRAPH_FILE=g.xml\n"
    runs = columns(tmp_path, text, "|size|Without XML|With XML|", *rows)
    assert [run.facts.settings for run in runs] == [{}, {"NCCL_GRAPH_FILE": "g.xml"}]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (("2.19.3", "2.20.3"), "NCCL 2.19.3, NCCL 2.20.3"),
        (("before (us)", "after (us)"), "column 'before', column 'after'"),
        (("NCCL (us)", "gloo (us)"), "column 'NCCL', column 'gloo'"),
        (("run 1 (us)", "run 2 (us)"), None),
        (("trial_1 (us)", "trial_2 (us)"), None),
        (("out of place (us)", "in place (us)"), None),
    ],
)
def test_columns_of_two_texts_are_repeats_only_by_their_names(
    names: tuple[str, str], refused: str | None, tmp_path: Path
) -> None:
    for path, each in ((tmp_path / "a.md", 0), (tmp_path / "b.md", 0.001)):
        text = f"All-reduce, 8 GPUs, us:\n\n|size|{'|'.join(names)}|\n|---|---|---|\n"
        rows = (f"|{1 << k}|{k * (1 + each)}|{k * (1.2 + each)}|\n" for k in range(20, 24))
        path.write_text(text + "".join(rows), encoding="utf-8")
    paths = [tmp_path / "a.md", tmp_path / "b.md"]
    if refused is not None:
        with pytest.raises(InputError, match=f"a.md: it has {refused}, which are no repeats"):
            compare_paths(paths, assumed_noise=0.05)
        return
    found = compare_paths(paths, assumed_noise=0.05)
    assert isinstance(found, SidesCompared)
    (test,) = found.tests
    assert test.verdict("a", "b").startswith("a and b differ by at most 0.5 % at 4 sizes, in ")


@pytest.mark.parametrize(
    ("titles", "factor", "tables"),
    [(("", ""), 1.2, 0), (("", ""), 12.0, 2), (("## RDMA", "## TCP"), 1.2, 2)],
)
def test_columns_are_repeats_if_they_agree_under_one_heading(
    titles: tuple[str, str], factor: float, tables: int, tmp_path: Path
) -> None:
    text = TITLE
    for title, each in zip(titles, (1.0, factor), strict=True):
        text += f"\n{title}\n\n| size | NCCL (us) | gloo (us) |\n|---|---|---|\n"
        text += "".join(f"|{1 << k}|{k * each:.1f}|{(30 - k) * each:.1f}|\n" for k in range(10, 18))
    (tmp_path / "x.md").write_text(text, encoding="utf-8")
    found = compare_paths([tmp_path / "x.md"], assumed_noise=0.05)
    assert len(getattr(found, "tables", [])) == tables
