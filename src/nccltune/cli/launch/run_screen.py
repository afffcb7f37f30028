# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune launch`: a rendered job, meanings of its options, and a run's result."""

import statistics
import sys
from pathlib import Path
from typing import Any

from nccltune.app.launch import LaunchResult, RenderedJob
from nccltune.cli.output import (
    hint,
    is_json,
    next_step,
    note,
    print_json,
    stderr,
    stdout,
    styled,
    write_exact,
)
from nccltune.cli.verb import flagged
from nccltune.cli.verbosity import is_quiet
from nccltune.launch.options import meanings, variable_meanings
from nccltune.launch.placement import Placement
from nccltune.launch.render import Rendered
from nccltune.launch.state import RunState
from nccltune.model.errors import LaunchError
from nccltune.model.sample import Sample
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes


class LaunchScreen:
    """Prints the progress of a launch on stderr."""

    def note(self, words: str) -> None:
        """Print a line about nodes or the queue."""
        note(words)

    def warn(self, sentence: str) -> None:
        """Print a warning."""
        stderr().print(f"warning    {flagged(sentence)}", soft_wrap=True)

    def starting(self, command: str) -> None:
        """Print the command."""
        self.note(f"start      {command}")

    def output(self, line: str) -> None:
        """Print a line of the job unchanged."""
        if not is_quiet():
            print(line, file=sys.stderr, flush=True)


def show_rendered(rendered: Rendered) -> None:
    """Print the command or file on stdout, and for a file the command that starts it on stderr."""
    if is_json():
        print_json(
            {
                "launcher": rendered.flavor.launcher.value,
                "version": ".".join(map(str, rendered.flavor.version)) or None,
                "words": rendered.words,
                "files": rendered.files,
                "placement": _placement(rendered.placement),
            }
        )
        return
    write_exact(rendered.text)
    if rendered.files:
        hint(f"start it:  {rendered.command}")


def _placement(placement: Placement) -> dict[str, Any]:
    return {
        "nodes": [node._asdict() for node in placement.nodes],
        "processes": placement.processes,
        "gpus_per_process": placement.gpus_per_process,
        "ranks": placement.ranks,
    }


def show_meanings(ready: RenderedJob) -> None:
    """Print what each option of the launcher and of the program means."""
    rendered = ready.rendered
    placement = rendered.placement
    started = tuple(ready.job.words)
    parts = [part for part in rendered.parts if part.words != started]
    launcher = [(" ".join(part.words), part.meaning) for part in parts]
    program, variables = list(meanings(ready.job)), list(variable_meanings(ready.job))
    if is_json():
        print_json(
            {
                "placement": _placement(placement),
                "launcher": launcher,
                "program": program,
                "variables": variables,
            }
        )
        return
    out = stdout()
    out.print(f"starts     {words_of(placement)}")
    for title, pairs in (
        (rendered.flavor.words, launcher),
        ("program", program),
        ("variables", variables),
    ):
        if not pairs:
            continue
        out.print(f"\n{title}", style="bold")
        width = min(36, max(len(words) for words, _ in pairs))
        for words, meaning in pairs:
            if len(words) > width:
                out.print(f"  {words}", soft_wrap=True)
                words = ""  # noqa: PLW2901 - the meaning has a line of its own then
            out.print(f"  {words:<{width}}  {meaning}", soft_wrap=True)


def words_of(placement: Placement) -> str:
    """Return a placement as text: `2 nodes with 8 processes each, 1 GPU a process: 16 ranks`."""
    nodes, per_node = len(placement.nodes), placement.nodes[0].processes
    return (
        f"{count(nodes, 'node')} with {count(per_node, 'process')}{' each' if nodes > 1 else ''}, "
        f"{count(placement.gpus_per_process, 'GPU')} a process: {count(placement.ranks, 'rank')}"
    )


def show_result(result: LaunchResult, study: Path | None) -> int:
    """Print the results and the end of the job; return 0, 1 for findings, or 128 + signal.

    Raises LaunchError if the job failed, never started, or was lost.
    """
    end = result.end
    if is_json():
        print_json(
            {
                "state": end.state.value,
                "why": end.why or None,
                "command": result.rendered.command,
                "placement": _placement(result.rendered.placement),
                "findings": result.findings,
                "output": str(result.output) if study is not None else None,
                "last_words": result.last_words,
                "samples": result.samples,
            }
        )
    else:
        _show(result, study)
    if end.state is RunState.STOPPED:
        return 128 + (end.signal or 2)
    if end.state is not RunState.DONE:
        _fail(result, study)
    return int(bool(result.findings))


def _show(result: LaunchResult, study: Path | None) -> None:
    out = stdout()
    _show_table(result.samples)
    for finding in result.findings:
        out.print(styled(("doubtful", "yellow"), f"   {finding}"))
    why = f": {result.end.why}" if result.end.why else ""
    out.print(f"{result.end.state.value:<10} {words_of(result.rendered.placement) + why}")
    if study is not None:
        out.print(f"output     {result.output}")
        if result.samples:
            out.print(f"study      {count(len(result.samples), 'sample')} in {study}")
            next_step("nccltune analyze", study)


def _fail(result: LaunchResult, study: Path | None) -> None:
    note = stderr()
    if result.last_words and result.end.state is RunState.FAILED:
        note.print("its last words:", style="dim")
        for line in result.last_words:
            note.print(f"  {line}", soft_wrap=True)
    hint = f"its output: {result.output}" if study is not None else "-o STUDY keeps its output"
    raise LaunchError(f"the job {_STATES[result.end.state.value]}: {result.end.why}", hint=hint)


_STATES = {"failed": "failed", "pending": "never started", "lost": "is lost"}


def _show_table(samples: list[Sample]) -> None:
    """Print each size's median time, algbw and busbw, out of place and in place."""
    rows: dict[tuple[str, int], dict[bool, list[Sample]]] = {}
    for sample in samples:
        places = rows.setdefault((sample.collective.value, sample.bytes), {})
        places.setdefault(sample.in_place, []).append(sample)
    out = stdout()
    before = ""
    for (collective, size), places in rows.items():
        if collective != before:
            before = collective
            group = f"{'time us':>11}{'algbw':>9}{'busbw':>9}"
            out.print(f"\n{collective:<13}{group}   {group}  in place; GB/s")
        cells = "   ".join(_cells(places.get(place)) for place in (False, True))
        out.print(f"{format_bytes(size):>13}{cells}")


def _cells(samples: list[Sample] | None) -> str:
    if not samples:
        return f"{'-':>11}{'-':>9}{'-':>9}"
    first = samples[0]
    us = statistics.median(sample.time_us for sample in samples)
    busbw = (
        f"{first.collective.busbw_gb_per_s(first.bytes, us, first.ranks):.2f}"
        if first.ranks
        else "-"
    )
    return f"{us:>11.2f}{first.bytes / us / 1e3:>9.2f}{busbw:>9}"
