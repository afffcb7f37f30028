# SPDX-License-Identifier: Apache-2.0
"""Store a run in a study: its files in a folder of its own, and its timings as samples."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from nccltune.formats.importing.importer import Imported, ImportState, import_files
from nccltune.formats.importing.inputs import find_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.launch.job import Job
from nccltune.launch.render import Rendered
from nccltune.model.choice import AnyChoice
from nccltune.model.errors import StudyError
from nccltune.model.sample import Sample
from nccltune.study import names
from nccltune.study.files import Study

OUTPUT = "output.txt"


def new_folder(study: Path, now: datetime) -> Path:
    """Make the folder `launch/TIME` in a study and return it.

    If the folder exists, its name gets a suffix: `-2`, `-3` and so on. Raises StudyError if the
    folder cannot be made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as study:
    ...     new_folder(Path(study), datetime(2026, 1, 31, tzinfo=UTC)).name
    '20260131-000000'
    """
    stem = now.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = study / "launch" / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise StudyError(f"cannot be made: {error.strerror}", where=str(folder)) from error
        return folder
    raise StudyError("has a thousand runs of this second", where=str(study / "launch"))


def write_job(folder: Path, job: Job, rendered: Rendered) -> None:
    """Write the job and its rendered files, without inherited values. Raises OSError."""
    (folder / "job.json").write_bytes(msgspec.json.format(msgspec.json.encode(job), indent=2))
    (folder / "command.txt").write_text(rendered.command + "\n", encoding="utf-8")
    for name, text in rendered.files.items():
        (folder / name).write_text(text, encoding="utf-8")


def command_in(rendered: Rendered, folder: Path) -> list[str]:
    """Return the words of the command. Names of rendered files become paths in `folder`."""
    return [str(folder / word) if word in rendered.files else word for word in rendered.words]


def import_output(study: Path, output: Path, choice: AnyChoice | None) -> Imported:
    """Import the tables of `output` into the study, as `nccltune import` does.

    Raises InputError for an unreadable output, StudyError and UnwritableError for the study.
    """
    return import_files(
        study,
        find_inputs([output]),
        ReadOptions(study=study.resolve().name, choice=choice),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def samples_of(study: Path, imported: Imported) -> list[Sample]:
    """Return the samples of the imported files. Raises StudyError if `samples.jsonl` is damaged."""
    hashes = {
        item.report.file_hash
        for item in imported.files
        if item.outcome in (ImportState.IMPORTED, ImportState.ALREADY)
    }
    if not hashes or not (study / names.SAMPLES).is_file():
        return []
    return [sample for sample in Study(study).samples() if sample.source.file_hash in hashes]
