# SPDX-License-Identifier: Apache-2.0
"""What the send/recv library, settings and the net plugin would be worth to a job."""

from pathlib import Path
from typing import Any

import pytest

from nccltune.app.job_levers import NET_PLUGIN, SENDRECV_LIBRARY, job_levers
from nccltune.measure.experiments.ab.judge import (
    CollectiveGain,
    SettingGain,
    SizeGain,
    TrialVerdict,
)
from nccltune.measure.experiments.copies.verdict import (
    CopiesVerdict,
    Effect,
    ProcessGain,
    SizePoint,
)
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.study.files import Study
from nccltune.tune.result import LeverWorth
from nccltune.workload.call import CommCall, CommGroup, Operation, Steps
from nccltune.workload.table import Workload, WorkloadTable
from tests.unit.runs import Cli
from tests.unit.workload.recordings import LOG_START, log_call

M = 1 << 20
RIVALS = (("ring,simple", 90), ("tree,simple", 80))


def _job(
    size: int,
    operation: Operation = Operation.SEND,
    *,
    nodes: int = 1,
    time_us: float | None = 1000.0,
    step_us: float | None = 10_000.0,
) -> Workload:
    """Return a pipeline of two ranks: ten messages in a step, one rank sends, one receives."""
    other = Operation.RECV if operation is Operation.SEND else operation
    table = WorkloadTable()
    for rank, end in (("0", operation), ("1", other)):
        time = None if time_us is None else 10 * time_us
        call = CommCall(rank, "c", CommGroup("pp", 4, nodes), end, size, 10, time)
        table.add([call, *([Steps(rank, 1, step_us)] if step_us else [])], "file")
    return table.workload()


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = Study.create(tmp_path / "study")
    made.platform_path.write_text('{"name": "study", "network": "Socket eth0"}')
    return made


def _compared(study: Study, from_bytes: int | None = 2 * M, **more: Any) -> None:
    """Write a comparison: 1,000 us at 1 MiB, twice as long at each next size, 2x from 2 MiB on."""
    points = [
        SizePoint(
            M << at,
            1000.0 * 2**at,
            1000.0 * 2**at / gain,
            ProcessGain(gain, gain - 0.1, gain + 0.1, 6, True),
            Effect.FASTER,
            "native",
        )
        for at, gain in enumerate((0.8, 2.0, 2.0, 2.0))
    ]
    values: dict[str, Any] = {
        "reason": "done",
        "settings": {},
        "decided": True,
        "from_bytes": from_bytes,
        "why": "from 2 MiB on",
        "noise_floor": 0.02,
        "points": points,
        "noise": 0.01,
        "nodes": 1,
        "ranks": 4,
        "processes": 12,
        "known": 0,
        "seconds": 1.0,
    }
    study.write_json(study.path / "sendrecv.json", CopiesVerdict(**values | more))


def _lever(job: Workload, study: Study | None, name: str = SENDRECV_LIBRARY) -> LeverWorth:
    (found,) = (item for item in job_levers(job, study) if item.name == name)
    return found


def test_the_library_saves_what_was_measured(study: Study) -> None:
    _compared(study)
    found = _lever(_job(4 * M, time_us=1000.0), study)
    assert found.worth is not None
    # Each rank spends 10 ms at its end of ten messages; the study takes 4,000 us for a message.
    assert (found.worth.calls, found.worth.time_us) == (10.0, 10_000.0)
    assert found.worth.saved_us == pytest.approx(10_000 * (1 - 1 / 2))
    assert found.worth.saved_low_us == pytest.approx(10_000 * (1 - 1 / 1.9))
    assert found.worth.most_share == pytest.approx(1 - 1 / 2.1)
    # Without recorded times a message of two ranks is half a message of each.
    found = _lever(_job(4 * M, time_us=None), study)
    assert found.worth is not None
    assert found.worth.time_us == pytest.approx(10 * 4000 / 2)


@pytest.mark.parametrize(("size", "from_bytes"), [(M, 2 * M), (2 * M - 1, 2 * M), (4 * M, None)])
def test_below_the_threshold_it_saves_nothing(
    study: Study, size: int, from_bytes: int | None
) -> None:
    _compared(study, from_bytes)
    found = _lever(_job(size), study)
    assert found.worth is not None
    assert found.worth.saved_us == pytest.approx(0.0, abs=1e-6)
    assert found.worth.advised_against


def test_messages_between_nodes_are_not_counted(study: Study) -> None:
    _compared(study)
    worth = _lever(_job(4 * M, nodes=2), study).worth
    assert worth is not None
    assert (worth.calls, worth.elsewhere, worth.advised_against) == (0.0, [Scale(2, 4)], False)


def test_a_size_that_was_not_measured_is_unknown(study: Study) -> None:
    _compared(study)
    worth = _lever(_job(64 * M), study).worth
    assert worth is not None
    assert (worth.saved_us, worth.most_share, worth.advised_against) == (None, None, False)


