# SPDX-License-Identifier: Apache-2.0
"""What rules are worth to a job."""

import math

import msgspec
import pytest

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.model.scale import Scale
from nccltune.tune.result import Decision, RuleEvidence, TunedGroup
from nccltune.tune.worth import LEAST_SHARE, job_weights, job_worth
from nccltune.workload.call import CommCall, CommGroup, Operation, Steps
from nccltune.workload.table import Workload, WorkloadTable

K, M = 1 << 10, 1 << 20
TREE = Choice(Algorithm.TREE, Protocol.LL)
SCALE = Scale(2, 16)


def _group(scale: Scale = SCALE, *, registered: bool | None = None) -> TunedGroup:
    """Return a group with a rule of 1.25x (1.2 to 1.3) from 1 KiB to 64 KiB; 100 us at 1 KiB."""
    decisions = [
        Decision(
            K << at,
            TREE if at <= 6 else None,
            100.0 * 2**at,
            80.0 * 2**at,
            TREE,
            80.0 * 2**at,
            *((1.25, 1.2, 1.3) if at <= 6 else (None, None, None)),
        )
        for at in range(11)
    ]
    rule = Rule(Collective.ALLREDUCE, K, 64 * K, TREE, nodes=scale.nodes, ranks=scale.ranks)
    sizes = [K << at for at in range(7)]
    evidence = RuleEvidence(rule, sizes, 70, "", RuleState.SURE, 1.25, 1.2, 1.3)
    return TunedGroup(
        collective=Collective.ALLREDUCE,
        scale=scale,
        registered=registered,
        rounds=8,
        noise=0.01,
        noise_source="rounds",
        rules=[evidence],
        left_alone=[],
        decisions=decisions,
        expected_gain=1.25,
        recovered=1.0,
    )


def _job(
    *calls: tuple[int, int, float | None, float | None],
    step_us: float | None = None,
    nodes: int = 2,
    ranks: int = 16,
    recorders: int = 2,
) -> Workload:
    """Return a job in which each rank recorded calls: size, number, time of each, exposed time."""
    table = WorkloadTable()
    for rank in map(str, range(recorders)):
        group = CommGroup("dp", ranks, nodes)
        for size, number, time_us, exposed_us in calls:
            times = [None if time is None else time * number for time in (time_us, exposed_us)]
            call = CommCall(rank, "c", group, Operation.ALLREDUCE, size, number, *times)
            table.add([call], "file")
        if step_us is not None:
            table.add([Steps(rank, 1, step_us)], "file")
    return table.workload()


def test_a_rule_saves_a_share_of_a_step() -> None:
    worth = job_worth(_job((4 * K, 10, 400.0, None), step_us=40_000.0), [_group()])
    (item,) = worth.rules
    assert (worth.basis, worth.total_us, worth.nccl_us) == ("step", 40_000.0, 4000.0)
    assert (item.calls, item.time_us, item.is_recorded) == (10, 4000.0, True)
    assert item.saved_us == pytest.approx(4000 * 0.2)
    assert item.saved_low_us == pytest.approx(4000 * (1 - 1 / 1.2))
    assert item.saved_high_us == pytest.approx(4000 * (1 - 1 / 1.3))
    assert item.most_share == pytest.approx(0.1 * (1 - 1 / 1.3))
    assert not item.advised_against


def test_waits_for_other_ranks_are_not_saved() -> None:
    # The study takes 400 us where the job recorded 4,000.
    worth = job_worth(_job((4 * K, 1, 4000.0, None), step_us=40_000.0), [_group()])
    assert worth.rules[0].saved_us == pytest.approx(400 * 0.2)
    assert worth.rules[0].saved_high_us == pytest.approx(4000 * (1 - 1 / 1.3))


def test_a_faster_job_saves_no_more_than_it_takes() -> None:
    item = job_worth(_job((4 * K, 1, 10.0, None), step_us=1000.0), [_group()]).rules[0]
    assert item.saved_us == pytest.approx(10 * 0.2)
    assert item.saved_high_us == pytest.approx(10 * (1 - 1 / 1.3))


def test_hidden_time_saves_nothing_in_a_step() -> None:
    job = _job((4 * K, 10, 400.0, 5.0), step_us=40_000.0)
    item = job_worth(job, [_group()]).rules[0]
    assert item.exposed_us == pytest.approx(50.0)
    assert item.most_share == pytest.approx(50 / 40_000)
    assert item.most_share < LEAST_SHARE
    assert item.advised_against


def test_hidden_time_of_a_call_limits_that_call_alone() -> None:
    job = _job((4 * K, 1, 600.0, 600.0), (16 * K, 1, 4000.0, 0.0), step_us=10_000.0)
    worth = job_worth(job, [_group()])
    assert worth.rules[0].most_share == pytest.approx(600 * (1 - 1 / 1.3) / 10_000)


def test_shares_are_of_the_time_that_the_rules_are_judged_by() -> None:
    # Of 4 KiB the job recorded ten times the time of the study, and of 16 KiB none.
    worth = job_worth(_job((4 * K, 1, 4000.0, None), (16 * K, 1, None, None)), [_group()])
    assert (worth.calls, worth.untimed, worth.nccl_us) == (4, 2, None)
    assert worth.total_us == pytest.approx(4000 + 1600)
    assert worth.rules[0].time_us == pytest.approx(worth.total_us)
    assert worth.rules[0].most_share == pytest.approx(1 - 1 / 1.3)


