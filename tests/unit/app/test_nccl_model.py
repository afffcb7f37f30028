# SPDX-License-Identifier: Apache-2.0
"""What NCCL's own cost model says beside a study, and of the default that `explain` shows."""

import shutil
from pathlib import Path

import msgspec
import pytest

from nccltune.analyze.result import ConditionAnalysis
from nccltune.app.analyze import analyze_study
from nccltune.app.nccl_model import beside, model_curve, why_default
from nccltune.app.study import open_study
from nccltune.examples import example
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.topology.files.load import load_topology
from nccltune.topology.nccl_model.settings import known_version
from tests.unit.runs import Cli

RECORDING = example("h200x4-1-node")
PLATFORM = Platform(
    name="x", gpu="NVIDIA H200", nccl_version="2.28.9", settings={"NCCL_NVLS_ENABLE": "0"}
)
SCALE = Scale(1, 4)


def why(ran: list[str], platform: Platform = PLATFORM, size: int = 1 << 20) -> str:
    topology = load_topology(RECORDING)
    return why_default(topology, platform, Collective.ALLREDUCE, SCALE, size, ran)


def test_the_default_is_explained_by_the_next_best_and_what_is_missing() -> None:
    assert why(["ring/ll"]) == (
        "NCCL's own cost model (2.28.9) chooses ring/ll, 21.4 us; the next best is ring/ll128,"
        " 30.1 us (latency 10.2 us, that of ring/ll128 is 25.4 us); no collnet_direct/simple,"
        " collnet_chain/simple: needs several nodes; no nvls/simple, nvls_tree/simple:"
        " NCCL_NVLS_ENABLE=0"
    )


def test_another_default_than_the_models_is_not_explained() -> None:
    words = "NCCL's own cost model (2.28.9) does not explain tree/ll: it chooses ring/ll,"
    assert why(["tree/ll"]).startswith(words)
    assert "does not explain" not in why([])


@pytest.mark.parametrize("name", ["NCCL_NTHREADS", "NCCL_MAX_CTAS"])
def test_settings_that_the_model_does_not_follow_leave_it_out(name: str) -> None:
    platform = msgspec.structs.replace(PLATFORM, settings={name: "1"})
    assert why([], platform).endswith(
        f"is left out: {name} is set, and the model does not follow it"
    )


def test_a_forced_choice_is_placed_beside_its_own_time() -> None:
    topology, times = load_topology(RECORDING), {1 << 10: 12.0, 1 << 30: 6000.0}
    found = beside(topology, PLATFORM, Collective.ALLREDUCE, SCALE, times, "tree/ll")
    assert [one.choice for one in found.figures] == ["tree/ll", "tree/ll"]
    assert [one.measured_us for one in found.figures] == [12.0, 6000.0]
    found = beside(topology, PLATFORM, Collective.ALLREDUCE, SCALE, times, "nvls/simple")
    assert found.figures == []
    assert "is left out: it has no nvls/simple here" in found.sentence


def test_the_default_has_an_interval_that_most_systems_are_in() -> None:
    topology, times = load_topology(RECORDING), {1 << 10: 12.0, 1 << 30: 4550.0}
    found = beside(topology, PLATFORM, Collective.ALLREDUCE, SCALE, times, "default")
    assert found.expected_gb_per_s is not None
    low, high = found.expected_gb_per_s
    modelled = found.figures[-1].busbw_gb_per_s
    assert 0.7 * modelled < low < 0.9 * modelled < 1.05 * modelled < high < 1.2 * modelled
    assert f"measured 354 (expected {low:.0f} to {high:.0f});" in found.sentence
    forced = beside(topology, PLATFORM, Collective.ALLREDUCE, SCALE, times, "tree/ll")
    assert forced.expected_gb_per_s is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.28.9+cuda13.0", (2, 28, 9)),
        ("2.28.9", (2, 28, 9)),
        ("2.28", (2, 28, 999)),
        ("2.x.1", None),
        ("", None),
        (None, None),
        ("git", None),
    ],
)
def test_a_version_with_its_build_is_known(text: str | None, version: object) -> None:
    assert known_version(text) == version


