# SPDX-License-Identifier: Apache-2.0
"""Probe a choice: a short first run that shows the platform, the legal choices and what NCCL
executes.

The probe makes NCCL log its choices. The log costs time in every call, so the timings of a probe
are not recorded. The processes that measure write no log.
"""

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from nccltune.formats.nccl_log.model_table import usable
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.process_logs import read_process_logs
from nccltune.formats.nccl_tests.text import read_text
from nccltune.formats.reading.context import Context, ReadOptions
from nccltune.formats.reading.file_report import FileReport
from nccltune.measure.engine.program import run_program
from nccltune.measure.experiments.nccl_tests.binaries import NcclTestsSite, environment
from nccltune.model.choice import AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Sample

PROBE_OPTIONS = ("-n", "1", "-w", "1", "-c", "0")
_MOST_BYTES = 64 << 20


class ProbedChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What NCCL `ran` at one size (None if unlogged) under the `choice` to record."""

    bytes: int
    choice: AnyChoice
    ran: Choice | None = None


class ProbedRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The probe of one choice, a line of `nccl-tests.jsonl`: what NCCL ran at each size.

    `usable` are the legal choices by NCCL's log, if listed; `error` is why the choice is left out.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    collective: Collective
    choice: AnyChoice
    low: int
    high: int
    nodes: int | None = None
    ranks: int | None = None
    seen: list[ProbedChoice] = []
    usable: list[Choice] = []
    gpu: str | None = None
    network: str | None = None
    emulated_nodes: bool = False
    nccl_version: str | None = None
    tests_version: str | None = None
    error: str | None = None


def probe(
    site: NcclTestsSite,
    collective: Collective,
    choice: AnyChoice,
    low: int,
    high: int,
    *,
    base: Mapping[str, str],
    limit_s: float,
) -> ProbedRun:
    """Run a choice once at every size with NCCL's log on; a failure is its `error`.

    Raises PlatformError without the binary, InputError for unknown nodes.
    """
    # Process 0 may run on another node and must write the log to a folder that this machine can
    # read. The current folder is usually shared between nodes; /tmp is not.
    shared = None if site.with_launcher is None else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".nccltune-", dir=shared) as name:
        folder = Path(name)
        variables = environment(base, choice) | {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
            "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p"),
        }
        command = site.command(collective, low, high, *PROBE_OPTIONS, variables=variables)
        ended = run_program(command, variables, limit_s)
        logs, lines = _logs(folder)
        samples, report = read_output(ended.output, collective, choice, logs=logs)
    rows = {sample.bytes: sample for sample in samples if not sample.in_place}
    known = ProbedRun(
        collective=collective,
        choice=choice,
        low=low,
        high=high,
        nodes=report.nodes,
        ranks=report.gpus,
        seen=[ProbedChoice(size, row.choice, row.ran) for size, row in sorted(rows.items())],
        usable=usable(lines).get(collective, []),
        gpu=report.gpu,
        network=report.network,
        emulated_nodes=report.emulated_nodes,
        nccl_version=report.nccl_version,
        tests_version=report.tool_version,
    )
    return msgspec.structs.replace(
        known, error=_trouble(known, ended.succeeded, ended.sentence(), lines)
    )


def read_output(
    output: bytes,
    collective: Collective,
    choice: AnyChoice,
    *,
    study: str = "",
    logs: Mapping[tuple[str, int], NcclLog] | None = None,
) -> tuple[list[Sample], FileReport]:
    """Return the samples that nccl-tests printed, and the report on reading its output."""
    report = FileReport(name="nccl-tests")
    options = ReadOptions(study=study, choice=choice, collective=collective, started_here=True)
    context = Context(
        name="nccl-tests",
        options=options,
        report=report,
        logs=dict(logs or {}),
    )
    samples = [
        sample for batch in read_text(io.BytesIO(output), context) for sample in batch.samples
    ]
    return samples, report


def _trouble(known: ProbedRun, well: bool, words: str, lines: list[str]) -> str | None:
    """Return why a choice is left out: no row, or another choice at every size."""
    if not known.seen or not well:
        warning = next((line for line in reversed(lines) if " NCCL WARN " in line), None)
        if warning is not None and not known.seen:
            return f"NCCL warns: {warning.partition(' NCCL WARN ')[2].strip()}"
        return words if not known.seen else None
    if all(item.choice != known.choice for item in known.seen):
        ran = known.seen[0].choice
        return f"NCCL ran {ran.label if isinstance(ran, Choice) else ran} instead"
    return None


def _logs(folder: Path) -> tuple[dict[tuple[str, int], NcclLog], list[str]]:
    logs: dict[tuple[str, int], NcclLog] = {}
    lines: list[str] = []
    for path in sorted(folder.glob("nccl.*")):
        with path.open("rb") as file:
            logs |= read_process_logs(file)
            file.seek(0)
            lines += file.read(_MOST_BYTES).decode(errors="replace").splitlines()
    return logs, lines
