# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv fairness` with real processes that speak the bench's conversation,
without GPUs."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench_runs import eventually
from tests.e2e.own_processes import command, native_parts, run, variables

STAND_IN = Path(__file__).with_name("sendrecv_bench.py")
CHUNK = "NCCLTUNE_SENDRECV_CHUNK"
WORDS = ("sendrecv", "fairness", "--gpus", 2, "--rounds", 4)
M = 1 << 20


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of native parts, of which the bench is the stand-in."""
    folder = tmp_path_factory.mktemp("native")
    native_parts(folder, STAND_IN)
    # The dynamic loader ignores an empty file, with a word on standard error.
    (folder / "lib" / "libnccltune-sendrecv.so").touch()
    return folder


def sweep(native: Path, *args: object, cwd: Path, **more: str) -> dict[str, Any]:
    done = run(native, *WORDS, *args, "--json", cwd=cwd, **more)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_chunk_that_costs_nothing_joins_the_lines_to_deploy(native: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    (study / "sendrecv.conf").write_text(
        "# of another comparison\nNCCLTUNE_SENDRECV_FROM=4194304\n"
    )
    screen = run(native, *WORDS, "-o", study, cwd=tmp_path).stdout
    assert f"set        {CHUNK}={8 * M}" in screen
    (row,) = (line for line in screen.splitlines() if line.startswith("8 MiB") and " us" in line)
    assert row.endswith("   4")
    (gains,) = (line for line in screen.splitlines() if line.startswith("8 MiB") and "x" in line)
    assert gains.endswith(("same", "faster"))
    assert len(row) <= 80
    assert len(gains) <= 80
    conf = (study / "sendrecv.conf").read_text().splitlines()
    assert conf[-2:] == ["NCCLTUNE_SENDRECV_FROM=4194304", f"{CHUNK}={8 * M}"]
    printed = run(native, "sendrecv", "env", study, cwd=tmp_path).stdout
    assert f"export {CHUNK}={8 * M}" in printed
    result = json.loads((study / "sendrecv-fairness.json").read_text())
    assert result["outcome"] == "chunk"
    assert result["traffic_bytes"] == 256 * M
    assert result["command"].startswith("nccltune sendrecv fairness")
    again = sweep(native, "-o", study, cwd=tmp_path)
    assert (again["processes"], again["settings"]) == (0, result["settings"])
    # A threshold that is found later takes the place of the other, and of nothing else.
    words = ("sendrecv", "sweep", "--gpus", 2, "--sizes", "512K-8M", "-o", study)
    run(native, *words, cwd=tmp_path, SENDRECV_BENCH_CROSSING=str(M))
    lines = (study / "sendrecv.conf").read_text().splitlines()
    assert lines[-2:] == [f"NCCLTUNE_SENDRECV_FROM={M}", f"{CHUNK}={8 * M}"]


def test_what_costs_traffic_is_left_to_its_user_and_replayed(native: Path, tmp_path: Path) -> None:
    result = sweep(native, "-o", "study", cwd=tmp_path, SENDRECV_BENCH_COST="0.1")
    assert result["outcome"] == "trade"
    assert result["settings"] == {}
    assert sorted(line[CHUNK] for line in result["trade"]) == [8 * M, 16 * M, 32 * M, 64 * M]
    assert "of its rate" in result["why"]
    assert not (tmp_path / "study" / "sendrecv.conf").exists()
    words = ("--replay", "study", "-o", "again")
    done = run(native, "sendrecv", "fairness", *words, cwd=tmp_path)
    assert "trade      " in done.stdout
    assert done.stdout.startswith("replay")


def test_a_chunk_is_no_setting_beside_a_policy(native: Path, tmp_path: Path) -> None:
    conf = tmp_path / "study" / "sendrecv.conf"
    conf.parent.mkdir()
    conf.write_text("NCCLTUNE_SENDRECV_POLICY=vccl\n")
    screen = run(native, *WORDS, "-o", "study", cwd=tmp_path).stdout
    assert "not written" in screen
    assert conf.read_text() == "NCCLTUNE_SENDRECV_POLICY=vccl\n"


def test_a_dry_run_says_what_it_would_start_and_writes_nothing(
    native: Path, tmp_path: Path
) -> None:
    found = sweep(native, "--dry-run", "-o", "study", cwd=tmp_path)
    assert (found["rounds"], found["processes"]) == (4, 24)
    assert [chunk[CHUNK] for chunk in found["chunks"]] == [64 * M, 32 * M, 16 * M, 8 * M]
    assert not (tmp_path / "study").exists()


def test_an_interrupted_comparison_goes_on(native: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(*WORDS, "-o", "study"),
        cwd=tmp_path,
        env=variables(native, SENDRECV_BENCH_SLOW="0.01"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    runs = tmp_path / "study" / "sendrecv-fairness-runs.jsonl"
    for _ in eventually(30):
        if runs.exists() and len(runs.read_text().splitlines()) >= 4:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert "resume:  nccltune sendrecv fairness" in said
    finished = len(runs.read_text().splitlines())
    result = sweep(native, "-o", "study", cwd=tmp_path)
    assert result["settings"] == {CHUNK: 8 * M}
    assert result["known"] == finished - 1


def test_the_recording_of_two_gpus_runs_again(native: Path, tmp_path: Path) -> None:
    recording = str(Path(__file__).parents[2] / "examples" / "h200x2-1-node")
    way = ("sendrecv", "fairness", "--replay", recording, "-o", "study", "--json")
    result = json.loads(run(native, *way, cwd=tmp_path).stdout)
    assert (result["outcome"], result["settings"]) == ("trade", {})
    assert [line[CHUNK] for line in result["trade"]] == [64 * M, 32 * M, 16 * M, 8 * M]
    times = {one["chunk"]: one["sizes"][1]["time_us"] for one in result["candidates"]}
    # Of 2 MiB: NCCL alone, whole messages, and ever smaller chunks.
    assert times[None] < times[8 * M] < times[16 * M] < times[64 * M] < times[0] / 1.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policies"], "no such option: --policies"),
        (["--load"], "no such option: --load"),
        (["--rounds", "3"], "--rounds: 4 rounds at least"),
        (["--sizes", "1K-64M"], "sizes must be from 4 KiB to 1 GiB"),
        (["--replay", "empty"], "holds no recorded comparison of chunks beside traffic"),
    ],
)
def test_options_that_do_not_go_together(
    native: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "platform.json").write_text('{"name": "empty"}')
    way = ("sendrecv", "fairness", "-o", "study")
    done = run(native, *way, *options, cwd=tmp_path, code=2)
    assert words in done.stderr
    assert not (tmp_path / "study").exists()


def test_the_former_option_names_the_verb(native: Path, tmp_path: Path) -> None:
    done = run(native, "sweep", "--fairness", "-o", "study", cwd=tmp_path, code=2)
    assert "hint:  it is now: nccltune sendrecv fairness" in done.stderr


def test_a_chunk_that_is_set_is_refused(native: Path, tmp_path: Path) -> None:
    done = run(native, *WORDS, "-o", "study", cwd=tmp_path, code=2, **{CHUNK: "16M"})
    assert f"{CHUNK}=16M is set" in done.stderr
