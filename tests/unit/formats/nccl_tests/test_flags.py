# SPDX-License-Identifier: Apache-2.0
"""Flags for runs that are doubtful or incomplete."""

from dataclasses import replace

import pytest

from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, Point, points, without_devices
from tests.unit.formats.reading_tools import text

SIZES = (1 << 12, 1 << 16, 1 << 20)
MADE = Made(points(*SIZES))


def with_line(after: str, *lines: str, made: Made = MADE) -> str:
    out = made.lines()
    at = next(index for index, line in enumerate(out) if after in line) + 1
    return "\n".join([*out[:at], *lines, *out[at:]]) + "\n"


def test_a_sound_run_is_not_doubted() -> None:
    read = text(MADE.text())
    assert read.doubtful == set()
    assert read.flags == {"choice_assumed"}


def test_one_rank() -> None:
    read = text(Made(points(*SIZES), ranks=1).text())
    assert "one_rank" in read.doubtful
    assert read.report.scales == {"1x1": 6}


def test_all_ranks_on_one_host() -> None:
    several = MADE.with_(one_process=False)
    assert "one_host" not in text(MADE.text()).flags  # one process cannot span hosts
    read = text(several.text())
    assert "one_host" in read.flags
    assert read.doubtful == set()
    # It is doubtful only where the user states several nodes.
    assert "scale_mismatch" in text(several.text(), nodes=2).doubtful
    assert "one_host" not in text(several.with_(hosts=("a", "b")).text()).flags


def test_wrong_results() -> None:
    read = text(Made((Point(4096, 20.0, 21.0, wrong=3), *points(8192))).text())
    assert {"wrong_results", "out_of_bounds"} <= read.doubtful
    assert [sample.wrong for sample in read.samples] == [3, 3, 0, 0]
    assert read.line_of("wrong_results") == len([*MADE.head(), *MADE.columns()]) + 1


def test_reduced_size_and_versions() -> None:
    note = "# Reducing maxBytes to 524288 due to memory limitation"
    read = text(with_line("Rank  3", "#", note, made=MADE.with_(headers=22803)))
    assert {"reduced_size", "version_mismatch"} <= read.flags
    assert "524288" in read.sentence("reduced_size")
    assert "2.28.3" in read.sentence("version_mismatch")
    assert read.doubtful == set()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "secret-host: Test NCCL failure common.cu:404 'unhandled system error / '",
            "unhandled system error",
        ),
        ("secret-host: Test CUDA failure util.cu:641 'invalid device ordinal'", "invalid device"),
        ("secret-host: Test timeout (600s) common.cu:523", "timeout"),
        (" .. secret-host pid 21: Test failure common.cu:401", "failure"),
    ],
)
def test_failure_lines(line: str, words: str) -> None:
    read = text(with_line("Avg bus", line))
    assert "failure" in read.doubtful
    assert words in read.sentence("failure")
    assert "secret-host" not in read.sentence("failure")


def test_a_last_error_of_nccl_is_flagged_and_not_doubtful() -> None:
    read = text(with_line("concluded", "# error: socketProgress failed"))
    assert "failure" in read.flags
    assert read.doubtful == set()


def test_an_aborted_table() -> None:
    read = text(MADE.with_(footer=False).text())
    assert read.doubtful == {"aborted"}
    assert len(read.samples) == 6
    head = "\n".join([*MADE.head(), *MADE.columns()])
    assert text(head).doubtful == set()  # nothing was measured, nothing is in doubt
    # Another run begins without the footer of the first.
    both = text(MADE.with_(footer=False).text() + MADE.text())
    assert both.doubtful == {"aborted"}
    assert both.report.tables == 2


def test_an_average_that_is_not_that_of_the_rows() -> None:
    assert text(MADE.with_(average=MADE.mean_busbw() * 1.02).text()).doubtful == {
        "average_mismatch"
    }
    missing = [line for line in MADE.lines() if not line.startswith("     1048576 ")]
    missing = [line for line in missing if " 1048576  " not in line or "#" in line]
    assert "average_mismatch" in text("\n".join(missing)).doubtful


def test_an_average_with_size_0() -> None:
    # nccl-tests averages over rows of size 0, too.
    made = Made((Point(0, 9.0, 9.0), *points(*SIZES)))
    assert text(made.text()).doubtful == set()


def test_a_bandwidth_that_is_not_that_of_the_time() -> None:
    row = MADE.row(MADE.points[2])
    edited = row.replace(f"{MADE.points[2].out_us:7.2f}", f"{MADE.points[2].out_us / 2:7.2f}", 1)
    read = text(MADE.text().replace(row, edited))
    assert "bandwidth_mismatch" in read.doubtful
    # The user states another number of ranks than the table shows.
    data = without_devices(MADE.text())
    assert "scale_mismatch" in text(data, nodes=2, ranks=16).doubtful
    assert "bandwidth_mismatch" not in text(data, nodes=2, ranks=4).flags


