# SPDX-License-Identifier: Apache-2.0
"""Sort the files of an import by platform: a study holds one platform."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nccltune.formats.importing.run_times import START_S
from nccltune.formats.importing.samples_jsonl import facts_of_source
from nccltune.formats.reading.file_report import FileKind, FileReport, ImportRecord
from nccltune.formats.reading.platform_facts import (
    Difference,
    PlatformFacts,
    PlatformGroups,
    Subject,
    differences,
    facts_of_platform,
    joined,
)
from nccltune.formats.reading.runs import RunFound
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from nccltune.study.names import PLATFORM

if TYPE_CHECKING:
    from nccltune.formats.importing.importer import FileOutcome

_MOST_LINES = 12
_LINE = re.compile(r":\d+(?: '[^']*')?$")


class File:
    """A file that was read, with its new runs.

    `skip` is the number of samples of each run that the study already has. `platform` is the
    platform of the study that the file is from, if it is the samples of one.
    """

    def __init__(self, report: FileReport, runs: list[RunFound], path: Path | None) -> None:
        self.report = report
        self.runs = runs
        self.path = path
        self.modified: float | None = None
        self.topology: bytes | None = None
        self.posted_topology: bytes | None = None
        self.platform: Platform | None = None
        self.skip: dict[RunFound, int] = {}
        self.outcome: FileOutcome

    @property
    def seconds(self) -> float:
        """Return a lower bound of the time that the runs of the file took, in seconds."""
        return sum(START_S + run.seconds for run in self.runs)


class StudyPart:
    """The part of an import that is written to one study: some runs of some files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: list[File] = []
        self._runs: dict[int, list[RunFound]] = {}

    def of(self, file: File) -> list[RunFound]:
        """Return the runs of a file that are written to this study."""
        return self._runs.get(id(file), [])

    def add(self, file: File, run: RunFound | None) -> None:
        """Add a run, or a file without runs (`run` is None)."""
        if file not in self.files:
            self.files.append(file)
        if run is not None:
            self._runs.setdefault(id(file), []).append(run)


def by_platform(
    study: Study, files: list[File], *, split: bool, collective: Collective | None = None
) -> list[StudyPart]:
    """Return the parts of an import, one for each study that is written.

    Without `split`, raises InputError if the runs and the study are not all of one platform; its
    hint names the `collective` that the user gave. Raises StudyError if a study is damaged.
    """
    for file in files:
        _add_platform_beside(file)
    runs = [(file, run) for file in files for run in file.runs]
    groups = PlatformGroups()
    _seed(groups, 0, study)
    given = f" --collective {collective.value}" if collective is not None else ""
    places = _split(groups, study, runs) if split else _one(groups, study, runs, given)
    parts: dict[int, StudyPart] = {}
    for file in files:
        if not file.runs:
            parts.setdefault(0, StudyPart(study.path)).add(file, None)
        for run in file.runs:
            place = places[run]
            path = study.path if place == 0 else _beside(study.path, place)
            parts.setdefault(place, StudyPart(path)).add(file, run)
    return [parts[place] for place in sorted(parts)]


def _subject(run: RunFound) -> Subject:
    free = run.choice == DEFAULT
    collective = run.collective.value if run.collective is not None else None
    return Subject(run.facts, run.nodes, run.ranks, collective, free)


def _one(
    groups: PlatformGroups, study: Study, runs: list[tuple[File, RunFound]], given: str
) -> dict[RunFound, int]:
    """Put all runs into group 0.

    Raises InputError, with the differences, if the platforms of the runs differ. `given` are the
    options that `compare` needs, too.
    """
    seeded = bool(groups.members)
    against: dict[Difference, tuple[list[str], list[str]]] = {}
    clashing = PlatformGroups()
    for file, run in runs:
        subject, name = _subject(run), file.report.name
        if len(file.runs) > 1:
            name += run.place
        fits = not groups.members or groups.fitting(subject) == [0]
        (groups if fits else clashing).put(0, name, subject)
    for subject, names in clashing.members[0].values() if clashing.members else ():
        for member, others in groups.members[0].values():
            for item in differences(member, subject):
                first, second = against.setdefault(item, ([], []))
                first += others
                second += names
    if against:
        _refuse(study, against, seeded, [file.path for file, _ in runs], given)
    return dict.fromkeys((run for _, run in runs), 0)


def _refuse(
    study: Study,
    against: dict[Difference, tuple[list[str], list[str]]],
    seeded: bool,
    paths: list[Path | None],
    given: str,
) -> None:
    """Raise InputError with the first difference of each fact, and the number of the others."""
    by_fact: dict[str, list[str]] = {}
    for item, named in against.items():
        files = tuple([_LINE.sub("", name) for name in names] for names in named)
        first, second = files if set(files[0]).isdisjoint(files[1]) else named
        words = f"{item.first} in {joined(first)}; {item.second} in {joined(second)}"
        by_fact.setdefault(item.fact, []).append(words)
    lines = [
        f"  {fact}: {found[0]}"
        + (f"; and {len(found) - 1} more such differences" if len(found) > 1 else "")
        for fact, found in by_fact.items()
    ]
    more = len(lines) - _MOST_LINES
    shown = lines[:_MOST_LINES] + ([f"  and {more} more facts"] if more > 0 else [])
    whose = (
        "not of the platform of this study"
        if seeded
        else "of different platforms, and a study is of one"
    )
    compare = _compare_hint([str(study.path)] if seeded else [], paths)
    what = "the files are"
    if not seeded and by_fact.keys() == {"measured"}:
        what, whose = "the runs are", "of different conditions, and a study pools its runs"
    raise InputError(
        f"{what} {whose}; nothing was written\n" + "\n".join(shown),
        where=str(study.path),
        hint=(f"{compare}{given}; or " if compare else "")
        + "--split writes one study for each platform"
        + ("; or name only the files of one" if seeded or len(set(paths)) > 1 else ""),
    )


