# SPDX-License-Identifier: Apache-2.0
"""`sendrecv.conf`, which several comparisons of one study write to."""

from pathlib import Path

import pytest

from nccltune.app.sendrecv_sweep import keep_threshold
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.measure.bench.identity import platform_of
from nccltune.measure.experiments.copies.record import SENDRECV, UNDER_LOAD, RecordKind
from nccltune.measure.experiments.copies.settings import CHUNK, FROM, ON, POLICY
from nccltune.study.files import Study
from nccltune.study.names import SENDRECV_CONF
from tests.unit.measure.fakes import hello

PLATFORM = platform_of(hello(), "study", environment={}, today="2026-11-22")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "study")


def end(study: Study, kept: RecordKind, settings: dict[str, int | str], why: str) -> None:
    """Store the result of a comparison and write its settings."""
    study.write_json(study.path / kept.result, {"settings": settings, "why": why, "noise": 0.02})
    keep_threshold(study, PLATFORM, settings)


def add_chunk(study: Study) -> None:
    with (study.path / SENDRECV_CONF).open("a") as file:
        file.write(f"{CHUNK}={8 << 20}\n")


def comments(study: Study) -> str:
    lines = (study.path / SENDRECV_CONF).read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("#"))


def test_a_threshold_takes_the_place_of_another_and_leaves_a_chunk(study: Study) -> None:
    end(study, SENDRECV, {FROM: 4 << 20}, "by size")
    add_chunk(study)
    assert read_conf(study.path / SENDRECV_CONF) == {FROM: str(4 << 20), CHUNK: str(8 << 20)}
    assert "# by size\n" in comments(study)
    end(study, UNDER_LOAD, {FROM: 1 << 20}, "computing")
    assert read_conf(study.path / SENDRECV_CONF) == {FROM: str(1 << 20), CHUNK: str(8 << 20)}
    assert "# While the GPUs compute: computing\n" in comments(study)
    assert "by size" not in comments(study)


def test_a_chunk_is_removed_where_copy_engines_are_switched_off(study: Study) -> None:
    add_chunk(study)
    end(study, SENDRECV, {ON: 0}, "never faster")
    assert read_conf(study.path / SENDRECV_CONF) == {ON: "0"}


def test_the_chunk_of_a_policy_is_removed_with_the_policy(study: Study) -> None:
    (study.path / SENDRECV_CONF).write_text(f"{POLICY}=vccl\n{CHUNK}=16777216\n")
    end(study, SENDRECV, {FROM: 4 << 20}, "by size")
    assert read_conf(study.path / SENDRECV_CONF) == {FROM: str(4 << 20)}
