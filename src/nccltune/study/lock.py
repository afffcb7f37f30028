# SPDX-License-Identifier: Apache-2.0
"""A lock of a study: at most one measurement writes into it at a time."""

import contextlib
import fcntl
from collections.abc import Iterator

from nccltune.model.errors import StudyError
from nccltune.study.files import Study


@contextlib.contextmanager
def locked(study: Study) -> Iterator[None]:
    """Lock a study for one measurement, until the context ends.

    Raises StudyError if another measurement has the lock, or if the lock file cannot be written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder, locked(Study.create(Path(folder))):
    ...     print("measuring")
    measuring
    """
    path = study.path / ".sweep.lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise StudyError(f"cannot be written: {error.strerror}", where=str(path)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(
                "another sweep is running on this study",
                where=str(study.path),
                hint="wait for it, or name another study with -o",
            ) from None
        yield
