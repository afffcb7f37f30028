# SPDX-License-Identifier: Apache-2.0
"""The process of an imported timing, and runs that are imported only once."""

import json
from pathlib import Path

import msgspec
import pytest

from nccltune.formats.importing.importer import ImportState
from nccltune.formats.reading.file_report import ImportRecord
from nccltune.formats.reading.runs import RunFound, printed_time
from nccltune.model.choice import parse_choice
from nccltune.model.sample import Source
from nccltune.study.files import Study
from tests.unit.formats import json_maker
from tests.unit.formats.maker import Made, Point, without_devices
from tests.unit.formats.measured import measured, processes, put, take
from tests.unit.formats.reading_tools import text

RUN = measured(1)


def ids(path: Path) -> list[str]:
    return list(processes(path))


def outcomes(result: object) -> list[ImportState]:
    return [item.outcome for item in result.files]  # type: ignore[attr-defined]


def test_a_table_is_one_process(tmp_path: Path) -> None:
    take(tmp_path / "s", put(tmp_path / "default.txt", measured(1, cycles=8)))
    ((samples),) = processes(tmp_path / "s").values()
    assert len(samples) == 2 * 8 * 12
    assert sorted({sample.round for sample in samples}) == list(range(8))
    assert {sample.in_place for sample in samples} == {False, True}
    assert not any(sample.source.in_rounds for sample in samples)


def test_every_run_of_a_file_is_a_process(tmp_path: Path) -> None:
    runs = [measured(seed) for seed in range(3)]
    take(tmp_path / "s", put(tmp_path / "loop.txt", "".join(run.text() for run in runs)))
    found = processes(tmp_path / "s")
    assert [len(samples) for samples in found.values()] == [24] * 3
    assert {sample.round for samples in found.values() for sample in samples} == {0}


SAVED_AGAIN = {
    "a newline": lambda text: text + "\n",
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: text.replace("\n#\n", "\n\n#\n\n") + "\n \n\n",
    "a launcher's prefix": lambda text: "".join(f"0: {line}\n" for line in text.splitlines()),
    "colours": lambda text: f"\x1b[32m{text}\x1b[0m",
    "a shell's prompt": lambda text: f"$ ./run.sh\n{text}$ \n",
    "UTF-16": lambda text: text.encode("utf-16"),
}


@pytest.mark.parametrize("how", list(SAVED_AGAIN))
def test_a_log_saved_again_is_the_same_run(tmp_path: Path, how: str) -> None:
    saved = SAVED_AGAIN[how](RUN.text())
    copy = tmp_path / "default-2.txt"
    copy.write_bytes(saved if isinstance(saved, bytes) else saved.encode())
    first = put(tmp_path / "default-1.txt", RUN)
    together = take(tmp_path / "s", first, copy)
    assert outcomes(together) == [ImportState.IMPORTED, ImportState.DUPLICATE]
    assert len(processes(tmp_path / "s")) == 1
    later = take(tmp_path / "s", copy)
    assert outcomes(later) == [ImportState.DUPLICATE]
    assert later.samples == 0
    (flag,) = [flag for flag in later.files[0].report.flags if flag.kind == "duplicate"]
    assert "default-1.txt" in flag.sentence
    take(tmp_path / "alone", copy)
    assert ids(tmp_path / "alone") == ids(tmp_path / "s")


def test_a_run_pasted_twice_into_one_file_counts_once(tmp_path: Path) -> None:
    result = take(tmp_path / "s", put(tmp_path / "default.txt", RUN.text() * 2))
    assert outcomes(result) == [ImportState.IMPORTED]
    assert result.samples == 24
    assert len(processes(tmp_path / "s")) == 1


