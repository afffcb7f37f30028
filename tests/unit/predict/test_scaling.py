# SPDX-License-Identifier: Apache-2.0
"""Expected times at more nodes: what fitted terms predict, and what the interval covers."""

import functools
import math

import pytest

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.predict import (
    ErrorQuantiles,
    ExpectedSize,
    MeasuredCurve,
    Prediction,
    ScaleOut,
    TermErrors,
    expected_of,
    predict,
    scale_out,
)
from nccltune.reference.nodes import usual_node

NODE = usual_node("H100", gpus=8, nics=8, gbit_per_s=400)
VERSION = (2, 28, 9)
SIZES = tuple(8 << power for power in range(0, 31, 2))
NVLS_TREE = Choice(Algorithm.NVLS_TREE, Protocol.SIMPLE)
TREE_LL = Choice(Algorithm.TREE, Protocol.LL)
FACTORS = (1.5, 2.0, 1.1)
"""Of a made-up machine: latency inside the node, latency between nodes, transfer."""


@functools.cache
def model(nodes: int) -> Prediction:
    return predict(NODE, nodes=nodes, version=VERSION, sizes=SIZES)


def true_us(nodes: int, size: int, choice: Choice | None = None) -> float:
    at = next(one for one in model(nodes).sizes if one.size == size)
    terms = at.terms[choice or at.choice]
    local, net, transfer = FACTORS
    inside = terms.latency_us - terms.net_us
    return local * inside + net * terms.net_us + transfer * terms.transfer_us


def curve(nodes: int, choice: Choice | None = None) -> MeasuredCurve:
    return MeasuredCurve(nodes, {size: true_us(nodes, size, choice) for size in SIZES}, choice)


def scaled(curves: list[MeasuredCurve], nodes: int = 32, **asked: object) -> ScaleOut:
    return scale_out(NODE, curves, nodes=nodes, version=VERSION, sizes=SIZES, **asked)  # type: ignore[arg-type]


def at(found: ScaleOut, size: int) -> ExpectedSize:
    return next(one for one in found.sizes if one.size == size)


def miss(one: ExpectedSize, nodes: int = 32) -> float:
    return abs(math.log(one.time_us / true_us(nodes, one.size, one.choice)))


def test_terms_of_small_scales_predict_a_large_one() -> None:
    found = scaled([curve(2), curve(4), curve(8)])
    assert found.measured_nodes == (2, 4, 8)
    assert max(miss(one) for one in found.sizes if one.measured) < 0.08
    for one in found.sizes:
        assert one.low_us < true_us(32, one.size, one.choice) < one.high_us
    local, net, transfer = found.factors[NVLS_TREE]
    assert local == pytest.approx(1.5, rel=0.2)
    assert net == pytest.approx(2.0, rel=0.05)
    assert transfer == pytest.approx(1.1, rel=0.05)


def test_the_curve_switches_where_nccl_does() -> None:
    found = scaled([curve(2), curve(4)])
    assert [one.choice for one in found.sizes] == [one.choice for one in model(32).sizes]
    assert [one.choice for one in found.sizes] != [one.choice for one in model(4).sizes]
    assert found.notes[-1].startswith("what ran at the measured sizes is not logged")


def test_a_choice_that_was_not_measured_gets_a_wide_interval() -> None:
    found = scaled([curve(2, TREE_LL), curve(4, TREE_LL), curve(8, TREE_LL)])
    small, large = at(found, 8), at(found, SIZES[-1])
    assert (small.choice, small.measured) == (TREE_LL, True)
    assert (large.choice, large.measured) == (NVLS_TREE, False)
    assert large.deviation > 1.5 * small.deviation
    assert list(found.factors) == [TREE_LL]
    # Of the factors of another choice only the shared part is taken over.
    assert 1.0 < large.time_us / model(32).sizes[-1].time_us < 1.1
    assert not any("not logged" in note for note in found.notes)


