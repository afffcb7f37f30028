# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest
from one_gpu import OneGpu, Scenario, parse
from one_gpu_runs import (
    GROWTH_ALLOWED,
    Mps,
    Results,
    Step,
    compared,
    growth,
    judge_growth,
    state_of,
)

from tests.unit.gpu.pairs import CARRIED, NATIVE, pair


@pytest.mark.parametrize(
    ("statuses", "texts", "state"),
    [
        ((0, 0), ("0 done", "1 done"), "done"),
        ((0, 0), ("0 done", "1 result a"), "failed"),
        ((0, 5), ("0 done", "1 skip no such thing"), "skipped"),
        ((1, None), ("0 failed ncclSend", "1 result a"), "failed"),
        ((1, None), ("0 result a", "1 failed ncclRecv"), "failed"),
        ((None, None), ("0 result a", "1 result a"), "hang"),
        ((3, 3), ("0 hang in ncclSend", "1 hang"), "hang"),
        ((3, 1), ("0 hang in ncclSend", "1 failed ncclRecv"), "failed"),
        ((-11, 0), ("0 result a", "1 done"), "failed"),
        # A word of a result is no state.
        ((0, None), ("0 done", "1 result 0 failed"), "hang"),
    ],
)
def test_state(statuses: tuple[int | None, ...], texts: tuple[str, ...], state: str) -> None:
    assert state_of(statuses, texts) == state


def test_equal_results_pass_and_count_messages() -> None:
    step = compared("x", pair(), pair(errors=CARRIED + NATIVE), must_carry=True)
    assert (step.outcome, step.why) == ("passed", "")
    # Both ranks print their counters.
    assert step.facts == {"copy_engine": 10, "nccl": 6}


def test_another_result_fails_and_is_named() -> None:
    step = compared("x", pair(), pair((("a 1",), ("b 3",))), must_carry=False)
    assert step.outcome == "failed"
    assert "rank 1" in step.why
    assert "'b 2'" in step.why
    assert "'b 3'" in step.why


def test_repeated_results_count_once_where_counts_differ() -> None:
    native = pair((("abort 0", "wrong 0"), ("wrong 0",)))
    ours = pair((("abort 0", "abort 0", "wrong 0"), ("wrong 0", "wrong 0")))
    assert compared("x", native, ours, must_carry=False).outcome == "failed"
    native.distinct = ours.distinct = True
    assert compared("x", native, ours, must_carry=False).outcome == "passed"
    ours = pair((("abort 0", "abort 5", "wrong 0"), ("wrong 0",)))
    ours.distinct = True
    assert compared("x", native, ours, must_carry=False).outcome == "failed"


def test_fewer_results_fail() -> None:
    step = compared("x", pair(), pair((("a 1",), ())), must_carry=False)
    assert (step.outcome, "1 results of NCCL alone, 0" in step.why) == ("failed", True)


def test_nothing_by_copy_engine_fails_where_it_must() -> None:
    assert compared("x", pair(), pair(errors=NATIVE), must_carry=True).outcome == "failed"
    assert compared("x", pair(), pair(errors=NATIVE), must_carry=False).outcome == "passed"


@pytest.mark.parametrize(
    ("native", "outcome"),
    [
        (pair(statuses=(None, None), ends="result a"), "native"),
        (pair(statuses=(5, 5), ends="skip"), "skipped"),
        (pair((("a WRONG",), ("b",))), "native"),
    ],
)
def test_what_nccl_alone_fails_is_no_failure(native: object, outcome: str) -> None:
    ours = pair(statuses=(1, 1), ends="failed")
    assert compared("x", native, ours, must_carry=True).outcome == outcome


def test_a_hang_with_the_library_fails() -> None:
    step = compared("x", pair(), pair(statuses=(None, 0)), must_carry=False)
    assert step.outcome == "failed"
    assert step.why.startswith("hang: ")


def measured(**more: float) -> list[list[str]]:
    """Counts after 20 and 200; `more` is the growth of rank 1, none of rank 0."""
    counts = dict.fromkeys([*GROWTH_ALLOWED, "gpu_free_mib"], 0.0) | more
    del counts["gpu_mib"]
    early = [f"{name}.20 100" for name in counts]
    return [
        [*early, *(f"{name}.200 100" for name in counts), "abort_s 3"],
        [*early, *(f"{name}.200 {100 + value}" for name, value in counts.items())],
    ]


def test_growth_is_that_of_the_worst_rank() -> None:
    found = growth(pair(measures=measured(files=5, threads=-2, gpu_free_mib=-30)))
    assert found == {
        "files": 5,
        "threads": 0,
        "mappings": 0,
        "shared_files": 0,
        "gpu_mib": 30,
        "resident_kib": 0,
    }


@pytest.mark.parametrize("name", GROWTH_ALLOWED)
def test_growth_beyond_nccl_fails(name: str) -> None:
    allowed = GROWTH_ALLOWED[name]
    key, sign = ("gpu_free_mib", -1) if name == "gpu_mib" else (name, 1)

    def judged(native: float, ours: float) -> Step:
        step = Step("x", "passed")
        before = pair(measures=measured(**{key: sign * native}))
        judge_growth(step, before, pair(measures=measured(**{key: sign * ours})))
        return step

    assert judged(0, allowed).outcome == "passed"
    assert judged(0, allowed + 1).outcome == "failed"
    assert name in judged(0, allowed + 1).why
    assert judged(500, 500 + allowed).outcome == "passed"
    # That NCCL alone shrinks gives no room.
    assert judged(-500, allowed + 1).outcome == "failed"


def test_growth_that_nobody_measured_fails() -> None:
    step = Step("x", "passed")
    judge_growth(step, pair(), pair(measures=measured()))
    assert step.outcome == "failed"
    assert "not measured: files" in step.why


DAEMON = """\
#!/bin/sh
[ "$1" = -f ] || exit 0
touch "$CUDA_MPS_PIPE_DIRECTORY/control"
exec sleep 60
"""
RANK = """\
#!/bin/sh
rank=$(echo "$@" | grep -o 'rank=.')
case $1 in
  well) echo "${rank#rank=} result $CUDA_MPS_PIPE_DIRECTORY"; echo "${rank#rank=} done";;
  *) echo "${rank#rank=} failed"; exit 1;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a rank program and a daemon that only writes where it listens."""
    for name, text in {"nvidia-cuda-mps-control": DAEMON, "sendrecv_scenarios": RANK}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_after_a_failure_comes_another_daemon(programs: Path) -> None:
    with Mps() as mps:
        gpu = OneGpu(parse(["--library", sys.executable]), Results(None, 60, {}), programs, mps)
        first = [gpu.run(Scenario("well", ["well"]), None).results for _ in range(2)]
        assert first[0] == first[1]
        assert first[0][0] == [str(mps.environment["CUDA_MPS_PIPE_DIRECTORY"])]
        assert gpu.run(Scenario("bad", ["bad"]), None).state == "failed"
        assert gpu.run(Scenario("well", ["well"]), None).results != first[0]
        assert not Path(first[0][0][0]).exists()
        last = Path(mps.environment["CUDA_MPS_PIPE_DIRECTORY"])
        assert last.exists()
    assert not last.exists()


def test_without_mps_there_is_no_daemon(programs: Path) -> None:
    with Mps(used=False) as mps:
        gpu = OneGpu(parse(["--library", sys.executable]), Results(None, 60, {}), programs, mps)
        assert gpu.run(Scenario("well", ["well"]), None).results == [[""], [""]]
