# SPDX-License-Identifier: Apache-2.0
"""Import into a study: whole files, once, also after an interruption."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.importing.importer import Imported, ImportState, import_files
from nccltune.formats.importing.inputs import find_inputs
from nccltune.formats.importing.suspect import suspect_sentences
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_report import ImportRecord
from nccltune.model.choice import parse_choice
from nccltune.model.errors import StudyError
from nccltune.model.sample import Sample
from nccltune.study.files import Study
from tests.unit.formats.maker import Made, points, without_devices

SIZES = (1 << 12, 1 << 16, 1 << 20)
MADE = Made(points(*SIZES) * 4)


def do(study: Path, *inputs: Path, **options: object) -> Imported:
    wanted = ReadOptions(study=study.name, **options)  # type: ignore[arg-type]
    return import_files(study, find_inputs(inputs, leave_out=study), wanted, at="2026-11-21")


def put(path: Path, made: Made = MADE) -> Path:
    path.write_text(made.text())
    return path


def held(study: Path) -> list[Sample]:
    return list(Study(study).samples())


def test_a_first_import(tmp_path: Path) -> None:
    study = tmp_path / "studies" / "a"
    result = do(study, put(tmp_path / "nt_tree_ll.txt"))
    assert [item.outcome for item in result.files] == [ImportState.IMPORTED]
    assert result.samples == len(held(study)) == 24
    assert {sample.study for sample in held(study)} == {"a"}
    (record,) = Study(study).imports(ImportRecord)
    assert record.file == "nt_tree_ll.txt"
    assert record.kind == "nccl-tests text"
    assert (record.rows, record.samples, record.unreadable) == (12, 24, 0)
    assert record.nccl_version == "2.28.9"
    assert {sample.source.file_hash for sample in held(study)} == {record.file_hash}
    assert len(record.file_hash) == 16
    assert b'"schema_version":1' in (study / "imports.jsonl").read_bytes()


def test_the_same_file_again_is_skipped(tmp_path: Path) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")
    do(study, table)
    before = (study / "samples.jsonl").read_bytes()
    copy = put(tmp_path / "copy.txt")
    again = do(study, table, copy)
    assert [item.outcome for item in again.files] == [ImportState.ALREADY] * 2
    assert (study / "samples.jsonl").read_bytes() == before
    twice = do(tmp_path / "b", table, copy)
    assert [item.outcome for item in twice.files] == [ImportState.IMPORTED, ImportState.ALREADY]


def test_a_run_is_not_imported_under_another_label(tmp_path: Path) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")
    do(study, table)
    result = do(study, table, choice=parse_choice("tree/ll"))
    assert result.samples == 0
    assert [item.outcome for item in result.files] == [ImportState.DUPLICATE]
    (flag,) = [flag for flag in result.files[0].report.flags if flag.kind == "duplicate"]
    assert "where it is default and here tree/ll" in flag.sentence
    assert flag.doubtful


def test_a_run_of_unknown_scale_is_read_again_with_its_scale(tmp_path: Path) -> None:
    study, table = tmp_path / "a", tmp_path / "default.txt"
    table.write_text(without_devices(MADE.with_(era="2.13").text()))
    assert do(study, table).samples == 24
    assert do(study, table, nodes=1, ranks=4).samples == 24
    assert len({sample.source.process for sample in held(study)}) == 1
    assert do(study, table, nodes=1, ranks=4).samples == 0


def test_every_run_has_rounds_of_its_own(tmp_path: Path) -> None:
    study = tmp_path / "a"
    do(study, put(tmp_path / "1.txt"))
    do(study, put(tmp_path / "2.txt", MADE.with_(pid=99)))
    found: dict[str | None, list[int]] = {}
    for sample in held(study):
        if sample.bytes == 4096:
            found.setdefault(sample.source.process, []).append(sample.round)
    assert list(found.values()) == [[0, 0, 1, 1, 2, 2, 3, 3]] * 2


def test_a_refused_file_leaves_no_trace(tmp_path: Path) -> None:
    study, bad = tmp_path / "a", tmp_path / "bad.csv"
    header = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n"
    good_rows = "allreduce,4096,ring,ll,-1,1,8,10.0\n" * 5000
    bad.write_text(header + good_rows + "allreduce,4096,rings,ll,-1,1,8,10.0\n")
    result = do(study, bad)
    assert [item.outcome for item in result.files] == [ImportState.REFUSED]
    report = result.files[0].report
    assert report.error_line == 5002
    assert "column 3 (algorithm)" in (report.error or "")
    assert not study.exists()
    do(study, bad, put(tmp_path / "out.txt"))
    assert len(held(study)) == 24
    assert len(Study(study).imports(ImportRecord)) == 1


def test_nothing_readable_makes_no_study(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("words\n")
    assert do(tmp_path / "a", tmp_path / "x").samples == 0
    assert not (tmp_path / "a").exists()


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.booleans(), st.booleans())
def test_the_remains_of_a_killed_import_are_removed(share: float, torn: bool, others: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        study = base / "a"
        first, second = put(base / "1.txt"), put(base / "2.txt", MADE.with_(pid=99))
        do(study, first)
        before = (study / "samples.jsonl").read_bytes()
        mark = {"start": len(before), "file_hashes": [file_hash(second)]}
        do(study, second)
        whole = (study / "samples.jsonl").read_bytes()
        lines = whole.splitlines(keepends=True)
        kept = 24 + int(share * 24)
        torn_line = lines[kept][:40] if torn and kept < 48 else b""
        # A sweep may have appended after the samples of the killed import.
        foreign = b"" if torn_line or not others else lines[0]
        (study / "samples.jsonl").write_bytes(b"".join(lines[:kept]) + torn_line + foreign)
        records = (study / "imports.jsonl").read_bytes().splitlines(keepends=True)
        (study / "imports.jsonl").write_bytes(records[0])
        (study / ".import.json").write_bytes(msgspec.json.encode(mark))
        result = do(study, second)
        assert result.files[0].outcome is ImportState.IMPORTED
        assert result.taken_back == kept - 24
        assert (study / "samples.jsonl").read_bytes() == before + foreign + whole[len(before) :]
        assert not (study / ".import.json").exists()
        assert do(study, second).files[0].outcome is ImportState.ALREADY


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def test_an_interruption_while_reading_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "a"
    do(study, put(tmp_path / "1.txt"))
    before = (study / "samples.jsonl").read_bytes(), (study / "imports.jsonl").read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    table = put(tmp_path / "2.txt", MADE.with_(pid=99))
    wanted = ReadOptions(study="a")
    with pytest.raises(KeyboardInterrupt):
        import_files(study, find_inputs([table]), wanted, progress=interrupt)
    after = (study / "samples.jsonl").read_bytes(), (study / "imports.jsonl").read_bytes()
    assert after == before
    assert {path.name for path in study.iterdir()} == {
        "samples.jsonl",
        "imports.jsonl",
        "platform.json",
    }


def test_a_finished_import_is_not_removed(tmp_path: Path) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")
    do(study, table)
    mark = {"start": 0, "file_hashes": [file_hash(table)]}
    (study / ".import.json").write_bytes(msgspec.json.encode(mark))
    result = do(study, put(tmp_path / "2.txt", MADE.with_(pid=99)))
    assert result.taken_back == 0
    assert len(held(study)) == 48


def test_a_full_disk_is_an_error_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StudyError, match="No space"):
        do(study, table)
    monkeypatch.undo()
    assert do(study, table).files[0].outcome is ImportState.IMPORTED
    assert len(held(study)) == 24


def test_a_damaged_study_is_not_written_to(tmp_path: Path) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")
    study.mkdir()
    (study / "samples.jsonl").write_text("rubbish\n{}\n")
    with pytest.raises(StudyError, match="damaged"):
        do(study, table)
    assert (study / "samples.jsonl").read_text() == "rubbish\n{}\n"


def test_the_platform_is_written_once(tmp_path: Path) -> None:
    study = tmp_path / "a"
    two = MADE.with_(hosts=("a", "b"), one_process=False)
    result = do(study, put(tmp_path / "1.txt", two))
    assert result.platform is not None
    assert result.platform.title == "4 x NVIDIA H200 · 2 nodes · NCCL 2.28.9"
    again = do(study, put(tmp_path / "2.txt", two.with_(pid=99)))
    assert again.platform is None
    assert Study(study).platform().gpu == "NVIDIA H200"


def test_doubtful_runs_are_recorded(tmp_path: Path) -> None:
    study = tmp_path / "a"
    do(study, put(tmp_path / "cut.txt", MADE.with_(footer=False)))
    assert suspect_sentences(Study(study)) == [
        "cut.txt: a table ends without its footer: the run was aborted, or the file is cut"
    ]


def test_samples_of_another_study(tmp_path: Path) -> None:
    do(tmp_path / "a", put(tmp_path / "out.txt"))
    result = do(tmp_path / "b", tmp_path / "a" / "samples.jsonl")
    assert result.samples == 24
    assert {sample.study for sample in held(tmp_path / "b")} == {"b"}
    assert do(tmp_path / "b", tmp_path / "a" / "samples.jsonl").samples == 0
