# SPDX-License-Identifier: Apache-2.0
"""The rules of sweeps on simulated platforms: what one for a job costs, no loss by noise."""

import math
import random
from collections.abc import Mapping
from functools import partial

import pytest

from nccltune.analyze.timings import Timings
from nccltune.app.sweep import decide
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.nccl_tables import CollectiveTables
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.experiments.choices import (
    SweepScope,
    job_scope,
    job_shares,
    make_plan,
    unmeasured_bytes,
)
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.scale import Scale
from nccltune.tune.result import TunedGroup
from nccltune.tune.search import search
from nccltune.tune.worth import job_weights, job_worth
from nccltune.workload.call import CommCall, CommGroup, Operation
from nccltune.workload.demand import demands
from nccltune.workload.table import Workload, WorkloadTable
from tests.unit.builders import choice
from tests.unit.measure.platforms import (
    Curves,
    K,
    M,
    Platform,
    collective_plan,
    drive,
    linear,
    rule_regret,
    timings_of,
)

SCALE = Scale(8, 64)
SCOPE = SweepScope(
    [Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER], K, 64 * M
)
UNSET = SCOPE._replace(collectives=[], low=0, high=0)
LABELS = [
    *("tree/ll", "tree/ll128", "tree/simple", "ring/ll", "ring/ll128", "ring/simple"),
    *("nvls_tree/simple", "collnet_direct/simple"),
]
SHARDED = ["ring/ll", "ring/ll128", "ring/simple", "collnet_direct/simple"]
"""Choices that all-gather and reduce-scatter have, too."""
JOBS: dict[str, dict[tuple[Operation, int], int]] = {
    "ddp": {(Operation.ALLREDUCE, 25 * M): 12, (Operation.ALLREDUCE, 64): 1},
    "fsdp": {
        (Operation.ALLGATHER, 16 * M): 24,
        (Operation.REDUCESCATTER, 16 * M): 24,
        (Operation.ALLREDUCE, 4): 2,
    },
    "tensor": {(Operation.ALLREDUCE, 96 * K): 120, (Operation.ALLREDUCE, 2 * M): 8},
    "many sizes": {(Operation.ALLREDUCE, 8 * K + 1040 * at): 2 for at in range(60)},
}


def _job(
    calls: Mapping[tuple[Operation, int], int], *, ranks: int = 64, nodes: int = 8
) -> Workload:
    table = WorkloadTable()
    for (operation, size), number in calls.items():
        group = CommGroup("dp", ranks, nodes)
        table.add([CommCall("0", "c", group, operation, size, number)], "file")
    return table.workload()


def _machine(name: str, seed: int) -> Curves:
    """Return a platform for a job. Its default changes the choice twice between any of them."""
    random_ = random.Random(seed)
    labels = SHARDED if name == "fsdp" else LABELS
    lines = {
        label: linear(random_.uniform(20, 300), math.exp(random_.uniform(6.2, 10.8)))
        for label in labels
    }
    ran = [random_.choice(labels) for _ in range(3)]
    first, second = sorted(K * 2 ** random_.uniform(0, 16) for _ in range(2))
    return Curves(lines, lambda size: ran[(size >= first) + (size >= second)])


def _plan(exact: Curves, job: Workload | None) -> Plan:
    scope = SCOPE if job is None else job_scope(UNSET, job, SCALE)
    tables = [
        CollectiveTables(
            Grid(item, SCALE.ranks, scope.low, scope.high), list(map(choice, exact.lines)), {}, {}
        )
        for item in scope.collectives
    ]
    wanted = None if job is None else demands(job, SCALE)
    return make_plan(tables, scope, SCALE, partial(decide, job=job), chunks=False, wanted=wanted)


def _swept(exact: Curves, job: Workload | None, seed: int) -> tuple[Plan, Platform]:
    plan, platform = _plan(exact, job), Platform(exact, noise=0.01, seed=seed)
    drive(plan, platform)
    return plan, platform


@pytest.mark.parametrize("name", JOBS)
def test_a_sweep_for_a_job_costs_under_a_third(name: str) -> None:
    job = _job(JOBS[name])
    for seed in range(4):
        exact = _machine(name, seed)
        (_, whole), (_, own) = (_swept(exact, item, seed) for item in (None, job))
        assert 0 < len(own.points) < len(whole.points) / 3


@pytest.mark.parametrize("name", JOBS)
def test_the_expected_gain_is_the_true_one(name: str) -> None:
    job = _job(JOBS[name])
    gains = []
    for seed in range(6):
        exact = _machine(name, seed)
        plan, _ = _swept(exact, job, seed)
        groups = _tuned([status.timings for status in plan.statuses()], job)
        rules = [item.rule for group in groups for item in group.rules]
        before = after = 0.0
        for row in job.rows:
            collective, size = row.operation.collective, row.bytes
            own = [
                item for item in rules if item.matches(collective, size, SCALE.nodes, SCALE.ranks)
            ]
            before += row.calls * (exact(size, DEFAULT) or 0.0)
            after += row.calls * (exact(size, own[0].choice if own else DEFAULT) or 0.0)
        best = math.fsum(row.calls * exact.best(row.bytes) for row in job.rows)
        saved = job_worth(job, groups).whole.saved_us or 0.0
        assert after <= 1.01 * before
        assert after - best < 0.04 * before
        assert saved == pytest.approx(before - after, rel=0.1, abs=0.005 * before)
        gains.append(before - after)
    assert max(gains) > 0


