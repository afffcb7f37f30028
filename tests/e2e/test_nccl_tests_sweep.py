# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch sweep` on binaries that print what nccl-tests prints."""

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nccltune.model.choice import DEFAULT, choice_label
from nccltune.model.sample import Sample
from nccltune.study.files import Study
from tests.e2e.bench_runs import environment
from tests.e2e.command_line import launcher_here, line, nccltune, running
from tests.waiting import wait_until

FAKE = Path(__file__).with_name("fake_nccl_tests.py")
SIZES = ("--sizes", "4K-1M")
NUMBER_OF_SIZES = 9


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The site's folder of binaries."""
    folder = tmp_path / "build"
    folder.mkdir()
    for name in ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf"):
        (folder / name).symlink_to(FAKE)
    return folder


def words(build: Path, *args: object) -> list[object]:
    scope = (*SIZES, "-o", "study", "--collectives", "allreduce")
    return ["launch", "sweep", build, *scope, *args]


def sweep(
    build: Path, *args: object, code: int = 0, gpus: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    return nccltune(
        *words(build, *(("--gpus", 4) if gpus else ()), *args),
        cwd=build.parent,
        code=code,
        env=environment(**{"FAKE_STARTS": str(build.parent / "starts"), **variables}),
    )


def result(build: Path, *args: object, **variables: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sweep(build, *args, "--json", **variables).stdout)
    return found


def samples(build: Path) -> list[Sample]:
    return list(Study(build.parent / "study").samples())


def starts(build: Path) -> list[str]:
    """Every start that measured: `stem choice arguments`."""
    lines = (build.parent / "starts").read_text().splitlines()
    return [line for line in lines if "-n 1 " not in line]


def test_a_sweep_gives_what_analyse_and_tune_read(build: Path) -> None:
    found = result(build)
    assert found["left_out"] == []
    kept = samples(build)
    # 5 choices in 4 rounds, in and out of place.
    assert len(kept) == found["sweep"]["points"] == 5 * 4 * NUMBER_OF_SIZES * 2
    keys = Counter((s.bytes, s.choice, s.round, s.in_place) for s in kept)
    assert set(keys.values()) == {1}
    assert {choice_label(s.choice) for s in kept} == {
        "default", "tree/ll", "tree/simple", "ring/ll", "ring/simple",
    }  # fmt: skip
    assert all((s.nodes, s.ranks) == (1, 4) for s in kept)
    assert {(s.source.tool, s.source.version, s.source.nccl_version) for s in kept} == {
        ("nccl-tests", "2.19.6", "2.28.9")
    }
    assert all(s.ran is not None and s.ran.channels == 2 for s in kept)
    assert {s.wrong for s in kept if s.round == 0} == {0}
    assert {s.wrong for s in kept if s.round > 0} == {None}
    platform = Study(build.parent / "study").platform()
    assert (platform.gpu, platform.gpus, platform.nccl_version) == ("NVIDIA H200", 4, "2.28.9")
    nccltune("analyze", "study", "--json", cwd=build.parent)
    tuned = json.loads(nccltune("tune", "study", "--json", cwd=build.parent).stdout)
    (rule,) = [rule for group in tuned["groups"] for rule in group["rules"]]
    assert rule["rule"]["choice"] == {"algorithm": "tree", "protocol": "ll"}
    assert (build.parent / "study" / "tuner.conf").exists()


def test_choices_run_in_another_order_in_every_round(build: Path) -> None:
    sweep(build, "--rounds", 3, "--sizes", "4K-8K")
    order = [line.split()[1] for line in starts(build)]
    rounds = [order[at : at + 5] for at in range(0, len(order), 5)]
    assert all(len(set(one)) == 5 and "default" in one for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


def test_what_nccl_refuses_ignores_or_computes_wrongly_is_left_out_and_named(build: Path) -> None:
    found = result(build, "--rounds", 1, FAKE_REFUSE="tree/ll", FAKE_WRONG="ring/ll")
    why = {item["choice"]: item["why"] for item in found["left_out"]}
    assert why["tree/ll"].startswith("NCCL warns: Error : no algorithm/protocol available")
    assert why["ring/ll"].startswith("gave wrong results")
    # Wrong timings are kept, but for what they are.
    assert all(s.wrong for s in samples(build) if choice_label(s.choice) == "ring/ll")
    assert not any(choice_label(s.choice) == "tree/ll" for s in samples(build))
    before = len(starts(build))
    again = result(build, "--rounds", 2, FAKE_REFUSE="tree/ll", FAKE_WRONG="ring/ll")
    assert {item["choice"] for item in again["left_out"]} == set(why)
    assert len(starts(build)) == before + 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_sweep_goes_on_at_the_size_where_it_stopped(
    build: Path, number: int
) -> None:
    process = subprocess.Popen(
        line(*words(build, "--gpus", 4, "--rounds", 2)),
        cwd=build.parent,
        env=environment(FAKE_STARTS=str(build.parent / "starts"), FAKE_SLOW="0.05"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    path = build.parent / "study" / "samples.jsonl"
    wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= 36)
    process.send_signal(number)
    _, output = process.communicate(timeout=30)
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert "resume:  nccltune launch sweep" in output
    kept = samples(build)
    found = result(build, "--rounds", 2)
    assert found["sweep"]["known"] == len([s for s in kept if not s.in_place])
    assert len(samples(build)) == 5 * 2 * NUMBER_OF_SIZES * 2
    keys = Counter((s.bytes, s.choice, s.round, s.in_place) for s in samples(build))
    assert set(keys.values()) == {1}
    nothing = result(build, "--rounds", 2)
    assert nothing["sweep"]["points"] == 0


def test_the_budget_ends_it_before_a_process(build: Path) -> None:
    found = result(build, "--budget", 2, FAKE_SLOW="0.03")
    assert found["sweep"]["reason"] == "budget"
    assert found["sweep"]["points"] < 5 * 4 * NUMBER_OF_SIZES * 2


def test_a_dry_run_lists_what_it_would_start_and_writes_nothing(build: Path) -> None:
    output = sweep(build, "--dry-run").stdout
    assert "allreduce     default ring/ll ring/simple tree/ll tree/simple" in output
    assert "Would start 20 processes in 4 rounds" in output
    assert not (build.parent / "study").exists()
    assert starts(build) == []


def test_a_launcher_starts_a_process_for_each_gpu(build: Path) -> None:
    sweep(build, "--launch-prefix", "env FAKE_RANKS=8", "--rounds", 1, gpus=False)
    assert all(s.ranks == 8 for s in samples(build))
    assert all("-g 1" in line for line in starts(build))


@pytest.fixture(params=["openmpi", "hydra"])
def launcher(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that start four processes with a launcher that is here."""
    return "--launcher", launcher_here(request.param), "--gpus", "4", "--rounds", "1"


def test_a_launcher_starts_them_and_hands_the_choice_on(
    build: Path, launcher: tuple[str, ...]
) -> None:
    found = json.loads(sweep(build, *launcher, "--json", gpus=False).stdout)
    assert found["left_out"] == []
    kept = samples(build)
    assert {choice_label(s.choice) for s in kept} == {
        "default", "tree/ll", "tree/simple", "ring/ll", "ring/simple",
    }  # fmt: skip
    assert {s.ranks for s in kept} == {4}
    assert all(s.ran is not None for s in kept), "NCCL's log is read"
    assert all("-g 1" in line for line in starts(build))
    assert not list(build.parent.glob(".nccltune-*"))
    again = json.loads(sweep(build, *launcher, "--json", gpus=False).stdout)
    assert again["sweep"]["points"] == 0


def test_a_process_for_each_node(build: Path, launcher: tuple[str, ...]) -> None:
    sweep(build, *launcher, "--set", "processes=per-node", "--sizes", "4K-8K", gpus=False)
    assert {s.ranks for s in samples(build)} == {4}
    assert all("-g 4" in line for line in starts(build))


def test_its_last_words_are_those_of_the_program(build: Path, launcher: tuple[str, ...]) -> None:
    done = sweep(build, *launcher, gpus=False, code=4, FAKE_CRASH_AT=str(64 << 10))
    assert "its last line: CUDA error: unspecified launch failure" in done.stderr


def test_the_end_of_a_sweep_is_the_end_of_what_a_launcher_started(
    build: Path, launcher: tuple[str, ...]
) -> None:
    path = build.parent / "starts"
    process = subprocess.Popen(
        line(*words(build, *launcher)),
        cwd=build.parent,
        env=environment(FAKE_STARTS=str(path), FAKE_SLOW="0.2"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: path.exists() and starts(build) and len(programs(path)) == 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert programs(path) == []


def programs(starts: Path) -> list[list[str]]:
    """The command lines of binaries that run and note their starts there."""
    return [
        one.words
        for one in running()
        if one.variables.get("FAKE_STARTS") == str(starts)
        and "all_reduce_perf" in "".join(one.words[1:2])
    ]


def test_a_default_that_crashes_ends_it_with_its_last_words(build: Path) -> None:
    done = sweep(build, code=4, FAKE_CRASH_AT=str(64 << 10))
    assert "all_reduce_perf with NCCL's default ended with status 2" in done.stderr
    assert "its last line: CUDA error: unspecified launch failure" in done.stderr
    assert "the same command continues" in done.stderr
    sizes = {s.bytes for s in samples(build) if s.choice == DEFAULT}
    assert sizes == {4096, 8192, 16384, 32768}
    sweep(build, "--rounds", 1)
    assert {s.bytes for s in samples(build) if s.choice == DEFAULT} == {
        4096 << power for power in range(NUMBER_OF_SIZES)
    }
