# SPDX-License-Identifier: Apache-2.0
"""Importing into a study: whole files, once, whatever interrupts."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.context import ReadOptions
from nccltune.formats.importer import Imported, Outcome, import_files
from nccltune.formats.inputs import find_inputs
from nccltune.formats.reading import ImportRecord
from nccltune.formats.suspect import suspect_sentences
from nccltune.model.choice import parse_choice
from nccltune.model.errors import StudyError
from nccltune.model.sample import Sample
from nccltune.model.study import Study
from tests.unit.formats.maker import Made, points

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
    assert [item.outcome for item in result.files] == [Outcome.IMPORTED]
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
    assert [item.outcome for item in again.files] == [Outcome.ALREADY] * 2
    assert (study / "samples.jsonl").read_bytes() == before
    twice = do(tmp_path / "b", table, copy)
    assert [item.outcome for item in twice.files] == [Outcome.IMPORTED, Outcome.ALREADY]


def test_other_options_are_another_reading(tmp_path: Path) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")
    do(study, table)
    result = do(study, table, choice=parse_choice("tree/ll"))
    assert result.samples == 24
    assert any("other options" in flag.sentence for flag in result.files[0].report.flags)


def test_rounds_go_on_behind_those_there(tmp_path: Path) -> None:
    study = tmp_path / "a"
    do(study, put(tmp_path / "1.txt"))
    do(study, put(tmp_path / "2.txt", MADE.with_(pid=99)))
    rounds = [sample.round for sample in held(study) if sample.bytes == 4096]
    assert rounds == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_a_refused_file_leaves_no_trace(tmp_path: Path) -> None:
    study, bad = tmp_path / "a", tmp_path / "bad.csv"
    header = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n"
    good_rows = "allreduce,4096,ring,ll,-1,1,8,10.0\n" * 5000
    bad.write_text(header + good_rows + "allreduce,4096,RING,ll,-1,1,8,10.0\n")
    result = do(study, bad)
    assert [item.outcome for item in result.files] == [Outcome.REFUSED]
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
def test_an_interrupted_import_goes_on(share: float, torn: bool, others_first: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        study = base / "a"
        first, second = put(base / "1.txt"), put(base / "2.txt", MADE.with_(pid=99))
        do(study, first)
        do(study, second)
        whole = (study / "samples.jsonl").read_bytes()
        lines = whole.splitlines(keepends=True)
        # The second import stopped in the middle of writing samples.
        kept = 24 + int(share * 24)
        cut = b"".join(lines[:kept])
        (study / "samples.jsonl").write_bytes(
            cut + (lines[kept][:40] if torn and kept < 48 else b"")
        )
        records = (study / "imports.jsonl").read_bytes().splitlines(keepends=True)
        (study / "imports.jsonl").write_bytes(records[0])
        if others_first:
            do(study, put(base / "3.txt", MADE.with_(pid=7)))
        result = do(study, second)
        assert result.files[0].outcome is Outcome.IMPORTED
        assert result.files[0].resumed == kept - 24
        assert len(held(study)) == 48 + 24 * others_first
        if not others_first:
            assert (study / "samples.jsonl").read_bytes() == whole
        assert do(study, second).files[0].outcome is Outcome.ALREADY


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


def test_leftovers_read_with_other_options_are_said(tmp_path: Path) -> None:
    study, table = tmp_path / "a", put(tmp_path / "out.txt")
    do(study, table)
    (study / "imports.jsonl").unlink()
    result = do(study, table, choice=parse_choice("tree/ll"))
    assert result.files[0].resumed == 0
    assert any("interrupted" in flag.sentence for flag in result.files[0].report.flags)


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
    assert do(study, table).files[0].outcome is Outcome.IMPORTED
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
    again = do(study, put(tmp_path / "2.txt", MADE.with_(pid=99, gpu="Tesla T4")))
    assert again.platform is None
    assert Study(study).platform().gpu == "NVIDIA H200"


def test_platforms_that_disagree_are_noted(tmp_path: Path) -> None:
    other = MADE.with_(gpu="Tesla T4", loaded=22903, headers=22903)
    result = do(tmp_path / "a", put(tmp_path / "1.txt"), put(tmp_path / "2.txt", other))
    assert result.platform is not None
    assert result.platform.gpu is None
    assert any("2.28.9, 2.29.3" in note for note in result.platform.notes)


def test_doubtful_runs_are_remembered(tmp_path: Path) -> None:
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