def _tuned(timings: list[Timings], job: Workload) -> list[TunedGroup]:
    weights = job_weights(job, search(timings))
    return [
        group
        for item in timings
        for group in search([item], weights=weights.get((item.condition.collective, SCALE)))
    ]


def test_what_the_job_does_not_send_is_not_measured() -> None:
    calls = {(Operation.ALLREDUCE, 3 * M): 99, (Operation.ALLGATHER, 128): 1}
    job = _job(calls | {(Operation.SEND, 8 * M): 100})
    scope = job_scope(UNSET, job, SCALE)
    assert set(scope.collectives) == {Collective.ALLREDUCE, Collective.ALLGATHER}
    plan, platform = _swept(_machine("ddp", 1), job, 1)
    # An all-gather of 128 B takes a thousandth of the time.
    assert {(key.collective, key.bytes) for key in platform.points} == {
        (Collective.ALLREDUCE, 3 * M)
    }
    assert DEFAULT in {key.choice for key in platform.points}
    assert [*(plan.left_out or {})] == [Collective.ALLGATHER]
    assert plan.gain_left < 0.01


def test_own_collectives_and_sizes_stay() -> None:
    job = _job({(Operation.ALLREDUCE, 3 * M): 9, (Operation.ALLGATHER, 8 * M): 9})
    scope = job_scope(SCOPE._replace(collectives=[Collective.ALLGATHER]), job, SCALE)
    assert (scope.collectives, scope.low, scope.high) == ([Collective.ALLGATHER], K, 64 * M)


def test_what_cannot_be_measured_is_left_out_of_a_job() -> None:
    calls = {(Operation.ALLREDUCE, M): 97, (Operation.BROADCAST, M): 1, (Operation.SEND, M): 4}
    job = _job(calls)
    scope = job_scope(UNSET, job, SCALE, ["allreduce", "allgather"])
    assert scope.collectives == [Collective.ALLREDUCE]
    shares = unmeasured_bytes(demands(job, SCALE), scope)
    assert shares == {Collective.BROADCAST: 0.01, Collective.SENDRECV: 0.02}
    with pytest.raises(InputError, match="can be measured here: all-reduce, broadcast") as error:
        job_scope(UNSET, job, SCALE, ["reduce"])
    assert error.value.where == "‹workload›"
    # Collectives that the user named are not left out in silence.
    asked = UNSET._replace(collectives=[Collective.BROADCAST])
    assert job_scope(asked, job, SCALE, ["reduce"]).collectives == [Collective.BROADCAST]


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (64, 4)])
def test_a_job_of_another_scale_is_refused(ranks: int, nodes: int) -> None:
    job = _job({(Operation.ALLREDUCE, M): 1}, ranks=ranks, nodes=nodes)
    with pytest.raises(InputError, match=f"it ran on {Scale(nodes, ranks)}"):
        job_scope(UNSET, job, SCALE)


def test_the_rules_reach_the_sizes_of_the_job() -> None:
    """Sizes of the grid are multiples of 16 B a rank; the job's need not be."""
    odd = {(Operation.ALLGATHER, size): 5 for size in (100_001, 5_000_003)}
    job = _job(odd)
    scope = job_scope(UNSET, job, SCALE)
    grid = Grid(Collective.ALLGATHER, SCALE.ranks, scope.low, scope.high)
    shares, _ = job_shares([CollectiveTables(grid, [], {}, {})], demands(job, SCALE))
    sizes = shares[Collective.ALLGATHER].sizes
    assert sizes[0] <= 100_001
    assert sizes[-1] >= 5_000_003
    assert all(grid.aligned(size) == size for size in sizes)


SIZES = [round(K * 2 ** (step / 2)) for step in range(33)]
NOISY_SCALE = Scale(8, 64)
NOISY_LABELS = [
    *("tree/ll", "tree/simple", "ring/ll", "ring/ll128", "ring/simple"),
    *("nvls_tree/simple", "collnet_direct/simple"),
]


def made_up(seed: int) -> Curves:
    """Return up to seven choices. The default changes twice between any of them."""
    random_ = random.Random(seed)
    labels = NOISY_LABELS[: random_.randint(2, len(NOISY_LABELS))]
    lines = {
        label: linear(random_.uniform(20, 300), math.exp(random_.uniform(6.2, 10.8)))
        for label in labels
    }
    choice_ranges = [random_.choice(labels) for _ in range(3)]
    first, second = sorted(K * 2 ** random_.uniform(0, 16) for _ in range(2))
    return Curves(lines, lambda size: choice_ranges[(size >= first) + (size >= second)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("noise", "hiccups"), [(0.01, 0.0), (0.05, 0.0), (0.01, 0.02)])
def test_no_rule_is_worse_than_the_default(noise: float, hiccups: float, seed: int) -> None:
    exact = made_up(seed)
    plan = Plan([collective_plan(list(exact.lines), scale=NOISY_SCALE)])
    drive(plan, Platform(exact, noise=noise, hiccups=hiccups, seed=seed))
    timings = timings_of(plan)
    rules = [item.rule for group in search([timings]) for item in group.rules]
    for size in SIZES:
        for rule in rules:
            if rule.matches(
                timings.condition.collective, size, NOISY_SCALE.nodes, NOISY_SCALE.ranks
            ):
                chosen, default = exact(size, rule.choice), exact(size, DEFAULT)
                assert chosen is not None
                assert default is not None
                assert chosen <= default * (1 + noise)
    assert rule_regret(timings, exact, SIZES) <= 0.01 + noise
