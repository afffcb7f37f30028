# SPDX-License-Identifier: Apache-2.0
"""Import: read measurements of any known format into a study."""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from nccltune.formats.importing.importer import Imported, ImportState, import_files
from nccltune.formats.importing.inputs import STDIN, find_inputs
from nccltune.formats.importing.posted_values import describe_averages
from nccltune.formats.importing.unrecognised import KNOWN
from nccltune.formats.reading.context import Copies, ReadOptions
from nccltune.formats.reading.file_report import FileKind, FileReport, FlagKind
from nccltune.model.choice import parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, NccltuneError
from nccltune.model.names import nearest
from nccltune.study.files import Study

_MISSING = {FlagKind.COLLECTIVE_UNKNOWN: "--collective NAME", FlagKind.RANKS_NEEDED: "--ranks N"}


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

    def __init__(
        self, request: ImportRequest, names: Sequence[str], copies: Copies | None = None
    ) -> None:
        self._request = request
        self._options = ReadOptions(
            study=Study(request.study).name,
            choice=parse_choice(request.choice) if request.choice is not None else None,
            collective=collective_of(request.collective),
            nodes=request.nodes,
            ranks=request.ranks,
            per_iteration=request.per_iteration,
            copies=copies,
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


class StatedFacts(NamedTuple):
    """Facts that a file may not state."""

    collective: str | None = None
    nodes: int | None = None
    ranks: int | None = None


class Studied(NamedTuple):
    """The studies that an input stands for, and what was read of it if it is no study itself.

    `copies` has the input if it can be read only once.
    """

    studies: list[Path]
    imported: Imported | None = None
    copies: Copies | None = None


@contextlib.contextmanager
def studied(
    path: Path, stated: StatedFacts | None = None, *, split: bool = False
) -> Iterator[Studied]:
    """Yield the study at `path`; files that are no study are read into one for this context.

    With `split` files of several platforms or conditions become several studies. Raises InputError
    if no measurement was read. Errors of the context name `path`, not the temporary study.
    """
    study = Study(path)
    is_study = study.samples_path.is_file() or study.platform_path.is_file()
    if str(path) != STDIN and (is_study or not path.exists() or not next(_content(path), None)):
        yield Studied([path])
        return
    copies: Copies = {}
    again = f"nccltune {'analyze' if split else 'tune'} {path}"
    with tempfile.TemporaryDirectory(prefix="nccltune-") as folder, contextlib.ExitStack() as kept:
        kept.callback(lambda: [copy.close() for copy in copies.values()])
        target = Path(folder, path.resolve().stem if str(path) != STDIN else "input")
        try:
            request = ImportRequest(target, None, *(stated or StatedFacts()), split=split)
            imported = ImportRun(request, [str(path)], copies).run().imported
            if not imported.samples:
                raise _nothing_read(path, imported, again)
            yield Studied([Path(name) for name in imported.studies], imported, copies)
        except NccltuneError as error:
            one = re.compile(rf"(?<={re.escape(str(target))})-\d+")  # a study of several
            if error.where is not None:
                error.where = one.sub("", error.where).replace(str(target), str(path))
            if error.hint is not None:
                error.hint = one.sub("", error.hint)
                scale = "import the files again with their scale: nccltune import FILES... -o "
                here = error.hint.replace(f"{scale}{target}", f"give its scale: {again}")
                here = here.replace("FILES...", str(path)).replace(f"-o {target}", "-o STUDY")
                error.hint = here.replace(str(target), str(path)).replace(
                    "--split writes", f"nccltune import {path} -o STUDY --split writes"
                )
            raise


def _content(path: Path) -> Iterator[Path]:
    return path.iterdir() if path.is_dir() else iter([path])


def _nothing_read(path: Path, imported: Imported, again: str) -> InputError:
    reports = [item.report for item in imported.files]
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    if len(files) == len(reports) > 1 and (found := describe_averages(sorted(files))) is not None:
        return InputError(found.message, where=str(path), hint=found.hint)
    for report in reports:
        if report.error is not None:
            line = f":{report.error_line}" if report.error_line is not None else ""
            return InputError(report.error, where=f"{report.name}{line}", hint=report.hint)
    lines = [
        f"line {each.line}: {each.reason}" for item in reports for each in item.first_unreadable
    ]
    kinds = {*_MISSING, FlagKind.CHOICE_UNKNOWN, FlagKind.CHOICE_CONFLICT}
    lines += [x.sentence for report in reports for x in report.flags if x.kind in kinds]
    why = f": {'; '.join(lines[:3])}" if lines else ""
    return InputError(
        f"no measurement was read{why}", where=str(path), hint=way_out(imported, again)
    )


def way_out(result: Imported, again: str) -> str:
    """Return what to do if an import read no measurement; `again` is its command."""
    reports = [item.report for item in result.files]
    flags = {flag.kind for report in reports for flag in report.flags}
    if missing := [words for kind, words in _MISSING.items() if kind in flags]:
        return f"give what is unknown: {again} {' '.join(missing)}"
    if any(report.unreadable or report.rows for report in reports):
        return "every row was left out for the reasons above"
    files = re.sub(r"^nccltune \w+| --?[a-z].*", "", again)
    if any(report.kind is FileKind.NCCL_LOG for report in reports):
        return f"what the log says of faults: nccltune doctor{files}"
    if any(report.kind is FileKind.TOPOLOGY for report in reports):
        return f"give the output of nccl-tests; on the topology: nccltune doctor{files}"
    return KNOWN


def collective_of(name: str | None) -> Collective | None:
    """Return the collective of this name. Raises InputError for an unknown name."""
    if name is None:
        return None
    plain = name.strip().lower().replace("_", "").replace("-", "")
    if plain not in list(Collective):
        raise InputError(
            f"{name!r} is not a collective", where="‹collective›", hint=nearest(plain, Collective)
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
