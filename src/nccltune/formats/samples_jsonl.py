# SPDX-License-Identifier: Apache-2.0
"""Our own `samples.jsonl`, of this or another study."""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from nccltune.formats.context import Context
from nccltune.formats.lines import line_blocks
from nccltune.formats.reading import FileKind, FlagKind
from nccltune.model.sample import SCHEMA_VERSION, Sample


def read_samples(file: BinaryIO, context: Context) -> Iterator[list[Sample]]:
    """Read samples; see `context.Reader`.

    They keep everything but the study's name and the file they were read from. Their rounds stay
    together and come after those that the study holds already, so that what was measured in one
    round stays comparable.
    """
    report, options = context.report, context.options
    report.kind = FileKind.SAMPLES
    decoder = msgspec.json.Decoder(Sample)
    first_round = context.rounds.rounds
    file_hash = report.file_hash or None
    blocks = line_blocks(
        file,
        too_long=lambda number, text: report.cannot_read(number, text, "a line of more than 1 MiB"),
        progress=context.progress,
    )
    relabelled = False
    broken = last_line = 0
    for number, lines in blocks:
        batch: list[Sample] = []
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
            moved = msgspec.structs.replace(
                sample,
                study=options.study,
                round=sample.round + first_round,
                nodes=sample.nodes or options.nodes,
                ranks=sample.ranks or options.ranks,
                source=msgspec.structs.replace(
                    sample.source, file_hash=file_hash or sample.source.file_hash
                ),
            )
            report.saw(moved)
            batch.append(moved)
        if batch:
            last = max(sample.round for sample in batch)
            context.rounds.rounds = max(context.rounds.rounds, last + 1)
            yield batch
    if broken and broken == last_line:
        report.flag(
            FlagKind.ABORTED,
            "the last line is cut: the file is not complete",
            broken,
            doubtful=True,
        )
    if relabelled:
        report.flag(FlagKind.NOTE, "samples name their choice themselves: --choice is not applied")
