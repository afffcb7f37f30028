# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab` on a program that prints what nccl-tests prints."""

import shutil
import sys
from pathlib import Path

import pytest

from nccltune.app.ab import ab_test, trial_of
from nccltune.app.ab_releases import ReleaseVerdict
from nccltune.examples import example
from nccltune.formats.tuner_config.csv_rules import read_rules, rows_text
from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.ab.bench import BenchRunner
from nccltune.measure.experiments.ab.experiment import TrialScope
from nccltune.measure.experiments.ab.judge import calls_of
from nccltune.measure.experiments.ab.settings import LIBRARY
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, PlatformError
from nccltune.model.rule import RuleState
from nccltune.model.sample import Sample
from nccltune.study.files import Study, locked
from tests.e2e.bench_runs import FAKES, NEEDS_FAKES
from tests.e2e.command_line import launcher_here
from tests.unit.runs import Cli

FAKE = Path(__file__).with_name("fake_nccl_tests.py")
PROGRAM = ("--", "build/all_reduce_perf", "-b", "4096", "-e", "65536", "-f", "4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert {(sample.registered, sample.graph) for sample in kept} == {(False, False)}
    monkeypatch.setenv("BENCH_FAIL", "NCCL_MIN_P2P_NCHANNELS=64")
    with pytest.raises(LaunchError):
        runner.run(tried, 4, kept.extend)
    with pytest.raises(InputError, match="cannot be unset"):
        BenchRunner(Launch(gpus=2), [Collective.ALLREDUCE], 1024, 1024, {"NCCL_X": None})


@pytest.mark.parametrize("unable", ["", "registered", "graph"])
def test_our_bench_makes_all_kinds_of_calls_in_one_process(
    monkeypatch: pytest.MonkeyPatch, unable: str
) -> None:
    stand_in = [sys.executable, str(Path(__file__).with_name("settings_bench.py"))]
    monkeypatch.setenv("BENCH_UNABLE", unable)
    calls = [CallKind(graph=graph, registered=r) for graph in (False, True) for r in (False, True)]
    size, setting = 6 << 20, {"NCCL_X": "1"}
    runner = BenchRunner(
        Launch(gpus=2), [Collective.ALLREDUCE], size, size, setting, program=stand_in, calls=calls
    )
    kept: list[Sample] = []
    if unable:
        with pytest.raises(PlatformError, match=rf"cannot measure calls \(.*{unable}"):
            runner.run(setting, 3, kept.extend)
        return
    for number in (3, 4):
        runner.run(setting, number, kept.extend)
    for kind in calls:
        own = [one for one in kept if calls_of(one) == kind]
        assert len(own) == 2 * 3
        # In the second process as many calls make a timing as this kind needs: 25 or 50 us each.
        assert {one.iterations for one in own[3:]} == {50 if kind.graph else 30}


OLD, NEW = "old/libnccl.so.2", "new/libnccl.so.2"


@pytest.fixture
def releases(folder: None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two libraries of NCCL; the second one chooses ring/ll from 16 KiB on, which is slower."""
    paths = []
    for name, version in ((OLD, "2.28.9"), (NEW, "2.32.3")):
        path = Path(name).absolute()
        path.parent.mkdir()
        path.write_bytes(b"\x7fELF NCCL version %s compiled with CUDA 13.0\0" % version.encode())
        paths.append(str(path))
    monkeypatch.setenv("FAKE_EFFECT", f"LD_PRELOAD={paths[1]}:1.3:16384:ring/ll")
    return paths[0], paths[1]


def test_a_slower_release_is_found_with_its_choice_and_the_rule_that_keeps_the_old_one(
    cli: Cli, releases: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = releases
    both = ("--nccl", old, "--nccl", new)
    found = cli("ab", "--json", *both, "-o", "s", "--rounds", 4, *PROGRAM, code=1).document
    assert (found["decision"], found["releases"], found["confirmed"]) == (
        "harms", ["2.28.9", "2.32.3"], True,
    )  # fmt: skip
    # Two probes with NCCL's log of choices, which are not compared, and 4 rounds.
    assert found["processes"] == 10
    assert found["known_ran"] == 5
    (change,) = found["ran"]
    assert (change["min_bytes"], change["max_bytes"], change["effect"]) == (16384, 65536, "slower")
    assert [change[side]["protocol"] for side in ("before", "after")] == ["simple", "ll"]
    assert found["model"]["notes"] == ["no study with a topology is known"]
    (rule,) = found["rules"]
    study = Path(found["candidate"])
    assert study == Path("s-nccl-2.32.3")
    read = read_rules(study / "tuner.conf", strict=True)
    assert [(item.rule.choice.label, item.state) for item in read.rules] == [
        ("ring/simple", RuleState.CANDIDATE)
    ]
    assert (rule["min_bytes"], rule["max_bytes"], rule["ranks"]) == (16384, 65536, 4)
    assert read.header["nccl"] == "2.32.3"
    assert read.header["rows"] == rows_text([item.rule for item in read.rules])
    # Neither the study of the first release nor settings to deploy are changed.
    assert not Path("s/tuner.conf").exists()
    assert not Path("s/try.conf").exists()
    assert Study(Path("s")).platform().nccl_version == "2.28.9"
    assert Study(study).platform().nccl_version == "2.32.3"

    printed = cli("ab", *both, "-o", "s", "--rounds", 4, *PROGRAM, code=1)
    said = printed.out
    assert said.startswith("slower     NCCL 2.32.3 instead of 2.28.9: all-reduce is 1.4")
    assert "chosen     all-reduce 16 KiB - 64 KiB, 1 node, 4 ranks: ring/simple -> ring/ll" in said
    assert f"prove the rules with NCCL 2.32.3: LD_PRELOAD={new} nccltune verify" in printed.err
    assert "0 processes" in said

    # What verify changes or has changed is not written over.
    proven = (study / "tuner.conf").read_text().replace("# candidate:", "# proven:")
    with locked(Study(study)):
        busy = cli("ab", *both, "-o", "s", "--rounds", 4, *PROGRAM, code=2).err
    assert f"{study}: another sweep is running on this study" in busy
    (study / "tuner.conf").write_text(proven)
    kept = cli("ab", "--json", *both, "-o", "s", "--rounds", 4, *PROGRAM, code=1).document
    assert (kept["candidate"], len(kept["rules"])) == (None, 1)
    assert (study / "tuner.conf").read_text() == proven
    monkeypatch.chdir("s")
    program = (PROGRAM[0], f"../{PROGRAM[1]}", *PROGRAM[2:])
    here = cli("ab", *both, "-o", ".", "--rounds", 4, *program, code=1).err
    assert f"/{study.name} has others" in here
    monkeypatch.chdir("..")

    # From the recording, by release.
    named = ("--nccl", "2.28.9", "--nccl", "2.32.3")
    again = cli("ab", "--json", *named, "-o", "t", "--replay", "s", "--rounds", 6, code=1).document
    assert (again["decision"], again["replay"]) == ("harms", "s")
    assert again["ran"][0]["min_bytes"] == 16384
    assert (
        "has no trial of NCCL 2.30.7"
        in cli("ab", *named[:2], "--nccl", "2.30.7", "-o", "u", "--replay", "s", code=2).err
    )


def test_a_release_that_is_as_fast_holds_and_one_that_is_not_loaded_is_an_error(
    cli: Cli, releases: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = releases
    monkeypatch.delenv("FAKE_EFFECT")
    both = ("--nccl", old, "--nccl", new)
    said = cli("ab", *both, "-o", "s", "--rounds", 6, *PROGRAM).out
    assert said.startswith("same       NCCL 2.32.3 instead of 2.28.9: nothing is faster by 3 %")
    assert "no size is slower beyond noise, their intervals leave room for" in said
    assert "chosen     the same by both at all 5 sizes at which that is known" in said
    assert not Path("s-nccl-2.32.3").exists()

    monkeypatch.setenv("FAKE_VERSION", "2.28.9")
    assert (
        f"with {new} it ran NCCL 2.28.9, not 2.32.3"
        in cli("ab", *both, "-o", "t", "--rounds", 4, *PROGRAM, code=4).err
    )
    assert not Path("t").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nccl", OLD, "--nccl", OLD), "both are the same library"),
        (("--nccl", OLD, "--nccl", "none/libnccl.so.2"), "no such library"),
        (("--nccl", OLD, "--nccl", NEW, "--nccl", OLD), "is given 3 times"),
        (("--nccl", OLD, "--nccl", NEW, "NCCL_X=1"), "compared without settings"),
        (("--nccl", OLD, "--nccl", "2.0.1"), "NCCL 2.0.1 is not found"),
        (("--nccl", OLD, "NCCL_X=1"), "is for our bench"),
        (("--nccl", OLD, "--nccl", NEW, "--graphs"), "is for our bench"),
    ],
)
def test_libraries_that_cannot_be_compared(
    cli: Cli, releases: tuple[str, str], words: tuple[str, ...], message: str
) -> None:
    assert releases
    assert message in cli("ab", *words, "-o", "s", *PROGRAM, code=2).err
    assert not Path("s").exists()


def test_a_launcher_passes_the_library_on(cli: Cli, releases: tuple[str, str]) -> None:
    launcher = ("--launcher", launcher_here("openmpi"), "--gpus", 4)
    both = ("--nccl", releases[0], "--nccl", releases[1])
    found = cli(
        "ab", "--json", *both, "-o", "s", "--rounds", 1, *launcher, *PROGRAM, code=1
    ).document
    assert (found["decision"], found["releases"], found["confirmed"]) == (
        "open", ["2.28.9", "2.32.3"], True,
    )  # fmt: skip


def test_releases_are_compared_in_each_kind_of_calls(
    releases: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_TOPOLOGY", str(example("h200x4-1-node") / "topology.xml"))
    stand_in = [sys.executable, str(Path(__file__).with_name("settings_bench.py"))]
    settings: dict[str, str | None] = {LIBRARY: releases[1]}
    calls = [CallKind(), CallKind(graph=True)]
    runner = BenchRunner(
        Launch(gpus=2), [Collective.ALLREDUCE], 1024, 4096, settings, program=stand_in, calls=calls
    )
    trial = trial_of(Path("s"), settings, [], releases[0])
    found = ab_test(Path("s"), runner, trial, TrialScope(5), min_gain=0.03)
    assert isinstance(found, ReleaseVerdict)
    assert found.why == "all-reduce is 1.30x slower from 1 KiB to 4 KiB"
    assert [(one.prose, one.before.label, one.after.label) for one in found.ran] == [
        ("all-reduce", "ring/ll/2", "ring/ll/4")
    ]
    (rule,) = found.rules
    assert (rule.choice.label, rule.registered) == ("ring/ll/2", False)
    # NCCL wrote its topology in the probe, so its model was asked.
    assert found.model is not None
    assert found.model.is_asked
    assert Study(Path("s")).topology_path is not None


@NEEDS_FAKES
def test_our_bench_runs_each_library_and_knows_the_choices(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKES))
    shutil.copy(FAKES / "libnccl.so.2", "libnccl.so.2")
    both = ("--nccl", FAKES / "libnccl.so.2", "--nccl", "libnccl.so.2")
    scope = ("--sizes", "1K-4K", "--collectives", "allreduce", "--rounds", 1, "--gpus", 2)
    kinds = ("--registered", "--graphs")
    found = cli("ab", "--json", *both, "-o", "s", *scope, *kinds, code=1).document
    # Two builds of one release: that each was loaded cannot be seen by their version.
    assert (found["decision"], found["releases"], found["confirmed"]) == (
        "open", ["2.28.9", "2.28.9"], False,
    )  # fmt: skip
    # Two sizes of each kind of calls, in the same process.
    assert [(one["registered"], one["graph"]) for one in found["collectives"]] == [
        (False, False), (True, False), (False, True), (True, True),
    ]  # fmt: skip
    assert (found["known_ran"], found["ran"], found["model"]) == (8, [], None)
    # Without the options it is another test of the study.
    plain = cli("ab", "--json", *both, "-o", "s", *scope, code=1).document
    assert (plain["known"], len(plain["collectives"])) == (0, 1)
