# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep`: progress, and where it cannot run."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from nccltune.cli.measure_screen import best_table, point_words, watch_sweep
from nccltune.cli.progress import seconds_words
from nccltune.cli.sweep_screen import left_out_words, show_job
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import BenchPoint, PointError, PointKey
from nccltune.measure.engine.communicator import SweepStatus
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from tests.unit.builders import choice
from tests.unit.measure.platforms import Curves, K, Platform, collective_plan, drive, linear
from tests.unit.runs import Cli

POINT = BenchPoint(bytes=64 * K, choice=choice("tree/simple"), time_us=141.2)
STATUS = SweepStatus(10.0, 38.0, 120, 0, Collective.ALLREDUCE, POINT, 211.4)


def plan() -> Plan:
    lines = {"tree/ll": linear(20, 1_000), "ring/simple": linear(60, 10_000)}
    found = Plan([collective_plan(list(lines))])
    drive(found, Platform(Curves(lines, lambda _: "ring/simple"), noise=0.003))
    return found


def test_the_text_of_a_duration() -> None:
    assert [seconds_words(s) for s in (0.2, 38, 725, 3723)] == ["0:00", "0:38", "12:05", "1:02:03"]


def test_the_text_of_a_point() -> None:
    assert point_words(STATUS) == "allreduce 64 KiB  tree/simple 141 us (default 211)"
    failed = BenchPoint(bytes=64 * K, choice=choice("tree/ll"), error=PointError("timeout"))
    assert point_words(STATUS._replace(point=failed)) == "allreduce 64 KiB  tree/ll timeout"
    of_default = BenchPoint(bytes=64 * K, time_us=211.4)
    assert point_words(STATUS._replace(point=of_default)).endswith("default 211 us")
    assert point_words(STATUS._replace(point=None)) == ""


def test_a_terminal_shows_progress_and_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("nccltune.cli.progress._SHOW_AFTER_S", 0.0)
    with watch_sweep("h200x4", console) as watcher:
        watcher.update(STATUS, plan())
    shown = out.getvalue()
    for words in ("21%", "tree/simple 141 us (default 211)", "0:38 left", "best so far"):
        assert words in shown
    assert "replay of h200x4" in shown
    assert all(len(line) <= 110 for line in shown.splitlines())


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    found = plan()
    with watch_sweep(None, Console(file=out, width=80)) as watcher:
        watcher.update(STATUS, found)
        assert out.getvalue() == ""
        monkeypatch.setattr("nccltune.cli.progress._LINE_EVERY_S", 0.0)
        watcher.update(STATUS, found)
    (line,) = out.getvalue().splitlines()
    assert line.startswith("sweep")
    assert line.endswith("0:38 left")
    assert " 21%  allreduce 64 KiB" in line


def test_progress_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.cli.progress._LINE_EVERY_S", 0.0)
    out = io.StringIO()
    found = plan()
    with watch_sweep(None, Console(file=out, width=100)) as watcher:
        for left in (10.0, 90.0, 5.0):
            watcher.update(STATUS._replace(left_s=left), found)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["50%", "50%", "67%"]


def test_the_table_names_leaders_and_gains() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(best_table(plan()))
    rows = {line.split()[0] + line.split()[1]: line for line in out.getvalue().splitlines()[1:]}
    assert "tree/ll" in rows["1KiB"]
    assert "x" in rows["1KiB"]
    assert "default" in rows["64MiB"]


def test_a_file_as_study_folder_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file, not a study folder" in cli("sweep", "-o", tmp_path / "file", code=2).err


def test_without_a_gpu_the_hint_names_a_recording(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nccltune.measure.bench.process.LIBRARY", "libnccltune-no-such-driver.so.1")
    monkeypatch.setattr("nccltune.measure.bench.process.bench_path", lambda: tmp_path / "bench")
    err = cli("sweep", "-o", tmp_path / "study", code=3).err
    assert "error: no GPU" in err
    assert "hint:  try the whole loop on a recording: nccltune auto --replay" in err
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("is_replay", "error", "why"),
    [
        (True, PointError("unsupported"), "not in the recording"),
        (False, PointError("unsupported"), "unsupported"),
        (True, PointError("nccl"), "nccl"),
        (True, None, "NCCL ran something else"),
    ],
)
def test_why_points_are_left_out(is_replay: bool, error: PointError | None, why: str) -> None:
    failures = [
        (PointKey(Collective.ALLREDUCE, size, DEFAULT, 0, 0), BenchPoint(bytes=size, error=error))
        for size in (K, 2 * K)
    ]
    (line,) = left_out_words(failures, is_replay=is_replay)
    assert line == f"allreduce default: {why} at 2 points"


def test_what_a_sweep_for_a_job_leaves_out_is_named() -> None:
    out = io.StringIO()
    found = plan()
    found.remarks = ["2 jobs"]
    found.unmeasured = {Collective.BROADCAST: 0.005, Collective.SENDRECV: 0.2}
    show_job(found, Console(file=out, width=120))
    assert out.getvalue().splitlines() == [
        "note       2 jobs",
        "left out   broadcast: 0.5 % of the job's bytes at this scale; not measured here",
        "left out   send/recv: 20 % of the job's bytes at this scale; NCCL asks no tuner about it",
    ]
