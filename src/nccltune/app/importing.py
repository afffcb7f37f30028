# SPDX-License-Identifier: Apache-2.0
"""Import: read measurements of any known format into a study."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from nccltune.formats.importing.importer import Imported, ImportState, import_files
from nccltune.formats.importing.inputs import find_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_report import FileReport
from nccltune.model.choice import parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.study.files import Study


class ImportRequest(NamedTuple):
    """The study to import into, and facts that the imported files may not state.

    `in_rounds`: the k-th runs of all choices ran close together. `split` writes runs of other
    platforms to new studies next to `study`.
    """

    study: Path
    choice: str | None = None
    collective: str | None = None
    nodes: int | None = None
    ranks: int | None = None
    per_iteration: bool = False
    in_rounds: bool = False
    split: bool = False
    platform_name: str | None = None


class ImportResult(NamedTuple):
    """The result of an import, and the exit code: 2 refused, 1 doubts, 0 none."""

    imported: Imported
    exit_code: int


class ImportRun:
    """One import of `names`: files, folders, or `-`. Raises InputError for unknown names."""

    def __init__(self, request: ImportRequest, names: Sequence[str]) -> None:
        self._request = request
        self._options = ReadOptions(
            study=Study(request.study).name,
            choice=parse_choice(request.choice) if request.choice is not None else None,
            collective=collective_of(request.collective),
            nodes=request.nodes,
            ranks=request.ranks,
            per_iteration=request.per_iteration,
        )
        self._found = find_inputs(names, leave_out=request.study)

    @property
    def total_bytes(self) -> int:
        """Return the total size of the files in bytes. Inputs of unknown size count as 0."""
        return sum(item.size for item in self._found)

    def run(
        self,
        progress: Callable[[FileReport | None, int], None] | None = None,
        *,
        dry_run: bool = False,
    ) -> ImportResult:
        """Read the files into the study. Raises StudyError.

        `progress` is called with the current file and the number of bytes read from it.
        """
        request = self._request
        imported = import_files(
            request.study,
            self._found,
            self._options,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            platform_name=request.platform_name,
            in_rounds=request.in_rounds,
            split=request.split,
            progress=progress,
            dry_run=dry_run,
        )
        return ImportResult(imported, _exit_code(imported))


def collective_of(name: str | None) -> Collective | None:
    """Return the collective of this name. Raises InputError for an unknown name."""
    if name is None:
        return None
    plain = name.strip().lower().replace("_", "").replace("-", "")
    if plain not in list(Collective):
        raise InputError(
            f"{name!r} is not a collective",
            where="‹collective›",
            hint=nearest(plain, Collective),
        )
    return Collective(plain)


def _exit_code(imported: Imported) -> int:
    outcomes = {item.outcome for item in imported.files}
    refused = any(
        item.outcome is ImportState.REFUSED and item.report.asked for item in imported.files
    )
    if refused or not outcomes & {ImportState.IMPORTED, ImportState.ALREADY, ImportState.DUPLICATE}:
        return 2
    new = (item.report for item in imported.files if item.outcome is not ImportState.ALREADY)
    return int(any(report.doubtful or report.unreadable for report in new))
