# SPDX-License-Identifier: Apache-2.0
"""The sizes at which explain asks a plugin."""

from nccltune.model.choice import Algorithm, Protocol
from nccltune.model.collective import Collective
from nccltune.native.records import PluginDecision, TunerAnswer
from nccltune.tune.explain import decided_ranges, sizes_to_ask
from tests.unit.builders import rule


def test_rules_of_one_size_are_not_spread_to_the_next() -> None:
    rules = [rule(4096, 4096, "tree/ll/2"), rule(8192, 8192, "tree/ll/4")]
    sizes = sizes_to_ask(rules, 4096, 16384)
    assert {4096, 4097, 8191, 8192, 8193} <= set(sizes)
    assert sizes_to_ask(rules, 8192, 16384)[0] == 8192


def test_more_sizes_an_octave_are_asked_of_a_plugin_of_others() -> None:
    assert sizes_to_ask([], 1024, 2048, octave=4) == [1024, 1280, 1536, 1792, 2048]


def test_every_change_between_two_sizes_that_bisection_meets_is_found() -> None:
    def decide(size: int) -> PluginDecision:
        ends = {1300: Algorithm.RING, 1400: Algorithm.TREE, 4096: Algorithm.NVLS}
        algorithm = next(algorithm for end, algorithm in ends.items() if size < end)
        answer = TunerAnswer(algorithm, Protocol.SIMPLE, None, None)
        return PluginDecision(
            collective=Collective.ALLREDUCE, bytes=size, pipe_ops=1, registered=False,
            costs="nominal", decided=answer, selected=None, channels_requested=0,
            table_changed=[], warnings=[], log=[], log_dropped=0, error=None,
        )  # fmt: skip

    ranges = decided_ranges(decide, [1024, 2048])
    assert [(one.min_bytes, one.max_bytes, one.decides) for one in ranges] == [
        (1024, 1299, "ring/simple"),
        (1300, 1399, "tree/simple"),
        (1400, 2048, "nvls/simple"),
    ]
