# SPDX-License-Identifier: Apache-2.0
"""Open a study with its samples sorted, and handle a study that cannot be written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.analyze.timings import SortedSamples, sort_samples
from nccltune.formats.importing.suspect import platform_doubts
from nccltune.model.errors import StudyError, UnwritableError
from nccltune.study.files import Study


class OpenStudy(NamedTuple):
    """A study, and its samples sorted into conditions in which timings can be compared."""

    study: Study
    samples: SortedSamples


def open_study(path: Path) -> OpenStudy:
    """Return the study at `path` with its samples.

    Raises StudyError if there is no study, or none of its samples can be compared.
    """
    study = Study.open(path)
    samples = sort_samples(study.samples())
    samples.doubts += platform_doubts(study)
    if not samples.timings:
        why = (
            "none of its samples can be compared (unknown scale, one rank, or wrong results)"
            if samples.samples
            else "it has no samples"
        )
        hint = f"add measurements: nccltune import FILES... -o {path}"
        if samples.without_scale:
            hint = f"import the files again with their scale: nccltune import FILES... -o {path}"
            hint += " --nodes N --ranks N"
        raise StudyError(why, where=str(path), hint=hint)
    return OpenStudy(study, samples)


@contextlib.contextmanager
def saving(unsaved: list[UnwritableError], asked: Path | None = None) -> Iterator[None]:
    """Catch an UnwritableError of the `with` block and append it to `unsaved`.

    So results of a read-only study can still be shown. The error is raised again if it concerns
    `asked`, a file that the user named.
    """
    try:
        yield
    except UnwritableError as error:
        if asked is not None and error.where == str(asked):
            raise
        unsaved.append(error)
