# SPDX-License-Identifier: Apache-2.0
"""`nccltune import`: read measurements of any known format into a study."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.output import error_lines, json_option, print_json, stderr, stdout, styled

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccltune.formats.importer import FileOutcome, Imported
    from nccltune.formats.inputs import Found
    from nccltune.formats.reading import FileReport, Flag

EPILOG = """\b
Examples:
  nccltune import runs/ -o studies/h200x4
  srun -l all_reduce_perf_mpi -b 8 -e 8G -f 2 | nccltune import - -o studies/a --choice tree/ll
"""
_BAR_AFTER_S = 1.0
_FLAGS_SHOWN = 12


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "study",
    type=click.Path(path_type=Path),
    required=True,
    help="The study to put them into; made if it is not there.",
)
@click.option(
    "--choice",
    help="The choice that every table was made with: tree/ll128, ring/simple/8, default or tuned."
    "  [default: by the NCCL log, the command line in the output, or the file's name]",
)
@click.option("--collective", help="The collective, where nothing in a file names it.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes, where a file does not tell.")
@click.option("--ranks", type=click.IntRange(1), help="Ranks, where a file does not tell.")
@click.option(
    "--per-iteration",
    is_flag=True,
    help="From an nccl-tests JSON take each iteration's time instead of their mean.",
)
@click.option(
    "--in-rounds",
    is_flag=True,
    help="The k-th runs of all choices ran close together, in the order of the files.",
)
@click.option(
    "--split",
    is_flag=True,
    help="Write files of other platforms to studies beside this one: STUDY-2, STUDY-3.",
)
@click.option("--platform-name", help="What to call the platform in a new study.")
@json_option()
def command(
    files: tuple[str, ...],
    study: Path,
    choice: str | None,
    collective: str | None,
    nodes: int | None,
    ranks: int | None,
    per_iteration: bool,
    in_rounds: bool,
    split: bool,
    platform_name: str | None,
    as_json: bool,
) -> int:
    """Read measurements into a study: any number of files and folders, or - for standard input.

    Known by their content: output of nccl-tests (2.0 to 2.20, with launcher prefixes and NCCL log
    lines in it), its JSON (-J), NVIDIA's raw CSV, samples of another study; and a node's hardware
    (NCCL_TOPO_DUMP_FILE's XML, nvidia-smi topo -m), which the study keeps. What cannot be read is
    counted and shown, never guessed; runs that are not what they claim are flagged. A run that is
    in the study already, in this or another file, is skipped. Runs of different platforms are
    refused: a study is of one. Exit code 1 if a flag puts the numbers in doubt or a row could not
    be read, 2 if a file was refused or nothing could be read.
    """
    from datetime import UTC, datetime

    from nccltune.formats.context import ReadOptions
    from nccltune.formats.importer import import_files
    from nccltune.formats.inputs import find_inputs
    from nccltune.model.choice import parse_choice
    from nccltune.model.study import Study

    options = ReadOptions(
        study=Study(study).name,
        choice=parse_choice(choice) if choice is not None else None,
        collective=_collective(collective),
        nodes=nodes,
        ranks=ranks,
        per_iteration=per_iteration,
    )
    found = find_inputs(files, leave_out=study)
    try:
        with _progress(found) as heard:
            result = import_files(
                study,
                found,
                options,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                platform_name=platform_name,
                in_rounds=in_rounds,
                split=split,
                progress=heard,
            )
    except KeyboardInterrupt:
        print("nothing was imported; the same command starts again", file=sys.stderr)
        raise
    if as_json:
        print_json(result)
    else:
        _show(result, study)
    return _exit_code(result)


def _collective(name: str | None) -> Any:
    from nccltune.model.collective import Collective
    from nccltune.model.errors import InputError
    from nccltune.model.names import nearest

    if name is None:
        return None
    plain = name.strip().lower().replace("_", "").replace("-", "")
    if plain not in list(Collective):
        raise InputError(
            f"--collective: {name!r} is not a collective", hint=nearest(plain, Collective)
        )
    return Collective(plain)


def _exit_code(result: "Imported") -> int:
    from nccltune.formats.importer import Outcome

    outcomes = {item.outcome for item in result.files}
    refused = any(item.outcome is Outcome.REFUSED and item.report.asked for item in result.files)
    if refused or not outcomes & {Outcome.IMPORTED, Outcome.ALREADY, Outcome.DUPLICATE}:
        return 2
    new = (item.report for item in result.files if item.outcome is not Outcome.ALREADY)
    return int(any(report.doubtful or report.unreadable for report in new))


# --- what it prints ----------------------------------------------------------------------------


def _show(result: "Imported", study: Path) -> None:
    """What was read, then what was not, then flags, then what to do next."""
    from nccltune.formats.importer import Outcome
    from nccltune.formats.reading import FileKind
    from nccltune.model.scale import count
    from nccltune.model.sizes import format_bytes

    out = stdout()
    every = [item.report for item in result.files if item.outcome is Outcome.IMPORTED]
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
        out.print(f"sizes       {format_bytes(low)} - {format_bytes(high)}")
        out.print(f"choices     {_counted(new, 'choices')}")
        out.print(f"scales      {_scales(new)}")
    if result.platform is not None:
        out.print(f"platform    {result.platform.title}")
    _show_known(result)
    _show_unread(result.files)
    _show_flags(result.files)
    _show_doubts(result.studies)
    if len(result.studies) > 1:
        _show_split(result)
    _show_end(result, study)


def _show_known(result: "Imported") -> None:
    """What was left out because the study has it."""
    from nccltune.formats.importer import Outcome
    from nccltune.formats.platform_facts import joined
    from nccltune.model.scale import count

    out = stdout()
    already = [item.report.name for item in result.files if item.outcome is Outcome.ALREADY]
    if already:
        words = f"skipped     {count(len(already), 'file')} imported before: {joined(already)}"
        out.print(words)
    twins = [item.report.name for item in result.files if item.outcome is Outcome.DUPLICATE]
    if twins:
        what = "file that holds only runs" if len(twins) == 1 else "files that hold only runs"
        out.print(f"duplicate   {len(twins)} {what} imported before: {joined(twins)}")
    if result.taken_back:
        out.print(f"removed     {count(result.taken_back, 'sample')} of an interrupted import")


def _show_end(result: "Imported", study: Path) -> None:
    """What was written, and what to do next."""
    import shlex

    from nccltune.formats.importer import Outcome
    from nccltune.model.scale import count

    out, outcomes = stdout(), {item.outcome for item in result.files}
    name = shlex.quote(result.studies[0] if result.studies else str(study))
    if result.samples:
        where = " and ".join(result.studies)
        out.print(f"Wrote {count(result.samples, 'sample')} to {where}.")
        stderr().print(styled((f"next: nccltune analyze {name}", "dim")), soft_wrap=True)
    elif Outcome.IMPORTED in outcomes:
        stderr().print(styled((f"next: nccltune topo show {name}", "dim")), soft_wrap=True)
    elif outcomes & {Outcome.ALREADY, Outcome.DUPLICATE}:
        out.print(f"Nothing new for {study}.")
    elif not any(item.outcome is Outcome.REFUSED and item.report.asked for item in result.files):
        print(
            error_lines(
                "no measurement was read",
                "every row was left out for the reasons above"
                if any(item.report.unreadable for item in result.files)
                else "known are text and JSON of nccl-tests, NVIDIA's raw CSV, and samples of"
                " nccltune",
            ),
            file=sys.stderr,
        )


def _show_split(result: "Imported") -> None:
    """Which file went to which study."""
    from nccltune.formats.platform_facts import joined

    out = stdout()
    for study in result.studies:
        names = [item.report.name for item in result.files if study in item.studies]
        out.print(f"platform    {study}: {joined(names, 6)}")


def _show_doubts(studies: list[str]) -> None:
    """Facts of the platform that only some runs show."""
    from nccltune.formats.suspect import platform_doubts
    from nccltune.model.study import Study

    for study in studies:
        for sentence in platform_doubts(Study(Path(study))):
            where = f"{study}: " if len(studies) > 1 else ""
            stdout().print(styled(("not sure", "yellow"), f"    {where}{sentence}"))


def _kinds(reports: "list[FileReport]") -> str:
    kinds = sorted({report.kind.value for report in reports})
    empty = sum(report.rows_size_0 for report in reports)
    return f" ({', '.join(kinds)})" + (f"; {empty} rows of size 0 left out" if empty else "")


def _counted(reports: "list[FileReport]", field: str) -> str:
    """`allreduce 154, allgather 22`, most first."""
    totals: dict[str, int] = {}
    for report in reports:
        for name, number in getattr(report, field).items():
            totals[name] = totals.get(name, 0) + number
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {number}" for name, number in ordered[:8])
    return shown + (f", and {len(ordered) - 8} more" if len(ordered) > 8 else "")


def _scales(reports: "list[FileReport]") -> str:
    totals = sorted({scale for report in reports for scale in report.scales})
    words = []
    for scale in totals:
        nodes, _, ranks = scale.partition("x")
        words.append(
            f"{nodes} node{'' if nodes == '1' else 's'}, {ranks} rank{'' if ranks == '1' else 's'}"
        )
    return "; ".join(words)


def _show_unread(files: "list[FileOutcome]") -> None:
    """Lines and files that could not be read; a file that was named and refused is an error."""
    from nccltune.formats.importer import Outcome
    from nccltune.model.scale import count

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
    refused = [item.report for item in files if item.outcome is Outcome.REFUSED]
    passed = [report for report in refused if not report.asked and report.error_line is None]
    for report in refused:
        if report not in passed:
            where = (
                report.name if report.error_line is None else f"{report.name}:{report.error_line}"
            )
            print(error_lines(f"{where}: {report.error}", report.hint), file=sys.stderr)
    if passed:
        out.print(f"left out    {count(len(passed), 'file')} that hold no measurements")
        for report in passed[:5]:
            out.print(f"  {report.name}: {report.error or ''}")


def _show_flags(files: "list[FileOutcome]") -> None:
    """What to know about the runs, doubtful ones first; equal remarks on several files once."""
    from nccltune.formats.importer import Outcome

    out = stdout()
    grouped: dict[tuple[str, str], list[tuple[str, Flag]]] = {}
    for item in files:
        if item.outcome is not Outcome.ALREADY:
            for flag in item.report.flags:
                key = (flag.kind.value, flag.sentence)
                grouped.setdefault(key, []).append((item.report.name, flag))
    ordered = sorted(grouped.values(), key=lambda flags: not flags[0][1].doubtful)
    for flags in ordered[:_FLAGS_SHOWN]:
        name, flag = flags[0]
        word = ("doubtful   ", "yellow") if flag.doubtful else ("note       ", "")
        where = f"{name}:{flag.line}" if flag.line else name
        times = sum(each.count for _, each in flags)
        more = f" ({times} times in {len(flags)} files)" if len(flags) > 1 else ""
        more = more or (f" ({times} times)" if times > 1 else "")
        out.print(styled(word, f" {where}: {flag.sentence}{more}"))
    if len(ordered) > _FLAGS_SHOWN:
        out.print(f"            and {len(ordered) - _FLAGS_SHOWN} other remarks (--json has all)")


@contextmanager
def _progress(
    found: "list[Found]",
) -> "Iterator[Callable[[FileReport | None, int], None] | None]":
    """A bar on stderr, on a terminal, for what takes longer than a second."""
    console = stderr()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("reading", total=sum(item.size for item in found) or None)
    begun = time.monotonic()
    state: dict[str, Any] = {"report": None, "before": 0, "last": 0, "shown": False}

    def heard(report: "FileReport | None", count: int) -> None:
        if report is not state["report"]:
            state.update(report=report, before=state["before"] + state["last"])
        state["last"] = count
        if not state["shown"] and time.monotonic() - begun > _BAR_AFTER_S:
            state["shown"] = True
            bar.start()
        name = report.name if report is not None else "reading"
        bar.update(task, completed=state["before"] + count, description=name[-40:])

    try:
        yield heard
    finally:
        if state["shown"]:
            bar.stop()
