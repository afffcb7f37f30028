# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nccltune.app.sendrecv_sweep import keep_threshold
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.measure.bench.identity import platform_of
from nccltune.measure.engine.process_record import RecordKind
from nccltune.measure.experiments.copies.preload import SENDRECV, UNDER_LOAD
from nccltune.measure.experiments.copies.settings import CHUNK, FROM, ON, POLICY
from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample, Source
from nccltune.study.files import Study, write_whole
from nccltune.study.names import SENDRECV_CONF
from tests.unit.measure.fakes import hello


def sample(size: int, round_: int = 0) -> Sample:
    return Sample(
        study="s",
        collective=Collective.ALLREDUCE,
        bytes=size,
        nodes=1,
        ranks=4,
        choice="default",
        round=round_,
        time_us=10.0,
        source=Source(tool="test"),
    )


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "study")


def test_samples_are_appended_and_read_in_order(study: Study) -> None:
    assert study.append_lines(study.samples_path, [sample(8), sample(16)]) == 2
    assert study.append_lines(study.samples_path, [sample(32)]) == 1
    assert [item.bytes for item in study.samples()] == [8, 16, 32]


def test_a_line_cut_short_costs_only_itself(study: Study) -> None:
    study.append_lines(study.samples_path, [sample(8), sample(16)])
    raw = study.samples_path.read_bytes()
    study.samples_path.write_bytes(raw[:-20])
    assert [item.bytes for item in study.samples()] == [8]
    study.append_lines(study.samples_path, [sample(32)])
    assert [item.bytes for item in study.samples()] == [8, 32]


def test_a_whole_last_line_without_newline_is_kept(study: Study) -> None:
    study.append_lines(study.samples_path, [sample(8)])
    study.samples_path.write_bytes(study.samples_path.read_bytes()[:-1])
    assert [item.bytes for item in study.samples()] == [8]
    study.append_lines(study.samples_path, [sample(16)])
    assert [item.bytes for item in study.samples()] == [8, 16]


def test_a_damaged_line_is_named(study: Study) -> None:
    study.append_lines(study.samples_path, [sample(8)])
    with study.samples_path.open("ab") as file:
        file.write(b'{"study": 3}\n')
    study.append_lines(study.samples_path, [sample(16)])
    with pytest.raises(StudyError) as caught:
        list(study.samples())
    assert caught.value.where == f"{study.samples_path}:2"


def test_bytes_that_are_not_utf_8_are_damage(study: Study) -> None:
    study.append_lines(study.samples_path, [sample(8)])
    line = study.samples_path.read_bytes()
    with study.samples_path.open("ab") as file:
        file.write(line.replace(b'{"', b'{"dtype":"fl\xb2at","', 1))
    with pytest.raises(StudyError, match="damaged") as caught:
        list(study.samples())
    assert caught.value.where == f"{study.samples_path}:2"


def test_a_newer_schema_is_no_damage(study: Study) -> None:
    study.samples_path.write_text('{"schema_version": 99, "x": 1}\n')
    with pytest.raises(StudyError, match="newer nccltune"):
        list(study.samples())


def test_writers_take_turns(study: Study) -> None:
    def append(size: int) -> int:
        return study.append_lines(
            study.samples_path, (sample(size, round_) for round_ in range(200))
        )

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(append, [8, 16, 32, 64])) == [200] * 4
    assert len(list(study.samples())) == 800


def test_files_are_written_whole_or_not_at_all(study: Study) -> None:
    study.write_json(study.platform_path, Platform(name="a"))
    before = study.platform_path.read_bytes()
    with pytest.raises(TypeError):
        study.write_json(study.platform_path, object())
    assert study.platform_path.read_bytes() == before
    assert [path.name for path in study.path.iterdir()] == ["platform.json"]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    study = Study.create(tmp_path / "study")
    study.samples_path.symlink_to(full)
    with pytest.raises(StudyError, match="No space left"):
        study.append_lines(study.samples_path, [sample(8)])


def test_what_is_no_study_is_said(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such study"):
        Study.open(tmp_path / "missing")
    with pytest.raises(StudyError, match="no study"):
        Study.open(tmp_path)
    file = tmp_path / "log.txt"
    file.write_text("x")
    with pytest.raises(StudyError, match="is a file") as caught:
        Study.open(file)
    assert "nccltune import" in (caught.value.hint or "")


def test_a_folder_in_place_of_a_file_is_said(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    target.mkdir()
    with pytest.raises(StudyError, match="cannot be written"):
        write_whole(target, "text")
    assert list(target.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


PLATFORM = platform_of(hello(), "study", environment={}, today="2026-11-22")


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