@pytest.mark.parametrize(("factor", "noted"), [(1.0, False), (2.5, True)])
def test_a_slow_network_makes_what_was_not_measured_doubtful(factor: float, noted: bool) -> None:
    times_us = {size: time * factor for size, time in curve(2, NVLS_TREE).times_us.items()}
    found = scaled([MeasuredCurve(2, times_us, NVLS_TREE)])
    assert not all(one.measured for one in found.sizes)
    assert any("choices that were not measured are slower, too" in x for x in found.notes) is noted


def test_what_ran_counts_more_than_the_models_choice() -> None:
    ran = dict.fromkeys(SIZES, TREE_LL)
    curves = [curve(nodes, TREE_LL)._replace(choice=None, ran=ran) for nodes in (2, 4, 8)]
    found = scaled(curves)
    assert list(found.factors) == [TREE_LL]
    assert not at(found, SIZES[-1]).measured
    assert miss(at(found, 8)) < 0.02
    forced = scaled([curve(nodes, TREE_LL) for nodes in (2, 4, 8)])
    assert found == forced


def test_one_disturbed_timing_does_not_bend_the_curve() -> None:
    times = dict(curve(4).times_us)
    times[SIZES[-2]] *= 5
    plain = scaled([curve(2), curve(4), curve(8)])
    bent = scaled([curve(2), MeasuredCurve(4, times), curve(8)])
    assert at(bent, SIZES[-2]).time_us < 1.5 * at(plain, SIZES[-2]).time_us


def test_one_node_alone_and_the_target_are_left_out() -> None:
    alone = scaled([])
    assert scaled([curve(1), curve(32)]) == alone
    assert alone.measured_nodes == ()
    assert alone.factors == {}
    for one, modelled in zip(alone.sizes, model(32).sizes, strict=True):
        assert one.time_us == pytest.approx(modelled.time_us, rel=1e-4)
        assert not one.measured


def test_a_choice_of_one_node_only_is_not_measured_between_nodes() -> None:
    found = scaled([curve(1, TREE_LL), curve(2, NVLS_TREE)])
    assert list(found.factors) == [NVLS_TREE]
    assert (at(found, 8).choice, at(found, 8).measured) == (TREE_LL, False)
    assert at(found, SIZES[-1]).measured


def test_a_single_rank_is_no_curve() -> None:
    """A node with one GPU has no peer in it, which the model of one node refuses."""
    asked = {"version": VERSION, "ranks_per_node": 1, "sizes": (8, 1 << 20), "nodes": 4}
    alone, two = MeasuredCurve(1, {8: 1.0}), MeasuredCurve(2, {8: 20.0, 1 << 20: 90.0})
    assert scale_out(NODE, [alone, two], **asked) == scale_out(NODE, [two], **asked)  # type: ignore[arg-type]


def test_one_node_tells_latency_in_the_node_from_that_between_nodes() -> None:
    """A machine with half of the latency in the node that NCCL's model has, and twice between."""

    def quick(nodes: int) -> MeasuredCurve:
        asked = {one.size: one.terms[TREE_LL] for one in model(nodes).sizes}
        times = {
            s: 0.5 * (t.latency_us - t.net_us) + 2 * t.net_us + t.transfer_us
            for s, t in asked.items()
        }
        return MeasuredCurve(nodes, times, TREE_LL)

    true = quick(32).times_us[8]
    without, found = scaled([quick(2)]), scaled([quick(1), quick(2)])
    assert found.measured_nodes == (1, 2)
    assert at(without, 8).time_us < 0.85 * true
    assert at(found, 8).time_us == pytest.approx(true, rel=0.05)
    assert at(found, 8).deviation < 0.7 * at(without, 8).deviation


