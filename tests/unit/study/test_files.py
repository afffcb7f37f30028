# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample, Source
from nccltune.study.files import Study, write_whole


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
