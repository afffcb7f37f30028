# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune import`: files read, lines not read, flags and the next step."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from nccltune.app.importing import way_out
from nccltune.cli.output import hint, print_error, stdout, styled
from nccltune.cli.progress import Progress, Step
from nccltune.formats.importing.importer import FileOutcome, Imported, ImportState
from nccltune.formats.importing.suspect import platform_doubts
from nccltune.formats.reading.file_report import COPIES, FileKind, FileReport, Flag
from nccltune.formats.reading.platform_facts import joined
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.study.files import Study

_FLAGS_SHOWN = 12
UPDATE_FIRST = "next: update NCCL: choices can be forced since 2.5, rules loaded since 2.21"


def show(result: Imported, study: Path, again: str, *, dry_run: bool) -> None:
    """Print what was read and not, flags, and the next step; `again` is without `--output`."""
    out = stdout()
    every = [item.report for item in result.files if item.outcome is ImportState.IMPORTED]
    new = [report for report in every if report.kind is not FileKind.TOPOLOGY]
    for report in every:
        if report.kind is FileKind.TOPOLOGY:
            out.print(f"topology    {report.name}")
    if new:
        tables = sum(report.tables for report in new)
        rows = sum(report.rows for report in new)
        samples = sum(report.samples for report in new)
        out.print(
            styled(
                f"read        {count(len(new), 'file')}, {count(tables, 'table')},",
                f" {count(rows, 'row')}, ",
                (f"{count(samples, 'sample')}", "bold"),
                _kinds(new),
            )
        )
        out.print(f"collectives {_counted(new, 'collectives')}")
        low = min((report.min_bytes for report in new if report.min_bytes is not None), default=0)
        high = max((report.max_bytes for report in new if report.max_bytes is not None), default=0)
        sizes = format_bytes(low) + (f" - {format_bytes(high)}" if high > low else "")
        out.print(f"sizes       {sizes}")
        out.print(f"choices     {_counted(new, 'choices')}")
        out.print(f"scales      {_scales(new)}")
    if result.platform is not None and len(result.studies) < 2:
        out.print(f"platform    {result.platform.title}")
    elif result.samples and len(result.studies) < 2 and not Study(study).platform_path.exists():
        out.print("platform    unknown")
    _show_known(result)
    show_read(result)
    if len(result.studies) > 1:
        _show_split(result)
    _show_end(result, study, again, dry_run=dry_run)


def show_read(result: Imported, *, doubtful: bool = True) -> None:
    """Print what was not read, remarks on the runs, and what only some runs show.

    Without `doubtful` only the remarks that put no run in doubt.
    """
    _show_unread(result.files)
    _show_flags(result.files, doubtful=doubtful)
    _show_doubts(result.studies)


def _show_known(result: Imported) -> None:
    out = stdout()
    already = [item.report.name for item in result.files if item.outcome is ImportState.ALREADY]
    if already:
        words = f"skipped     {count(len(already), 'file')} imported before: {joined(already)}"
        out.print(words)
    twins = [item.report.name for item in result.files if item.outcome is ImportState.DUPLICATE]
    if twins:
        what = "file that holds only runs" if len(twins) == 1 else "files that hold only runs"
        out.print(f"duplicate   {len(twins)} {what} imported before: {joined(twins)}")
    if result.taken_back:
        out.print(f"removed     {count(result.taken_back, 'sample')} of an interrupted import")


def _show_end(result: Imported, study: Path, again: str, *, dry_run: bool) -> None:
    out, outcomes = stdout(), {item.outcome for item in result.files}
    name = shlex.quote(result.studies[0] if result.studies else str(study))
    if dry_run:
        where = " and ".join(result.studies) or str(study)
        samples = count(result.samples, "sample")
        out.print(f"Would write {samples} to {where}. Nothing was written.")
    elif result.samples:
        where = " and ".join(result.studies)
        out.print(f"Wrote {count(result.samples, 'sample')} to {where}.")
        hint(f"next: nccltune analyze {name}")
        if unknown := _unknown_scale(result):
            hint(f"next: for rules, add what is unknown: {again} -o {name}{unknown}")
    elif ImportState.IMPORTED in outcomes:
        hint(f"next: nccltune topo show {name}")
    elif outcomes & {ImportState.ALREADY, ImportState.DUPLICATE}:
        out.print(f"Nothing new for {study}.")
    elif not any(
        item.outcome is ImportState.REFUSED and item.report.asked for item in result.files
    ):
        out_of_it = way_out(result, f"{again} -o {name}")
        print_error("no measurement was read", out_of_it)


def _unknown_scale(result: Imported) -> str:
    """Return the options of the scale, if it is unknown; empty if any sample has its scale."""
    scales = {scale for item in result.files for scale in item.report.scales}
    if len(result.studies) > 1 or not scales or not all("?" in scale for scale in scales):
        return ""
    nodes = " --nodes N" if any(scale.startswith("?") for scale in scales) else ""
    ranks = " --ranks N" if any(scale.endswith("?") for scale in scales) else ""
    return nodes + ranks


def _show_split(result: Imported) -> None:
    """Print which runs were imported into which study, and its platform."""
    out = stdout()
    for path in result.studies:
        runs = [item.report for item in result.files if path in item.studies]
        names = [report.name for report in runs if report.samples]
        study = Study(Path(path))
        title = f" ({study.platform().title})" if study.platform_path.exists() else ""
        out.print(f"platform    {path}{title}: {joined(names, 6)}")


