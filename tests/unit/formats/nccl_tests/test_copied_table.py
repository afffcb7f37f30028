# SPDX-License-Identifier: Apache-2.0
"""Copies of nccl-tests tables: Markdown, CSV, TSV, other column names and units, wrapped lines."""

import json
import textwrap
from pathlib import Path

import pytest

from nccltune.formats.importing.inputs import find_inputs, read_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.reading.titled_header import with_title
from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, points
from tests.unit.formats.reading_tools import Read, files, one, text

MADE = Made(points(8, 1024, 65536, 1 << 20, 1 << 24, 1 << 28), ranks=8)
HEAD = "\n".join(MADE.head()) + "\n"
GROUP = ["time", "algbw", "busbw", "#wrong"]
NAMES = ["size", "count", "type", "redop", "root", *GROUP, *GROUP]
ROWS = [MADE.row(point).split() for point in MADE.points]
WHOLE = text(MADE.text()).times
FIRST = [item for item in WHOLE if not item[1]]


def markdown(names: list[str], rows: list[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def separated(names: list[str], rows: list[list[str]], mark: str = ",") -> str:
    return "".join(mark.join(line) + "\n" for line in [names, *rows])


def prefixed(size: int) -> str:
    power = max((each for each in (0, 1, 2) if size % 1024**each == 0), default=0)
    return f"{size // 1024**power}{('', 'K', 'M')[power]}"


def quoted(data: str, mark: str = "> ") -> str:
    return "".join(f"{mark}{line}\n" for line in data.splitlines())


def read(tmp_path: Path, data: str) -> Read:
    path = tmp_path / "all_reduce.txt"
    path.write_text(data)
    return files(path)[0]


UNITS = ["(B)", "(elements)", "", "", "", *["(us)", "(GB/s)", "(GB/s)", ""] * 2]
GROUPS = ["", "", "", "", "", "out-of-place", "", "", "", "in-place", "", "", ""]
OWN = ["Size (B)", "Count", "Type", "RedOp", "Root"]
TIMES = ["Time (us)", "AlgBW (GB/s)", "BusBW(GB/s)", "#Wrong"]
PLACED = [f"{place} {name}" for place in ("OOP", "IP") for name in TIMES]
WHOLE_COPIES = {
    "markdown": HEAD + markdown(NAMES, ROWS),
    "markdown without a header": "Results:\n\n" + markdown(NAMES, ROWS),
    "own names": HEAD + markdown(OWN + TIMES * 2, ROWS),
    "placements in the names": HEAD + markdown(OWN + PLACED, ROWS),
    "three header lines": HEAD + markdown(GROUPS, [NAMES, UNITS, *ROWS]),
    "emphasis": markdown([f"**{name}**" for name in NAMES], [[f"`{x}`" for x in r] for r in ROWS]),
    "csv": HEAD + separated(NAMES, ROWS),
    "csv with its footer": HEAD + separated(NAMES, ROWS) + "\n".join(MADE.foot()),
    "upper case": separated([name.upper() for name in NAMES], ROWS),
    "tsv": separated(NAMES, ROWS, "\t"),
    "an empty first column": separated(["#", *NAMES], [["", *row] for row in ROWS]),
    "quotes": separated([f'"{x}"' for x in NAMES], [[f'"{x}"' for x in row] for row in ROWS]),
    "box": "\n".join(f"│ {' │ '.join(row)} │" for row in [NAMES, *ROWS]),
    "other names, aligned": "  ".join(OWN[1:] and ["Size", "Count", "Type", "Redop", "Root"])
    + "  Time  Algbw  Busbw  Wrong" * 2
    + "\n"
    + "\n".join(map(MADE.row, MADE.points)),
    "quoted": quoted(HEAD + markdown(NAMES, ROWS)),
    "quoted text": quoted(MADE.text()),
    "fenced": f"### Output\n```\n{MADE.text()}```\nThanks, all\n",
    "colours": quoted(MADE.text(), "\x1b(B\x1b[m"),
    "printed colours": quoted(MADE.text(), "^[[32m"),
    "blanks of a web page": MADE.text().replace(" ", "\u00a0"),
    "no header": "\n".join(map(MADE.row, MADE.points)),
    "only the names": " ".join(NAMES) + "\n" + "\n".join(map(MADE.row, MADE.points)),
    "tags inside rows": "".join(
        f"[1,0]<stdout>:{line.replace('  -1  ', '  -1[1,0]<stdout>:  ')}\n"
        for line in MADE.text().splitlines()
    ),
}


@pytest.mark.parametrize("name", WHOLE_COPIES)
def test_copies_of_a_whole_table_give_all_times(name: str, tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE_COPIES[name])
    assert found.report.kind is FileKind.NCCL_TESTS_TEXT
    assert (found.times, found.report.unreadable) == (WHOLE, 0)
    assert set(found.report.collectives) == {"allreduce"}
    assert {sample.ranks for sample in found.samples} == {8}


PARTS = {
    "semicolons": separated(OWN + TIMES, [row[:9] for row in ROWS], ";"),
    "prefixes": separated(["Size", *TIMES[:3]], [[prefixed(int(r[0])), *r[5:8]] for r in ROWS]),
    "bytes in prefixes": markdown(
        ["Size", "Time (us)", "busbw"], [[prefixed(int(r[0])) + "iB", r[5], r[7]] for r in ROWS]
    ),
    "thousands": separated(
        ["Size (B)", "Time (us)", "algbw"], [[f'"{int(r[0]):,}"', r[5], r[6]] for r in ROWS]
    ),
    "decimal commas": separated(
        ["Size (B)", "Time (us)", "algbw (GB/s)"],
        [[r[0], r[5].replace(".", ","), r[6].replace(".", ",")] for r in ROWS],
        ";",
    ),
    "other order": markdown(
        ["busbw (GB/s)", "Time (us)", "Note", "Size (B)"], [[r[7], r[5], "a", r[0]] for r in ROWS]
    ),
    "milliseconds": separated(
        ["Size (B)", "Time (ms)", "algbw"], [[r[0], f"{float(r[5]) / 1e3:.7g}", r[6]] for r in ROWS]
    ),
    "bits": separated(
        ["size", "time", "algbw (Gb/s)"], [[r[0], r[5], f"{float(r[6]) * 8:.2f}"] for r in ROWS]
    ),
    "a time without a name": markdown(["Size", "us"], [[r[0], r[5]] for r in ROWS]),
    "a time with a placement only": markdown(
        ["Size", "out-of-place (us)"], [[r[0], r[5]] for r in ROWS]
    ),
    "a time named in the title": "All-reduce time in us:\n\n"
    + markdown(["Size", "value"], [[r[0], r[5]] for r in ROWS]),
    "a column without any name": "Latency (us)\n\n"
    + markdown(["Size", ""], [[r[0], r[5]] for r in ROWS]),
    "milliseconds of the title": "mean of 20 calls, ms:\n"
    + separated(["Size", "mean"], [[r[0], f"{float(r[5]) / 1e3:.7g}"] for r in ROWS]),
    "names on two lines": "Message  Time   Algbw\nSize (B)  (us)   (GB/s)\n"
    + "\n".join(f"{r[0]}  {r[5]}  {r[6]}" for r in ROWS),
    "a name with a line break": markdown(
        ["Message\n Size (B)", "Time (us)", "algbw"], [[r[0], r[5], r[6]] for r in ROWS]
    ),
    "names in two rows": markdown(
        ["Message", "Mean", "algbw"],
        [["Size (B)", "call time (us)", "(GB/s)"], *([r[0], r[5], r[6]] for r in ROWS)],
    ),
    "two columns": separated(["bytes", "latency_us"], [[r[0], r[5]] for r in ROWS]),
    "one placement": "# size count type redop root time algbw busbw #wrong\n"
    + "\n".join("  ".join(row[:9]) for row in ROWS),
    "thousands of a time that the bandwidth shows": separated(
        ["Size", "Time (us)", "algbw"],
        [[r[0], f'"{float(r[5]):,.0f}"' if float(r[5]) > 999 else r[5], r[6]] for r in ROWS],
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_copies_of_one_placement_give_its_times(name: str, tmp_path: Path) -> None:
    found = read(tmp_path, PARTS[name])
    assert [time for *_, time in found.times] == pytest.approx(
        [time for *_, time in FIRST], rel=1e-3
    )
    assert [size for size, *_ in found.times] == [size for size, *_ in FIRST]
    assert found.report.unreadable == 0


REFUSED = {
    "rows of several tests": (
        separated(
            ["GPUs", "Size", "Time (us)"],
            [[number, r[0], r[5]] for number in ("2", "4") for r in ROWS],
        ),
        "rows differ in the column 'GPUs'",
    ),
    "rows of several modes": (
        separated(
            ["mode", "size_bytes", "time_us"],
            [[mode, r[0], r[5]] for mode in ("off", "basic") for r in ROWS],
        ),
        "rows differ in the column 'mode'",
    ),
    "an unnamed unit": (
        separated(["Size", "Time", "algbw"], [[r[0], f"{float(r[5]) / 1e3}", r[6]] for r in ROWS]),
        "a column has another unit or meaning than its name",
    ),
    "no unit at all": (
        separated(["Size", "Latency", "x"], [[r[0], r[5], "1"] for r in ROWS]),
        "names no unit of time",
    ),
    "exchanged columns": (
        markdown(["Size", "busbw", "algbw", "Time (us)"], [[r[0], r[6], r[7], r[5]] for r in ROWS]),
        "algbw is",
    ),
    "two times": (
        markdown(["Size", "Time (us)", "time_us"], [[r[0], r[5], r[9]] for r in ROWS]),
        "2 columns are times",
    ),
    "named runs without a unit": (
        markdown(["Size", "Ring time", "Tree time"], [[r[0], r[5], r[9]] for r in ROWS]),
        "no column is known to be the time of a call (not known: Ring time, Tree time)",
    ),
    **{
        f"no runs: {' '.join(names)}": (
            markdown(["Size", *names], [[r[0], r[5], r[9]] for r in ROWS]),
            "no column is known to be the time of a call",
        )
        for names in (
            ("min time (us)", "p99 time (us)"),
            ("CPU (us)", "GPU (us)"),
            ("8 GPUs send (us)", "16 GPUs send (us)"),
            ("all_gather part (us)", "reduce part (us)"),
            ("measured (us)", "predicted (us)"),
            ("A (us)", "A (us)"),
            ("1 (us)", "2 (us)"),
        )
    },
    "no time": (
        markdown(["Size", "GB/s of a", "GB/s of b"], [[r[0], r[7], r[11]] for r in ROWS]),
        "name it 'algbw (GB/s)' or 'busbw (GB/s)'",
    ),
    "one comma": (
        separated(["Size", "Time (us)"], [[r[0], '"1,234"'] for r in ROWS]),
        "has two meanings",
    ),
    "a missing cell": (
        markdown(NAMES, [row[:-1] for row in ROWS]),
        "12 cells where the header names 13",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_unclear_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    data, reason = REFUSED[name]
    found = read(tmp_path, data)
    assert found.samples == []
    assert reason in found.reasons[0]
    assert found.report.first_unreadable[0].line > 0


@pytest.mark.parametrize(
    ("sizes", "read_as"),
    [
        (("0.12", "0.25"), [1 << 17, 1 << 18]),
        (("0.10", "0.12"), [100_000, 120_000]),
        (("1.10", "1.50", "3.00"), [round(1.1 * 2**20), 3 << 19, 3 << 20]),
    ],
)
def test_rounded_sizes_are_powers_of_two_together_or_as_printed(
    sizes: tuple[str, ...], read_as: list[int], tmp_path: Path
) -> None:
    found = read(
        tmp_path, separated(["size(MB)", "time (us)"], [[size, "227.7"] for size in sizes])
    )
    assert [sample.bytes for sample in found.samples] == read_as
    assert found.report.unreadable == len(sizes) - len(read_as)


ROUNDED = ["size(MB)", "time (us)", "algbw"]
MB_ROWS = [[str(size), f"{size * 40.0}", "25.00", "43.75"] for size in (1, 10, 100)]
TWO_SIZES = [[row[0], str(int(row[0]) / 1024), row[5], row[6]] for row in ROWS]
TIMED_ROWS = [(int(row[0]), float(row[5])) for row in ROWS]
OTHER = "| Size | at best | LL | Simple |\n|---|---|---|---|\n| 65536 | 4371 (LL) | 43 | 44 |\n"
POINTS = {
    "decimal prefixes, by the bandwidth": (
        separated(["Size (MB)", "Time (us)", "algbw", "busbw"], MB_ROWS),
        [(10**6, 40.0), (10**7, 400.0), (10**8, 4000.0)],
    ),
    "rounded decimal prefixes": (
        separated(ROUNDED, [["0.10", "100", "1.00"], ["0.30", "100", "3.00"]]),
        [(100_000, 100.0), (300_000, 100.0)],
    ),
    "rounded binary prefixes": (
        separated(ROUNDED, [["0.10", "100", "1.05"], ["0.30", "100", "3.15"]]),
        [(104_858, 100.0), (314_573, 100.0)],
    ),
    "numbered repeats": (
        separated(["run", "size", "time_us"], [[n, r[0], r[5]] for n in "12" for r in ROWS]),
        TIMED_ROWS * 2,
    ),
    "a point that one column lacks": (
        markdown(["size", "A (us)", "B (us)"], [["1K", "12.3", "-"], ["2K", "13.1", "11.5"]]),
        [(1024, 12.3), (2048, 13.1), (2048, 11.5)],
    ),
    "a size in two units": (
        markdown(["Size (B)", "Size (KB)", "Time (us)", "algbw"], TWO_SIZES), TIMED_ROWS,
    ),
    "one cell shows that commas mark thousands": (
        markdown(["size", "LL (us)", "x (us)"], [["1K", "4,372", "9"], ["2K", "1,118,289", "9"]]),
        [(1024, 4372.0), (2048, 1118289.0), (1024, 9.0), (2048, 9.0)],
    ),
    "the names of another table end it": (
        markdown(["size", "time (us)"], [[r[0], r[5]] for r in ROWS]) + OTHER, TIMED_ROWS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
def test_sizes_and_times_of_a_copy(name: str, tmp_path: Path) -> None:
    data, expected = POINTS[name]
    found = read(tmp_path, data)
    assert [(item.bytes, item.time_us) for item in found.samples] == expected
    assert found.report.unreadable == 0
    said = " ".join(item.sentence for item in found.report.flags)
    assert "up to 5 % off" in said or name != "rounded binary prefixes"


def test_several_tables_in_one_paste_are_runs_of_their_own(tmp_path: Path) -> None:
    found = read(tmp_path, f"Before:\n{markdown(NAMES, ROWS)}\nAfter:\n{markdown(NAMES, ROWS)}")
    assert found.report.tables == 2
    assert found.times == WHOLE * 2


COLUMNS = {
    "algorithms": ("Ring (us)", "Tree (us)", {"NCCL_ALGO=Ring", "NCCL_ALGO=Tree"}, False),
    "protocols": (
        "LL time (us)",
        "Simple time (us)",
        {"NCCL_PROTO=LL", "NCCL_PROTO=Simple"},
        False,
    ),
    "choices": ("default [us]", "tree/ll128 [us]", {"default", "tree/ll128"}, False),
    "collectives": ("all_reduce (us)", "all_gather (us)", {"default"}, False),
    "scales": ("8 GPUs (us)", "16 GPUs (us)", {"default"}, False),
    "words": ("before_us", "after_us", {"default"}, True),
    "versions": ("NCCL 2.18 (us)", "NCCL 2.20 (us)", {"default"}, True),
    "one choice": ("Ring old (us)", "Ring new (us)", {"NCCL_ALGO=Ring"}, True),
    "settings": ("BASE (us)", "MAX16 (us)", {"default"}, True),
    "repeats": ("run 1 (us)", "run 2 (us)", {"default"}, False),
}


@pytest.mark.parametrize("form", ["markdown", "csv", "blanks"])
@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_of_times_is_a_run(name: str, form: str, tmp_path: Path) -> None:
    *names, labels, apart = COLUMNS[name]
    rows = [[r[0], r[5], r[9], "-1.5"] for r in ROWS]
    header = ["size (B)", *map(str, names), "diff (us)"]
    if form == "blanks":
        header, rows = [word.replace(" ", "") for word in header[:3]], [row[:3] for row in rows]
        if name == "repeats":
            header[1:] = ["run1(us)", "run2(us)"]
    data = markdown(header, rows) if form == "markdown" else None
    found = read(tmp_path, data or separated(header, rows, "," if form == "csv" else "  "))
    assert [item.time_us for item in found.samples] == [
        float(row[at]) for at in (1, 2) for row in rows
    ]
    assert found.report.rows == len(rows)
    if form != "blanks":
        assert found.labels == labels
        inputs = find_inputs([tmp_path / "all_reduce.txt"])
        runs = [
            batch.run
            for reading in read_inputs(inputs, ReadOptions(study="made"))
            for batch in reading.batches()
        ]
        assert len({run.facts.conditions for run in runs}) == (2 if apart else 1)
        assert len({run.place for run in runs}) == 2


def test_headings_with_a_setting_are_no_runs_of_the_default() -> None:
    rows = "\n".join(map(MADE.row, MADE.points))
    found = text(f"### ALGO=Ring size=1024\n{rows}\n### ALGO=Ring PROTO=LL\n{rows}\n")
    assert found.labels == {"NCCL_ALGO=Ring", "ring/ll"}
    title = f"# DEFAULT vs NCCL_PROTO=Simple\n\n## A: DEFAULT\n{MADE.text()}"
    assert text(title).labels == {"default"}
    other = f"# DEFAULT vs NCCL_PROTO=Simple\n\n{MADE.text()}"
    assert text(other).labels == set()


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("at_words", [False, True])
@pytest.mark.parametrize("width", [60, 64, 72, 80, 88, 96, 100, 110])
def test_wrapped_lines_are_joined(width: int, at_words: bool, strip: bool) -> None:
    lines = []
    for line in MADE.text().splitlines():
        pieces = [line[at : at + width] for at in range(0, max(1, len(line)), width)]
        if at_words:
            whole = {"break_long_words": False, "break_on_hyphens": False}
            pieces = textwrap.wrap(line, width, **whole) or [""]  # type: ignore[arg-type]
        lines += [piece.rstrip() for piece in pieces] if strip else pieces
    found = text("\n".join(lines) + "\n")
    assert (found.times, found.report.unreadable) == (WHOLE, 0)
    assert found.report.gpu == "NVIDIA H200"


def test_times_are_computed_from_the_algorithm_bandwidth() -> None:
    rows = [["1MiB", "17.13GBps", "8.84GBps"], ["1GiB", "94.15GBps", "48.59GBps"]]
    rows.append(["32KiB", "0.92GBps", "0.48GBps"])
    read = text("### all_reduce benchmark\n" + markdown(["payload", "busbw", "algbw"], rows))
    assert [(item.bytes, round(item.time_us, 2)) for item in read.samples] == [
        (1 << 20, 118.62),
        (1 << 30, 22098.0),
    ]
    assert read.reasons == ["no time, and a bandwidth of too few digits for one"]
    assert read.sentence("note") == "times are computed from algbw"


def test_the_only_column_like_a_time_is_the_time_if_a_bandwidth_agrees() -> None:
    names = ["Msg Size", "Baseline (1 GPU)", "NCCL Time", "Algo BW", "Efficiency"]
    rows = [["100 MB", "7.0 ms", "8.0 ms", "12.5 GB/s", "44%"]]
    (sample,) = text("# NCCL AllReduce\n" + markdown(names, rows)).samples
    assert (sample.bytes, sample.time_us) == (100_000_000, 8000.0)
    without = text(markdown([*names[:3], "Efficiency"], [[*row[:3], row[4]] for row in rows]))
    assert without.samples == []


RATES = [[row[0], row[7], row[11]] for row in ROWS[2:]]


@pytest.mark.parametrize("mark", ["|", ","])
@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["size", "busbw"], {"default"}),
        (["size", "out-of-place busbw", "in-place busbw"], {"default"}),
        (["size", "Ring busbw (GB/s)", "Tree busbw (GB/s)"], {"NCCL_ALGO=Ring", "NCCL_ALGO=Tree"}),
        (["size", "before_busbw_gbps", "after_busbw_gbps"], {"default"}),
    ],
)
def test_times_are_computed_from_the_bus_bandwidth(
    names: list[str], labels: set[str], mark: str, tmp_path: Path
) -> None:
    rows = [row[: len(names)] for row in RATES]
    data = separated(names, rows) if mark == "," else markdown(names, rows)
    found = read(tmp_path, data + "World Size: 8\n" if mark == "x" else f"World Size: 8\n\n{data}")
    assert found.labels == labels
    got = {(item.bytes, item.time_us) for item in found.samples}
    printed = {(size, time) for size, _, time, *_ in WHOLE if size > 1024}
    assert len(got) == len(rows) * (len(names) - 1)
    for size, time_us in got:
        assert any(size == other and abs(time_us / time - 1) < 0.02 for other, time in printed)


def test_a_bus_bandwidth_of_an_unknown_number_of_ranks_asks_for_it() -> None:
    found = text("# all_reduce\n" + separated(["size", "busbw"], [row[:2] for row in RATES]))
    assert found.samples == []
    assert found.sentence("ranks_needed") == (
        "the time of a busbw needs the number of ranks: give --ranks"
    )
    rooted = text("# broadcast\n" + separated(["size", "busbw"], [row[:2] for row in RATES]))
    assert [item.time_us for item in rooted.samples] == [
        int(size) / (float(rate) * 1e3) for size, rate, _ in RATES
    ]


def test_columns_name_their_collective_and_their_ranks() -> None:
    names = ["size", "all_reduce busbw", "all_gather busbw"]
    found = text("World Size: 4\n\n" + markdown(names, RATES))
    assert {item.collective.value for item in found.samples} == {"allreduce", "allgather"}
    scales = text("# all-reduce\n" + markdown(["size", "4 GPUs busbw", "2xH100 busbw"], RATES))
    assert [item.ranks for item in scales.samples] == [4] * len(RATES) + [2] * len(RATES)


def test_both_bandwidths_show_the_number_of_ranks_as_far_as_they_are_exact() -> None:
    rows = [["1 GiB", "386.55", "761.03"], ["2 GiB", "416.32", "819.63"]]
    exact = text("# all-reduce\n" + markdown(["size", "algbw (GB/s)", "busbw (GB/s)"], rows))
    assert {item.ranks for item in exact.samples} == {64}
    rough = [["1 GiB", "8.41", "16.7"], ["2 GiB", "8.56", "17.1"]]
    found = text("# all-reduce\n" + markdown(["size", "algbw (GB/s)", "busbw (GB/s)"], rough))
    assert {item.ranks for item in found.samples} == {None}
    assert "bandwidth_mismatch" not in found.flags


def test_times_by_a_rounded_bandwidth_leave_the_ranks_of_the_title_within_rounding() -> None:
    rows = [["1", "0.31", "27.1", "52.4"], ["64", "1.92", "279.6", "541.8"]]
    names = ["size (MB)", "time (ms)", "algbw (Gbps)", "busbw (Gbps)"]
    found = text("all_reduce, 4 nodes x 8 A100 (32 GPUs), HDR\n" + markdown(names, rows))
    assert {(item.nodes, item.ranks) for item in found.samples} == {(4, 32)}


@pytest.mark.parametrize(
    ("title", "ranks"),
    [
        ("## 2 nodes, 8x A100 each", (8, 16)),
        ("We run on 2 nodes, 8x A100 each. Results all_reduce_perf:", (8, 16)),
        ("## 8 GPUs per node", (8, 16)),
        ("## 2 nodes x 4 GPUs", (4, 8)),
        ("## 2 nodes, 16 GPUs", (None, 16)),
    ],
)
def test_a_column_of_a_number_of_nodes_has_the_ranks_of_those(
    title: str, ranks: tuple[int | None, int]
) -> None:
    names = ["size", "1 node time (us)", "2 nodes time (us)"]
    found = text(f"{title}\n# all_reduce\n" + markdown(names, [["1048576", "100", "120"]]))
    assert tuple(item.ranks for item in found.samples) == ranks


def test_the_only_time_beside_other_bandwidths_is_that_of_its_heading() -> None:
    names = ["size", "LL time (us)", "LL busbw", "Simple busbw"]
    found = text(
        "World Size: 2\n# all-reduce\n" + markdown(names, [["1048576", "100.0", "10.49", "5.243"]])
    )
    assert {(item.choice, round(item.time_us)) for item in found.samples} == {
        ("NCCL_PROTO=LL", 100),
        ("NCCL_PROTO=Simple", 200),
    }


@pytest.mark.parametrize(
    ("title", "line", "named"),
    [
        ("## All-reduce time (us)", "| Size | Ring | Tree |", "|Ring time (us)|Tree time (us)|"),
        ("Bus bandwidth [GB/s]:", "size,new,old", "size,new Bus bandwidth (GB/s),old Bus"),
        ("**busbw in steady state (GB/s)**", "Size (MB)\tH100", "Size (MB)\tbusbw (GB/s)"),
        ("Latency (ms)", "| Size | Latency | Speedup |", None),
        ("TP=4 (latency us)", "| Size | a | b |", "|a latency (us)|b latency (us)|"),
        ("Table 1 (busbw in GB/s)", "| Size | a |", "|Size|busbw (GB/s)|"),
        ("latency by us (all times in ms):", "| Size | a | b |", "|a times (ms)|b times (ms)|"),
        ("Bandwidth (GB/s)", "| Size | Ring | Tree |", None),
        ("Bus bandwidth (percent)", "| Size | Ring | Tree |", None),
        ("Time (us)", "| Size | Ring (us) | Tree (us) |", None),
        ("busbw (GB/s)", "| Size | A (GB/s) | B (GB/s) |", "|Size|A busbw (GB/s)|B busbw (GB/s)|"),
        ("busbw (Gb/s)", "| Size | A (GB/s) | B (GB/s) |", None),
        ("Time (us)", "| 1024 | 12.1 | 13.2 |", None),
        ("Time (us)", "We measured it, twice", None),
    ],
)
def test_a_title_names_the_measure_of_columns(title: str, line: str, named: str | None) -> None:
    assert (named or line) in with_title(line, title)


@pytest.mark.parametrize(
    ("line", "row", "named"),
    [
        ("size\tNCCL\tgloo", "1KB\t0.16ms\t0.039ms", "size\tNCCL (ms)\tgloo (ms)"),
        ("| Size | Ring | Tree |", "| 1 KiB | 12.1 us | 13 us |", "|Size|Ring (us)|Tree (us)|"),
        ("Size,Time,new", "1K,12,13.5\u00b5s", "Size,Time,new (\u00b5s)"),
        ("Size;a;speed-up", "1K;1.2MS;1.5x", "Size;a (MS);speed-up"),
        ("Size    a    b", "1K    12us    13 us", "Size  a (us)  b (us)"),
        ("| Size | a (us) |", "| 1K | 12 us |", "|Size|a (us)|"),
        ("| 1K | 12.1 us |", "| 2K | 13 us |", "| 1K | 12.1 us |"),
        ("Size,a", "it, took 12 us", "Size,a"),
        ("Size,a", "1K,12,13us", "Size,a"),
        ("Size,a", "1K,12 GB/s", "Size,a"),
    ],
)
def test_the_first_row_has_the_units_of_columns(line: str, row: str, named: str) -> None:
    assert with_title(line, "Bandwidth, and", ["|---|---|", row]) == named
    assert with_title(line, "", [row, "2K,13us"]) == named


def test_columns_of_other_libraries_are_runs_of_their_own() -> None:
    table = "size\tNCCL\tgloo\n1KB\t0.16ms\t0.039ms\n256KB \t0.13ms\t20.161ms\n"
    read = text(table, collective=Collective.ALLREDUCE)
    assert read.times == [
        (1024, False, 160.0), (262144, False, 130.0), (1024, False, 39.0), (262144, False, 20161.0),
    ]  # fmt: skip
    table = "| Size (MB) | UCC (us) | OMPI (us) |\n|--:|--:|--:|\n| 1 | 2 287.61 | \u2014 |\n"
    read = text(table, collective=Collective.ALLREDUCE)
    assert read.times == [(1 << 20, False, 2287.61)]


def test_a_table_whose_title_has_the_unit_is_read(tmp_path: Path) -> None:
    table = (
        "## All-reduce latency (us), 2 nodes x 8 GPUs\n\n| Size | Ring | Tree |\n|---|---|---|\n"
    )
    rows = "".join(f"| {1 << at}K | {10 << at} | {12 << at} |\n" for at in range(4))
    found = one(tmp_path, table + rows)
    assert (found.report.error, found.report.tables) == (None, 1)
    assert {(item.nodes, item.ranks) for item in found.samples} == {(2, 16)}
    assert [item.time_us for item in found.samples][:4] == [10, 20, 40, 80]


@pytest.mark.parametrize(
    ("heading", "label"),
    [
        ("### all_reduce / ring (NCCL_ALGO=RING)", "NCCL_ALGO=Ring"),
        ("# Configuration B (NCCL_PROTO=Simple)", "NCCL_PROTO=Simple"),
        ("# B (NCCL_ALGO=Ring, NCCL_PROTO=LL)", "ring/ll"),
        ("// Ring", "NCCL_ALGO=Ring"),
        ("**NVLSTree**", "nvls_tree/simple"),
        *((f"**{x}**", "NCCL_ALGO=Ring") for x in ("RING:", "RING :", "Ring")),
        *((x, "NCCL_ALGO=Ring") for x in ("## NCCL Ring -", "Ring:", "Ring :", "NCCL Ring -")),
        ("[Ring + LL]", "ring/ll"),
        *((x, "default") for x in ("Ring bus:", "Ring or tree:", "all reduce (ring vs tree)")),
        *((x, "NCCL_ALGO=Ring") for x in ("Ring AllReduce:", "Reducescatter (H100: ring)")),
        ("# with Ring + LL algorithm:", "ring/ll"),
        ("// default", "default"),
        ("## Ring of friends", "default"),
        ("## Part 3: Forced Ring/LL - slow", "ring/ll"),
        ("## Ring/LL against Tree/LL", "default"),
        ("## Default, not Ring/LL", "default"),
        ("### all_reduce (NCCL_NVLS_ENABLE=1)", "default"),
        ("B and C add `-x NCCL_PROTO=Simple` and `-x NCCL_PROTO=LL`", "default"),
    ],
)
def test_the_heading_of_a_section_names_its_choice(heading: str, label: str) -> None:
    before = f"### all_reduce (NCCL_ALGO=TREE)\n{MADE.text()}\n"
    found = text(
        f"{before}{heading}\n{MADE.text()}" if heading[0] in "#/*" else f"{heading}\n{MADE.text()}"
    )
    assert found.labels - {"NCCL_ALGO=Tree"} == {label}


def test_an_export_in_another_section_leaves_the_default_in_doubt() -> None:
    found = text(f"## A script\nexport NCCL_ALGO=Ring\n## Output\n{MADE.text()}")
    assert found.labels == {"default"}
    assert "line 2 names NCCL_ALGO=Ring under another heading" in found.sentence(
        "choice_unconfirmed"
    )


def test_an_output_inside_a_json_log_line_is_read() -> None:
    found = text(f"Start\n{json.dumps({'level': 'fatal', 'output': MADE.text()})}\n")
    assert found.times == WHOLE
