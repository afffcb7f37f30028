# SPDX-License-Identifier: Apache-2.0
"""What a study's imports put in doubt."""

from collections.abc import Iterable
from typing import NamedTuple

from nccltune.formats.platform_facts import (
    FACT_WORDS,
    PlatformFacts,
    Subject,
    facts_of_platform,
    joined,
    missing_facts,
)
from nccltune.formats.reading import ImportRecord
from nccltune.formats.runs import RunRecord
from nccltune.model.scale import count
from nccltune.model.study import Study


def suspect_sentences(study: Study) -> list[str]:
    """One sentence for each way in which runs were not what they claimed to be: the first file it
    was seen in, and how many more."""
    files: dict[str, list[str]] = {}
    for record in study.imports(ImportRecord):
        for sentence in record.sentences:
            files.setdefault(sentence, []).append(record.file)
    return [
        f"{names[0]}: {sentence}"
        + (f" (and in {count(len(names) - 1, 'file')} more)" if len(names) > 1 else "")
        for sentence, names in files.items()
    ]


class _Run(NamedTuple):
    """A run that is compared with others: its file, its choices and the facts it does not show."""

    file: str
    choices: tuple[str, ...]
    missing: frozenset[str]
    facts: PlatformFacts


def platform_doubts(study: Study) -> list[str]:
    """Return one sentence for each group of facts of the platform that the runs of one choice show
    and those of another choice do not: these runs may be of another platform.

    Facts that no run shows are no doubt, and neither are facts that runs of every choice show.
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
    """What a bench wrote of the platform, for all choices."""
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
    """The files that show a fact, those that do not, and the choices of these; None for no doubt.

    A setting is a doubt where the runs that show it have any. What NCCL uses between nodes is none
    within a node, and a driver none where the hosts are known to be the same.
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