def test_the_complete_log_adds_to_a_part_that_was_imported(tmp_path: Path) -> None:
    whole = RUN.text()
    lines = whole.splitlines(keepends=True)
    part = "".join(lines[: len(lines) - 8])
    take(tmp_path / "s", put(tmp_path / "part.txt", part))
    result = take(tmp_path / "s", put(tmp_path / "default.txt", whole))
    assert result.samples == 6
    ((samples),) = processes(tmp_path / "s").values()
    take(tmp_path / "t", put(tmp_path / "default.txt", whole))
    ((at_once),) = processes(tmp_path / "t").values()
    assert [(item.bytes, item.time_us) for item in samples] == [
        (item.bytes, item.time_us) for item in at_once
    ]
    # The part adds nothing to the complete log.
    assert outcomes(take(tmp_path / "t", tmp_path / "part.txt")) == [ImportState.DUPLICATE]


def test_tiny_tables_that_agree_by_chance_are_two_runs(tmp_path: Path) -> None:
    tiny = Made((Point(1024, 8.5, 8.6), Point(2048, 8.5, 8.6)))
    one = tiny.text().replace("# nThread", "# first\n# nThread")
    take(tmp_path / "s", put(tmp_path / "a.txt", one), put(tmp_path / "b.txt", tiny.text()))
    assert len(processes(tmp_path / "s")) == 2
    # The same text is the same run, however few its rows.
    again = take(tmp_path / "s", put(tmp_path / "c.txt", tiny.text().replace("\n", "\r\n")))
    assert outcomes(again) == [ImportState.DUPLICATE]


def test_round_times_are_no_evidence_of_a_copy(tmp_path: Path) -> None:
    coarse = Made(tuple(Point(1 << row, 20.0, 20.0) for row in range(10, 20)))
    bare = without_devices(coarse.text())
    take(
        tmp_path / "s",
        put(tmp_path / "default-1.txt", bare),
        put(tmp_path / "default-2.txt", f"another run\n{bare}"),
    )
    assert len(processes(tmp_path / "s")) == 2


def test_other_process_ids_are_another_run(tmp_path: Path) -> None:
    other = put(tmp_path / "default-2.txt", RUN.with_(pid=77))
    take(tmp_path / "s", put(tmp_path / "default-1.txt", RUN), other)
    assert len(processes(tmp_path / "s")) == 2


def test_a_copy_under_another_label_is_a_contradiction(tmp_path: Path) -> None:
    copy = put(tmp_path / "tree_ll.txt", RUN.text() + "\n")
    result = take(tmp_path / "s", put(tmp_path / "default.txt", RUN), copy)
    assert outcomes(result) == [ImportState.IMPORTED, ImportState.DUPLICATE]
    assert result.files[1].report.doubtful
    sentence = next(flag.sentence for flag in result.files[1].report.flags if flag.doubtful)
    assert "default.txt" in sentence
    assert "tree/ll" in sentence


def test_text_and_json_of_one_run_are_one_process(tmp_path: Path) -> None:
    # JSON has digits that the text lacks.
    exact = tuple(Point(row.size, row.out_us + 0.0031, row.in_us - 0.0042) for row in RUN.points)
    shown = json.dumps({**json_maker.made(exact, pid=RUN.pid), "nccl_version": RUN.loaded})
    result = take(
        tmp_path / "s", put(tmp_path / "default.txt", RUN), put(tmp_path / "default.json", shown)
    )
    assert outcomes(result) == [ImportState.IMPORTED, ImportState.DUPLICATE]


def test_times_are_compared_as_printed() -> None:
    assert printed_time(23.4567) == 23.46
    assert printed_time(23418.69756) == 23418.7
    assert printed_time(1234567.8) == 1234568.0


def test_few_or_coarse_rows_do_not_identify_a_run() -> None:
    few, many, coarse = RunFound(), RunFound(), RunFound()
    for row in range(12):
        if row < 2:
            few.add_row([row, 20.13], [20.13])
        many.add_row([row, 20.13], [20.13])
        coarse.add_row([row, 9.0], [9.0])
    assert not few.telling
    assert many.telling
    assert not coarse.telling


