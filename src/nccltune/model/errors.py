# SPDX-License-Identifier: Apache-2.0
"""Every error that nccltune raises on purpose.

    NccltuneError            exit code 70: a bug of nccltune; each subclass has its own code
    +-- InputError           2   a file, an option or a value is wrong
    +-- StudyError           2   a study folder is missing, damaged or of another kind
    |   +-- UnwritableError  2   a file of the study cannot be written
    +-- PlatformError        3   this machine cannot do it (no GPU, no library, no plugin)
    +-- LaunchError          4   the job that was started failed

Exit code 1 is not an error: a check found a problem.
"""


class NccltuneError(Exception):
    """An error, with the place where it happened and a hint.

    `where` is FILE, FILE:LINE, or a field of a request; `hint` is one action. Fields are written
    ‹nodes›, which the command line replaces by its flag (--nodes).
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
    """The user's input is wrong: a file's content, an option or a value."""

    exit_code = 2


class StudyError(NccltuneError):
    """A study folder is missing, damaged, or not one that the command can use."""

    exit_code = 2


class UnwritableError(StudyError):
    """A file cannot be written: no permission, a read-only file system, no space."""


class PlatformError(NccltuneError):
    """This machine cannot run a command: a GPU, a library or a program is missing."""

    exit_code = 3


class LaunchError(NccltuneError):
    """A job that was started failed, or a plugin ended its process."""

    exit_code = 4