@pytest.mark.parametrize(
    ("collective", "nodes", "version", "times"),
    [
        # 30 steps on two nodes, 4 of them between nodes; NCCL counts 2 (4 up to 2.22).
        (Collective.ALLREDUCE, 2, (2, 28, 9), 2.0),
        (Collective.ALLREDUCE, 2, (2, 22, 3), 1.0),
        (Collective.ALLREDUCE, 4, (2, 28, 9), 8 / 6),
        (Collective.ALLGATHER, 2, (2, 28, 9), 2.0),
        (Collective.ALLREDUCE, 1, (2, 28, 9), 1.0),
    ],
)
def test_a_rings_bytes_cross_between_nodes_once_in_as_many_steps_as_a_node_has_gpus(
    collective: Collective, nodes: int, version: tuple[int, int, int], times: float
) -> None:
    asked = {"collective": collective, "version": version, "settings": {"NCCL_ALGO": "ring"}}
    found = predict(NODE, nodes=nodes, sizes=(8,), **asked)  # type: ignore[arg-type]
    (one,) = found.sizes
    terms = one.terms[one.choice]
    # Without a measurement the expected time is that of the terms.
    (expected,) = scale_out(NODE, [], nodes=nodes, sizes=(8,), **asked).sizes  # type: ignore[arg-type]
    more = (times - 1) * terms.net_us
    assert expected.time_us == pytest.approx(one.time_us + more, rel=1e-4)


def test_the_interval_grows_with_the_nodes_and_covers_choices_that_are_close() -> None:
    curves = [curve(2), curve(4)]
    near, far = scaled(curves, 8), scaled(curves, 64)
    for here, there in zip(near.sizes, far.sizes, strict=True):
        assert here.low_us <= here.time_us <= here.high_us
        assert there.high_us / there.time_us > here.high_us / here.time_us or here.others
    close = [one for one in near.sizes if one.others]
    assert close
    times = {one.size: one.times_us for one in model(8).sizes}
    for one in close:
        for choice in one.others:
            assert times[one.size][choice] < 1.15 * times[one.size][one.choice]


def test_errors_on_other_systems_widen_the_interval() -> None:
    curves = [curve(2), curve(4)]
    tight = scaled(curves, errors=ErrorQuantiles(-0.5, 0.5))
    wide = scaled(curves, errors=ErrorQuantiles(-3.0, 3.0))
    for one, other in zip(tight.sizes, wide.sizes, strict=True):
        assert one.time_us == other.time_us
        assert other.low_us < one.low_us or one.others
        assert other.high_us > one.high_us or one.others


def test_without_measurements_latency_and_transfer_have_errors_of_their_own() -> None:
    errors = TermErrors(latency=(0.5, 8.0), transfer=(0.9, 1.2))
    found = expected_of(model(1), errors)
    small, large = found[0], found[-1]
    assert 7.9 < small.high_us / small.time_us < 9.0
    assert 0.45 < small.low_us / small.time_us < 0.5
    assert 1.2 < large.high_us / large.time_us < 1.3
    assert 0.8 < large.low_us / large.time_us < 0.9
    # Between nodes congestion is added.
    assert (
        expected_of(model(32), errors)[-1].high_us > 2 * expected_of(model(32), errors)[-1].time_us
    )
    assert scaled([], errors=errors).sizes == expected_of(model(32), errors)


def test_a_choice_that_the_model_lacks_is_named() -> None:
    pat = Choice(Algorithm.PAT, Protocol.SIMPLE)
    found = scaled([curve(2), MeasuredCurve(4, {8: 20.0}, pat)])
    assert found.notes[-1] == "left out, as NCCL's model has no pat/simple here"


def test_other_collectives_and_settings_scale_out() -> None:
    asked = {"collective": Collective.ALLGATHER, "settings": {"NCCL_ALGO": "ring"}}
    found = scaled([MeasuredCurve(2, {1 << 30: 4000.0})], **asked)
    assert {one.choice.algorithm for one in found.sizes} == {Algorithm.RING}