def _show_doubts(studies: list[str]) -> None:
    """Print facts of the platform that only some runs show. Other runs may differ in them."""
    for study in studies:
        for sentence in platform_doubts(Study(Path(study))):
            where = f"{study}: " if len(studies) > 1 else ""
            stdout().print(styled(("not sure", "yellow"), f"    {where}{sentence}"))


def _kinds(reports: list[FileReport]) -> str:
    kinds = sorted({report.kind.value for report in reports})
    empty = sum(report.rows_size_0 for report in reports)
    return f" ({', '.join(kinds)})" + (
        f"; {count(empty, 'row')} of size 0 left out" if empty else ""
    )


def _counted(reports: list[FileReport], field: str) -> str:
    """Return counts such as `allreduce 154, allgather 22`, largest first."""
    totals: dict[str, int] = {}
    for report in reports:
        for name, number in getattr(report, field).items():
            totals[name] = totals.get(name, 0) + number
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {number}" for name, number in ordered[:8])
    return shown + (f", and {len(ordered) - 8} more" if len(ordered) > 8 else "")


def _scales(reports: list[FileReport]) -> str:
    totals = sorted({scale for report in reports for scale in report.scales})
    words = []
    for scale in totals:
        nodes, _, ranks = scale.partition("x")
        words.append(
            f"{nodes} node{'' if nodes == '1' else 's'}, {ranks} rank{'' if ranks == '1' else 's'}"
        )
    return "; ".join(words)


def _show_unread(files: list[FileOutcome]) -> None:
    """Print what could not be read; a file that the user named is an error."""
    out = stdout()
    lines = [(item.report, line) for item in files for line in item.report.first_unreadable]
    total = sum(item.report.unreadable for item in files)
    if total:
        out.print(styled(("not read", "yellow"), f"    {count(total, 'line')}"))
        for report, line in lines[:_FLAGS_SHOWN]:
            out.print(f"  {report.name}:{line.line}: {line.reason}")
            if line.text:
                out.print(styled("    ", (line.text, "dim")))
        if total > min(len(lines), _FLAGS_SHOWN):
            out.print(f"  and {total - min(len(lines), _FLAGS_SHOWN)} more")
    refused = [item.report for item in files if item.outcome is ImportState.REFUSED]
    passed = [
        report
        for report in refused
        if not report.asked and (report.error_line is None or report.kind is FileKind.UNKNOWN)
    ]
    for report in refused:
        if report not in passed:
            where = (
                report.name if report.error_line is None else f"{report.name}:{report.error_line}"
            )
            print_error(f"{where}: {report.error}", report.hint)
    if passed:
        hold = "holds" if len(passed) == 1 else "hold"
        out.print(f"left out    {count(len(passed), 'file')} that {hold} no measurements")
        for report in passed[:5]:
            out.print(f"  {report.name}: {report.error or ''}")


def _show_flags(files: list[FileOutcome], *, doubtful: bool) -> None:
    """Print remarks on the runs, doubtful runs first. Equal remarks on several files are merged."""
    out = stdout()
    grouped: dict[tuple[str, str], list[tuple[str, Flag]]] = {}
    for item in files:
        if item.outcome is not ImportState.ALREADY:
            for flag in item.report.flags:
                if flag.doubtful and not doubtful:
                    continue
                key = (flag.kind.value, flag.sentence)
                grouped.setdefault(key, []).append((item.report.name, flag))
    ordered = sorted(grouped.values(), key=lambda flags: not flags[0][1].doubtful)
    for flags in ordered[:_FLAGS_SHOWN]:
        name, flag = flags[0]
        word = ("doubtful   ", "yellow") if flag.doubtful else ("note       ", "")
        where = f"{name}:{flag.line}" if flag.line else name
        others = sum(each.others for _, each in flags)
        times = sum(each.count for _, each in flags) - others
        more = f" ({times} times in {len(flags)} files)" if len(flags) > 1 else ""
        more = more or (f" ({times} times)" if times > 1 else "")
        more += f" ({others} more, with other values)" if others else ""
        out.print(styled(word, f" {where}: {flag.sentence}{more}"))
    if len(ordered) > _FLAGS_SHOWN:
        out.print(f"            and {len(ordered) - _FLAGS_SHOWN} other remarks (--json has all)")


class BytesRead(Progress):
    """Progress of an import by the number of bytes read."""

    def __init__(self, total: int) -> None:
        super().__init__("import")
        self._total = total
        self._report: FileReport | None = None
        self._before = self._of_file = 0

    def read(self, report: FileReport | None, count: int) -> None:
        """Show that `count` bytes of a file were read."""
        if report is not self._report:
            self._report = report
            self._before += self._of_file
        self._of_file = count
        name = report.name[-40:] if report is not None else "reading"
        done = self._before + count
        self.show(Step(name, share=done / self._total if self._total else None))


def next_of_cause(wrong: bool, doubts: Iterable[str], path: Path, is_study: bool) -> str | None:
    """Return the next step where wrong results or copies of a test come before any tuning."""
    if wrong:
        where = " # on the machines that were measured" if is_study else shlex.quote(str(path))
        return f"next: nccltune doctor {where}"
    if any(COPIES in words for words in doubts):
        return "next: rebuild nccl-tests: make clean; make MPI=1, and start it with its launcher"
    return None
