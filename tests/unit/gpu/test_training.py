# SPDX-License-Identifier: Apache-2.0
import signal
from pathlib import Path

import pytest
from one_gpu_runs import Mps, PairRun, Results
from training import (
    Killed,
    Training,
    farthest,
    judge_killed,
    judge_training,
    not_loaded,
    parse,
)

from tests.unit.gpu.pairs import CARRIED, pair


def trained(*losses: float, errors: str = CARRIED, **ends: object) -> PairRun:
    lines = [f"loss.{step} {loss.hex()}" for step, loss in enumerate(losses)]
    return pair((lines, lines), errors=errors, **ends)


def test_the_same_losses_pass() -> None:
    native = [trained(2.0, 1.5), trained(2.0, 1.5)]
    step = judge_training("x", native, trained(2.0, 1.5), must_carry=True)
    assert (step.outcome, step.why) == ("passed", "")
    assert step.facts["native_repeats_itself"] is True
    assert (step.facts["apart"], step.facts["results"]) == (0.0, 4)


def test_one_bit_fails_where_nccl_repeats_itself() -> None:
    native = [trained(2.0, 1.5), trained(2.0, 1.5)]
    step = judge_training("x", native, trained(2.0, 1.5 + 2**-52))
    assert step.outcome == "failed"
    assert "other results" in step.why


def test_small_differences_pass_where_nccl_does_not_repeat_itself() -> None:
    native = [trained(2.0, 1.5), trained(2.0, 1.5001)]
    assert judge_training("x", native, trained(2.0, 1.5002), must_carry=True).outcome == "passed"
    assert judge_training("x", native, trained(2.0, 1.6)).outcome == "failed"
    nothing = trained(2.0, 1.5002, errors="")
    assert judge_training("x", native, nothing, must_carry=True).outcome == "failed"


@pytest.mark.parametrize("losses", [(2.0,), (2.0, float("nan")), (2.0, float("inf")), ()])
def test_missing_and_infinite_losses_fail(losses: tuple[float, ...]) -> None:
    native = [trained(2.0, 1.5), trained(2.0, 1.4)]
    assert judge_training("x", native, trained(*losses)).outcome == "failed"


def test_losses_that_are_not_finite_natively_fail_too() -> None:
    native = [trained(2.0, float("nan"))] * 2
    step = judge_training("x", native, trained(2.0, float("nan")))
    assert (step.outcome, step.why) == ("failed", "results are missing or not finite")


def test_no_results_at_all_fail() -> None:
    assert judge_training("x", [trained()] * 2, trained()).outcome == "failed"


def test_a_second_native_run_that_hangs_is_native() -> None:
    native = [trained(2.0), trained(2.0, statuses=(None, None), ends="result a 0x0p+0")]
    assert judge_training("x", native, trained(2.0)).outcome == "native"


def test_a_failure_with_the_libraries_fails() -> None:
    ours = trained(2.0, statuses=(1, 1), ends="failed ncclSend")
    step = judge_training("x", [trained(2.0)] * 2, ours)
    assert step.outcome == "failed"
    assert step.why.startswith("failed: ")


def test_farthest_is_relative() -> None:
    assert farthest(trained(2.0, 100.0), trained(2.0, 99.0)) == pytest.approx(0.01)
    assert farthest(trained(0.0), trained(0.0)) == 0.0


@pytest.mark.parametrize(
    ("killed", "why"),
    [
        (Killed(-signal.SIGKILL, -signal.SIGABRT, 12.0), ""),
        (Killed(-signal.SIGKILL, 1, 29.9), ""),
        (Killed(-signal.SIGKILL, None, 40.0), "still ran"),
        (Killed(-signal.SIGKILL, 0, 3.0), "without an error"),
        (Killed(-signal.SIGKILL, 1, 31.0), "after 31.0 s"),
        (Killed(1, 1, 3.0), "no rank was killed"),
        (Killed(None, 1, 0.0), "no rank was killed"),
    ],
)
def test_killed(killed: Killed, why: str) -> None:
    found = judge_killed(killed)
    assert why in found
    assert bool(why) == bool(found)


def test_plugins_that_the_log_does_not_show() -> None:
    net = "NET/nccltune nccltune 0.1.0, interface v11; 2 threads\n"
    tuner = "TUNER/nccltune: /tmp/tuner.conf (content 00): 5 of 5 rules apply to 2 nodes, 2 ranks\n"
    assert not_loaded(net + tuner) == []
    assert not_loaded(net) == ["tuner plugin"]
    assert not_loaded("TUNER/nccltune: no rules, NCCLTUNE_CONFIG is not set") == [
        "network plugin",
        "tuner plugin",
    ]


@pytest.fixture
def training(tmp_path: Path) -> Training:
    words = ["-o", str(tmp_path / "out.json")]
    for name in ("sendrecv", "net", "tuner", "nccl"):
        (tmp_path / f"{name}.so").touch()
        words += [f"--{name}", str(tmp_path / f"{name}.so")]
    return Training(parse(words), Results(None, 10, {}), tmp_path, Mps(used=False))


def test_environment_of_the_libraries(training: Training, tmp_path: Path) -> None:
    env = training.environment("host", "verify", 1, 4711, tmp_path)
    assert env["LD_PRELOAD"] == f"{tmp_path / 'sendrecv.so'}:{tmp_path / 'nccl.so'}"
    assert env["NCCLTUNE_SENDRECV"] == "verify"
    assert env["NCCL_NET_PLUGIN"] == str(tmp_path / "net.so")
    assert env["NCCL_TUNER_PLUGIN"] == str(tmp_path / "tuner.so")
    assert (env["RANK"], env["LOCAL_RANK"], env["MASTER_PORT"]) == ("1", "0", "4711")
    assert env["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert len(Path(env["NCCLTUNE_CONFIG"]).read_text().splitlines()) == 5


def test_environment_of_nccl_alone(training: Training, tmp_path: Path) -> None:
    env = training.environment("nodes", None, 0, 4711, tmp_path)
    assert env["NCCL_HOSTID"] == "node0"
    assert env["NCCL_NET"] == "Socket"
    assert not [name for name in env if name.startswith("NCCLTUNE_SENDRECV")]
    # PyTorch's own.
    assert "nccl.so" not in env.get("LD_PRELOAD", "")
    assert not {"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_MULTI_RANK_GPU_ENABLE"} & env.keys()


def test_bad_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    libraries = [word for name in ("sendrecv", "net", "tuner") for word in (f"--{name}", __file__)]
    with pytest.raises(SystemExit):
        parse([*libraries, "--parts", "ddp,dpd"])
    assert "'dpd' is none of ddp, fsdp" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse([*libraries, "--nccl", "/no/such.so"])
    assert "--nccl: /no/such.so is no file" in capsys.readouterr().err