def test_without_times_the_curve_of_the_study_estimates() -> None:
    worth = job_worth(_job((4 * K, 10, None, None), (M, 1, None, None)), [_group()])
    item = worth.rules[0]
    assert (worth.basis, worth.nccl_us, item.is_recorded) == ("estimated", None, False)
    assert item.time_us == pytest.approx(4000.0)
    assert worth.estimated_us == pytest.approx(4000.0 + 102_400.0)
    assert item.bytes_share == pytest.approx(40 / (40 + 1024))
    assert item.saved_us == pytest.approx(800.0)


def test_an_estimate_that_exceeds_the_step_saves_no_more_than_the_step() -> None:
    item = job_worth(_job((4 * K, 10, None, None), step_us=100.0), [_group()]).rules[0]
    assert (item.is_recorded, item.most_share) == (False, 1.0)


def test_a_size_between_measured_ones() -> None:
    item = job_worth(_job((6 * K, 1, None, None)), [_group()]).rules[0]
    assert item.time_us == pytest.approx(600.0)
    assert item.saved_us == pytest.approx(120.0)


@pytest.mark.parametrize(
    ("nodes", "ranks", "calls"), [(2, 16, 1), (0, 16, 1), (4, 16, 0), (2, 8, 0), (0, 0, 0)]
)
def test_only_calls_of_the_scale_count(nodes: int, ranks: int, calls: int) -> None:
    job = _job((4 * K, 1, 400.0, None), step_us=1000.0, nodes=nodes, ranks=ranks)
    worth = job_worth(job, [_group()])
    elsewhere = [] if calls else [Scale(nodes, ranks)]
    assert (worth.rules[0].calls, worth.covered_share) == (calls, calls)
    assert worth.is_scale_known is bool(nodes and ranks)
    for item in (worth.rules[0], worth.whole):
        assert (item.elsewhere, item.advised_against) == (elsewhere, False)


def test_no_call_in_a_range_is_advised_against_at_the_scale_of_the_study_only() -> None:
    own, other = (_job((M, 1, 900.0, None), ranks=ranks) for ranks in (16, 8))
    assert job_worth(own, [_group()]).whole.advised_against
    worth = job_worth(other, [_group()])
    assert not worth.whole.advised_against
    assert (worth.rules[0].elsewhere, worth.whole.elsewhere) == ([], [Scale(2, 8)])
    timeless = _job((128 * M, 1, None, None))
    assert job_worth(timeless, [_group()]).whole.advised_against
    both = msgspec.structs.replace(own, rows=[*own.rows, *other.rows])
    assert job_worth(both, [_group()]).whole.advised_against


def test_an_unknown_number_of_nodes_fits_one_scale_only() -> None:
    groups = [_group(), _group(Scale(4, 16))]
    worth = job_worth(_job((4 * K, 1, 400.0, None), nodes=0), groups)
    assert worth.covered_share == 0.0
    assert [item.calls for item in worth.rules] == [0, 0]


def test_rules_for_registered_buffers_are_not_judged() -> None:
    groups = [_group(registered=True), _group(registered=False)]
    worth = job_worth(_job((4 * K, 1, 400.0, None)), groups)
    (item,) = worth.rules
    assert item.calls == 1


def test_sizes_beyond_the_study_are_not_estimated() -> None:
    worth = job_worth(_job((64 * M, 1, 900.0, None), (4 * K, 1, None, None)), [_group()])
    assert worth.covered_share == pytest.approx(4 * K / (64 * M + 4 * K))
    assert (worth.basis, worth.nccl_us) == ("estimated", None)
    assert worth.estimated_us == pytest.approx(900.0 + 400.0)


def test_a_send_and_its_receive_are_one_message() -> None:
    group = msgspec.structs.replace(_group(), collective=Collective.SENDRECV, rules=[])
    pipeline = CommGroup("pp", 16, 2)
    ends = [
        CommCall(rank, "c", pipeline, operation, 4 * K, 10, time_us)
        for time_us in (None, 1000.0)
        for rank, operation in (("0", Operation.SEND), ("1", Operation.RECV))
    ]
    table = WorkloadTable()
    table.add(ends[:2], "file")
    # The study takes 400 us for 4 KiB: ten messages of two ranks are five a rank.
    worth = job_worth(table.workload(), [group, _group()])
    assert (worth.estimated_us, worth.covered_share) == (pytest.approx(2000.0), 1.0)
    # Times that were recorded are those of a rank, whichever end it is.
    table = WorkloadTable()
    table.add(ends[2:], "file")
    assert job_worth(table.workload(), [group]).nccl_us == pytest.approx(1000.0)


def test_the_weight_of_a_size_is_the_time_there() -> None:
    job = _job((4 * K, 10, 400.0, None), (5 * K, 1, 0.1, None), (M, 1, 1000.0, None))
    (weights,) = job_weights(job, [_group()]).values()
    sizes = [K << at for at in range(11)]
    assert math.fsum(map(weights, sizes)) == pytest.approx(len(sizes))
    assert weights(4 * K) > weights(M) > weights(K) > 0


def test_a_job_of_another_scale_has_no_weights() -> None:
    assert job_weights(_job((4 * K, 1, 400.0, None), ranks=8), [_group()]) == {}