def test_below_the_least_bandwidth_asked_for() -> None:
    mean = f"# Avg bus bandwidth    : {MADE.mean_busbw():g} "
    assert mean in MADE.text()
    assert "low_bandwidth" in text(MADE.text().replace(mean, mean + "FAILED")).doubtful
    assert text(MADE.text().replace(mean, mean + "OK")).doubtful == set()
    # The newer footer pads its names.
    padded = MADE.text().replace(mean, f"# {'Avg bus bandwidth':<20} : {MADE.mean_busbw() * 2:g} ")
    assert "average_mismatch" in text(padded).doubtful


def test_an_unknown_scale_is_flagged() -> None:
    data = without_devices(MADE.text())
    read = text(data)
    assert "scale_unknown" in read.flags
    assert "--nodes" in read.sentence("scale_unknown")
    assert {(item.nodes, item.ranks) for item in read.samples} == {(None, 4)}
    stated = text(data, nodes=1, ranks=4)
    assert {(item.nodes, item.ranks) for item in stated.samples} == {(1, 4)}
    assert "scale_unknown" not in stated.flags


def test_a_collective_that_nothing_names() -> None:
    unchecked = tuple(replace(point, wrong=None) for point in points(*SIZES))
    made = Made(unchecked, Collective.ALLGATHER, era="2.13")
    read = text(made.text())
    assert read.samples == []
    assert read.report.rows == 3
    assert "collective_unknown" in read.doubtful
    assert "allgather or alltoall" in read.sentence("collective_unknown")
    assert len(text(made.text(), "ag_all_gather.txt").samples) == 6
    assert len(text(made.text(), collective=Collective.ALLGATHER).samples) == 6
    # The name must fit the columns.
    assert text(made.text(), "all_reduce.txt").samples == []


@pytest.mark.parametrize(
    ("collective", "ranks"),
    [
        (Collective.ALLGATHER, 8),
        (Collective.ALLTOALL, 8),
        (Collective.ALLREDUCE, 2),
        (Collective.SENDRECV, 2),
    ],
)
def test_results_that_are_not_checked_in_place_name_the_collective(
    collective: Collective, ranks: int
) -> None:
    made = Made(points(*SIZES), collective, era="2.13", ranks=ranks).text()
    assert text(made).report.collectives == {collective.value: 6}
    if collective in (Collective.ALLTOALL, Collective.SENDRECV):
        # Rows alone, without the lines that name the placements.
        made = Made(points(*SIZES), collective, ranks=ranks).text()
        rows = [line for line in made.splitlines() if not line.startswith("#")]
        assert text("\n".join(rows)).report.collectives == {collective.value: 6}


@pytest.mark.parametrize(
    "collective", [Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE]
)
def test_columns_that_allow_one_collective_only(collective: Collective) -> None:
    # The columns before 2.13 are no send/recv's, whatever the bandwidths.
    for era, ranks in (("old", 8), ("old", 2), ("2.13", 8)):
        read = text(Made(points(*SIZES), collective, era=era, ranks=ranks).text())
        assert read.report.collectives == {collective.value: 6}


def test_send_and_receive_looks_like_an_all_reduce() -> None:
    # Both print a reduction and the whole size; only their bandwidth differs, from 3 ranks on.
    for collective in (Collective.ALLREDUCE, Collective.SENDRECV):
        made = Made(points(*SIZES), collective, era="2.13", ranks=8)
        assert text(made.text()).report.collectives == {collective.value: 6}
        unchecked = tuple(replace(point, wrong=None) for point in points(*SIZES))
        two = made.with_(ranks=2, points=unchecked).text()
        assert "allreduce or sendrecv" in text(two).sentence("collective_unknown")
        assert len(text(two, f"{collective}.txt").samples) == 6


def test_host_names_are_never_kept() -> None:
    from msgspec.json import encode

    made = MADE.with_(hosts=("secret-host",), one_process=False)
    read = text(made.text())
    assert b"secret-host" not in encode(read.samples) + encode(read.report)
    assert len(read.samples[0].source.host_hash or "") == 16


