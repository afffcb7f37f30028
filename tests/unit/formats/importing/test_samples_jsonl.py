# SPDX-License-Identifier: Apache-2.0
"""Samples of this or another study."""

import msgspec

from nccltune.formats.importing.samples_jsonl import read_samples
from nccltune.formats.reading.file_report import FileKind
from nccltune.model.choice import DEFAULT
from tests.unit.formats.maker import Made, Point, points
from tests.unit.formats.reading_tools import run, text

SAMPLES = text(Made(points(4096, 8192) * 2).text()).samples
DATA = msgspec.json.Encoder().encode_lines(SAMPLES)


def test_everything_is_kept_but_the_study() -> None:
    read = run(read_samples, DATA)
    assert read.report.kind is FileKind.SAMPLES
    bare = [
        msgspec.structs.replace(
            sample, source=msgspec.structs.replace(sample.source, process=None, in_rounds=False)
        )
        for sample in read.samples
    ]
    assert bare == SAMPLES
    assert read.report.samples == len(SAMPLES)
    assert read.report.choices == {"default": 8}


def test_lines_that_are_no_sample_are_counted() -> None:
    bad = [
        b'{"schema_version":1}',
        b"{",
        b"not json",
        DATA.split(b"\n")[0].replace(b"20.04", b"-1.0"),
        DATA.split(b"\n")[0].replace(b'"schema_version":1', b'"schema_version":99'),
    ]
    read = run(read_samples, DATA + b"\n" + b"\n".join(bad))
    assert len(read.samples) == len(SAMPLES)
    assert read.report.unreadable == len(bad)
    assert read.report.first_unreadable[0].line == len(SAMPLES) + 2
    assert "newer nccltune" in read.reasons[-1]


def test_a_missing_scale_is_filled_in() -> None:
    bare = [msgspec.structs.replace(item, nodes=None, ranks=None) for item in SAMPLES[:1]]
    read = run(read_samples, msgspec.json.Encoder().encode_lines(bare), nodes=4, ranks=32)
    assert (read.samples[0].nodes, read.samples[0].ranks) == (4, 32)


def test_the_choice_is_the_samples_own() -> None:
    read = run(read_samples, DATA, choice="tuned")
    assert {sample.choice for sample in read.samples} == {DEFAULT}
    assert "note" in read.flags


def test_wrong_results_are_flagged() -> None:
    wrong = text(Made((Point(4096, 20.0, 21.0, wrong=1),)).text()).samples
    assert "wrong_results" in run(read_samples, msgspec.json.Encoder().encode_lines(wrong)).doubtful


def test_bytes_that_are_not_utf_8_are_counted() -> None:
    bad = DATA.split(b"\n")[0].replace(b'"float"', b'"fl\xb2at"')
    assert b"\xb2" in bad
    read = run(read_samples, bad + b"\n" + DATA)
    assert len(read.samples) == len(SAMPLES)
    assert read.report.unreadable == 1
    assert "UTF-8" in read.reasons[0]


def test_a_cut_last_line_is_flagged() -> None:
    read = run(read_samples, DATA[:-20])
    assert read.doubtful == {"aborted"}
    assert len(read.samples) == len(SAMPLES) - 1
    assert run(read_samples, DATA).doubtful == set()
