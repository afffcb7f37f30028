# SPDX-License-Identifier: Apache-2.0
"""Keep samples on disk, by run, until they are written to the study.

The process, time and round of a run are known only after every file was read, and are then put into
the encoded samples. All samples of a run have the same encoded source. Replacing the text of this
source is faster than decoding the samples.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from nccltune.formats.reading.runs import RunFound, RunSamples
from nccltune.model.sample import Sample

_MEMORY_BYTES = 32 << 20
_CHUNK = 256 << 10


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to the samples of a run before they are written.

    The first `skip` samples are not written, because the study has them. `round` replaces the round
    of all samples, if it is not None. `shift` is added to the rounds of the samples. With
    `keep_times`, a sample keeps its own time if it has one; other samples get the time `at`.
    """

    study: str
    process: str
    skip: int = 0
    at: str | None = None
    round: int | None = None
    shift: int = 0
    keep_times: bool = True


class Spool:
    """An unnamed temporary file of samples, indexed by run."""

    def __init__(self, folder: Path, study: str) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115
        self._parts: dict[RunFound, list[tuple[int, int]]] = {}
        self._encoder = msgspec.json.Encoder()
        self._study = study
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, batch: RunSamples) -> None:
        """Add a batch. Raises OSError if the disk cannot be written."""
        lines = self._encoder.encode_lines(batch.samples)
        self._file.seek(self._end)
        self._file.write(lines)
        self._parts.setdefault(batch.run, []).append((self._end, len(lines)))
        self._end += len(lines)

    def lines(self, run: RunFound, become: Resolved) -> Iterator[bytes]:
        """Yield the encoded samples of a run, changed as `become` states, in whole lines."""
        number: dict[tuple[object, ...], int] = {}
        skip = become.skip
        for lines in self._chunks(run):
            at = 0
            while skip and at < len(lines):
                at = lines.index(b"\n", at) + 1
                skip -= 1
            if chunk := lines[at:]:
                slow = become.round is not None or become.shift or not become.keep_times
                yield (
                    self._changed(chunk, run, become, number)
                    if slow
                    else self._exchanged(chunk, run, become)
                )

    def _chunks(self, run: RunFound) -> Iterator[bytes]:
        """Yield the lines of a run in chunks that fit into a processor's cache."""
        for start, length in self._parts.get(run, ()):
            at, end = start, start + length
            while at < end:
                self._file.seek(at)
                chunk = self._file.read(min(_CHUNK, end - at))
                if at + len(chunk) < end:
                    chunk += self._file.readline()
                at += len(chunk)
                yield chunk

    def _exchanged(self, chunk: bytes, run: RunFound, become: Resolved) -> bytes:
        """Replace the study's name and the source in encoded samples.

        The byte patterns match only fields, because quotes inside a string are escaped.
        """
        if become.study != self._study:
            name = self._encoder.encode(self._study), self._encoder.encode(become.study)
            chunk = chunk.replace(b'"study":' + name[0] + b",", b'"study":' + name[1] + b",")
        if run.source is None:
            return chunk
        source = msgspec.structs.replace(run.source, process=become.process)
        before = b'"source":' + self._encoder.encode(run.source)
        after = b'"source":' + self._encoder.encode(source)
        if become.at is not None:
            at = b',"at":' + self._encoder.encode(become.at)
            chunk = chunk.replace(before + b"}\n", after + at + b"}\n")
        return chunk.replace(before, after)

    def _changed(
        self, chunk: bytes, run: RunFound, become: Resolved, number: dict[tuple[object, ...], int]
    ) -> bytes:
        changed = []
        for sample in msgspec.json.Decoder(Sample).decode_lines(chunk):
            source, round_, repeat = sample.source, sample.round + become.shift, sample.repeat
            if run.source is not None:
                source = msgspec.structs.replace(
                    run.source, process=become.process, in_rounds=become.round is not None
                )
            if become.round is not None:
                # If a process measured the same size and choice several times, the timings become
                # repeats in one round.
                point = (sample.bytes, sample.dtype, sample.redop, sample.root, sample.in_place)
                key = (*point, sample.choice)
                round_, repeat = become.round, number.get(key, 0)
                number[key] = repeat + 1
            changed.append(
                msgspec.structs.replace(
                    sample,
                    study=become.study,
                    source=source,
                    round=round_,
                    repeat=repeat,
                    at=sample.at if become.keep_times and sample.at else become.at,
                )
            )
        return self._encoder.encode_lines(changed)
