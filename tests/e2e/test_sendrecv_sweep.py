# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv sweep` with real processes that speak the bench's conversation, without
GPUs; and with the real bench and the real library on the fake GPUs of the native tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench_runs import FAKES, NEEDS_FAKES, environment
from tests.e2e.command_line import line, nccltune
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of native parts, of which the bench is a stand-in."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    program = folder / "bin" / "nccltune-bench"
    shutil.copy(Path(__file__).with_name("settings_bench.py"), program)
    program.chmod(0o755)
    # The dynamic loader ignores an empty file, with a word on standard error.
    for name in ("nccl-tuner-nccltune", "nccltune-sendrecv"):
        (folder / "lib" / f"lib{name}.so").touch()
    return folder


def variables(native: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(NCCLTUNE_NATIVE_DIR=str(native), PATH=path, **more)


def run(
    native: Path, *args: object, cwd: Path, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    return nccltune(*args, cwd=cwd, code=code, env=variables(native, **more))


FAST = ("--sizes", "256K-16M")
SET = "NCCLTUNE_SENDRECV_FROM"


def sweep(native: Path, *args: object, cwd: Path, **more: str) -> dict[str, Any]:
    done = run(native, "sendrecv", "sweep", "--gpus", 2, *FAST, *args, "--json", cwd=cwd, **more)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def compared(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a finished comparison, named `study` in the folder."""
    folder = tmp_path_factory.mktemp("compared")
    more = {"BENCH_CROSSING": str(4 << 20)}
    words = ("sendrecv", "sweep", "--gpus", 2, *FAST, "-o", "study")
    done = run(native, *words, cwd=folder, **more)
    (folder / "screen").write_text(done.stdout)
    return folder


def test_the_threshold_is_shown_written_and_printed_by_env(compared: Path, native: Path) -> None:
    screen = (compared / "screen").read_text()
    assert f"set        {SET}=4194304" in screen
    assert "because    from 4 MiB on a copy engine is slower at no size" in screen
    (row,) = (line for line in screen.splitlines() if line.startswith("     4 MiB"))
    assert row.endswith("copy")
    assert max(len(line) for line in screen.splitlines() if " us " in line) <= 80
    assert " 1.30x " in row or " 1.29x " in row or " 1.31x " in row
    (below,) = (line for line in screen.splitlines() if line.startswith("     2 MiB"))
    assert below.endswith("native")
    assert "slower" in below
    assert "copy engine, pushed" in screen
    conf = (compared / "study" / "sendrecv.conf").read_text().splitlines()
    assert conf[-1] == f"{SET}=4194304"
    result = json.loads((compared / "study" / "sendrecv.json").read_text())
    assert result["settings"] == {SET: 4194304}
    assert result["command"].startswith("nccltune sendrecv sweep")
    printed = run(native, "sendrecv", "env", "study", cwd=compared)
    library = native / "lib" / "libnccltune-sendrecv.so"
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert lines == [
        f"export LD_PRELOAD={library}",
        "export NCCLTUNE_SENDRECV=1",
        "export CUDA_DEVICE_MAX_CONNECTIONS=32",
        f"export {SET}=4194304",
    ]
    assert not (compared / "study" / "samples.jsonl").exists()


def test_the_recording_of_two_gpus_runs_by_its_name(native: Path, tmp_path: Path) -> None:
    words = ("sendrecv", "sweep", "--replay", "h200x2-1-node", "--json")
    points, thresholds = {}, {}
    for which, more in (("alone", ()), ("loaded", ("--load", "--rounds", "4"))):
        done = run(native, *words, *more, "-o", which, cwd=tmp_path)
        result = json.loads(done.stdout)
        points[which] = {point["bytes"]: point for point in result["points"]}
        thresholds[which] = result["from_bytes"]
    # Processes are drawn from those that were measured; all of them agree on this.
    assert 1 << 20 <= thresholds["alone"] <= 2 << 20
    assert thresholds["loaded"] <= 2 << 20
    assert 1.35 < points["alone"][16 << 20]["gain"]["gain"] < 1.5
    assert points["alone"][64 << 10]["gain"]["gain"] < 1
    assert points["loaded"][64 << 10]["gain"]["gain"] > 3
    large = points["loaded"][256 << 20]
    assert large["native_load_slower"] > 1.2 > 1.1 > large["copy_engine_load_slower"]


def test_under_load_the_threshold_is_another(native: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    alone = sweep(native, "-o", study, "--sizes", "4K-16M", cwd=tmp_path)
    loaded = sweep(native, "-o", study, "--sizes", "4K-16M", "--load", cwd=tmp_path)
    assert (alone["from_bytes"], loaded["from_bytes"]) == (2 << 20, 4 << 10)
    assert alone.get("load") is None
    assert loaded["load"] == "compute"
    point = loaded["points"][0]
    assert point["native_load_slower"] == pytest.approx(1.2)
    assert point["copy_engine_load_slower"] == pytest.approx(1.02)
    # Each has its own files, and the lines to deploy are of the newer one.
    assert json.loads((study / "sendrecv.json").read_text())["from_bytes"] == 2 << 20
    assert json.loads((study / "sendrecv-load.json").read_text())["from_bytes"] == 4 << 10
    conf = (study / "sendrecv.conf").read_text()
    assert "NCCLTUNE_SENDRECV_FROM=4096" in conf
    assert "# While the GPUs compute: " in conf
    words = ("sendrecv", "sweep", "--load", "--replay", study, "-o", tmp_path / "again", *FAST)
    done = run(native, *words, "--sizes", "4K-16M", "--json", cwd=tmp_path)
    again = json.loads(done.stdout)
    assert again["from_bytes"] == 4 << 10
    assert again["points"][0]["native_load_slower"] == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("copies", "copy engines carried no message (NCCL: memory cannot be shared: "),
        ("load", "the bench did not load it"),
        ("setting", "the library refused a setting: NCCLTUNE_SENDRECV_FROM='4096' is not"),
    ],
)
def test_what_is_no_comparison_is_not_taken_for_one(
    native: Path, tmp_path: Path, lacks: str, words: str
) -> None:
    result = sweep(native, "-o", "study", cwd=tmp_path, BENCH_WITHOUT=lacks)
    assert result["settings"] == {"NCCLTUNE_SENDRECV": 0}
    assert words in result["why"]
    again = sweep(native, "-o", "study", cwd=tmp_path)
    assert again["settings"] == {SET: 2 << 20}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_comparison_goes_on(native: Path, tmp_path: Path, number: int) -> None:
    process = subprocess.Popen(
        line("sendrecv", "sweep", "--gpus", 2, *FAST, "-o", "study"),
        cwd=tmp_path,
        env=variables(native, BENCH_SLOW="0.005"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    runs = tmp_path / "study" / "sendrecv-runs.jsonl"
    wait_until(lambda: runs.exists() and len(runs.read_text().splitlines()) >= 4)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    finished = len(runs.read_text().splitlines())
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number
        assert "resume:  nccltune sendrecv sweep" in said
    result = sweep(native, "-o", "study", cwd=tmp_path)
    assert result["settings"] == {SET: 2 << 20}
    assert result["known"] == finished - 1
    again = sweep(native, "-o", "study", cwd=tmp_path)
    assert (again["processes"], again["settings"]) == (0, result["settings"])


@NEEDS_FAKES
def test_the_real_bench_has_the_real_library_before_its_nccl(tmp_path: Path) -> None:
    """GPUs that lack what copies between processes need: the library logs it, and with that nothing
    is compared."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    nccl = ("--nccl", FAKES / "libnccl.so.2")
    words = ("sendrecv", "sweep", "-o", "s", "--gpus", 2, *FAST, *nccl, "--json")
    env = environment(PATH=path, LD_LIBRARY_PATH=str(FAKES), SOFT_CUDA_LACKS="memops")
    done = nccltune(*words, cwd=tmp_path, env=env)
    result = json.loads(done.stdout)
    assert result["settings"] == {"NCCLTUNE_SENDRECV": 0}
    assert "copy engines carried no message (NCCL carries all sends and receives" in result["why"]
