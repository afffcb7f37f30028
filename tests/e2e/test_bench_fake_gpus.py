# SPDX-License-Identifier: Apache-2.0
"""nccltune-bench with its NCCL backend, as processes, on the fake GPUs of the native tests."""

import pytest

from .bench_runs import HELLO, NEEDS_FAKES, QUIT, Run, measure

SIZE = 3
TREE_LL = {"algorithm": "tree", "protocol": "ll"}

pytestmark = NEEDS_FAKES


def test_a_whole_run() -> None:
    with Run(SIZE) as run:
        run.first.send(HELLO, measure(choices=["default", TREE_LL], iterations=2), QUIT)
        hello, *answers = run.first.rest()
        assert run.end() == [0] * SIZE
    assert (hello["backend"], hello["ranks"], hello["processes"]) == ("nccl", SIZE, SIZE)
    assert hello["nccl"]["from"] == "flag"
    assert [answer["op"] for answer in answers] == ["point", "point", "done", "quit"]
    for point in answers[:2]:
        assert "error" not in point
        assert len(point["times_us"]) == SIZE
        assert (point["applied"], point["wrong"]) == (True, 0)
        if point["choice"] == TREE_LL:
            assert {name: point["ran"][name] for name in TREE_LL} == TREE_LL


@pytest.mark.parametrize(
    ("registered", "group_calls", "pipe_ops"), [(False, 1, 1), (True, 4, 1), (True, 60, 3)]
)
def test_groups_and_registered_buffers_reach_nccls_tuner(
    registered: bool, group_calls: int, pipe_ops: int
) -> None:
    request = measure(
        bytes=[61440],
        choices=["default", TREE_LL],
        registered=registered,
        group_calls=group_calls,
    )
    with Run(SIZE) as run:
        run.first.send(HELLO, request, QUIT)
        _, *points, _, _ = run.first.rest()
        assert run.end() == [0] * SIZE
    for point in points:
        assert point["seen"] == {"pipe_ops": pipe_ops, "registered": registered}
        assert (point["bytes"], point["wrong"], point["applied"]) == (61440, 0, True)


def test_a_stuck_collective_is_named_and_ends_all() -> None:
    with Run(SIZE, FAKE_NCCL_HANG="1:4096") as run:
        run.hello()
        run.first.send(measure(bytes=[4096], timeout_s=0.5))
        answers = run.first.rest()
        assert run.end() == [4] * SIZE
    assert answers[-1]["error"]["kind"] == "timeout"
    assert "allreduce of 4096 bytes with NCCL's default is stuck" in answers[-1]["error"]["text"]


def test_no_gpu_is_exit_status_3() -> None:
    with Run(SIZE, SOFT_CUDA_INIT="100") as run:
        answers = run.first.rest()
        assert run.end() == [3] * SIZE
    assert [(answer["op"], answer["kind"]) for answer in answers] == [("error", "start")]
    assert answers[0]["text"].startswith("no GPU: the NVIDIA driver cannot be initialised")


def test_two_processes_on_one_gpu_are_named() -> None:
    with Run(2, "--local-rank", "0") as run:
        answers = run.first.rest()
        assert run.end() == [2, 2]
    assert answers[0]["text"] == "ranks 0 and 1 are on the same GPU"
