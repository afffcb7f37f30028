# SPDX-License-Identifier: Apache-2.0
"""A chunk size that wins, from the timings to what the plugin answers under NCCL 2.30 and later."""

import json
from pathlib import Path
from typing import Any

import pytest

from nccltune.formats.tuner_config.csv_rules import write_rules
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.native import PluginHost, TunerAnswer, tuner_path
from nccltune.study.files import Study
from nccltune.tune.explain import check_decisions
from nccltune.tune.result import Tuning
from tests.unit.builders import measure, rule, sizes, study_of

from .command_line import nccltune

K, M = 1 << 10, 1 << 20
SWITCH = 1 * M
CHUNKED = "ring/simple/-/131072"


def times(size: int) -> dict[str, float]:
    """Tree/LL to 1 MiB, where a doubled chunk is cut and changes nothing; then ring/simple, which a
    chunk of 128 KiB makes faster."""
    base = 20 + size / 50e3
    return {
        "default": base,
        "tree/ll": base * (0.6 if size <= SWITCH else 1.5),
        "tree/ll/-/65536": base * (0.5997 if size <= SWITCH else 1.5),
        "ring/simple": base * (1.2 if size <= SWITCH else 0.8),
        CHUNKED: base * (1.2 if size <= SWITCH else 0.6),
    }


@pytest.fixture
def study(tmp_path: Path) -> Path:
    samples = measure(sizes(1 * K, 256 * M), times, noise=0.002, seed=3)
    facts = {"name": "made up", "gpu": "NVIDIA H200", "nccl_version": "2.32.3"}
    return study_of(tmp_path / "study", samples, **facts).path


def test_a_chunk_size_is_tuned_written_and_answered(study: Path, tmp_path: Path) -> None:
    nccltune("tune", study, cwd=tmp_path)
    rows = [
        line for line in (study / "tuner.conf").read_text().splitlines() if not line.startswith("#")
    ]
    assert [row.split(",")[3:6] for row in rows] == [["tree", "ll", "-1"], ["ring", "simple", "-1"]]
    assert len(rows[0].split(",")) == 8
    assert rows[1].split(",")[8:] == ["-1", "-1", "131072"]

    explain = ("explain", study, "--sizes", "1K-256M", "--json")

    def explained_by(*version: str) -> dict[str, Any]:
        (found,) = json.loads(nccltune(*explain, *version, cwd=tmp_path).stdout)["explained"]
        return found  # type: ignore[no-any-return]

    explained = explained_by()
    # Under 2.32.3, whose newest interface is v7.
    assert explained["interface"] == 7
    assert [item["decides"] for item in explained["collectives"]["allreduce"]] == [
        "tree/ll",
        CHUNKED,
    ]
    sixth = explained_by("--nccl-version", "2.30.7")
    assert sixth["interface"] == 6
    assert sixth["collectives"] == explained["collectives"]
    fifth = explained_by("--nccl-version", "2.28.9")
    assert fifth["interface"] == 5
    assert [item["decides"] for item in fifth["collectives"]["allreduce"]] == [
        "tree/ll",
        "ring/simple",
    ]
    assert any("chunk sizes have no effect" in line["text"] for line in fifth["log"])

    tuning = Study.open(study).read_json(study / "tuning.json", Tuning)
    agreed, asked = check_decisions(study / "tuner.conf", tuning)
    assert agreed == asked > 0
    lint = json.loads(nccltune("lint", study, "--json", cwd=tmp_path).stdout)
    assert any(
        "without its chunk size" in issue["message"]
        for issue in lint["configurations"][0]["issues"]
    )


def test_the_evidence_names_the_chunk_size(study: Path, tmp_path: Path) -> None:
    tuned = json.loads(nccltune("tune", study, "--json", cwd=tmp_path).stdout)
    (group,) = tuned["groups"]
    rule = group["rules"][1]
    assert rule["rule"]["choice"]["chunk_bytes"] == 131072
    assert rule["gain"] == pytest.approx(1 / 0.6, rel=0.02)
    assert {
        row["choice"]["chunk_bytes"] for row in group["decisions"] if row["bytes"] > SWITCH
    } == {131072}
    assert CHUNKED in nccltune("tune", study, cwd=tmp_path).stdout


def test_what_nccl_cuts_still_counts_as_decided(tmp_path: Path) -> None:
    config = tmp_path / "tuner.conf"
    config.write_text(write_rules([rule(0, M, "tree/ll/-/65536")], {}))
    with PluginHost(
        tuner_path(),
        nccl_version="2.30.7",
        scale=Scale(1, 4),
        environment={"NCCLTUNE_CONFIG": str(config), "NCCL_TUNER_CONFIG_FILE": None},
    ) as host:
        decision = host.decide(Collective.ALLREDUCE, 64 * K)
        assert isinstance(decision.decided, TunerAnswer)
        assert decision.decided.chunk_bytes == 32 * K
        assert [warning.code for warning in decision.warnings] == ["chunk_cut"]
        # NCCL's own is another: the share of a channel does not change the answer.
        other = host.decide(Collective.ALLREDUCE, 64 * K, chunk_bytes=8 * K)
        assert other.label == "tree/ll/-/32768"
        assert host.decide(Collective.ALLREDUCE, 2 * M).label == "default"
