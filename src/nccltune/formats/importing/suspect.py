# SPDX-License-Identifier: Apache-2.0
"""Report doubts about the runs that a study imported."""

from collections.abc import Iterable
from typing import NamedTuple

from nccltune.formats.reading.file_report import ImportRecord
from nccltune.formats.reading.platform_facts import (
    FACT_WORDS,
    PlatformFacts,
    Subject,
    facts_of_platform,
    joined,
    missing_facts,
)
from nccltune.formats.reading.runs import RunRecord
from nccltune.model.scale import count
from nccltune.study.files import Study


def suspect_sentences(study: Study) -> list[str]:
    """Return one sentence per kind of doubtful run.

    Each sentence names the first file with such runs, and the number of other files. Of a file that
    was imported several times, with other options, the last import counts. Raises StudyError if the
    study is damaged.
    """
    files: dict[str, list[str]] = {}
    last = {record.file_hash: record for record in study.imports(ImportRecord)}
    for record in last.values():
        for sentence in record.sentences:
            files.setdefault(sentence, []).append(record.file)
    return [
        f"{names[0]}: {sentence}"
        + (f" (and in {count(len(names) - 1, 'file')} more)" if len(names) > 1 else "")
        for sentence, names in files.items()
    ]


def run_names(study: Study) -> dict[str, str]:
    """Return the name of each imported process: its file, with a number if the file has several.

    Raises StudyError if the study is damaged.
    """
    return {
        run.process: record.file if len(record.runs or ()) == 1 else f"{record.file}, run {number}"
        for record in study.imports(ImportRecord)
        for number, run in enumerate(record.runs or (), 1)
    }


class _Run(NamedTuple):
    """A run that is compared with others: its file, its choices and the facts that it lacks."""

    file: str
    choices: tuple[str, ...]
    missing: frozenset[str]
    facts: PlatformFacts


def platform_doubts(study: Study) -> list[str]:
    """Return a sentence for each fact that is known for the runs of some choices only.

    The runs without the fact may be of another platform. A fact that no run shows causes no doubt,
    and neither does a fact that runs of every choice show. Facts with the same files and choices
    share a sentence. Raises StudyError if the study is damaged.
    """
    groups: dict[tuple[object, ...], list[_Run]] = {}
    for record in study.imports(ImportRecord):
        for run in record.runs or ():
            if run.samples and run.has_scale:
                where = (run.collective, run.nodes, run.ranks)
                groups.setdefault(where, []).append(_run(record.file, run))
    measured = _measured(study)
    found: dict[tuple[tuple[str, ...], tuple[str, ...], str], list[str]] = {}
    for (_, nodes, _), runs in groups.items():
        for fact, words in FACT_WORDS.items():
            doubt = _doubt(fact, [*runs, *measured], one_node=nodes == 1)
            if doubt is not None:
                names = found.setdefault(doubt, [])
                if words not in names:
                    names.append(words)
    return [_sentence(facts, *doubt) for doubt, facts in found.items()]


def _run(file: str, run: RunRecord) -> _Run:
    subject = Subject(run.facts, run.nodes, run.ranks)
    return _Run(file, tuple(sorted(run.choices)), frozenset(missing_facts(subject)), run.facts)


def _measured(study: Study) -> list[_Run]:
    """Return the platform that nccltune's bench recorded, as one run; empty if none was recorded.

    The run has no choices, because the recorded facts hold for all choices.
    """
    if not study.platform_path.is_file():
        return []
    platform = study.platform()
    if platform.recorded_at is None:
        return []
    facts = facts_of_platform(platform, measured=True)
    missing = missing_facts(Subject(facts)) | {"hosts", "nics", "network", "driver"}
    return [_Run("platform.json", (), frozenset(missing), facts)]


def _doubt(
    fact: str, runs: list[_Run], *, one_node: bool
) -> tuple[tuple[str, ...], tuple[str, ...], str] | None:
    """Return the files that show a fact, the files without the fact, and the choices without it.

    Return None if there is no doubt. Three facts have an exception:

    - Settings cause a doubt only if a run that shows its settings has at least one.
    - The network and the NICs cause no doubt on one node.
    - The driver causes no doubt if the hosts are known to be the same.
    """
    if one_node and fact in ("network", "nics"):
        return None
    shown = [run for run in runs if fact not in run.missing]
    if fact == "settings" and not any(run.facts.settings for run in shown):
        return None
    covered = {choice for run in shown for choice in run.choices}
    bench = any(not run.choices for run in shown)
    silent = [run for run in runs if fact in run.missing and run.choices]
    if not bench:
        silent = [run for run in silent if not set(run.choices) & covered]
    if fact == "driver":
        hosts = {run.facts.hosts for run in runs if run.choices}
        silent = silent if len(hosts) > 1 or () in hosts else []
    if not shown or not silent:
        return None
    choices = sorted({choice for run in silent for choice in run.choices})
    return _files(shown), _files(silent), ", ".join(choices)


def _files(runs: Iterable[_Run]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.file for run in runs))


def _sentence(
    facts: list[str], shown: tuple[str, ...], silent: tuple[str, ...], choices: str
) -> str:
    listed = ", ".join(facts[:-1]) + (" and " if facts[:-1] else "") + facts[-1]
    verb = "is" if len(facts) == 1 and not facts[0].endswith("s") else "are"
    return (
        f"{listed} {verb} known of {joined(shown)} only, not of {joined(silent)} ({choices}), which"
        f" may be of another platform. To settle it: run {choices} once more on this platform with"
        " NCCL_DEBUG=INFO and import its whole output"
    )
