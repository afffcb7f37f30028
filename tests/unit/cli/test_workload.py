# SPDX-License-Identifier: Apache-2.0
"""`nccltune workload show`: screens, the document, and what was not readable."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from nccltune.app.workload import show_workload, timed_twice
from nccltune.cli import workload_screen
from tests.unit.runs import Cli
from tests.unit.workload.recordings import (
    LOG_START,
    dump,
    entry,
    event,
    log_call,
    nccl_kernel,
    pickled,
    trace,
)
from tests.unit.workload.test_recorder import communicator, record, row

STEPS = [event(f"ProfilerStep#{number}", "user_annotation", 0.0, 1e5) for number in (1, 2)]


def _recorded(folder: Path) -> Path:
    """Write the traces of two ranks: four calls of 1 MiB in two steps, half of them hidden."""
    for rank in (0, 1):
        kernels = [nccl_kernel("allreduce", 1 << 19, 1e4 * at, 5e3) for at in range(4)]
        other = [event("gemm", "kernel", 1e4 * at, 2.5e3) for at in range(4)]
        unsized = [event("ncclDevKernel_X()", "kernel", 9e4, 3e3)]
        events = [*STEPS, *kernels, *other, *unsized]
        (folder / f"{rank}.json").write_text(trace(events, rank))
    (folder / "notes.txt").write_text("see the wiki\n")
    return folder


def _lines(folder: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, highlight=False)
    monkeypatch.setattr(workload_screen, "stdout", lambda: console)
    workload_screen.show_recorded(show_workload([folder]))
    lines = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    return [line.rstrip() for line in lines]


def test_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(_lines(_recorded(tmp_path), 80, monkeypatch))
    assert "2 ranks with 2 steps of 100 ms; PyTorch profiler trace (2 files)" in text
    assert "2.00 MiB a step; 10.0 ms in NCCL's kernels" in text.replace("2 MiB", "2.00 MiB")
    assert "10 % of the step" in " ".join(text.split())
    assert "5.00 ms while no kernel but NCCL's ran" in " ".join(text.split())
    assert "mesh_tp · tensor parallel · 4 ranks" in text
    assert re.search(r"all-reduce +1 MiB +2 MiB +2\.00 +10\.0 ms +100 %", text)
    assert "(2, 6.00 ms, in 2 files)" in " ".join(text.split())
    assert "notes.txt: is no recording" in " ".join(text.split())


def test_a_narrow_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _lines(_recorded(tmp_path), 40, monkeypatch)
    row = "all-reduce: sizes 1 MiB, bytes 2 MiB, calls 2.00, time 10.0 ms, share 100 %"
    assert row in " ".join(" ".join(lines).split())


def test_shares_are_of_the_bytes_without_times(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    calls = log_call("AllReduce", 3 << 18) + log_call("Send", 1 << 18)
    path.write_text(LOG_START + calls)
    out = cli("workload", "show", path, code=0).out
    assert "no times: shares are shares of the bytes" in out
    assert "unnamed · 8 ranks · 2 nodes" in out
    assert re.search(r"all-reduce +3 MiB +1\.00 +3 MiB +86 %", out)
    assert re.search(r"send +1 MiB +1\.00 +512 KiB +14 %", out)
    assert "half at its send and half at its receive" in out


def test_a_number_of_calls_is_exact(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(LOG_START + log_call("AllReduce", 1 << 20) * 4776)
    assert re.search(r"all-reduce +4 MiB +4,776 ", cli("workload", "show", path, code=0).out)


def test_a_call_without_a_time_discards_no_other(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "fr_3"
    timed = [entry("nccl:all_reduce", [[1 << 18]], [[1 << 18]], duration_ms=2.0)] * 3
    hung = [entry(name, [[64]], [[64]]) for name in ("nccl:all_reduce", "nccl:send 0->1")]
    path.write_bytes(pickled(dump(*timed, *hung)))
    out = cli("workload", "show", path, code=0).out
    assert "6.00 ms in NCCL's kernels" in out
    assert "2 of 5 calls without a time" in " ".join(out.split())
    assert re.search(r"all-reduce +1 MiB +3 MiB +3\.00 +6\.00 ms +100 %", out)
    assert re.search(r"send +256 B +128 B +1\.00 +\? +\?", out)


def test_the_document_has_every_size(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text("".join(log_call("AllReduce", count) for count in (300, 301, 302)))
    document = cli("workload", "show", path, "--json", code=0).document
    (use,) = document["groups"]
    assert [item["calls"] for item in use["ranges"]] == [3.0]
    assert [row["bytes"] for row in document["workload"]["rows"]] == [1200, 1204, 1208]
    assert document["time_us"] is None


def test_the_next_step_is_for_all_files(cli: Cli, tmp_path: Path) -> None:
    paths = [tmp_path / "a b.log", tmp_path / "c.log"]
    for path in paths:
        path.write_text(LOG_START + log_call("AllReduce", 64))
    err = cli("workload", "show", *paths, code=0).err
    assert f"tune STUDY --workload '{paths[0]}' --workload {paths[1]}\n" in err


def test_nothing_to_read_is_an_error(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text("n0:7:7 [0] NCCL INFO Using network IB\n")
    err = cli("workload", "show", path, code=2).err
    assert "nccl.log: NCCL log without a call" in err
    assert "NCCL_DEBUG_SUBSYS=INIT,COLL" in err
    assert "check the name" in cli("workload", "show", tmp_path / "none", code=2).err


def test_times_of_a_sample_are_an_estimate_with_its_interval(cli: Cli, tmp_path: Path) -> None:
    bins = [[16, 9], [24, 1]]
    tasks = [row("AllReduce", 1 << 20, 160, timed={"total_ns": 120_000, "bins": bins})]
    path = tmp_path / "n0-7.json"
    path.write_text(record(communicator([row("AllReduce", 1 << 20, 160)], tasks)))
    out = " ".join(cli("workload", "show", path, "--steps", "4", code=0).out.split())
    assert "1 rank; nccltune recorder (1 file)" in out
    assert "480 us in NCCL's kernels, waits for other ranks included" in out
    assert "(± 211 us, 95 %, by 10 of 160 calls)" in out
    assert "40.0 480 us 100 % 10 9.22 us 36.9 us" in out
    assert "without a time" not in out


def test_two_starts_compare_the_time_of_the_same_calls(tmp_path: Path) -> None:
    # With the rules the job ran twice as long, and a call took half the time.
    for name, calls, total_ns, number in (("a", 100, 100_000, 16), ("b", 200, 50_000, 12)):
        task = row("AllReduce", 64, calls, timed={"total_ns": total_ns, "bins": [[number, 10]]})
        rows = [row("AllReduce", 64, calls), row("Send", 8, 100)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "n0-7.json").write_text(record(communicator(rows, [task])))
    words = timed_twice(tmp_path / "a", tmp_path / "b")
    assert words.startswith("1.00 ms (± 36.6 us) without the rules and 500 us (± 18.8 us) with")
    assert "for 50 % of the calls without" in words
    assert "2.000x as fast (95 % CI 1.895-2.105 for these two starts, in which NCCL" in words
    assert timed_twice(tmp_path / "a", tmp_path / "none") == ""
