# SPDX-License-Identifier: Apache-2.0
"""Find runs of an import that the study already holds."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from nccltune.formats.reading.file_report import ImportRecord
from nccltune.formats.reading.platform_facts import PlatformFacts, Subject, differences
from nccltune.formats.reading.runs import RunFound, RunKey, RunRecord, text_id
from nccltune.formats.text.lines import encoding_of
from nccltune.formats.text.prefixes import strip_prefix
from nccltune.model.choice import choice_label
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample

_KEY_DIGITS = 12
"""Number of hex digits by which runs are indexed: the hashes of the first three rows of a run.
Fewer rows do not distinguish two runs."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOST_TEXT = 16 << 20

_Part = tuple[Collective | None, int | None, int | None]


class _Held(NamedTuple):
    samples: int
    choices: frozenset[str]
    file: str


class _Prints(NamedTuple):
    rows: str
    pids: str
    process: str
    facts: PlatformFacts


class Duplicate(NamedTuple):
    """A run that the study, or an earlier file of the same import, already holds.

    `skip` is the number of known samples of the run. `whole` means that all its samples are known.
    `file` is the file from which they were imported. `choice` lists the choices under which the run
    is known; None if they include the choice of the run.
    """

    skip: int
    whole: bool
    file: str
    choice: str | None = None


class KnownRuns:
    """An index of the known runs by their id and by their rows."""

    def __init__(self) -> None:
        self._held: dict[str, dict[_Part, _Held]] = {}
        self._prints: dict[str, list[_Prints]] = {}

    def add_records(self, records: Iterable[ImportRecord]) -> None:
        """Add the runs that a study's imports.jsonl lists."""
        for record in records:
            for run in record.runs or ():
                self._add(run, record.file)

    def add_samples(self, samples: Iterable[Sample], study: str) -> None:
        """Add the processes of a study's samples, including the processes of a sweep."""
        counts: dict[tuple[str, _Part], tuple[int, set[str]]] = {}
        for sample in samples:
            if sample.source.process is None:
                continue
            part: _Part = (sample.collective, sample.nodes, sample.ranks)
            number, choices = counts.get((sample.source.process, part), (0, set()))
            choices.add(choice_label(sample.choice))
            counts[sample.source.process, part] = (number + 1, choices)
        for (process, part), (number, choices) in counts.items():
            held = self._held.setdefault(process, {})
            held[part] = _Held(number, frozenset(choices), study)

    def add(self, run: RunFound, file: str) -> None:
        """Add a run of this import."""
        self._add(run.record(), file, whole=True)

    def _add(self, run: RunRecord, file: str, *, whole: bool = False) -> None:
        held = self._held.setdefault(run.process, {})
        part = (run.collective, run.nodes, run.ranks)
        before = held.get(part)
        samples, choices = run.samples, frozenset(run.choices)
        if before is not None:
            samples = max(samples, before.samples) if whole else samples + before.samples
            choices |= before.choices
            file = before.file
        held[part] = _Held(samples, choices, file)
        if run.prints:
            place = self._prints.setdefault(run.prints[:_KEY_DIGITS], [])
            item = _Prints(run.prints, run.pids, run.process, run.facts)
            if item not in place:
                place.append(item)

    def find(self, run: RunFound) -> Duplicate | None:
        """Return how much of a run is known, or None for a new run.

        If the same run is known, `run.process` is set to the id of the known run. If a different
        run has the same rows and the same id, `run.process` is set to a new id.
        """
        alike = self._prints.get(run.prints[:_KEY_DIGITS], ()) if run.telling else ()
        same_run = next((item for item in alike if _one_run(item, run)), None)
        if same_run is not None:
            run.process = same_run.process
        elif any(item.process == run.process for item in alike):
            # A different run has the same rows and id. The platform facts make the ids differ.
            run.process = text_id(f"{run.process} {run.facts}")
        held = self._held.get(run.process)
        if held is None:
            return None
        if not run.samples:
            return Duplicate(0, whole=True, file=next(iter(held.values())).file)
        same = held.get((run.collective, run.nodes, run.ranks))
        if same is None:
            return self._other_part(run, held)
        if run.samples > same.samples and same.choices <= frozenset(run.choices):
            return Duplicate(same.samples, whole=False, file=same.file)
        other = None if run.choice in same.choices else ", ".join(sorted(same.choices))
        return Duplicate(run.samples, whole=True, file=same.file, choice=other)

    def _other_part(self, run: RunFound, held: dict[_Part, _Held]) -> Duplicate | None:
        """Return the duplicate of a run whose id is known only with another collective or scale.

        Return None if the run is new. A process of nccltune's bench (`run.source` is None) measures
        several scales, so each scale is new. A table has one scale. It is new only if the
        collective or scale was unknown in all earlier imports.
        """
        if run.source is None or all(None in part for part in held):
            return None
        first = next(iter(held.values()))
        other = None if run.choice in first.choices else ", ".join(sorted(first.choices))
        return Duplicate(run.samples, whole=True, file=first.file, choice=other)


def _one_run(known: _Prints, run: RunFound) -> bool:
    """Return whether two sets of rows are of one run.

    This is so if one set is the start of the other, and neither the process ids nor the platform
    facts differ. An unknown process id or fact does not count as different.
    """
    if not (known.rows.startswith(run.prints) or run.prints.startswith(known.rows)):
        return False
    if known.pids != run.pids and "" not in (known.pids, run.pids):
        return False
    scale = run.nodes, run.ranks, run.collective.value if run.collective is not None else None
    return not differences(Subject(known.facts, *scale), Subject(run.facts, *scale))


def normal_text_id(content: bytes) -> str:
    """Return an id of a file's text that does not change if only the formatting changes.

    Launcher prefixes, colours, line ends, blank lines, and blanks at both ends of a line are
    ignored. Only the first 16 MiB are used.
    """
    text = content[:_MOST_TEXT].decode(encoding_of(content[:4]), errors="replace")
    lines = (_ESCAPES.sub("", strip_prefix(line)[1]).rstrip() for line in text.splitlines())
    return text_id("\n".join(line.lstrip() for line in lines if line.strip()))


def next_rounds(samples: Iterable[Sample]) -> tuple[dict[RunKey, int], int]:
    """Return the first free round of each choice, and the first round that is free for all choices.

    A round is a set of timings that were taken close together in time. Only samples whose rounds
    were measured (`source.in_rounds`) count.
    """
    found: dict[RunKey, int] = {}
    for sample in samples:
        if sample.source.in_rounds:
            key = RunKey(
                sample.collective,
                sample.nodes,
                sample.ranks,
                sample.registered,
                sample.graph,
                sample.pipe_ops,
                choice_label(sample.choice),
            )
            found[key] = max(found.get(key, 0), sample.round + 1)
    return found, max(found.values(), default=0)
