# SPDX-License-Identifier: Apache-2.0
"""Every layout of nccl-tests' text reads back as printed."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.reading.file_report import FileKind
from nccltune.model.collective import Collective
from tests.unit.formats.maker import (
    OLD_COLUMNS,
    REDUCING,
    ROOTED,
    Made,
    Point,
    old_time,
    points,
    without_devices,
)
from tests.unit.formats.reading_tools import Read, text

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 26)


def expected(made: Made) -> list[tuple[int, bool, float]]:
    """Return the times as printed."""
    shown = (lambda us: float(old_time(us))) if made.era != "2.17" else (lambda us: us)
    return [
        (point.size, in_place, shown(time))
        for point in made.points
        for in_place, time in ((False, point.out_us), (True, point.in_us))
        if point.size
    ]


def check(made: Made, name: str = "out.txt") -> Read:
    read = text(made.text(), name)
    assert read.report.kind is FileKind.NCCL_TESTS_TEXT
    assert read.report.unreadable == 0, read.report.first_unreadable
    assert read.times == expected(made)
    sizes = [point.size for point in made.points]
    # Sizes that go back and forth are those of several runs.
    assert read.doubtful <= ({"note"} if sizes != sorted(sizes) else set())
    assert {sample.collective for sample in read.samples} <= {made.collective}
    assert {sample.ranks for sample in read.samples} <= {made.ranks}
    assert {sample.nodes for sample in read.samples} <= {len(made.hosts)}
    return read


@pytest.mark.parametrize("collective", list(OLD_COLUMNS))
@pytest.mark.parametrize("type_width", [6, 8])
def test_old_layouts(collective: Collective, type_width: int) -> None:
    made = Made(points(*SIZES), collective, era="old", ranks=8, type_width=type_width)
    read = check(made, f"{collective}_8xA100.txt")
    sample = read.samples[0]
    assert sample.redop == ("sum" if collective in REDUCING else None)
    assert sample.root == (0 if collective in ROOTED else None)
    assert sample.wrong == 0
    assert sample.iterations == 20


@pytest.mark.parametrize("collective", list(OLD_COLUMNS))
def test_layout_of_2_13(collective: Collective) -> None:
    made = Made(points(*SIZES), collective, era="2.13", ranks=8)
    read = check(made, f"x/{collective}.txt")
    assert read.samples[0].root == (0 if collective in ROOTED else None)


@pytest.mark.parametrize("collective", list(Collective))
def test_layout_since_2_17(collective: Collective) -> None:
    read = check(Made(points(*SIZES), collective, ranks=8))
    assert read.report.collectives == {collective.value: 8}
    assert read.samples[0].source.version == "2.19.6"
    assert read.samples[0].source.nccl_version == "2.28.9"


def test_hypercube_prints_an_empty_reduction() -> None:
    made = Made(points(1 << 20), Collective.HYPERCUBE, ranks=8)
    assert "none" not in made.row(made.points[0])
    assert check(made).samples[0].redop is None


@pytest.mark.parametrize("extra", [(), ("bitwise",), ("bitwise", "mismatch")])
@pytest.mark.parametrize("stamps", [False, True])
@pytest.mark.parametrize("per_iteration", [False, True])
def test_more_columns(extra: tuple[str, ...], stamps: bool, per_iteration: bool) -> None:
    made = Made(points(*SIZES), extra=extra, stamps=stamps, per_iteration=per_iteration)
    read = check(made)
    assert read.samples[0].at == ("2026-11-21T03:06:00" if stamps else None)


def test_columns_are_named_and_not_counted() -> None:
    # The groups are swapped: the line above the names labels them.
    lines = Made((Point(4096, 20.0, 30.0),)).lines()
    swapped = [
        line.replace("out-of-place", "@")
        .replace("in-place", "out-of-place")
        .replace("@", "in-place")
        for line in lines
    ]
    read = text("\n".join(swapped))
    assert read.times == [(4096, True, 20.0), (4096, False, 30.0)]


@pytest.mark.parametrize(
    ("era", "collective"),
    [("2.17", Collective.ALLREDUCE), ("2.13", Collective.ALLGATHER)]
    + [("old", collective) for collective in OLD_COLUMNS],
)
def test_without_the_placement_line_the_first_columns_are_out_of_place(
    era: str, collective: Collective
) -> None:
    made = Made(points(*SIZES), collective, era)
    lines = [line for line in made.lines() if "out-of-place" not in line]
    read = text("\n".join(lines), collective=collective)
    assert read.times == expected(made)
    assert read.report.unreadable == 0
    assert "no line above the table" in read.sentence("note")


def test_two_equal_placements_are_an_error() -> None:
    data = Made(points(4096)).text().replace("out-of-place", "    in-place")
    read = text(data)
    assert read.samples == []
    assert read.report.unreadable == 2


@pytest.mark.parametrize(
    ("era", "collective"),
    [("2.17", Collective.ALLREDUCE), ("2.13", Collective.BROADCAST)]
    + [("old", item) for item in (Collective.ALLREDUCE, Collective.BROADCAST, Collective.REDUCE)],
)
def test_without_the_line_of_labels_the_units_and_the_row_give_the_columns(
    era: str, collective: Collective
) -> None:
    made = Made(points(*SIZES), collective, era)
    lines = [line for line in made.lines() if "size " not in line and "out-of-place" not in line]
    read = text("\n".join(lines), collective=collective)
    assert read.times == expected(made)
    assert "no line names the table's columns" in " ".join(
        flag.sentence for flag in read.report.flags
    )


def test_a_header_without_comment_signs() -> None:
    made = Made(points(*SIZES))
    header = made.columns()
    data = "\n".join(line.replace("#", " ", 1) if line in header else line for line in made.lines())
    read = text(data)
    assert read.times == expected(made)
    assert read.report.unreadable == 0


@pytest.mark.parametrize("dots", ["...", "  ...", ". . .", "[...]", "\u2026", "<snip>"])
def test_rows_that_were_left_out_do_not_make_the_others_doubtful(dots: str) -> None:
    made = Made(points(*SIZES))
    lines = made.lines()
    lines[lines.index(made.row(made.points[1]))] = dots
    read = text("\n".join(lines))
    assert len(read.times) == 2 * (len(SIZES) - 1)
    assert read.report.unreadable == 0
    assert read.doubtful == set()
    assert "left out" in read.sentence("note")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("type", "    ", "names no size, count, type or time"),
        ("algbw", "     ", "a time column without its bandwidths"),
        ("(us)", "(ms)", "the units line has no (us)"),
        ("(GB/s)", "(MB/s)", "the units line has no (GB/s)"),
        ("type", "kind", "names no size, count, type or time"),
        ("root", "from", "unknown column before the times"),
    ],
)
def test_rows_below_names_that_are_not_read_say_so(old: str, new: str, reason: str) -> None:
    read = text(Made(points(*SIZES)).text().replace(old, new))
    assert read.samples == []
    assert reason in read.reasons[0]
    assert "no line above the row names them, or it was not read" in read.reasons[1]
    assert len(set(read.reasons)) == 2


@pytest.mark.parametrize("bar", [" | ", "|", " || ", "    "])
def test_tables_side_by_side_are_refused(bar: str) -> None:
    made = Made(points(*SIZES))
    shown = {*made.columns(), *map(made.row, made.points)}
    read = text("\n".join(line + bar + line if line in shown else line for line in made.lines()))
    assert read.samples == []
    assert "which column is which is unknown" in read.reasons[1]


def test_size_0_is_counted_and_no_sample() -> None:
    made = Made((Point(0, 12.0, 12.5), Point(0, 12.1, 12.2), *points(4096)))
    read = check(made)
    assert read.report.rows == 3
    assert read.report.rows_size_0 == 2
    assert len(read.samples) == 2


def test_unchecked_results_are_not_wrong() -> None:
    made = Made((Point(4096, 20.0, 21.0, wrong=None),))
    assert [sample.wrong for sample in check(made).samples] == [None, None]


def test_cpu_times_are_not_times() -> None:
    made = Made((Point(1 << 10, 50.0, 50.0), Point(1 << 26, 500.0, 510.0)), cpu_time=True)
    read = text(made.text())
    # 1 KiB in 50 us is 0.02 GB/s: too few digits to derive the time from.
    assert [sample.bytes for sample in read.samples] == [1 << 26, 1 << 26]
    assert read.samples[0].time_us == pytest.approx(500.0, rel=1e-3)
    assert read.report.unreadable == 2
    assert "cpu_time" in read.flags


def test_old_error_column_is_a_difference_and_not_a_count() -> None:
    base = Made((Point(4096, 20.0, 21.0),), era="old", ranks=4).text()
    assert text(base.replace("0e+00", "5e-06"), "allreduce.txt").samples[0].wrong == 0
    assert text(base.replace("0e+00", "5e-01"), "allreduce.txt").samples[0].wrong == 1
    # nccl-tests allows 1e-5 of a float for each rank that is added.
    assert text(base.replace("0e+00", "2e-05"), "allreduce.txt").samples[0].wrong == 0
    assert text(base.replace("0e+00", "4e-05"), "allreduce.txt").samples[0].wrong == 1


@pytest.mark.parametrize(
    ("collective", "wrong"),
    [(Collective.SENDRECV, None), (Collective.ALLTOALL, None), (Collective.GATHER, 1)],
)
def test_old_releases_check_in_place_what_has_no_in_place(
    collective: Collective, wrong: int | None
) -> None:
    made = Made(points(1 << 20, 1 << 21), collective, era="old", ranks=2)
    lines = made.text().splitlines(keepends=True)
    table = "".join(
        re.sub(r"(0e\+00|N/A)\s*$", "3e+02\n", line) if line.split()[0].isdecimal() else line
        for line in lines
    )
    read = text(table, f"{collective}.txt")
    assert [one.wrong for one in read.samples] == [0, wrong] * 2
    assert ("wrong_results" in read.doubtful) is bool(wrong)


def test_an_error_counts_also_where_only_the_rows_show_the_ranks() -> None:
    lines = Made(points(1 << 20, 1 << 21), era="old", ranks=4).text().splitlines(keepends=True)
    table = "".join(line for line in lines if line.split()[0].isdecimal() or "size" in line)
    table = "mpirun -np 4 ./all_reduce_perf -g 1\n" + table
    wrong = text(table.replace("0e+00", "3e+00"))
    assert [sample.wrong for sample in wrong.samples] == [1, 1, 1, 1]
    assert "wrong_results" in wrong.doubtful
    near = text(table.replace("0e+00", "3e-05"))
    assert [sample.wrong for sample in near.samples] == [0, 0, 0, 0]
    # No number of ranks allows that an element is not what it should be at all.
    alone = text(table.partition("\n")[2].replace("0e+00", "1e+02"), "allreduce.txt")
    assert all(sample.wrong for sample in alone.samples)


def test_times_that_no_call_can_have_are_no_bandwidths() -> None:
    made = Made((Point(1 << 20, 571.5, 0.5), Point(1 << 26, 29605.0, 0.21)), ranks=16)
    read = text(made.text())
    assert [sample.time_us for sample in read.samples if sample.in_place] == []
    assert len(read.samples) == 2
    assert "impossible" in read.doubtful
    (said,) = [flag.sentence for flag in read.report.flags if flag.kind == "impossible"]
    assert said.startswith("599,")
    assert "1,800 GB/s" in said
    # 8 ranks with a reduction in the switch: above a link, and possible.
    assert "impossible" not in text(Made((Point(1 << 30, 800.0, 800.0),)).text()).doubtful


def test_a_number_with_an_underscore_is_none() -> None:
    made = Made((Point(4096, 20.0, 21.0), Point(8192, 30.0, 31.0)))
    whole = made.text()
    assert whole.count(" 30.00 ") == 1
    read = text(whole.replace(" 30.00 ", " 3_0.0 "))
    assert [sample.bytes for sample in read.samples] == [4096, 4096]
    assert read.report.unreadable == 1


def test_cycles_are_rounds_of_their_run() -> None:
    made = Made(points(4096, 8192) * 3)
    read = check(made)
    rounds = [sample.round for sample in read.samples if sample.bytes == 8192]
    assert rounds == [0, 0, 1, 1, 2, 2]
    twice = text(made.text() + made.text())
    assert [sample.round for sample in twice.samples if sample.bytes == 8192] == 2 * rounds
    assert twice.report.tables == 2


def test_graphs_count_as_registered() -> None:
    sample = check(Made(points(4096), graph=5, iterations=10)).samples[0]
    assert (sample.graph, sample.registered, sample.iterations) == (True, True, 50)


def test_grouped_operations_are_flagged() -> None:
    assert "aggregated" in check(Made(points(4096), aggregated=4)).flags


def test_several_collectives_in_one_file() -> None:
    parts = [
        Made(points(1 << 16), Collective.ALLREDUCE),
        Made(points(1 << 16), Collective.ALLGATHER, era="2.13"),
        Made(points(1 << 16), Collective.BROADCAST, era="old"),
    ]
    read = text("junk\n".join(part.text() for part in parts), "all_gather.txt")
    assert read.report.collectives == {"allreduce": 2, "allgather": 2, "broadcast": 2}
    assert read.report.tables == 3


def test_split_groups_are_communicators_of_their_own() -> None:
    made = Made(points(1 << 16), ranks=8, hosts=("a", "b"), groups=(0, 1) * 4, one_process=False)
    # Each group has four ranks on two hosts; the table is that of rank 0's group.
    shown = made.with_(ranks=4).lines()
    head = [line for line in made.lines() if "Rank" in line]
    lines = [line for line in shown if "Rank" not in line]
    at = lines.index("# Using devices") + 1
    read = text("\n".join(lines[:at] + head + lines[at:]))
    assert read.report.scales == {"2x4": 2}
    assert read.doubtful == set()


times = st.floats(1.0, 9000.0).map(lambda value: round(value, 2))
rows = st.lists(
    st.builds(
        Point,
        st.integers(1, 1 << 22).map(lambda size: size * 512),
        times,
        times,
        st.sampled_from([0, None]),
    ).filter(lambda row: row.size < 1.9e6 * min(row.out_us, row.in_us)),  # else impossible
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    rows,
    st.sampled_from(sorted(OLD_COLUMNS)),
    st.sampled_from(["old", "2.13", "2.17"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([2, 8]),
)
def test_any_table_reads_back(
    shown: list[Point],
    collective: Collective,
    era: str,
    stamps: bool,
    per_iteration: bool,
    ranks: int,
) -> None:
    made = Made(
        tuple(shown),
        collective,
        era=era,
        stamps=stamps and era == "2.17",
        per_iteration=per_iteration and era == "2.17",
        ranks=ranks,
    )
    check(made, f"{collective.value}.txt")


@pytest.mark.parametrize(
    ("name", "nodes"), [("nodes", {1, 2, 4}), ("# nodes", {1, 2, 4}), ("system", {None})]
)
def test_a_column_before_those_of_nccl_tests_separates_runs(
    name: str, nodes: set[int | None]
) -> None:
    made = {
        each: without_devices(Made(points(1 << 30), ranks=8 * each).text()) for each in (1, 2, 4)
    }
    lines = made[1].splitlines()
    at = next(i for i, line in enumerate(lines) if line.lstrip("# ").startswith("size"))
    rows = [text_.splitlines()[at + 2] for text_ in made.values()]
    labels = lines[at].replace("#", " ", 1)
    table = [lines[at - 1], f"{name} {labels}", lines[at + 1]]
    table += [f"  {each}  {row}" for each, row in zip(made, rows, strict=True)]
    read = text("\n".join(table))
    assert {item.ranks for item in read.samples} == {8, 16, 32}
    assert {item.nodes for item in read.samples} == nodes
    assert (read.report.unreadable, read.doubtful) == (0, set())
