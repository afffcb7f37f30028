# SPDX-License-Identifier: Apache-2.0
"""Run a reader on text or files."""

import io
from pathlib import Path

from nccltune.formats.importing.inputs import find_inputs, read_inputs
from nccltune.formats.importing.raw_csv import read_raw_csv
from nccltune.formats.nccl_tests.json_results import read_json
from nccltune.formats.nccl_tests.text import read_text
from nccltune.formats.reading.context import Context, Reader, ReadOptions
from nccltune.formats.reading.file_report import FileReport
from nccltune.model.sample import Sample


class Read:
    """Samples and report of one reading."""

    def __init__(self, samples: list[Sample], report: FileReport) -> None:
        self.samples = samples
        self.report = report

    @property
    def flags(self) -> set[str]:
        return {flag.kind.value for flag in self.report.flags}

    @property
    def doubtful(self) -> set[str]:
        return {flag.kind.value for flag in self.report.flags if flag.doubtful}

    def sentence(self, kind: str) -> str:
        return next(flag.sentence for flag in self.report.flags if flag.kind == kind)

    def line_of(self, kind: str) -> int:
        return next(flag.line for flag in self.report.flags if flag.kind == kind)

    @property
    def reasons(self) -> list[str]:
        return [item.reason for item in self.report.first_unreadable]

    @property
    def times(self) -> list[tuple[int, bool, float]]:
        return [(item.bytes, item.in_place, item.time_us) for item in self.samples]

    @property
    def labels(self) -> set[str]:
        return set(self.report.choices)


def run(reader: Reader, data: str | bytes, name: str = "out.txt", **options: object) -> Read:
    report = FileReport(name=name)
    context = Context(
        name=name,
        options=ReadOptions(study="made", **options),  # type: ignore[arg-type]
        report=report,
    )
    raw = data.encode() if isinstance(data, str) else data
    samples = [sample for batch in reader(io.BytesIO(raw), context) for sample in batch.samples]
    return Read(samples, report)


def text(data: str | bytes, name: str = "out.txt", **options: object) -> Read:
    return run(read_text, data, name, **options)


def json_file(data: str | bytes, name: str = "out.json", **options: object) -> Read:
    return run(read_json, data, name, **options)


def csv_file(data: str | bytes, name: str = "raw.csv", **options: object) -> Read:
    return run(read_raw_csv, data, name, **options)


def files(*paths: Path, **options: object) -> list[Read]:
    """Read files as the import does: detection, hash, reader."""
    wanted = ReadOptions(study="made", **options)  # type: ignore[arg-type]
    result = []
    for reading in read_inputs(find_inputs(paths), wanted):
        samples = [sample for batch in reading.batches() for sample in batch.samples]
        result.append(Read(samples, reading.report))
    return result


def one(tmp_path: Path, data: str | bytes, name: str = "x.txt", **options: object) -> Read:
    """Read a file with this content as the import does."""
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    (read,) = files(path, **options)
    return read
