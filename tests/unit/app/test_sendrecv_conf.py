# SPDX-License-Identifier: Apache-2.0
"""`sendrecv.conf`, which several comparisons of one study write to."""

from pathlib import Path

import pytest

from nccltune.app.sendrecv_conf import CONF, keep_chunk, keep_threshold
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.measure.bench.identity import platform_of
from nccltune.measure.engine.process_record import RecordKind
from nccltune.measure.experiments.copies.preload import BESIDE_TRAFFIC, SENDRECV, UNDER_LOAD
from nccltune.measure.experiments.copies.settings import CHUNK, FROM, ON, POLICY
from nccltune.study.files import Study
from tests.unit.measure.fakes import hello

PLATFORM = platform_of(hello(), "study", environment={}, today="2026-11-22")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "study")


def end(study: Study, kept: RecordKind, settings: dict[str, int | str], why: str) -> str | None:
    """Store the result of a comparison and write its settings."""
    study.write_json(study.path / kept.result, {"settings": settings, "why": why, "noise": 0.02})
    if kept is BESIDE_TRAFFIC:
        return keep_chunk(study, PLATFORM, settings)
    keep_threshold(study, PLATFORM, settings)
    return None


def comments(study: Study) -> str:
    lines = (study.path / CONF).read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("#"))


def test_a_threshold_takes_the_place_of_another_and_leaves_a_chunk(study: Study) -> None:
    end(study, SENDRECV, {FROM: 4 << 20}, "by size")
    assert end(study, BESIDE_TRAFFIC, {CHUNK: 8 << 20}, "chunks") is None
    assert read_conf(study.path / CONF) == {FROM: str(4 << 20), CHUNK: str(8 << 20)}
    assert "# by size\n" in comments(study)
    assert "# Beside traffic: chunks\n" in comments(study)
    end(study, UNDER_LOAD, {FROM: 1 << 20}, "computing")
    assert read_conf(study.path / CONF) == {FROM: str(1 << 20), CHUNK: str(8 << 20)}
    assert "# While the GPUs compute: computing\n" in comments(study)
    assert "# Beside traffic: chunks\n" in comments(study)
    assert "by size" not in comments(study)


def test_a_chunk_is_removed_where_copy_engines_are_switched_off(study: Study) -> None:
    end(study, BESIDE_TRAFFIC, {CHUNK: 8 << 20}, "chunks")
    end(study, SENDRECV, {ON: 0}, "never faster")
    assert read_conf(study.path / CONF) == {ON: "0"}
    assert "chunks" not in comments(study)


@pytest.mark.parametrize("line", [f"{ON}=0", f"{POLICY}=vccl"])
def test_a_chunk_is_not_added_to_settings_that_change_its_meaning(study: Study, line: str) -> None:
    (study.path / CONF).write_text(f"{line}\n")
    assert line in (end(study, BESIDE_TRAFFIC, {CHUNK: 8 << 20}, "chunks") or "")
    assert (study.path / CONF).read_text() == f"{line}\n"


def test_the_chunk_of_a_policy_is_removed_with_the_policy(study: Study) -> None:
    (study.path / CONF).write_text(f"{POLICY}=vccl\n{CHUNK}=16777216\n")
    end(study, SENDRECV, {FROM: 4 << 20}, "by size")
    assert read_conf(study.path / CONF) == {FROM: str(4 << 20)}
