# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.analyze.timings import Timings
from nccltune.app.study import open_study, platform_with_hardware
from nccltune.app.tune import save_tuning, tune_study
from nccltune.formats.importing.hardware import hardware_hash
from nccltune.formats.tuner_config.csv_rules import MAX_LINE, read_rules, rows_text
from nccltune.model.choice import Algorithm, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from nccltune.native.records import PluginDecision, TunerAnswer
from nccltune.tune.basis import rests_on
from nccltune.tune.explain import decided_ranges, sizes_to_ask
from nccltune.tune.result import TunedGroup, TuneOptions, Tuning
from nccltune.tune.search import search
from nccltune.tune.study import read_weights, render, widen
from tests.unit.builders import Times, measure, rule, sizes, study_of

K, M = 1 << 10, 1 << 20
SIZES = sizes(K, 16 * M)


def better_up_to(last: int) -> Times:
    def times(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 60.0 if size <= last else 150.0}

    return times


OPTIONS = TuneOptions(any_scale=True)


def measured(times: Times, nodes: int, *, noise: float = 0.01, **more: bool) -> list[Sample]:
    return measure(SIZES, times, noise=noise, nodes=nodes, ranks=8 * nodes, **more)


def searched(*parts: list[Sample]) -> tuple[list[Timings], list[TunedGroup]]:
    timings = sort_samples([sample for part in parts for sample in part]).timings
    return timings, search(timings, OPTIONS)


def widened(*parts: list[Sample]) -> list[TunedGroup]:
    timings, groups = searched(*parts)
    return widen(groups, timings, OPTIONS)


def unchanged(*parts: list[Sample]) -> bool:
    """Whether the groups are those that the search found."""
    return widened(*parts) == searched(*parts)[1]


def test_a_rule_is_widened_to_the_range_where_it_holds_at_each_scale() -> None:
    two, four = widened(measured(better_up_to(M), 2), measured(better_up_to(64 * K), 4))
    wide, rest = (item.rule for item in two.rules)
    assert (wide.nodes, wide.ranks, wide.min_bytes) == (None, None, K)
    assert 64 * K <= wide.max_bytes < 128 * K
    assert (rest.nodes, rest.ranks, rest.min_bytes) == (2, 16, wide.max_bytes + 1)
    assert [item.rule for item in four.rules] == [wide]


def test_the_configuration_states_that_other_scales_are_only_predicted() -> None:
    groups = widened(measured(better_up_to(M), 2), measured(better_up_to(64 * K), 4))
    tuning = Tuning("x", "2026-01-31", OPTIONS, groups, samples=1)
    lines = render(tuning).splitlines()
    above = {line: lines[number - 1] for number, line in enumerate(lines) if line[0] != "#"}
    wide, own = above.values()
    assert wide.endswith("; only predicted at scales that were not measured")
    assert own.startswith("# sure: ")
    assert "predicted" not in own


def test_a_rule_that_one_scale_lacks_is_not_widened() -> None:
    two, four = widened(measured(better_up_to(M), 2), measured(better_up_to(0), 4))
    assert [item.rule.nodes for item in two.rules] == [2]
    assert four.rules == []


def test_one_scale_is_not_any_scale() -> None:
    (group,) = widened(measure(SIZES, better_up_to(M), noise=0.01))
    assert [item.rule.nodes for item in group.rules] == [4]


def test_registered_buffers_measured_apart_at_one_scale_keep_rules_from_being_widened() -> None:
    parts = [measured(better_up_to(M), nodes) for nodes in (2, 4, 8)]
    assert unchanged(*parts, measured(better_up_to(0), 8, registered=True))


def test_scales_measured_with_registered_buffers_only_are_widened_as_well() -> None:
    parts = (measured(better_up_to(M), nodes, noise=0.0, registered=True) for nodes in (2, 4))
    for group in widened(*parts):
        assert [item.rule.nodes for item in group.rules] == [None]


def better_but_between(low: int, high: int) -> Times:
    def times(size: int) -> dict[str, float]:
        return {"default": 100.0, "tree/ll": 150.0 if low <= size <= high else 60.0}

    return times


def test_two_rules_of_a_scale_are_not_widened_as_one() -> None:
    parts = measured(better_up_to(16 * M), 2), measured(better_but_between(16 * K, M), 4)
    assert [len(group.rules) for group in searched(*parts)[1]] == [1, 2]
    assert unchanged(*parts)