def test_rows_of_one_choice_in_a_csv_are_one_process(tmp_path: Path) -> None:
    header = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n"
    rows = [
        f"allreduce,{1 << size},{choice},-1,1,8,{10 + size + turn}.5\n"
        for turn in range(3)
        for choice in ("default,default", "tree,ll")
        for size in range(10, 14)
    ]
    take(tmp_path / "s", put(tmp_path / "raw.csv", header + "".join(rows)))
    found = list(processes(tmp_path / "s").values())
    assert [{sample.choice for sample in samples} for samples in found] == [
        {"default"},
        {parse_choice("tree/ll")},
    ]
    assert all({sample.round for sample in samples} == {0, 1, 2} for samples in found)


# --- samples of a study -------------------------------------------------------------------------


def write(path: Path, *sources: Source, rounds: int = 3, **changes: object) -> Path:
    """Write samples of a bench: the default and tree/ll in each round."""
    made = text(RUN.text()).samples[0]
    samples = [
        msgspec.structs.replace(
            made,
            choice=choice,
            round=round_,
            bytes=size,
            time_us=10.0 + round_ + size / 7 + number,
            source=source,
            **changes,
        )
        for number, source in enumerate(sources)
        for round_ in range(rounds)
        for choice in ("default", parse_choice("tree/ll"))
        for size in (1024, 2048)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.Encoder().encode_lines(samples))
    return path


def test_a_benchs_samples_without_process_are_one(tmp_path: Path) -> None:
    old = write(tmp_path / "old" / "samples.jsonl", Source(tool="nccltune-bench"))
    take(tmp_path / "s", old)
    ((samples),) = processes(tmp_path / "s").values()
    assert {sample.round for sample in samples} == {0, 1, 2}
    assert len({sample.choice for sample in samples}) == 2
    # The same samples with more appended: only those are new.
    longer = write(tmp_path / "new" / "samples.jsonl", Source(tool="nccltune-bench"), rounds=4)
    first = old.read_bytes()
    longer.write_bytes(first + b"".join(longer.read_bytes().splitlines(keepends=True)[12:]))
    assert take(tmp_path / "s", longer).samples == 4


def test_samples_of_two_studies_share_no_round(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "samples.jsonl", Source(tool="nccltune-bench", process="p1"))
    two = write(tmp_path / "b" / "samples.jsonl", Source(tool="nccltune-bench", process="p2"))
    take(tmp_path / "s", one, two)
    assert ids(tmp_path / "s") == ["p1", "p2"]
    # Rounds that are marked as close in time are numbered after those of the study.
    real = [Source(tool="nccl-tests", process=f"q{number}", in_rounds=True) for number in range(2)]
    for folder, source in zip("cd", real, strict=True):
        take(tmp_path / "s", write(tmp_path / folder / "samples.jsonl", source))
    found = processes(tmp_path / "s")
    assert {sample.round for sample in found["q0"]} == {0, 1, 2}
    assert {sample.round for sample in found["q1"]} == {3, 4, 5}


def test_a_study_is_not_imported_twice(tmp_path: Path) -> None:
    take(tmp_path / "a", put(tmp_path / "default.txt", RUN))
    take(tmp_path / "s", put(tmp_path / "default.txt", RUN))
    assert take(tmp_path / "s", tmp_path / "a" / "samples.jsonl").samples == 0
    take(tmp_path / "t", tmp_path / "a" / "samples.jsonl")
    assert take(tmp_path / "t", tmp_path / "default.txt").samples == 0


def test_old_sweeps_with_nccl_tests_have_a_process_a_round(tmp_path: Path) -> None:
    old = write(tmp_path / "old" / "samples.jsonl", Source(tool="nccl-tests"))
    take(tmp_path / "s", old)
    found = processes(tmp_path / "s")
    assert len(found) == 6
    assert all(sample.source.in_rounds for samples in found.values() for sample in samples)


def test_runs_are_recorded_with_their_facts(tmp_path: Path) -> None:
    take(tmp_path / "s", put(tmp_path / "default.txt", RUN))
    (record,) = Study(tmp_path / "s").imports(ImportRecord)
    (run,) = record.runs or []
    assert (run.samples, run.rows, run.choices) == (24, 12, {"default": 24})
    assert run.process == ids(tmp_path / "s")[0]
    assert run.facts.gpu == "NVIDIA H200"
