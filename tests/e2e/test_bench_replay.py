# SPDX-License-Identifier: Apache-2.0
"""nccltune-bench on a recording: the conversation, by one process and by several."""

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nccltune.study.files import Study

from .bench_runs import BENCH, FOUR_NODES, QUIT, Answer, Run, environment, measure

TREE_LL = {"algorithm": "tree", "protocol": "ll"}
RING_SIMPLE = {"algorithm": "ring", "protocol": "simple"}


def points(size: int, request: dict[str, Any], *options: str, **variables: str) -> list[Answer]:
    """What one measure request yields in a run of `size` processes that ends well."""
    with Run(size, *options, **variables) as run:
        run.hello()
        run.first.send(request, QUIT)
        answers = run.first.rest()
        assert run.end() == [0] * size
    assert [answer["op"] for answer in answers[-2:]] == ["done", "quit"]
    assert answers[-2]["points"] == len(answers) - 2
    return answers[:-2]


def test_hello_tells_what_is_replayed() -> None:
    with Run(1) as run:
        hello = run.hello()
    assert hello["schema_version"] == 1
    assert hello["backend"] == "replay"
    assert hello["replay"] == "h200x4-as-4-nodes"
    assert hello["nccl"] == {"version": "2.28.9", "path": None, "from": "recording"}
    assert hello["tuner"]["path"].endswith("lib/libnccl-tuner-nccltune.so")
    assert (hello["tuner"]["control"], hello["tuner"]["interface"]) == (1, 5)
    assert (hello["nodes"], hello["ranks"]) == (4, 4)
    assert [gpu["name"] for gpu in hello["gpus"]] == ["NVIDIA H200"] * 4
    assert hello["can"]["collectives"] == ["allgather", "reducescatter", "allreduce"]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_any_number_of_processes_gives_the_same_points(size: int) -> None:
    request = measure(
        bytes=[1024, 3000, 1 << 20],
        choices=["default", "tuned", TREE_LL, RING_SIMPLE],
        rounds=3,
        default_repeats=2,
        seed=11,
    )
    many = points(size, request)
    assert many == points(1, request)
    assert len(many) == 3 * 3 * 5
    for point in many:
        assert point["source"] == "replay"
        assert len(point["times_us"]) == 4
        assert point["time_us"] == max(point["times_us"])


def test_timings_are_those_of_the_recording() -> None:
    recorded: dict[str, list[float]] = {}
    for sample in Study.open(FOUR_NODES).samples():
        if sample.collective == "allreduce" and sample.bytes == 65536:
            label = sample.choice if isinstance(sample.choice, str) else sample.choice.label
            recorded.setdefault(label, []).append(sample.time_us)
    drawn: dict[str, list[float]] = {}
    request = measure(bytes=[65536], choices=["default", TREE_LL, RING_SIMPLE], rounds=200)
    for point in points(1, request):
        choice = point["choice"]
        label = choice if choice == "default" else f"{choice['algorithm']}/{choice['protocol']}"
        drawn.setdefault(label, []).append(point["time_us"])
    for label, times in drawn.items():
        assert set(times) == set(recorded[label]), "each recorded timing comes, and no other"
        # The mean of 200 draws: within five standard errors.
        spread = statistics.pstdev(recorded[label]) / len(times) ** 0.5
        assert abs(statistics.mean(times) - statistics.mean(recorded[label])) < 5 * spread


def recorded_run(size: int, label: str) -> Answer:
    """What ran, by the recording, for all-reduce of `size` bytes with this choice."""
    lines = map(json.loads, (FOUR_NODES / "samples.jsonl").read_text().splitlines())
    found: list[Answer] = []
    for line in lines:
        choice = line["choice"]
        name = choice if choice == "default" else f"{choice['algorithm']}/{choice['protocol']}"
        if (line["collective"], line["bytes"], name) == ("allreduce", size, label):
            found.append(line["ran"])
    assert found
    assert all(ran == found[0] for ran in found)
    return found[0]


def test_tuned_is_what_the_rules_decide(tmp_path: Path) -> None:
    rules = tmp_path / "tuner.conf"
    rules.write_text("allreduce,0,100000,tree,ll,-1,4,4\n")
    default = {size: recorded_run(size, "default") for size in (65536, 1 << 20)}
    tree = recorded_run(65536, "tree/ll")
    assert tree != default[65536]
    request = measure(bytes=[*default], choices=["tuned", "default"])
    for point in points(2, request, NCCLTUNE_CONFIG=str(rules)):
        ruled = point["choice"] == "tuned" and point["bytes"] == 65536
        assert point["ran"] == (tree if ruled else default[point["bytes"]])
    assert all(point["ran"] == default[point["bytes"]] for point in points(2, request))


def test_a_reader_that_goes_ends_all() -> None:
    with Run(3) as run:
        run.hello()
        run.first.send(measure(bytes=[1024, 2048, 4096], rounds=100_000))
        assert run.first.receive() is not None
        assert run.first.popen.stdout is not None
        run.first.popen.stdout.close()
        status, talk = run.first.end()
        assert status == 4
        assert "error: standard output cannot be written" in talk
        assert run.end() == [4, 4, 4]


def failure(*options: str, **variables: str) -> tuple[int, str]:
    """Exit status and standard error of a run that does not begin."""
    done = subprocess.run(
        [BENCH, *options],
        input=b"",
        capture_output=True,
        check=False,
        env=environment(**variables),
        timeout=60,
    )
    error, hint = done.stderr.decode().strip().split("\n")
    assert error.startswith("error: ")
    assert hint.startswith("hint:  ")
    for line in done.stdout.splitlines():
        assert json.loads(line)["kind"] == "start"
        assert json.loads(line)["text"] in error
    return done.returncode, error


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    study = ("--replay", str(FOUR_NODES))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "samples.jsonl").write_text('{"collective":\n{}\n')
    cases = [
        (("--replai", "x"), "'--replai' is not an option"),
        (("--replay", str(tmp_path / "none")), "No such file or directory"),
        (("--replay", str(damaged)), "samples.jsonl:1: is damaged"),
        ((*study, "--tuner", str(tmp_path / "no.so")), "the tuner plugin was not found"),
        ((*study, "--scale", "2/16"), "was not recorded at 2/16 but at 4/4"),
        ((*study, "--emulate-nodes", "1"), "was recorded on 4 nodes, 4 ranks, not on 1 nodes"),
        ((*study, "--rank", "1"), "--rank without --size"),
        ((*study, "--rank", "0", "--size", "2"), "none is given"),
        (
            (*study, "--rank", "0", "--size", "2", "--rendezvous", "127.0.0.1:1"),
            "NCCLTUNE_TOKEN is not set",
        ),
    ]
    for options, text in cases:
        status, error = failure(*options)
        assert status == 2, error
        assert text in error
    status, error = failure(
        *study,
        *("--rank", "0", "--size", "2", "--rendezvous", "127.0.0.1:1"),
        NCCLTUNE_TOKEN="secret",
    )
    assert status == 2
    assert "NCCLTUNE_TOKEN is not 32 hexadecimal digits" in error
    assert "secret" not in error


def test_help_and_version() -> None:
    shown = subprocess.run([BENCH, "--help"], capture_output=True, check=True, text=True).stdout
    assert shown.startswith("nccltune-bench: ")
    version = subprocess.run([BENCH, "--version"], capture_output=True, check=True, text=True)
    assert version.stdout.startswith("nccltune-bench ")