def _compare_hint(before: list[str], paths: list[Path | None]) -> str:
    """Return the command that compares the files, or their folder; empty for standard input."""
    known = [path for path in dict.fromkeys(paths) if path is not None]
    if len(known) < len(set(paths)) or not known:
        return ""
    names = [str(path) for path in known]
    if len(before) + len(known) == 3:
        # Three runs are no fleet, so compare takes two of them.
        two = [*before, *names]
        return f"compare two of them: nccltune compare {shlex.join([two[0], two[-1]])}"
    if len(before) + len(known) > 3:
        folders = {path.parent for path in known}
        folder = folders.pop() if len(folders) == 1 else None
        others = folder is not None and sum(map(Path.is_file, folder.iterdir())) > len(known)
        names = [] if folder is None else [f"{folder}/FILES"] if others else [str(folder)]
    if not names:
        return "compare them: nccltune compare FOLDER"
    return f"compare them: nccltune compare {shlex.join([*before, *names])}"


def _split(
    groups: PlatformGroups, study: Study, runs: list[tuple[File, RunFound]]
) -> dict[RunFound, int]:
    """Put each run into the group that it fits, or into a new group.

    A run that shows few facts may fit several groups. Such runs are put into separate groups.
    """
    beside = studies_beside(study.path)
    for place, other in enumerate(beside, 1):
        _seed(groups, place, other)
    places: dict[RunFound, int] = {}
    unclear = []
    # Runs that show the most facts come first and form the groups.
    for file, run in sorted(runs, key=lambda item: -_shown(item[1].facts)):
        fits = groups.fitting(_subject(run))
        if len(fits) > 1:
            unclear.append((file, run))
        else:
            place = fits[0] if fits else len(groups.members)
            places[run] = groups.put(place, file.report.name, _subject(run))
    apart: set[int] = set()
    for file, run in unclear:
        fits = [place for place in groups.fitting(_subject(run)) if place in apart]
        place = fits[0] if fits else len(groups.members)
        places[run] = groups.put(place, file.report.name, _subject(run))
        apart.add(place)
    if study.platform_path.exists() or study.samples_path.exists() or beside:
        return places
    # In a new study, the runs of the first file's platform go to the study itself. Other platforms
    # go to studies beside it.
    order = {place: at for at, place in enumerate(dict.fromkeys(places[run] for _, run in runs))}
    return {run: order[place] for run, place in places.items()}


def studies_beside(path: Path) -> list[Study]:
    """Return the studies of other platforms that an earlier import with `--split` wrote."""
    found: list[Study] = []
    while (other := _beside(path, len(found) + 1)).is_dir():
        found.append(Study(other))
    return found


def _shown(facts: PlatformFacts) -> int:
    return len(msgspec.to_builtins(facts))


def _beside(path: Path, number: int) -> Path:
    """Return the path of the study of another platform: `STUDY-2` for `number` 1."""
    return path.parent / f"{path.name}-{number + 1}"


def _seed(groups: PlatformGroups, place: int, study: Study) -> None:
    """Put the platform facts of an existing study into a group."""
    runs_known = False
    if study.platform_path.is_file():
        platform = study.platform()
        measured = platform.recorded_at is not None
        facts = facts_of_platform(platform, measured=measured)
        name = f"{study.path.name}/platform.json"
        groups.put(place, name, Subject(facts, platform.nodes, platform.gpus))
    for record in study.imports(ImportRecord):
        for run in record.runs or ():
            free = max(run.choices, key=lambda label: run.choices[label], default="") == DEFAULT
            collective = run.collective.value if run.collective is not None else None
            subject = Subject(run.facts, run.nodes, run.ranks, collective, free)
            groups.put(place, record.file, subject)
            runs_known = True
    if study.samples_path.is_file() and not runs_known:
        first = next(study.samples(), None)
        if first is not None:
            facts = facts_of_source(first.source)
            subject = Subject(facts, first.nodes, first.ranks, first.collective.value)
            groups.put(place, f"{study.path.name}/samples.jsonl", subject)


def _add_platform_beside(file: File) -> None:
    """Set the facts of a samples file's runs to those of platform.json in the same folder.

    The NCCL version and the first host are kept if the samples state them.
    """
    if file.report.kind is not FileKind.SAMPLES or file.path is None:
        return
    path = file.path.parent / PLATFORM
    if not path.is_file():
        return
    platform = file.platform = Study(file.path.parent).read_json(path, Platform)
    shown = facts_of_platform(platform, measured=platform.recorded_at is not None)
    for run in file.runs:
        own = {
            name: value for name in ("nccl", "first_host") if (value := getattr(run.facts, name))
        }
        run.facts = msgspec.structs.replace(shown, **own)
