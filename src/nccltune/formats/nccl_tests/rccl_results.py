# SPDX-License-Identifier: Apache-2.0
"""Read the results file of rccl-tests (`-x FILE -Z json` or `-Z csv`).

Releases differ: a JSON list, or an object a line. Before `numCycle` came, `wrong` was `#wrong`.

Each record is one timing of one placement. The file has neither devices, nor roots, nor settings.
Two peculiarities (`Reporter` in rccl-tests' `src/common.cu`):

- `nodes` is the number of groups that NCCL_TESTS_SPLIT made, and 1 without a split. `ranks` and
  `ranksPerNode` count processes: those of the job and those of a group.
- The CSV header of builds with MPI lacks the column `nodes`, which its rows have.

AMD's cluster validation suite (CVS) writes the means of such records of several runs.
"""

import csv
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from nccltune.formats.nccl_tests.columns import DTYPE_BYTES, REDOPS, FlatRow, TableColumns
from nccltune.formats.nccl_tests.rank_bounds import RankBounds, rank_bounds
from nccltune.formats.nccl_tests.run import NcclTestsRun
from nccltune.formats.nccl_tests.table import TableReader
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.runs import RunSamples
from nccltune.formats.text.lines import visible
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.scale import count

_MOST_BYTES = 256 << 20
_LABELS = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
_NODE_GPUS = 8
"""GPUs of a node of AMD. More ranks in one group may be on several nodes."""

_Record = dict[str, Any]
_Job = tuple[Collective, int, int, int]


def read_rccl_results(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the samples of a results file of rccl-tests (see `context.Reader`)."""
    report = context.report
    report.kind = FileKind.RCCL_RESULTS
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise InputError("is larger than 256 MiB", hint="split it")
    text = data.decode("utf-8-sig", errors="replace")
    records = _of_json(text) if text.lstrip()[:1] in ("[", "{") else _of_csv(text)
    jobs: dict[_Job, list[FlatRow]] = {}
    for line, record in records:
        try:
            job, row = _row(record, line)
        except (KeyError, ValueError, TypeError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            report.cannot_read(line, json.dumps(record, default=str), reason)
            continue
        jobs.setdefault(job, []).append(row)
        if "num_runs" in record:
            means = f"means of {record['num_runs']} runs, each read as one timing"
            report.flag(FlagKind.NOTE, means, line)
    for job, rows in jobs.items():
        yield from _table(job, rows, context)


def _of_json(text: str) -> Iterator[tuple[int, _Record]]:
    """Yield the records of a JSON list or of JSON lines. A truncated list gives its start."""
    decoder, at, line = json.JSONDecoder(), text.find("{"), 1
    done = 0
    while at >= 0:
        line, done = line + text.count("\n", done, at), at
        try:
            record, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict):
            yield line, _of_means(record)
        at = text.find("{", end)


def _of_means(record: _Record) -> _Record:
    """Return a record of means with the names of a record of one run."""
    if "time_mean" not in record:
        return record
    return {"redop": "none", **{key.removesuffix("_mean"): each for key, each in record.items()}}


def _of_csv(text: str) -> Iterator[tuple[int, _Record]]:
    lines = csv.reader(text.splitlines())
    names: list[str] = []
    for line, cells in enumerate(lines, 1):
        if not names:
            names = [_CSV_NAMES.get(cell, cell) for cell in cells]
        elif cells:
            shown = names
            if len(cells) == len(names) + 1 and "nodes" not in names:
                shown = [*names[:2], "nodes", *names[2:]]
            yield line, dict(zip(shown, cells, strict=False))


_CSV_NAMES = {
    "collective": "name",
    "rankspernode": "ranksPerNode",
    "gpusperrank": "gpusPerRank",
    "inplace": "inPlace",
    "algbw": "algBw",
    "busbw": "busBw",
    "#wrong": "wrong",
}


def _row(record: _Record, line: int) -> tuple[_Job, FlatRow]:
    """Return the job of a record, and the record as a row with one timing.

    The job is the collective, the processes of the job and of a group, and the GPUs of a process.
    Raises KeyError or ValueError if the record is invalid.
    """
    name = str(record["name"]).lower().replace("_", "")
    if name not in list(Collective):
        raise ValueError(f"{visible(str(record['name']), 40)!r} is not a collective")
    collective = Collective(name)
    if "gpus" in record:
        job = (collective, 1, 1, int(record["gpus"]))
    else:
        job = (collective, int(record["ranks"]), int(record["ranksPerNode"]),
               int(record["gpusPerRank"]))  # fmt: skip
    dtype, size, time_us = str(record["type"]), int(record["size"]), float(record["time"])
    if dtype not in DTYPE_BYTES or record["redop"] not in REDOPS:
        raise ValueError(f"{visible(dtype, 20)!r} is not a type, or the reduction is unknown")
    if size < 0 or min(job[1:]) < 1 or not 0 < time_us < 1e13:
        raise ValueError("a size, a number of ranks or a time that cannot be")
    wrong = str(record.get("wrong", record.get("#wrong", "N/A")))
    timing = (time_us, float(record["busBw"]), None if wrong == "N/A" else int(wrong))
    none = (None, 0.0, None)
    placed = (*none, *timing) if int(record["inPlace"]) else (*timing, *none)
    ranks = job[2] * job[3] if collective.counts_per_rank else 1
    elements = size // (DTYPE_BYTES[dtype] * ranks)
    return job, (line, size, elements, dtype, REDOPS[record["redop"]], None, None, *placed)


def _table(job: _Job, rows: list[FlatRow], context: Context) -> Iterator[RunSamples]:
    collective, processes, group, each = job
    run, report = NcclTestsRun(), context.report
    run.collective, run.ranks_per_process, run.gpus_per_process = collective, each, each
    first = rows[0][0]
    bounds = rank_bounds(rows, collective)
    run.stated = _scale(processes, processes * each, group * each, bounds, context)
    table = TableReader(run, TableColumns(_LABELS, ["out-of-place", "in-place"]), context, first)
    table.footer = True
    report.tables += 1
    for row in rows:
        if row[1] == 0:
            table.count_empty(1)
        else:
            table.rows.append(row)
    yield from table.finish()


def _scale(
    processes: int, job: int, group: int, bounds: RankBounds | None, context: Context
) -> tuple[int | None, int]:
    """Return the nodes and the ranks of a communicator.

    The job has `processes` and `job` ranks, `group` of them in a group. The bus bandwidth shows
    whether the ranks of a group or of the job communicate.
    """
    if processes == 1:
        return 1, job
    if job == group:
        nodes = 1 if job <= _NODE_GPUS else None
    elif bounds is not None and bounds.allow(group) and not bounds.allow(job):
        nodes, job = None, group
    else:
        nodes = job // group
    if nodes is not None and context.options.nodes is None:
        context.report.flag(
            FlagKind.NOTE,
            f"{count(nodes, 'node')}, as the file states: but rccl-tests counts groups of ranks"
            " there, so give --nodes if there were others",
        )
    return nodes, job
