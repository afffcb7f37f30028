# SPDX-License-Identifier: Apache-2.0
"""Tune a study: search the rules, and write the configuration and its evidence."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from nccltune.analyze.timings import SortedSamples
from nccltune.formats.tuner_config.csv_rules import config_hash, mark, rows_text, write_rules
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule, RuleState
from nccltune.study.files import Study, write_whole
from nccltune.tune.basis import rests_on
from nccltune.tune.result import RuleEvidence, TunedGroup, TuneOptions, Tuning
from nccltune.tune.search import search
from nccltune.tune.weights import read_weights
from nccltune.tune.widen import widen
from nccltune.tune.worth import job_weights, job_worth
from nccltune.workload.reading import read_workload
from nccltune.workload.table import Workload


def tune(
    name: str,
    platform: Platform,
    found: SortedSamples,
    options: TuneOptions,
    *,
    created: str,
) -> Tuning:
    """Return the rules of a study with their evidence. Write no file.

    `name` is the name of the study, `created` an ISO 8601 date. Raises InputError if the files of
    `options.weights` or `options.workload` cannot be read, or both are given.

    >>> from nccltune.analyze import sort_samples
    >>> from nccltune.examples import example
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> found = sort_samples(study.samples())
    >>> tuning = tune(study.name, study.platform(), found, TuneOptions(), created="2026-01-31")
    >>> len(tuning.rules) > 0
    True
    """
    if options.weights and options.workload:
        raise InputError(
            "‹weights› and ‹workload› exclude each other", hint="leave out one of them"
        )
    weights = read_weights(Path(options.weights)) if options.weights else None
    groups: list[TunedGroup] = search(found.timings, options, weights, found.doubts)
    job = read_workload(map(Path, options.workload)) if options.workload else None
    if job is not None:
        groups = _weighted(groups, job, found, options)
    if options.any_scale:
        groups = widen(groups, found.timings, options)
    return Tuning(
        study=name,
        created=created,
        options=options,
        groups=groups,
        nccl_version=platform.nccl_version,
        stand_in=platform.stand_in,
        rests_on=rests_on(platform),
        samples=found.samples,
        worth=None if job is None else job_worth(job, groups),
    )


def _weighted(
    groups: list[TunedGroup], job: Workload, found: SortedSamples, options: TuneOptions
) -> list[TunedGroup]:
    """Search again where the job communicates, with its time at each size as the weight."""
    for (collective, scale), weights in job_weights(job, groups).items():
        own = [
            item
            for item in found.timings
            if (item.condition.collective, item.condition.scale) == (collective, scale)
        ]
        again = iter(search(own, options, weights, found.doubts))
        groups = [
            next(again) if (group.collective, group.scale) == (collective, scale) else group
            for group in groups
        ]
    return groups


def render(tuning: Tuning, proven: Mapping[Rule, str] | None = None) -> str:
    """Return the text of the configuration: a header with the platform, then rules as NVIDIA's CSV.

    A comment above each rule has its state; `proven` has those of rules that are proven.

    Raises InputError for a rule that the format cannot express (see `write_rules`).
    """
    header = {"schema": "1", **tuning.rests_on}
    if tuning.stand_in:
        header["measured"] = tuning.stand_in
    header |= {"study": tuning.study, "created": tuning.created, "rows": rows_text(tuning.rules)}
    return write_rules(tuning.rules, header, marks(tuning) | dict(proven or {}))


def marks(tuning: Tuning) -> dict[Rule, str]:
    """Return the comment above each rule. A rule of several scales has the least certain state."""
    order = list(RuleState)
    every = [item for group in tuning.groups for item in group.rules]
    every.sort(key=lambda item: order.index(item.state), reverse=True)
    return {item.rule: mark(item.state, _words(item)) for item in every}


def _words(item: RuleEvidence) -> str:
    if item.gain is None or item.gain_low is None or item.gain_high is None:
        return item.reason
    gain = f"{item.gain:.2f}x, 95 % CI {item.gain_low:.2f}-{item.gain_high:.2f}"
    if item.rule.nodes is None:
        gain += "; only predicted at scales that were not measured"
    return gain if item.state is RuleState.SURE else f"{gain}; {item.reason}"


def write(
    study: Study,
    tuning: Tuning,
    config: Path | None = None,
    proven: Mapping[Rule, str] | None = None,
) -> Tuning:
    """Write the configuration to `config` or `tuner.conf`, and the tuning to `tuning.json`.

    `proven` are the comments above rules that are proven. Return the tuning with the hash of the
    configuration. Raises what `render` raises, and UnwritableError if a file cannot be written.
    """
    text = render(tuning, proven)
    tuning = msgspec.structs.replace(tuning, config_hash=config_hash(text.encode()))
    write_whole(config or study.config_path, text)
    study.write_json(study.tuning_path, tuning)
    return tuning
