# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab` on a program that prints what nccl-tests prints."""

import sys
from pathlib import Path

import pytest

from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.ab.bench import BenchRunner
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError
from nccltune.model.sample import Sample
from nccltune.study.files import Study
from tests.e2e.command_line import launcher_here
from tests.unit.runs import Cli

FAKE = Path(__file__).with_name("fake_nccl_tests.py")
PROGRAM = ("--", "build/all_reduce_perf", "-b", "4096", "-e", "65536", "-f", "4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder with the program."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "all_reduce_perf").symlink_to(FAKE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_RANKS", "4")
    monkeypatch.setenv("FAKE_EFFECT", "NCCL_X=1:0.8:0")
    monkeypatch.setenv("FAKE_READS", "NCCL_X")
    monkeypatch.setenv("FAKE_STARTS", str(tmp_path / "starts"))


def test_what_helps_is_kept_deployed_and_the_base_of_the_next(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = cli("ab", "NCCL_X=1", "-o", "s", "--rounds", 4, *PROGRAM).out
    first, *_, deploy, study = said.splitlines()
    assert first.startswith("keep       NCCL_X=1: all-reduce is 1.2")
    assert (deploy, study) == ("deploy     export NCCL_X=1", "study      s")
    assert cli("env", "s").out.strip() == "export NCCL_X=1"
    kept = list(Study(Path("s")).samples())
    # 4 rounds, both sides, 5 sizes in and out of place; and the look.
    assert len(kept) == (4 * 2 + 1) * 5 * 2
    before = len(Path("starts").read_text().splitlines())
    again = cli("ab", "--json", "NCCL_X=1", "-o", "s", "--rounds", 4, *PROGRAM).document
    assert (again["decision"], again["known"], again["processes"]) == ("keep", 4, 0)
    assert again["command"] == (
        "nccltune ab --output s --rounds 4 --json NCCL_X=1 "
        "-- build/all_reduce_perf -b 4096 -e 65536 -f 4"
    )
    assert len(Path("starts").read_text().splitlines()) == before

    monkeypatch.setenv("FAKE_EFFECT", "NCCL_Y=1:1.5:0")
    worse = cli("ab", "--json", "NCCL_Y=1", "-o", "s", "--rounds", 1, *PROGRAM, code=1).document
    assert (worse["decision"], worse["baseline"]) == ("open", {"NCCL_X": "1"})
    # Read from NCCL's own log.
    assert worse["read"] == []
    assert "channels 24 -> 2" in worse["changed"]
    assert cli("env", "s").out.strip() == "export NCCL_X=1"


def test_what_does_not_run_is_a_finding_and_a_default_that_does_not_an_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_REFUSE", "ring/ll")
    told = ("NCCL_ALGO=ring", "NCCL_PROTO=ll")
    found = cli("ab", "--json", *told, "-o", "s", *PROGRAM, code=1).document
    assert found["decision"] == "failed"
    assert "ended with status 3" in found["why"]
    assert not Path("s", "try.conf").exists()
    assert (
        "make the program work without them first"
        in cli("ab", "NCCL_X=1", "-o", "t", "--", "false", code=4).err
    )
    assert "printed no complete table" in cli("ab", "NCCL_X=1", "-o", "t", "--", "true", code=4).err
    assert not Path("t").exists()


def test_a_setting_taken_away_and_one_that_nccl_never_reads(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_X", "1")
    monkeypatch.setenv("FAKE_EFFECT", "NCCL_X=1:1.5:0")
    said = cli("ab", "--unset", "NCCL_X", "-o", "s", "--rounds", 4, *PROGRAM).out
    assert said.startswith("keep       without NCCL_X: all-reduce is 1.")
    assert "deploy     unset NCCL_X" in said
    assert not Path("s", "try.conf").exists()
    said = cli("ab", "NCCL_Z=1", "-o", "s", "--rounds", 1, *PROGRAM, code=1).out
    assert said.startswith("open       NCCL_Z=1: 1 round so far")
    assert "NCCL's log does not show that it read NCCL_Z" in said


def test_a_launcher_hands_the_settings_on_and_a_recording_replays(cli: Cli) -> None:
    launcher = ("--launcher", launcher_here("openmpi"), "--gpus", 4)
    found = cli(
        "ab", "--json", "NCCL_X=1", "-o", "s", "--rounds", 1, *launcher, *PROGRAM, code=1
    ).document
    assert (found["decision"], found["read"]) == ("open", ["NCCL_X"])
    assert found["collectives"][0]["sizes"][0]["gain"]["gain"] == pytest.approx(1.25, rel=0.1)
    assert not list(Path().glob(".nccltune-*"))
    said = cli("ab", "NCCL_X=1", "-o", "t", "--replay", "s", "--rounds", 4).out
    assert said.startswith("keep       NCCL_X=1: all-reduce is 1.2")
    assert "replay     4 rounds" in said
    assert (
        "has no trial of NCCL_Q=1 against default"
        in cli("ab", "NCCL_Q=1", "-o", "u", "--replay", "s", code=2).err
    )


def test_our_bench_measures_where_no_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = [sys.executable, str(Path(__file__).with_name("settings_bench.py"))]
    tried = {"NCCL_MIN_P2P_NCHANNELS": "64"}
    runner = BenchRunner(
        Launch(gpus=2), [Collective.ALLREDUCE], 1 << 10, 1 << 20, tried, program=stand_in
    )
    kept: list[Sample] = []
    ran = runner.run(tried, 3, kept.extend)
    assert {sample.bytes for sample in kept} == {1 << power for power in range(10, 21, 2)}
    # Three timings of each call in one process: they are repeats, and count as one.
    assert {sample.repeat for sample in kept} == {0, 1, 2}
    assert ran.facts is not None
    assert (ran.error, ran.facts.channels) == (None, 24)
    monkeypatch.setenv("BENCH_FAIL", "NCCL_MIN_P2P_NCHANNELS=64")
    with pytest.raises(LaunchError):
        runner.run(tried, 4, kept.extend)
    with pytest.raises(InputError, match="cannot be unset"):
        BenchRunner(Launch(gpus=2), [Collective.ALLREDUCE], 1024, 1024, {"NCCL_X": None})