def test_explain_of_one_size_of_a_study(tmp_path: Path, cli: Cli) -> None:
    study = str(tmp_path / "s")
    shutil.copytree(RECORDING, study)
    cli("tune", study)
    out = " ".join(cli("explain", study, "--sizes", "4M", "--collectives", "allgather").out.split())
    assert "ring/ll128 4194304 bytes" in out
    assert "(2.28.9) chooses ring/simple, 27.3 us; the next best is ring/ll128, 29.2 us" in out
    unchanged = (
        ["--sizes", "4M-8M"],
        ["--sizes", "4M", "--nodes", "2", "--ranks", "8"],
        ["--sizes", "4M", "--registered"],
    )
    for words in unchanged:
        (found,) = cli("explain", study, *words, "--json").document["explained"]
        assert found["why_default"] == {}
    (tmp_path / "s" / "topology.xml").write_text("<broken", encoding="utf-8")
    assert "cost model" not in cli("explain", study, "--sizes", "4M").out


def test_tune_names_the_model_beside_rules_once_the_study_is_analyzed(
    tmp_path: Path, cli: Cli
) -> None:
    study = str(tmp_path / "s")
    shutil.copytree(RECORDING, study)
    assert "cost model" not in cli("tune", study).out
    cli("analyze", study, code=None)
    lines = cli("tune", study).out.splitlines()
    shown = [line for line in lines if "cost model" in line]
    assert [line.partition(":")[0].split("   ")[0] for line in shown] == ["model", "model"]
    assert not any("all-reduce" in line for line in shown), "it has no rule"
    assert "all-gather, 1 node, 4 ranks: NCCL's own cost model (2.28.9) is within 10 %" in shown[1]


def analyzed(**changed: object) -> ConditionAnalysis:
    """Return the all-reduce of the recording, its condition changed."""
    found = analyze_study(open_study(RECORDING, curves=True)).analysis.conditions[0]
    return msgspec.structs.replace(
        found, condition=msgspec.structs.replace(found.condition, **changed)
    )


def slower(item: ConditionAnalysis, factor: float, last: int) -> ConditionAnalysis:
    """Return a condition whose default takes `factor` times its time up to `last` bytes."""
    default, *others = item.curves
    points = [
        msgspec.structs.replace(
            point, time_us=point.time_us * (factor if point.bytes <= last else 1)
        )
        for point in default.points
    ]
    curves = [msgspec.structs.replace(default, points=points), *others]
    return msgspec.structs.replace(item, curves=curves)


def test_the_model_is_put_beside_the_default_of_a_curve() -> None:
    item = analyzed()
    assert item.model is not None
    lead = "NCCL's own cost model (2.28.9) is within 10 % at"
    assert item.model.sentence == f"{lead} 21 of 21 sizes"
    assert item.model.choices[0] == "ring/ll"
    assert item.model.choices[-1] == "ring/simple"
    topology = load_topology(RECORDING)
    small = model_curve(topology, PLATFORM, slower(item, 3.0, 1 << 10))
    assert small is not None
    assert small.times_us == item.model.times_us
    assert small.sentence.startswith(f"{lead} 20 of 21 sizes; furthest at 1 KiB, ring/ll: measured")
    assert small.sentence.endswith("most of which is its latency")
    large = model_curve(topology, PLATFORM, slower(item, 2.0, 1 << 30))
    assert large is not None
    assert "at 0 of 21 sizes; furthest at" in large.sentence
    assert "most of which is its" in large.sentence


@pytest.mark.parametrize(
    "changed",
    [
        {"graph": True},
        {"registered": True},
        {"group_calls": 4},
        {"collective": Collective.ALLTOALL},
        {"scale": Scale(3, 4)},
    ],
)
def test_the_model_is_left_out_where_it_is_of_other_calls(changed: dict[str, object]) -> None:
    assert model_curve(load_topology(RECORDING), PLATFORM, analyzed(**changed)) is None


def test_the_model_is_a_line_of_the_report(tmp_path: Path, cli: Cli) -> None:
    study = str(tmp_path / "s")
    shutil.copytree(RECORDING, study)
    out = " ".join(cli("analyze", study).out.split())
    assert "model all-reduce, 1 node, 4 ranks: NCCL's own cost model (2.28.9) is within" in out
    condition = cli("report", study, "--json").document["conditions"][0]
    assert condition["model"].startswith("NCCL's own cost model (2.28.9) is within 10 % at 21")
    (line,) = [one for one in condition["series"] if one["label"] == "NCCL's own model"]
    assert line["role"] == "choice"
    assert set(line["n"]) == {0}
    assert line["bytes"] == condition["map"]["bytes"]


def test_a_half_forced_choice_is_placed_beside_what_the_model_takes_then() -> None:
    topology, times = load_topology(RECORDING), {1 << 10: 12.0, 1 << 30: 6000.0}
    found = beside(topology, PLATFORM, Collective.ALLREDUCE, SCALE, times, "NCCL_ALGO=Tree")
    assert [one.choice for one in found.figures] == ["tree/ll", "tree/simple"]
