# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep` on recordings of real machines."""

import json
import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from nccltune.analyze.timings import Timings, sort_samples
from nccltune.measure.engine.point_record import FailedPoint
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.study.files import Study
from nccltune.tune.search import search
from tests.e2e.command_line import children, environment, line, nccltune
from tests.programs import alive
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDINGS = ["h200x4-as-4-nodes", "h200x4-1-node"]
COLLECTIVES = "allgather,reducescatter"
LONG = [
    *("--replay", EXAMPLES / RECORDINGS[0], "--collectives", COLLECTIVES),
    *("--exhaustive", "--rounds", "14"),
]
Points = dict[tuple[str, int, str, int, int], float]


def sweep(*args: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    return nccltune("sweep", *args, cwd=cwd, code=code)


def points(study: Path) -> Points:
    """Every point by its name; fails on a point measured twice."""
    found: Points = {}
    for sample in Study(study).samples():
        key = (
            sample.collective.value,
            sample.bytes,
            str(sample.choice),
            sample.round,
            sample.repeat,
        )
        assert key not in found
        found[key] = sample.time_us
    return found


def assert_the_same(resumed: Points, whole: Points) -> None:
    """The same points with the same timings, but for the request in which the interruption fell:
    the rest of it is drawn anew."""
    assert resumed.keys() == whole.keys()
    differ = [key for key in whole if resumed[key] != whole[key]]
    assert len({(key[0], key[3]) for key in differ}) <= 1
    assert len(differ) < len(whole) / 20


def timings(study: Path) -> Mapping[Collective, Timings]:
    found = sort_samples(Study(study).samples()).timings
    return {item.condition.collective: item for item in found}


def rules(study: Path) -> list[Rule]:
    groups = search(list(timings(study).values()))
    return [item.rule for group in groups for item in group.rules]


def taken(table: Sequence[Rule], of: Timings, size: int) -> AnyChoice:
    scale, collective = of.condition.scale, of.condition.collective
    return next(
        (rule.choice for rule in table if rule.matches(collective, size, scale.nodes, scale.ranks)),
        DEFAULT,
    )


def regret(ours: Sequence[Rule], yardstick: Sequence[Rule], truth: Timings) -> float:
    """Mean log of the time by our rules over that by the others, by the medians of `truth`."""
    total = 0.0
    for size in truth.sizes:
        mine = truth.median(size, taken(ours, truth, size))
        other = truth.median(size, taken(yardstick, truth, size))
        assert mine is not None
        assert other is not None
        total += math.log(mine / other)
    return total / len(truth.sizes)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_sweep_costs_little_and_loses_little_against_the_full_grid(
    tmp_path: Path, name: str
) -> None:
    last = "1G" if name == "h200x4-1-node" else "64M"
    common = ["--replay", EXAMPLES / name, "--sizes", f"1K-{last}", "--json"]
    ours = json.loads(sweep("-o", "ours", *common, cwd=tmp_path).stdout)
    full = json.loads(sweep("-o", "full", "--exhaustive", *common, cwd=tmp_path).stdout)
    assert ours["sweep"]["reason"] == full["sweep"]["reason"] == "done"
    assert ours["sweep"]["gain_left"] < 0.011
    assert ours["sweep"]["seconds"] < full["sweep"]["seconds"] / 5
    assert ours["sweep"]["points"] < full["sweep"]["points"] / 2
    timed = len(points(tmp_path / "ours"))
    assert timed + ours["sweep"]["failed"] == ours["sweep"]["points"]
    # Nothing is missing but channel counts, which were not recorded.
    missing = Study(tmp_path / "ours").read_lines(tmp_path / "ours" / "sweep.jsonl", FailedPoint)
    assert all(isinstance(item.choice, Choice) and item.choice.channels for item in missing)
    truth = timings(EXAMPLES / name)
    tables = rules(tmp_path / "ours"), rules(tmp_path / "full")
    measured = timings(tmp_path / "ours")
    assert len(measured) == 3
    for collective in measured:
        assert regret(*tables, truth[collective]) <= math.log(1.01), collective


def test_what_a_replay_leaves_says_replay_everywhere(tmp_path: Path) -> None:
    done = sweep("-o", "study", "--replay", EXAMPLES / RECORDINGS[1], cwd=tmp_path)
    assert done.stdout.startswith("replay ")
    assert "replay     of h200x4-1-node" in done.stderr
    study = Study(tmp_path / "study")
    assert study.platform().replay == "h200x4-1-node"
    assert {sample.source.tool for sample in study.samples()} == {"nccltune-bench replay"}
    assert json.loads((study.path / "sweep.json").read_text())["replay"] == "h200x4-1-node"


def test_a_recording_may_be_named(tmp_path: Path) -> None:
    done = sweep("-o", "study", "--replay", RECORDINGS[1], "--dry-run", cwd=tmp_path)
    first = re.search(r"Would measure up to (\d+) points first", done.stdout)
    assert first is not None
    assert "replay     of h200x4-1-node" in done.stdout
    assert not (tmp_path / "study").exists()
    told = json.loads(
        sweep("-o", "study", "--replay", RECORDINGS[1], "--dry-run", "--json", cwd=tmp_path).stdout
    )
    assert told["points"] == int(first[1])
    asked = {item["collective"]: len(item["choices"]) for item in told["first"]}
    assert asked == {"allreduce": 7, "allgather": 4, "reducescatter": 4}
    assert told["total_seconds"] > told["seconds"] > 0


def test_a_study_of_another_platform_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    sweep("-o", "study", "--replay", EXAMPLES / RECORDINGS[1], cwd=tmp_path)
    before = (tmp_path / "study" / "samples.jsonl").read_bytes()
    done = sweep("-o", "study", "--replay", EXAMPLES / RECORDINGS[0], cwd=tmp_path, code=2)
    assert "another platform: number of nodes 1 there, 4 here" in done.stderr
    assert (tmp_path / "study" / "samples.jsonl").read_bytes() == before


def running_sweep(cwd: Path, lines: int) -> tuple[subprocess.Popen[str], list[int]]:
    """A sweep that has just written so many samples, and its processes. The full
    grid in many rounds, so that there is time to interrupt it."""
    samples = cwd / "study" / "samples.jsonl"
    process = subprocess.Popen(
        line("sweep", "-o", "study", *LONG),
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: samples.exists() and samples.read_bytes().count(b"\n") >= lines, "no samples"
    )
    return process, children(process.pid)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Points:
    folder = tmp_path_factory.mktemp("whole")
    sweep("-o", "study", *LONG, cwd=folder)
    return points(folder / "study")


@pytest.mark.parametrize("lines", [1, 700])
def test_a_killed_sweep_leaves_nothing_running_and_goes_on(
    tmp_path: Path, uninterrupted: Points, lines: int
) -> None:
    process, started = running_sweep(tmp_path, lines)
    process.kill()
    process.communicate()
    assert process.returncode == -9
    assert started
    wait_until(lambda: not any(alive(pid) for pid in started), "the plugin host outlived the sweep")
    kept = points(tmp_path / "study")
    assert lines <= len(kept) < len(uninterrupted)
    done = sweep("-o", "study", *LONG, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["sweep"]["known"] == len(kept)
    assert_the_same(points(tmp_path / "study"), uninterrupted)


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_an_interrupted_sweep_says_how_to_go_on(
    tmp_path: Path, uninterrupted: Points, number: int, code: int
) -> None:
    process, started = running_sweep(tmp_path, 300)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=200)
    assert process.returncode == code
    assert "points so far are kept in study" in said
    assert "resume:  nccltune sweep --output study" in said
    assert not any(alive(pid) for pid in started)
    assert json.loads((tmp_path / "study" / "sweep.json").read_text())["reason"] == "interrupted"
    sweep("-o", "study", *LONG, cwd=tmp_path)
    assert_the_same(points(tmp_path / "study"), uninterrupted)
