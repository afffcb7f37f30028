# SPDX-License-Identifier: Apache-2.0
"""Tune a study: search the rules, and write the configuration and its evidence."""

from pathlib import Path

import msgspec

from nccltune.analyze.timings import SortedSamples
from nccltune.formats.tuner_config.csv_rules import config_hash, write_rules
from nccltune.model.platform import Platform
from nccltune.study.files import Study, write_whole
from nccltune.tune.result import TunedGroup, TuneOptions, Tuning
from nccltune.tune.search import search
from nccltune.tune.weights import read_weights
from nccltune.tune.widen import widen


def tune(
    name: str,
    platform: Platform,
    found: SortedSamples,
    options: TuneOptions,
    *,
    created: str,
) -> Tuning:
    """Return the rules of a study with their evidence. Write no file.

    `name` is the name of the study, `created` an ISO 8601 date. Raises InputError if the file
    `options.weights` cannot be read.

    >>> from nccltune.analyze import sort_samples
    >>> from nccltune.examples import example
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> found = sort_samples(study.samples())
    >>> tuning = tune(study.name, study.platform(), found, TuneOptions(), created="2026-01-31")
    >>> len(tuning.rules) > 0
    True
    """
    weights = read_weights(Path(options.weights)) if options.weights else None
    groups: list[TunedGroup] = search(found.timings, options, weights, found.doubts)
    if options.any_scale:
        groups = widen(groups, found.timings, options)
    return Tuning(
        study=name,
        created=created,
        options=options,
        groups=groups,
        nccl_version=platform.nccl_version,
        gpu=platform.gpu,
        samples=found.samples,
    )


def render(tuning: Tuning) -> str:
    """Return the text of the configuration: a header with the platform, then rules as NVIDIA's CSV.

    Raises InputError for a rule that the format cannot express (see `write_rules`).
    """
    header = {"schema": "1"}
    if tuning.nccl_version:
        header["nccl"] = tuning.nccl_version
    if tuning.gpu:
        header["gpu"] = tuning.gpu
    header["study"] = tuning.study
    header["created"] = tuning.created
    return write_rules(tuning.rules, header)


def write(study: Study, tuning: Tuning, config: Path | None = None) -> Tuning:
    """Write the configuration to `config` or `tuner.conf`, and the tuning to `tuning.json`.

    Return the tuning with the hash of the configuration. Raises what `render` raises, and
    UnwritableError if a file cannot be written.
    """
    text = render(tuning)
    tuning = msgspec.structs.replace(tuning, config_hash=config_hash(text.encode()))
    write_whole(config or study.config_path, text)
    study.write_json(study.tuning_path, tuning)
    return tuning
