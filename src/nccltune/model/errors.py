# SPDX-License-Identifier: Apache-2.0
"""Every error that nccltune raises on purpose.

    NccltuneError            exit code 70: our bug; subclasses have others
    +-- InputError           2   a file, an option or a value is wrong
    +-- StudyError           2   a study folder is missing, damaged or of another kind
    |   +-- UnwritableError  2   a file of it cannot be written
    +-- PlatformError        3   this machine cannot do it (no GPU, no library, no plugin)
    +-- LaunchError          4   the job that was started failed

Exit code 1 is no error: a check found something.
"""


class NccltuneError(Exception):
    """An error with the place it happened and the way out.

    `where` names the place (`FILE`, `FILE:LINE` or an option), `hint` one thing to do.
    """

    exit_code = 70

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class InputError(NccltuneError):
    """What the user gave is wrong: a file's content, an option, a value."""

    exit_code = 2


class StudyError(NccltuneError):
    """A study folder is missing, damaged, or not what the verb needs."""

    exit_code = 2


class UnwritableError(StudyError):
    """A file cannot be written: no permission, a read-only file system, no space."""


class PlatformError(NccltuneError):
    """This machine cannot run it: a GPU, a library or a program is missing."""

    exit_code = 3


class LaunchError(NccltuneError):
    """A job that was started failed, or a plugin took its process down."""

    exit_code = 4
