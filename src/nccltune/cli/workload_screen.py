# SPDX-License-Identifier: Apache-2.0
"""Print what recordings of a job hold, for `nccltune workload show` and `report`."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from nccltune.cli.output import hanging, harmless, plain_table, show_worth, stdout
from nccltune.model.numbers import counted, share_text, significant, size_form
from nccltune.model.sizes import format_bytes
from nccltune.report.words import range_text, time_text
from nccltune.report.worth import lever_lines

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.workload import GroupUse, WorkloadSummary
    from nccltune.workload.table import Workload

_LINES = 6
"""Most lines on what was not read."""


def show_recorded(found: WorkloadSummary) -> None:
    """Print the sums, what was not read, and a table for each group of communicators."""
    out, job = stdout(), found.workload
    files = ", ".join(f"{title} ({counted(n, 'file')})" for title, n in job.formats.items())
    words = counted(job.recorders, "rank")
    if found.step_us is not None:
        each, rest = divmod(job.steps, job.recorders)
        steps = f"{counted(job.steps if rest else each, 'step')} of {time_text(found.step_us)}"
        words += f" with {steps}" + " in all" * bool(rest)
    hanging(out, "recorded   ", 11, f"{words}; {files}")
    hanging(out, "sent       ", 11, found.sent)
    for words in job.remarks:
        hanging(out, ("note       ", "yellow"), 11, words)
    _show_unread(job, out)
    for use in found.groups:
        _show_group(use, found, out)
    if found.levers:
        out.print()
        show_worth(lever_lines(found.levers), out)
    if any(row.operation.part < 1 for row in job.rows):
        out.print("\na message counts half at its send and half at its receive", style="dim")


def _show_unread(job: Workload, out: Console) -> None:
    lines = []
    unread = sorted(job.unread, key=lambda item: item.reason)
    for reason, same in groupby(unread, lambda item: item.reason):
        items = list(same)
        parts = [f"{sum(item.number for item in items):,}"]
        time_us = sum(item.time_us for item in items)
        parts += [time_text(time_us)] if time_us else []
        lines.append(f"{reason} ({', '.join(parts)}, in {counted(len(items), 'file')})")
    lines += [f"{item.file}: {item.reason}" for item in job.refused]
    for words in lines[:_LINES]:
        hanging(out, ("not read   ", "yellow"), 11, words)
    if len(lines) > _LINES:
        out.print(f"           and {len(lines) - _LINES} more (--json has all)")


def _show_group(use: GroupUse, found: WorkloadSummary, out: Console) -> None:
    out.print()
    hanging(out, "", 2, harmless(use.title), "bold")
    shown = found.largest(use)
    form = size_form(size for item in shown for size in (item.low, item.high))
    is_timed = any(item.time_us is not None for item in shown)
    is_sampled = any(item.sampled for item in shown)
    columns = [">calls", ">time" if is_timed else ">bytes", ">share"]
    columns += [">timed calls", ">median", ">p99"] * is_sampled
    table = plain_table("<  collective", "<sizes", *([">bytes"] * is_timed), *columns)
    for item in shown:
        sizes = range_text(item.low, item.high, "-", form)
        # With three digits, 4776 calls would be `4,780`, which looks exact.
        calls = significant(item.calls) if item.calls < 1000 else f"{item.calls:,.0f}"
        total = format_bytes(round(item.bytes))
        time = total
        if is_timed:
            time = "?" if item.time_us is None else time_text(item.time_us)
        part = found.share(item)
        share = "?" if part is None else share_text(part)
        cells = [*([total] * is_timed), calls, time, share]
        if is_sampled:
            times = (item.median_us, item.p99_us)
            cells += [f"{item.sampled:,}", *("?" if t is None else time_text(t) for t in times)]
        table.add_row(f"  {item.operation.prose}", sizes, *cells)
    out.print(table)
    if len(use.ranges) > len(shown):
        out.print(f"  and {len(use.ranges) - len(shown)} smaller rows (--json has all)")
