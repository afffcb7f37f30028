# SPDX-License-Identifier: Apache-2.0
"""Read `samples.jsonl`, nccltune's own format, of this or another study."""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.formats.reading.runs import RunFound, RunSamples, text_id
from nccltune.formats.text.lines import line_blocks
from nccltune.model.choice import choice_label
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample, Source

BENCH = "nccltune-bench"
"""Prefix of the tool name in samples of nccltune's own bench."""


def read_samples(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the samples in batches (see `context.Reader`).

    A sample keeps its values, except the name of its study and the hash of its source file. The
    user's options replace an unknown number of nodes or ranks. Samples of nccltune 0.1 have no
    process id and get one here.
    """
    report, options = context.report, context.options
    report.kind = FileKind.SAMPLES
    decoder = msgspec.json.Decoder(Sample)
    blocks = line_blocks(
        file,
        too_long=lambda number, text: report.cannot_read(number, text, "a line of more than 1 MiB"),
        progress=context.progress,
    )
    runs = _Runs(report.file_hash or None)
    relabelled = False
    broken = last_line = 0
    for number, lines in blocks:
        batches: dict[RunFound, list[Sample]] = {}
        for at, line in enumerate(lines, number):
            if not line.strip():
                continue
            last_line = at
            if "\ufffd" in line:
                report.cannot_read(at, line, "not a sample: its bytes are not UTF-8")
                continue
            try:
                sample = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                broken = 0 if isinstance(error, msgspec.ValidationError) else at
                report.cannot_read(at, line, f"not a sample: {error}")
                continue
            if sample.schema_version > SCHEMA_VERSION:
                reason = f"written by a newer nccltune (schema {sample.schema_version})"
                report.cannot_read(at, line, reason)
                continue
            report.rows += 1
            if sample.wrong:
                report.flag(
                    FlagKind.WRONG_RESULTS,
                    "elements came out wrong: those timings are kept but not used",
                    at,
                )
            relabelled = relabelled or options.choice not in (None, sample.choice)
            run, source = runs.find(sample)
            moved = msgspec.structs.replace(
                sample,
                study=options.study,
                nodes=sample.nodes or options.nodes,
                ranks=sample.ranks or options.ranks,
                source=source,
            )
            run.nodes, run.ranks = moved.nodes, moved.ranks
            run.saw(choice_label(moved.choice), 1)
            report.saw(moved)
            batches.setdefault(run, []).append(moved)
        yield from map(RunSamples, batches, batches.values())
    if broken and broken == last_line:
        report.flag(
            FlagKind.ABORTED,
            "the last line is cut: the file is not complete",
            broken,
            doubtful=True,
        )
    if relabelled:
        report.flag(FlagKind.NOTE, "samples name their choice themselves: --choice is not applied")


class _Runs:
    """The runs of a samples file.

    If samples have no process id, the first sample identifies the file. A hash of the whole file
    would change when the file grows.
    """

    def __init__(self, file_hash: str | None) -> None:
        self._file = ""
        self._file_hash = file_hash
        self._found: dict[tuple[object, ...], tuple[RunFound, Source]] = {}

    def find(self, sample: Sample) -> tuple[RunFound, Source]:
        """Return the run of a sample, and the source that the sample gets."""
        source = sample.source
        if not self._file:
            first = (sample.collective.value, sample.bytes, sample.time_us, sample.at)
            self._file = text_id(str(first))
        old = source.process is None
        # Samples without a process id are split into parts, and each part becomes a run. A part
        # may have been one process.
        part = _old_process(sample) if old else ()
        key = (source, sample.collective, sample.nodes, sample.ranks, part)
        found = self._found.get(key)
        if found is None:
            process, in_rounds = source.process, source.in_rounds
            if process is None:
                process = text_id(f"{self._file} {part}")
                in_rounds = _rounds_are_real(source)
            run = RunFound()
            run.process, run.collective, run.in_rounds = process, sample.collective, in_rounds
            run.facts = facts_of_source(source)
            moved = msgspec.structs.replace(
                source,
                process=process,
                in_rounds=in_rounds,
                file_hash=self._file_hash or source.file_hash,
            )
            found = self._found[key] = (run, moved)
        return found


def facts_of_source(source: Source) -> PlatformFacts:
    """Return the platform facts in the source of a sample.

    A host hash of nccltune's bench gets the prefix `bench`, because the bench hashes host names in
    another way.
    """
    host = source.host_hash
    if host is not None and source.tool.startswith(BENCH):
        host = f"bench {host}"
    facts = PlatformFacts(nccl=source.nccl_version, first_host=host)
    if source.tool.startswith(BENCH):
        return msgspec.structs.replace(facts, conditions=(), tuner="")
    return facts


def _old_process(sample: Sample) -> tuple[object, ...]:
    """Return a key that identifies the process of a sample of nccltune 0.1.

    The bench of 0.1 ran all choices in one process. With other tools a process ran one choice, and
    `sweep --with nccl-tests` started one process per round.
    """
    source = sample.source
    if source.tool.startswith(BENCH):
        return ("bench",)
    place = (source.file_hash, sample.collective.value, choice_label(sample.choice))
    return (*place, sample.round) if _rounds_are_real(source) else place


def _rounds_are_real(source: Source) -> bool:
    return (
        source.tool == "nccl-tests" and source.purpose is Purpose.TUNE and source.file_hash is None
    )
