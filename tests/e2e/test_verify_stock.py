# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify STUDY -- COMMAND`: the deployed file, seen through NCCL's log."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.native import tuner_path
from nccltune.prove.stock import StockProof
from nccltune.study.files import Study
from tests.e2e.command_line import launcher_here

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(Path(__file__).with_name("stock_program.py"))]
CONFIG = """\
# nccltune: schema=1
allreduce,2048,32768,tree,ll,-1,4,4
allreduce,32769,131072,tree,simple,-1,4,4
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = Study.create(tmp_path / "study")
    made.platform_path.write_text('{"name": "study"}')
    made.config_path.write_text(CONFIG)
    return made


def verify(
    study: Study, *program: str, code: int = 0, options: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "nccltune.cli", "verify", "study", *options, "--", *program],
        cwd=study.path.parent,
        env={**kept, "PYTHONPATH": paths, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def kept(study: Study) -> StockProof:
    return study.read_json(study.path / "deployed.json", StockProof)


def test_the_deployed_file_is_loaded_and_followed(study: Study) -> None:
    done = verify(study, *PROGRAM)
    hash_ = config_hash(CONFIG.encode())
    assert f"plugin     loaded, content {hash_}: 2 of 2 rules for 4 nodes, 4 ranks" in done.stdout
    assert "rules      followed at 3 of 3 points; left alone as before: 3" in done.stdout
    assert "Times are of the last round" in done.stdout
    # The output of the first round is passed on, to standard error.
    assert done.stderr.count("# Collective test starting: all_reduce_perf") == 2
    proof = kept(study)
    assert proof.problems == []
    assert (proof.before.tuner, proof.after.tuner) == (None, "nccltune")
    assert proof.after.config_hashes == [hash_] == [proof.config_hash]
    found = {point.bytes: point for point in proof.points}
    assert found[4096].rule == "tree/ll"
    assert (found[4096].before, found[4096].after) == ("ring/simple/4", "tree/ll/4")
    assert (found[4096].before_us, found[4096].after_us) == (20.0, 15.0)
    assert found[1 << 20].verdict == "left alone"


def test_a_file_of_one_rule_is_loaded_like_any_other(study: Study) -> None:
    study.config_path.write_text("".join(CONFIG.splitlines(keepends=True)[:2]))
    done = verify(study, *PROGRAM)
    assert ": 1 of 1 rule for 4 nodes, 4 ranks" in done.stdout
    assert kept(study).problems == []


def test_json_is_the_whole_result(study: Study) -> None:
    document = json.loads(verify(study, *PROGRAM, options=("--json",)).stdout)
    assert document["problems"] == []
    assert len(document["points"]) == 6
    assert document["unmeasured"] is None
    assert [item["verdict"] for item in document["proof"]["rules"]] == ["holds", "holds"]


def test_settings_of_ours_in_the_shell_are_not_in_the_run_without(study: Study) -> None:
    more = {"NCCL_TUNER_PLUGIN": str(tuner_path()), "NCCLTUNE_CONFIG": "/no/such.conf"}
    verify(study, *PROGRAM, **more)
    assert kept(study).before.config_hashes == []
    assert kept(study).problems == []


def test_a_plugin_that_is_not_loaded_is_a_finding_with_a_way_out(study: Study) -> None:
    done = verify(study, *PROGRAM, "--ignore-plugin", code=1)
    assert "finding    NCCL did not load our plugin with this configuration" in done.stdout
    assert "-x NCCL_TUNER_PLUGIN" in done.stdout
    assert "at 3 of 3 points NCCL did not run the choice of the rule" in done.stdout
    assert "not measured: the two runs do not differ by these rules" in done.stdout
    assert done.stderr.count("# Collective test starting") == 2
    assert study.config_path.read_text() == CONFIG
    assert not (study.path / "proof.json").exists()
    assert "the rule has tree/ll" in done.stdout


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ([*PROGRAM, "--no-log"], 2, "left no log of NCCL's"),
        ([*PROGRAM, "--fail"], 4, "the command ended with status 3 without the plugin"),
        (["no-such-program"], 2, "no-such-program: cannot be started"),
    ],
)
def test_a_command_that_cannot_tell_is_an_error(
    study: Study, program: list[str], code: int, words: str
) -> None:
    assert words in verify(study, *program, code=code).stderr
    assert not (study.path / "deployed.json").exists()


@pytest.fixture(params=["openmpi", "hydra"])
def launcher(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that start four processes of a COMMAND with a launcher that is here."""
    return "--launcher", launcher_here(request.param), "--gpus", "4"


def test_a_launcher_hands_the_settings_of_both_runs_to_its_processes(
    study: Study, launcher: tuple[str, ...]
) -> None:
    done = verify(study, *PROGRAM, options=launcher)
    assert "2 of 2 rules for 4 nodes, 4 ranks" in done.stdout
    assert "run        without the plugin: mp" in done.stderr
    # A value on the command line would be seen by everybody on the machine.
    assert str(tuner_path()) not in done.stderr
    proof = kept(study)
    assert proof.problems == []
    assert (proof.before.tuner, proof.after.tuner) == (None, "nccltune")
    assert proof.points[1].after_us == 15.0, "the table is read behind the launcher's tags"
    assert not list(study.path.glob(".nccltune-verify-*"))


def test_processes_that_are_each_alone_are_a_finding(
    study: Study, launcher: tuple[str, ...]
) -> None:
    done = verify(study, *PROGRAM, "--alone", options=launcher, code=1)
    assert "4 processes each ran a test of their own" in done.stdout


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ([*PROGRAM, "--no-log"], 2, "Its first node writes the log to"),
        ([*PROGRAM, "--fail"], 4, "ended with status 3 without the plugin"),
        ([*PROGRAM, "-g", "1"], 2, "program has -g, which follows from processes = 'per-gpu'"),
    ],
)
def test_a_command_under_a_launcher_that_cannot_tell_is_an_error(
    study: Study, launcher: tuple[str, ...], program: list[str], code: int, words: str
) -> None:
    assert words in verify(study, *program, options=launcher, code=code).stderr
    assert not (study.path / "deployed.json").exists()


def test_without_a_launcher_one_process_has_all_gpus(study: Study) -> None:
    done = verify(study, *PROGRAM, options=("--launcher", "local", "--gpus", "4"), code=1)
    assert f"run        without the plugin: {' '.join(PROGRAM)} -g 4\n" in done.stderr
    # The program prints that it has four.
    assert "4 on alpha; 1 were promised" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nodes", "2"), "--nodes: is for --launcher"),
        (("--set", "hosts=a,b"), "--set hosts: is for --launcher"),
        (("--launcher", "openmpi", "--replay", "x"), "are for measuring with our bench"),
        (("--launcher", "openmpi-5"), "did you mean 'openmpi:5'?"),
    ],
)
def test_options_that_do_not_go_with_a_command(
    study: Study, options: tuple[str, ...], words: str
) -> None:
    assert words in verify(study, *PROGRAM, options=options, code=2).stderr