def test_a_range_is_widened_only_if_the_timings_of_each_scale_prove_it() -> None:
    timings, (two, four) = searched(measured(better_up_to(M), 2), measured(better_up_to(0), 4))
    (item,) = two.rules
    claimed = replace(item, rule=replace(item.rule, nodes=4, ranks=32))
    groups = [two, replace(four, rules=[claimed])]
    assert widen(groups, timings, OPTIONS) == groups


@pytest.mark.parametrize("weight", ["1e308", "nan", "-1", "inf", ""])
def test_impossible_weights_are_refused(tmp_path: Path, weight: str) -> None:
    path = tmp_path / "weights.csv"
    path.write_text(f"64K,{weight}\n")
    with pytest.raises(InputError, match="is not a weight"):
        read_weights(path)


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


XML = b"""<system version="1">
<cpu numaid="0" host_hash="0x1" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="1"
 modelid="1"><pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90" rank="0" gdr="1"/></pci></cpu></system>
"""
MATRIX = b"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-7\nGPU1\tNV18\t X \t0-7\n"


@pytest.mark.parametrize(
    ("platform", "facts"),
    [
        (Platform(name="x"), {}),
        (
            Platform(name="x", gpu="H", gpus=16, nodes=2, driver_version="580.1"),
            {"driver": "580.1", "gpu": "H", "gpus": "8"},
        ),
        (Platform(name="x", gpus=4, nodes=4, emulated_nodes=True), {"gpus": "4"}),
        (Platform(name="x", recorded_at="2026-11-27"), {"settings": "none"}),
        (
            Platform(name="x", settings={"NCCL_B": 'a "b"\n', "NCCL_A": "1"}),
            {"settings": "NCCL_A=1 NCCL_B=a 'b' "},
        ),
    ],
)
def test_only_what_is_known_is_stated(platform: Platform, facts: dict[str, str]) -> None:
    assert rests_on(platform) == facts


def test_many_settings_are_told_apart_by_their_hash() -> None:
    many = {f"NCCL_NUMBER_{n}": "x" * 20 for n in range(20)}
    text = rests_on(Platform(name="x", settings=many))["settings"]
    other = rests_on(Platform(name="x", settings=many | {"NCCL_NUMBER_3": "y"}))["settings"]
    assert text.startswith("20 variables, hash ")
    assert len(text) < 60
    assert text != other


def test_a_restart_does_not_change_the_hash_of_a_machine() -> None:
    assert hardware_hash(XML) == hardware_hash(XML.replace(b"0x1", b"0x2"))
    assert hardware_hash(XML) == hardware_hash(XML.replace(b"\n", b"\n  "))
    assert hardware_hash(XML) != hardware_hash(XML.replace(b'width="16"', b'width="8"'))
    wider = MATRIX.replace(b"CPU Affinity", b"CPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    assert hardware_hash(MATRIX).startswith("nvidia-smi ")
    assert hardware_hash(MATRIX) == hardware_hash(MATRIX.replace(b"\t X \t", b"\tX\t"))
    assert hardware_hash(MATRIX) == hardware_hash(wider)
    assert hardware_hash(MATRIX) != hardware_hash(MATRIX.replace(b"NV18", b"NV17"))
    with pytest.raises(InputError):
        hardware_hash(b"nvidia-smi: command not found")


def test_the_header_states_the_study_and_its_hardware(tmp_path: Path) -> None:
    settings = {f"NCCL_NUMBER_{n}": "x" * 20 for n in range(20)}
    platform = Platform(
        name="study",
        gpu="NVIDIA H200",
        gpus=4,
        nodes=1,
        nccl_version="2.28.9",
        driver_version="580.159.04",
        settings=settings,
    )
    times = {"default": 20.0, "tree/ll": 12.0}
    samples = measure(sizes(1 << 10, 1 << 16), times, noise=0.01)
    study = study_of(tmp_path / "study", samples, platform)
    (study.path / "topology.xml").write_bytes(XML)
    save_tuning(study, tune_study(open_study(study.path)))
    read = read_rules(study.config_path, strict=True)
    rests = rests_on(platform_with_hardware(study))
    assert set(rests) == {"nccl", "driver", "gpu", "gpus", "topology", "settings"}
    assert rests.items() <= read.header.items()
    assert read.header["rows"] == rows_text([item.rule for item in read.rules])
    lines = study.config_path.read_text().splitlines()
    assert max(map(len, lines)) <= MAX_LINE
