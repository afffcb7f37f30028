# SPDX-License-Identifier: Apache-2.0
"""Text of launchers, NCCL and shells around the lines of nccl-tests; files of real runs, if any."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.text.prefixes import strip_prefix
from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, Point, points, without_devices
from tests.unit.formats.reading_tools import Read, files, text

SIZES = (1 << 12, 1 << 16, 1 << 20)
MADE = Made(points(*SIZES))
INFO = "alpha:2136:2201 [0] NCCL INFO "
PREFIXES: dict[str, Callable[[str], str]] = {
    "Open MPI 4 tag": lambda line: f"[1,0]<stdout>:{line}",
    "Open MPI 4 timestamp": lambda line: f"Sat Nov 21 01:54:54 2026<stdout>:{line}",
    "Open MPI 4 both": lambda line: f"Sat Nov  1 01:54:54 2026[1,0]<stdout>:{line}",
    "Open MPI 5 tag": lambda line: f"[1,0]<stdout>: {line}",
    "Open MPI 5 tag-detailed": lambda line: f"[1,0][alpha:2136]<stdout>: {line}",
    "Open MPI 5 tag-fullname": lambda line: f"[prterun-vm-25650@1,0]<stdout>: {line}",
    "srun -l": lambda line: f"0: {line}",
    "srun -l padded": lambda line: f" 0: {line}",
    "hydra -l": lambda line: f"[0] {line}",
    "srun and Open MPI": lambda line: f"0: [1,0]<stdout>: {line}",
    "indented tag": lambda line: f"  [1,0]<stdout>:{line}",
    "torchrun": lambda line: f"[default0]:{line}",
    "kubectl --prefix": lambda line: f"[pod/nccl-launcher-x2/launcher] {line}",
    "kubectl --timestamps": lambda line: f"2024-05-01T12:00:00.123456789Z {line}",
    "kubectl, both": lambda line: f"[pod/l-0/l] 2024-05-01T12:00:00.1Z {line}",
    "kubectl and Open MPI": lambda line: f"2024-05-01T12:00:00.1Z [1,0]<stdout>:{line}",
    "CRI": lambda line: f"2024-05-01T12:00:00.123456789+02:00 stdout F {line}",
    "stern": lambda line: f"nccl-launcher-x2 launcher {line}",
    "stern, all namespaces": lambda line: f"default nccl-launcher-x2 launcher {line}",
    "stern, coloured": lambda line: f"\x1b[32mnccl-x2\x1b[0m \x1b[96mlauncher\x1b[0m {line}",
    "docker compose": lambda line: f"nccl-1  | {line}",
    "docker compose 1": lambda line: f"launcher_1 | {line}",
    "ts": lambda line: f"Nov 21 01:54:54 {line}",
    "ts %F %T": lambda line: f"2026-11-21 01:54:54 {line}",
    "ts -s": lambda line: f"00:00:04 {line}",
    "ts %.s": lambda line: f"1763690094.123456 {line}",
    "journalctl": lambda line: f"Nov 21 01:54:54 alpha nccl[77]: {line}",
    "pdsh": lambda line: f"node01: {line}",
    "pdsh and srun": lambda line: f"node01: 0: {line}",
    "SkyPilot": lambda line: f"(head, rank=0, pid=12) {line}",
    "bracketed host": lambda line: f"[node-01] {line}",
    "tag with a colon": lambda line: f"[STAT]:{line.lstrip()}",
    "GNU parallel --tag": lambda line: f"node-01\t{line}",
    "quoted": lambda line: f"> {line}",
    "logging": lambda line: f"INFO:root:{line}",
    "logging with a time": lambda line: f"2024-05-01 12:00:00,123 - bench.run - INFO - {line}",
    "logging in brackets": lambda line: f"[2024-05-01 12:00:00] [INFO] {line}",
    "vLLM": lambda line: f"(Worker pid=12) INFO 05-01 12:00:00 [bench.py:33] {line}",
    "glog": lambda line: f"I0501 12:00:00.123456 12345 main.cc:12] {line}",
}


def same(read: Read, made: Made = MADE) -> None:
    plain = text(made.text())
    assert read.times == plain.times
    assert read.report.scales == plain.report.scales
    assert read.report.unreadable == 0, read.report.first_unreadable
    assert read.doubtful == set()


@pytest.mark.parametrize("name", PREFIXES)
def test_launcher_prefixes(name: str) -> None:
    put = PREFIXES[name]
    same(text("\n".join(map(put, MADE.lines()))))
    # Log lines of other ranks have prefixes of their own.
    lines = [put(line) for line in MADE.lines()]
    other = put("beta:7:8 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0]").replace("1,0]", "1,1]")
    same(text("\n".join(f"{line}\n{other}" for line in lines)))


@pytest.mark.parametrize("prefix", ["rank 0 says> ", "out(3): ", "a | b - ", "job [x]:"])
def test_any_words_before_rows_and_their_names(prefix: str) -> None:
    lines = [line for line in MADE.lines() if "float" in line or "count" in line]
    found = text("\n".join(prefix + line for line in lines))
    assert found.times == text("\n".join(lines)).times


@pytest.mark.parametrize("line", ["", "  ", "text", "    1024   256  float", "# size", "[x] y"])
def test_lines_without_prefix_stay(line: str) -> None:
    assert strip_prefix(line) == ("", line)


@pytest.mark.parametrize("colour", ["\x1b[32m", "\x1b[0;1m", "\x1b[38;5;12m", "\x1b[K"])
def test_terminal_colours(colour: str) -> None:
    same(text("\n".join(f"{colour}{line}\x1b[0m" for line in MADE.lines())))


@pytest.mark.parametrize(
    "line",
    [
        "error: something broke",
        "alpha: Test NCCL failure common.cu:1 'x'",
        "loading modules: cuda nccl",
        "sum 12.3 alpha:1:2 [0] NCCL INFO x",
        "step 3 | loss 2.1",
    ],
)
def test_words_before_other_text_are_no_prefix(line: str) -> None:
    assert strip_prefix(line) == ("", line)


def test_prefixes_identify_their_source() -> None:
    assert strip_prefix("[1,3]<stdout>:x") == ("1,3", "x")
    assert strip_prefix("[1,3]<stderr>: x")[0] == "1,3"
    assert strip_prefix("12: x") == ("12", " x")
    assert strip_prefix("0: [1,3]<stdout>: x")[0] == "0|1,3"


def test_rows_only_under_a_prefix_are_not_guessed() -> None:
    rows = (MADE.row(point).split()[:9] for point in MADE.points)
    read = text("\n".join(f"0: {' '.join(row)}" for row in rows))
    assert read.samples == []
    assert read.report.unreadable == len(SIZES)
    assert "which column is which" in read.reasons[0]
    assert read.report.first_unreadable[0].line == 1


def test_a_tag_before_rows_only() -> None:
    lines = (line.lstrip() for line in MADE.lines())
    same(text("\n".join(f"[STAT]:{line}" if line[:1].isdigit() else line for line in lines)))


def test_log_lines_between_rows() -> None:
    lines: list[str] = []
    for line in MADE.lines():
        lines += [line, INFO + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"]
    same(text("\n".join(lines)))


def cut_rows(made: Made, log: str = INFO + "AllReduce: opCount 3 ...") -> str:
    """Every row as NCCL_DEBUG=INFO leaves it: the log comes after the left part and after each
    placement, glued to what was printed before."""
    out = [*made.head(), *made.columns()]
    for point in made.points:
        left, parts = made.cells(point)
        out += [left + log, log, parts[0] + log, log, parts[1]]
    return "\n".join([*out, *made.foot()]) + "\n"


@pytest.mark.parametrize("host", ["alpha", "10-0-0-1", "x", "node1"])
@pytest.mark.parametrize("collective", [Collective.ALLREDUCE, Collective.BROADCAST])
def test_rows_cut_by_log_lines_are_rejoined(host: str, collective: Collective) -> None:
    made = Made(points(*SIZES), collective, hosts=(host,))
    same(text(cut_rows(made, f"{host}:2136:2201 [0] NCCL INFO some words")), made)


def test_rows_cut_by_warnings_with_a_time_stamp() -> None:
    same(text(cut_rows(MADE, "[2026-05-05 06:16:47] alpha:1:1 [0] net.cc:33 NCCL WARN no plugin")))


def test_a_host_that_nothing_names_is_found_by_the_columns() -> None:
    # No device list and no log line of its own: only the end of the column marks the host's start.
    lines = without_devices(cut_rows(MADE)).splitlines()
    lines = [line for line in lines if not line.startswith("alpha")]
    read = text("\n".join(lines), nodes=1, ranks=4)
    assert read.times == text(MADE.text()).times
    assert read.report.unreadable == 0


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 85), st.integers(0, 2), st.sampled_from(["alpha", "beta"]))
def test_a_row_cut_anywhere_is_rejoined_or_counted(at: int, which: int, host: str) -> None:
    # A launcher cuts a row where its buffer ends, also inside a number.
    lines = MADE.lines()
    at_line = len([*MADE.head(), *MADE.columns()]) + which
    row = lines[at_line]
    cut = min(at, len(row) - 1)
    lines[at_line : at_line + 1] = [row[:cut] + f"{host}:7:8 [1] NCCL INFO words", row[cut:]]
    known = "beta:7:8 [1] NCCL INFO Bootstrap: Using lo"
    read = text("\n".join([known, *lines]))
    whole = text(MADE.text())
    missing = [item for item in whole.times if item not in read.times]
    assert all(item in whole.times for item in read.times)
    assert not missing or (
        read.report.unreadable and {size for size, *_ in missing} == {SIZES[which]}
    )


def test_a_row_that_two_readings_fit_is_counted() -> None:
    # A piece "1" before a whole row: joined it is another size with a wrong count.
    lines = MADE.lines()
    at = len([*MADE.head(), *MADE.columns()])
    lines[at : at + 1] = ["           1" + INFO + "x", lines[at]]
    read = text("\n".join(lines))
    assert read.times == text(MADE.text()).times
    assert read.report.unreadable == 1
    assert "cut in two" in read.reasons[0]


def test_a_piece_is_not_joined_to_a_row_whose_size_then_no_longer_fits_its_count() -> None:
    # Joined with "1" the row of 8 bytes would be one of 18, which 2 floats are not.
    made = Made((Point(8, 20.0, 21.0), Point(16, 20.0, 21.0)))
    lines = made.lines()
    at = len([*made.head(), *made.columns()])
    lines[at : at + 1] = ["           1" + INFO + "x", lines[at].lstrip()]
    read = text("\n".join(lines))
    assert read.times == text(made.text()).times
    assert read.report.unreadable == 1


def test_the_end_of_the_file_cuts_a_row() -> None:
    left, parts = MADE.cells(MADE.points[2])
    lines = [*MADE.head(), *MADE.columns(), *map(MADE.row, MADE.points[:2])]
    read = text("\n".join([*lines, left + INFO + "x", parts[0] + INFO + "y"]))
    assert len(read.samples) == 4
    assert read.report.unreadable == 1
    assert "end" in read.reasons[0]
    assert "aborted" in read.doubtful


def test_alltoallv_summaries_inside_a_row() -> None:
    made = Made(points(*SIZES), Collective.ALLTOALLV, ranks=2)
    out = [*made.head(), *made.columns()]
    for point in made.points:
        left, parts = made.cells(point)
        note = "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=2 total_bytes=8"
        ranks = [
            f"#   rank={rank} send_bytes=4 recv_bytes=4 alg_bw=1.00 bus_bw=0.5" for rank in (0, 1)
        ]
        out += [left + note, *ranks, parts[0] + note, *ranks, parts[1]]
    same(text("\n".join([*out, *made.foot()])), made)


def test_noise_of_launchers_is_ignored() -> None:
    noise = [
        "WARNING: There was an error initializing an OpenFabrics device.",
        "  Local host:   alpha",
        "--------------------------------------------------------------------------",
        "1 more process has sent help message help-mpi-btl-openib.txt",
    ]
    lines = MADE.lines()
    for at in (0, 3, len(lines) - 5, len(lines)):
        lines[at:at] = noise
    same(text("\n".join(lines)))


def test_windows_line_ends() -> None:
    same(text(MADE.text().replace("\n", "\r\n")))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_byte_order_marks(encoding: str) -> None:
    same(text(MADE.text().encode(encoding)))


def test_one_rank_tables_of_several_processes() -> None:
    made = [Made(points(*SIZES), ranks=1, pid=100 + process) for process in range(3)]
    tables = [item.lines() for item in made]
    # mpirun interleaves the processes: each prints its whole table.
    mixed = [line for group in zip(*tables, strict=True) for line in group]
    for lines in (mixed, [line for table in tables for line in table]):
        read = text("\n".join(lines))
        assert {"one_rank", "one_rank_copies"} <= read.doubtful
        assert {sample.ranks for sample in read.samples} == {1}
        assert read.report.unreadable == 0
        assert len(read.samples) == 3 * 2 * len(SIZES)
    tagged = [f"[1,{rank}]<stdout>:{line}" for rank, table in enumerate(tables) for line in table]
    assert "one_rank" in text("\n".join(tagged)).doubtful


def test_copies_of_two_ranks_each_are_no_job_of_four() -> None:
    made = [
        Made(points(*SIZES), ranks=2, pid=pid, hosts=(host,)) for pid, host in ((7, "a"), (9, "b"))
    ]
    mixed = [line for pair in zip(*[item.lines() for item in made], strict=True) for line in pair]
    read = text("\n".join(mixed))
    assert "one_rank_copies" in read.doubtful
    assert read.report.scales == {"1x2": 2 * 2 * len(SIZES)}
    assert read.report.unreadable == 0


def test_several_tests_of_many_ranks_are_no_copies_of_a_one_rank_test() -> None:
    made = [
        Made(points(*SIZES), ranks=8, one_process=False, pid=100 + 50 * number, collective=kind)
        for number, kind in enumerate((Collective.ALLREDUCE, Collective.ALLGATHER))
    ]
    for tests in (made, [made[0], made[0].with_(pid=900)]):
        read = text("".join(item.text() for item in tests))
        assert read.doubtful == set()
        assert {sample.ranks for sample in read.samples} == {8}


def test_the_program_in_the_command_line_names_the_collective() -> None:
    # The columns are also those of send/recv.
    unchecked = tuple(replace(point, wrong=None) for point in MADE.points)
    made = MADE.with_(era="2.13", ranks=2, points=unchecked)
    table = "\n".join([*made.columns(), *map(made.row, made.points)])
    assert "collective_unknown" in text(table).flags
    read = text(f"$ mpirun -np 2 ./all_reduce_perf -g 1\n{table}", nodes=1)
    assert read.report.collectives == {"allreduce": 2 * len(SIZES)}
    other = text(f"$ mpirun -np 2 ./all_gather_perf -g 1\n{table}", nodes=1)
    assert "collective_unknown" in other.flags


def test_a_command_names_an_all_to_all_that_is_checked_in_place() -> None:
    # Most builds print N/A there, so that the columns alone are those of an all-gather.
    made = MADE.with_(era="2.13", ranks=4, collective=Collective.ALLGATHER)
    table = "\n".join([*made.columns(), *map(made.row, made.points)])
    assert set(text(table, nodes=1).report.collectives) == {"allgather"}
    read = text(f"$ mpirun -np 4 ./alltoall_perf -g 1\n{table}", nodes=1)
    assert set(read.report.collectives) == {"alltoall"}
    other = text(f"$ mpirun -np 4 ./all_reduce_perf -g 1\n{table}", nodes=1)
    assert set(other.report.collectives) == {"allgather"}
    # The second table may be of another command.
    two = text(f"$ mpirun -np 4 ./alltoall_perf -g 1\n{table}\nand this:\n{table}", nodes=1)
    assert set(two.report.collectives) == {"alltoall", "allgather"}


def test_a_log_alone_is_no_table() -> None:
    read = text("\n".join([INFO + "Using network Socket"] * 3))
    assert read.report.kind is FileKind.NCCL_LOG
    assert read.samples == []
    assert read.report.unreadable == 0


def test_rows_without_their_in_place_columns_keep_the_out_of_place_times() -> None:
    whole = text(MADE.text())
    lines = [
        " ".join(line.split()[:9]) if line.strip()[:1].isdigit() else line for line in MADE.lines()
    ]
    cut = text("\n".join(lines))
    assert cut.times == [item for item in whole.times if not item[1]]
    assert cut.report.unreadable == 0
    assert cut.doubtful == set()


def test_a_short_row_whose_numbers_disagree_is_not_read() -> None:
    lines = [
        " ".join([*line.split()[:6], "77.7", *line.split()[7:9]])
        if line.strip()[:1].isdigit()
        else line
        for line in MADE.lines()
    ]
    cut = text("\n".join(lines))
    assert not cut.times
    assert cut.report.unreadable == sum(line.strip()[:1].isdigit() for line in MADE.lines())


def test_hosts_of_all_ranks_in_the_log_are_the_nodes_without_a_device_list() -> None:
    rows = [line for line in MADE.lines() if " Rank " not in line]

    def scales(*hosts: str) -> list[tuple[int | None, int | None]]:
        log = [
            f"{host}:{7 + rank}:8 [0] NCCL INFO comm 0x5 rank {rank} nranks 4 cudaDev 0 busId 1b000"
            " - Init COMPLETE"
            for rank, host in enumerate(hosts)
        ]
        return list(dict.fromkeys((s.nodes, s.ranks) for s in text("\n".join(log + rows)).samples))

    assert scales("alpha", "alpha", "beta", "beta") == [(2, 4)]
    # A rank is missing, machines may share the name, other text may touch it.
    assert scales("alpha", "alpha", "beta") == [(None, 4)]
    assert scales(*["alpha"] * 4) == [(None, 4)]
    assert scales("alpha", "0.1alpha", "beta", "beta") == [(None, 4)]
    assert scales("alpha", "0alpha", "beta", "beta") == [(None, 4)]


def test_sentences_and_addresses_below_a_table_are_no_rows() -> None:
    lines = "356 GB/s bus bandwidth at 8 GiB, at parity.\n10.68.5.39\n357.04 GB/s and 356 GB/s.\n"
    read = text(MADE.text() + lines)
    assert read.report.unreadable == 0
    assert read.samples == text(MADE.text()).samples


DATA = Path(__file__).parents[5] / "shared" / "data"
OWN = DATA / "h200x4" / "nccl-tests"
OTHERS = DATA / "nccl-tests"

own = pytest.mark.skipif(not OWN.is_dir(), reason=f"no recorded runs at {OWN}")
others = pytest.mark.skipif(not OTHERS.is_dir(), reason=f"no outputs of others at {OTHERS}")


@own
def test_a_sweep_by_file_names() -> None:
    reads = {read.report.name.rpartition("/")[2]: read for read in files(OWN)}
    assert len(reads) == 7
    for name, read in reads.items():
        assert len(read.samples) == 22
        assert read.doubtful == set()
        assert read.report.unreadable == 0
        assert read.report.scales == {"1x4": 22}
        label = name.removeprefix("nt_").removesuffix(".txt").lower().replace("-", "/")
        assert read.labels == {label}


@others
@pytest.mark.parametrize(
    ("name", "samples", "scale", "collective"),
    [
        ("v2.0-2.11_allreduce_8xA100.txt", 64, "1x8", "allreduce"),
        ("v2.0-2.11_broadcast_8xA100.txt", 64, "1x8", "broadcast"),
        ("v2.14-2.16_allreduce_8xH100_dgxc.txt", 64, "1x8", "allreduce"),
        ("v2.18.3_allgather_2xGB10.txt", 6, "2x2", "allgather"),
        ("v2.19.7_allreduce_2xT4_jsonv3.json.txt", 2, "1x2", "allreduce"),
    ],
)
def test_outputs_of_others(name: str, samples: int, scale: str, collective: str) -> None:
    (read,) = files(OTHERS / name)
    assert len(read.samples) == samples
    assert read.report.scales == {scale: samples}
    assert read.report.collectives == {collective: samples}
    assert read.report.unreadable == 0
    assert read.doubtful == set()


@others
def test_log_lines_of_nccl() -> None:
    (read,) = files(OTHERS / "nccl-2.30_log_lines_by_subsystem.txt")
    assert read.report.kind is FileKind.NCCL_LOG
    assert read.samples == []


@own
def test_a_log_gives_what_ran() -> None:
    from nccltune.formats.nccl_tests.process_logs import read_process_logs
    from nccltune.model.collective import Collective

    path = DATA / "h200x4" / "nccl-tuning-log-as-4-nodes.log"
    with path.open("rb") as file:
        logs = read_process_logs(file)
    first = next(log for log in logs.values() if log.has_choices)
    assert (first.nodes, first.ranks, first.version) == (4, 4, "2.28.9")
    assert first.ran(Collective.ALLREDUCE, 1024, 4) is not None