def test_without_a_comparison_the_next_step_is_one(study: Study) -> None:
    for where in (None, study):
        found = _lever(_job(32 * M), where)
        assert (found.worth, "up to 32 MiB" in found.why) == (None, True)
        assert found.measure is not None
        assert found.measure.startswith("nccltune sendrecv sweep -o ")
    _compared(study, decided=False)
    assert "not complete" in _lever(_job(4 * M), study).why


def test_a_job_without_messages_has_no_use_for_it(study: Study) -> None:
    _compared(study)
    assert job_levers(_job(4 * M, Operation.ALLREDUCE), study) == []


def _tested(study: Study, settings: dict[str, str | None], decision: str = "keep") -> None:
    sizes = [
        SizeGain(size, 1000.0, 800.0, 1.0, 1.2, SettingGain(1.25, 1.2, 1.3, 8, True), "faster")
        for size in (M, 16 * M)
    ]
    overall = SettingGain(1.25, 1.2, 1.3, 8, True)
    measured = CollectiveGain(
        collective=Collective.ALLREDUCE,
        scale=Scale(2, 4),
        noise=0.01,
        overall=overall,
        ranges=[],
        sizes=sizes,
    )
    verdict = TrialVerdict(
        decision=decision,  # type: ignore[arg-type]
        why="faster",
        settings=settings,
        collectives=[measured],
        reason="done",
        rounds=8,
        known=0,
        processes=16,
        seconds=1.0,
        min_gain=0.03,
    )
    study.write_json(study.path / "try.json", verdict)


NET: dict[str, str | None] = {"NCCL_NET": "nccltune", "NCCL_NET_PLUGIN": "/x/libnccl-net-x.so"}


@pytest.mark.parametrize(
    ("settings", "name"),
    [(NET, NET_PLUGIN), ({"NCCL_BUFFSIZE": "8388608"}, "NCCL_BUFFSIZE=8388608")],
)
def test_settings_that_were_tested(
    study: Study, settings: dict[str, str | None], name: str
) -> None:
    _tested(study, settings)
    found = _lever(_job(4 * M, Operation.ALLREDUCE, nodes=2), study, name)
    assert found.worth is not None
    assert found.worth.saved_us == pytest.approx(10_000 * 0.2)
    assert found.basis == "step"


@pytest.mark.parametrize(
    ("nodes", "network", "decision", "expected"),
    [
        (2, "Socket eth0", None, "the job runs on several nodes"),
        (0, "Socket eth0", None, "the recording states no nodes"),
        (2, "IB mlx5_0", None, "NCCL uses IB mlx5_0"),
        (2, "Socket eth0", "open", "no test compared it"),
        (1, "Socket eth0", None, None),
    ],
)
def test_the_net_plugin_where_nothing_tested_it(
    study: Study, nodes: int, network: str, decision: str | None, expected: str | None
) -> None:
    study.platform_path.write_text(f'{{"name": "study", "network": "{network}"}}')
    if decision is not None:
        _tested(study, NET, decision)
    found = job_levers(_job(M, Operation.ALLREDUCE, nodes=nodes), study)
    assert [expected in item.why for item in found] == [True] * (expected is not None)
    assert [item.measure is None for item in found] == ["IB" in network] * len(found)


def test_the_screen(cli: Cli, study: Study) -> None:
    log = study.path / "nccl.log"
    log.write_text(LOG_START.replace("nNodes 2", "nNodes 1") + log_call("Send", 1 << 20))
    out = " ".join(cli("workload", "show", log, code=0).out.split())
    assert "unknown send/recv library: the job sends messages of up to 4 MiB" in out
    assert "measure it: nccltune sendrecv sweep -o STUDY" in out
    _compared(study)
    out = " ".join(cli("workload", "show", log, "--study", study.path, code=0).out.split())
    assert "worth send/recv library: 2.00 ms a rank are there; saves 1.00 ms in NCCL" in out
    assert "% of" not in out.partition("send/recv library")[2]


def test_the_study_of_a_file_is_still_to_be_made(cli: Cli, tmp_path: Path) -> None:
    log, table = tmp_path / "nccl.log", tmp_path / "a.csv"
    log.write_text(LOG_START + log_call("AllReduce", 1 << 20))
    rows = (f"allreduce,{1 << 20},{choice},2,8,{time}" for choice, time in RIVALS)
    head = "collective,size_bytes,algorithm,protocol,nodes,ranks,time_us"
    table.write_text("\n".join([head, *rows]) + "\n")
    result = cli("tune", table, "--workload", log, "--dry-run", code=0)
    assert "measure it: nccltune ab -o STUDY NCCL_NET=" in " ".join(result.out.split())
    assert " % of the job's bytes are of what was measured" in " ".join(result.out.split())
