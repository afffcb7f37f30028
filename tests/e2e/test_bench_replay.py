# SPDX-License-Identifier: Apache-2.0
"""nccltune-bench on a recording: the conversation, by one process and by several."""

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nccltune.study.files import Study

from .bench_runs import BENCH, FOUR_NODES, HELLO, QUIT, Answer, Run, environment, measure

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


def test_one_request_always_draws_the_same_and_rounds_go_on() -> None:
    request = measure(bytes=[1024, 2048], choices=["default", TREE_LL], seed=5)
    whole = points(1, request | {"rounds": 6})
    assert whole == points(1, request | {"rounds": 6})
    assert whole != points(1, request | {"rounds": 6, "seed": 6})
    halves = points(1, request | {"rounds": 4})
    halves += points(1, request | {"rounds": 2, "first_round": 4})
    assert halves == whole


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


def test_ranks_with_different_rules_get_stuck_as_under_nccl(tmp_path: Path) -> None:
    rules = tmp_path / "tuner.conf"
    rules.write_text("allreduce,0,100000,tree,ll,-1,4,4\n")
    with Run(2, absent=1) as run:
        run.complete(NCCLTUNE_CONFIG=str(rules))
        run.hello()
        run.first.send(measure(choices=["tuned"]))
        answers = run.first.rest()
        assert run.end() == [4, 4]
    assert [answer["op"] for answer in answers] == ["point"]
    assert answers[0]["error"]["kind"] == "timeout"
    assert "do all have the same rules?" in answers[0]["error"]["text"]


def test_iterations_are_picked_for_a_time() -> None:
    picked = {
        point["bytes"]: point["iterations"]
        for point in points(2, measure(bytes=[1024, 1 << 26], iterations=0, rounds=2))
    }
    assert 30 < picked[1024] < 200
    assert picked[1 << 26] == 2


def test_the_table_lists_what_can_run() -> None:
    with Run(2) as run:
        run.hello()
        run.first.send({"op": "table", "id": 3, "collective": "allgather", "bytes": [1024, 2048]})
        answer = run.first.receive()
        assert run.end() == [0, 0]
    assert answer is not None
    assert answer["id"] == 3
    assert [row["bytes"] for row in answer["rows"]] == [1024, 2048]
    for row in answer["rows"]:
        assert set(row["costs"]) == {"pat/simple", "ring/ll", "ring/simple"}
        assert all(cost > 0 for cost in row["costs"].values())
        assert row["predicted"] == {"algorithm": "ring", "protocol": "ll"}


def test_bad_requests_change_nothing() -> None:
    bad: list[dict[str, Any] | str] = [
        "",
        "nonsense",
        "[1]",
        '{"op":"measure"',
        {"op": "dance", "id": 1},
        {"op": "hello", "schema_version": 99},
        measure(iteration=5),
        measure(choices=["fastest"]),
        measure(choices=[{"algorithm": "tree", "protocol": "ll", "channel": 2}]),
        measure(bytes=[-1]),
        measure(collective="barrier"),
        "x" * 3_000_000,
        '{"op":"quit","op":"quit"}',
    ]
    with Run(2) as run:
        run.hello()
        for line in bad:
            run.first.send(line)
            answer = run.first.receive()
            assert answer is not None
            assert (answer["op"], answer["kind"]) == ("error", "request"), answer
            assert answer["text"]
        run.first.send(measure())
        point = run.first.receive()
        assert point is not None
        assert point["op"] == "point"
        assert run.end() == [0, 0]


def test_hello_comes_first() -> None:
    with Run(1) as run:
        run.first.send(measure(id=4))
        answer = run.first.receive()
        assert answer is not None
        assert answer["id"] == 4
        assert "first request must be hello" in answer["text"]
        assert run.end() == [0]


def test_the_end_of_input_is_quit_after_what_was_asked() -> None:
    script = "\n".join(json.dumps(request) for request in (HELLO, measure(rounds=50)))
    done = subprocess.run(
        [BENCH, "--replay", FOUR_NODES],
        input=script.encode(),
        capture_output=True,
        check=True,
        env=environment(),
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["op"] for answer in answers] == ["hello", *["point"] * 50, "done", "quit"]
    assert done.stderr == b""


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


def test_a_reader_that_is_slow_loses_nothing() -> None:
    with Run(1) as run:
        run.hello()
        run.first.send(measure(bytes=[1024, 2048, 4096], rounds=2000), QUIT)
        ops = [answer["op"] for answer in run.first.rest()]
        assert ops == [*["point"] * 6000, "done", "quit"]
        assert run.end() == [0]


def test_a_full_disk_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [BENCH, "--replay", FOUR_NODES],
            input=json.dumps(HELLO).encode() + b"\n",
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=environment(),
            timeout=60,
        )
    assert done.returncode == 4
    assert b"No space left on device" in done.stderr


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


def test_what_is_no_plugin_of_ours_cannot_be_used() -> None:
    libc = next(
        (path for path in Path("/lib").glob("*-linux-gnu/libm.so.6")), Path("/lib64/libm.so.6")
    )
    if not libc.exists():
        pytest.skip("no shared library that is no plugin was found")
    status, error = failure("--replay", str(FOUR_NODES), "--tuner", str(libc))
    assert status == 3
    assert "is not nccltune's tuner plugin" in error


def test_help_and_version() -> None:
    shown = subprocess.run([BENCH, "--help"], capture_output=True, check=True, text=True).stdout
    assert shown.startswith("nccltune-bench: ")
    version = subprocess.run([BENCH, "--version"], capture_output=True, check=True, text=True)
    assert version.stdout.startswith("nccltune-bench ")


def test_processes_that_do_not_come_are_named() -> None:
    with Run(4, "--start-timeout", "3", absent=1) as run:
        answers = run.first.rest()
        statuses = [rank.end()[0] for rank in run.ranks]
    assert statuses == [4, 4, 4]
    assert [answer["kind"] for answer in answers] == ["start"]
    text = answers[0]["text"]
    assert "process 3 of 4 did not connect" in text


def test_nodes_are_emulated() -> None:
    with Run(4, "--emulate-nodes", "4") as run:
        assert run.hello()["nodes"] == 4
        assert run.end() == [0] * 4
    status, error = failure(
        *("--replay", str(FOUR_NODES), "--emulate-nodes", "1"), NCCL_HOSTID="somewhere"
    )
    assert status == 2
    assert "NCCL_HOSTID, which is set already" in error