@pytest.mark.parametrize("bad", ["-20.00", "nan", "0.00", "inf", "x", "1_0.0"])
def test_times_that_cannot_be(bad: str) -> None:
    made = Made((Point(4096, 20.0, 21.0), *points(8192)))
    read = text(made.text().replace("  20.00", f"{bad:>7}", 1))
    assert [sample.bytes for sample in read.samples] == [8192, 8192]
    assert read.report.unreadable == 1
    assert read.report.first_unreadable[0].line == len([*made.head(), *made.columns()]) + 1
    assert "float" in read.report.first_unreadable[0].text


def test_a_time_with_fewer_digits_is_not_edited() -> None:
    # 131072 B in 23.16 us are 5.66 GB/s, in the 23.2 us of a script that rounds 5.65.
    read = text(Made((Point(131072, 23.16, 23.16),)).text().replace("23.16", " 23.2"))
    assert [sample.time_us for sample in read.samples] == [23.2, 23.2]
    assert "bandwidth_mismatch" not in read.flags


@pytest.mark.parametrize("era", ["old", "2.13", "2.17"])
def test_an_edited_algorithm_bandwidth(era: str) -> None:
    made = MADE.with_(era=era)
    assert "bandwidth_mismatch" not in text(made.text()).flags
    row = made.row(made.points[-1])
    cells = row.split()
    at = len(made.left) + 1
    edited = row.replace(f" {cells[at]} ", f" {float(cells[at]) * 1.05:.2f} ", 1)
    assert edited != row
    read = text(made.text().replace(row, edited))
    assert "bandwidth_mismatch" in read.doubtful
    assert "the row was edited" in read.sentence("bandwidth_mismatch")
    assert len(read.samples) == 2 * len(SIZES)


def bare_row(count: int, time_us: float, algbw: float, busbw: float) -> str:
    """Return a row of 1 MiB without a reduction and a root, as one that is pasted alone."""
    figures = f"{time_us:.2f} {algbw:.2f} {busbw:.2f} 0e+00"
    return f"  1048576  {count}  float  {figures}  {figures}\n"


@pytest.mark.parametrize(
    ("count", "algbw", "busbw", "listed"),
    [
        (131072, 0.5, 0.5, "allgather or hypercube of 2 ranks"),
        (32768, 1.0, 0.875, "allgather or alltoall of 8 ranks"),
        (32768, 0.875, 0.875, "allgather or hypercube of 8 ranks"),
        (1024, 1.0, 255 / 256, "allgather or alltoall or hypercube of 256 ranks"),
    ],
)
def test_bandwidths_and_counts_narrow_the_collective(
    count: int, algbw: float, busbw: float, listed: str
) -> None:
    rate = (1 << 20) / 50e3
    row = bare_row(count, 50.0, algbw * rate, busbw * rate)
    read = text(row)
    assert f"(by its rows: {listed})" in read.sentence("collective_unknown")
    assert listed.rpartition(" of ")[2] in read.sentence("scale_inferred")
    for name in ("allgather", "alltoall", "hypercube", "broadcast"):
        told = text(row, collective=Collective(name))
        warned = f"its rows are not those of {name} as given" in str(told.report.flags)
        assert warned is (name not in listed)
        assert told.report.collectives == {name: 2}
        for mark in ("# ", ""):
            concluded = text(f"{row}{mark}Collective test concluded: {name}_perf\n")
            assert concluded.report.collectives == {name: 2}


@pytest.mark.parametrize(
    ("time_us", "algbw", "busbw", "named"),
    [
        ("76.61", "0.05", "0.11", True),
        ("61.94", "0.07", "0.13", True),
        ("93.62", "0.04", "0.08", True),
        ("4.89", "0.84", "1.47", True),
        ("409.6", "0.01", "0.02", True),
        ("819.2", "0.01", "0.01", False),
        ("61.94", "0.07", "0.07", False),
        ("4096.0", "0.00", "0.00", False),
    ],
)
def test_small_bandwidths_narrow_the_collective(
    time_us: str, algbw: str, busbw: str, named: bool
) -> None:
    figures = f"{time_us} {algbw} {busbw} 0"
    read = text(f"  4096  1024  float  sum  -1  {figures}  {figures}\n")
    assert read.report.collectives == ({"allreduce": 2} if named else {})
    if not named:
        assert "sendrecv" in read.sentence("collective_unknown")


def test_a_bandwidth_with_fewer_digits_is_not_edited() -> None:
    rows = [
        "#       size         count    type   redop    root     time   algbw   busbw",
        "     1048576        262144   float     sum      -1     80.0    13.1    22.9",
        "     4194304       1048576   float     sum      -1    130.0      32      56",
    ]
    assert "bandwidth_mismatch" not in text("\n".join(rows) + "\n").flags
    rows[2] = rows[2].replace("32 ", "34 ")
    assert "bandwidth_mismatch" in text("\n".join(rows) + "\n").flags
