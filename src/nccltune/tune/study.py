# SPDX-License-Identifier: Apache-2.0
"""Tune a study: search the rules, write the configuration and the evidence."""

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
    """Return the rules of a study with their evidence; writes nothing. `created` is an ISO 8601
    date.

    Raises InputError where the weights that `options` names cannot be read.
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
    """Return the configuration file: a header with what the rules were measured on, then NVIDIA's
    CSV."""
    header = {"schema": "1"}
    if tuning.nccl_version:
        header["nccl"] = tuning.nccl_version
    if tuning.gpu:
        header["gpu"] = tuning.gpu
    header["study"] = tuning.study
    header["created"] = tuning.created
    return write_rules(tuning.rules, header)


def write(study: Study, tuning: Tuning, config: Path | None = None) -> Tuning:
    """Write `tuner.conf` (or `config`) and `tuning.json`; the tuning with the hash of the file."""
    text = render(tuning)
    tuning = msgspec.structs.replace(tuning, config_hash=config_hash(text.encode()))
    write_whole(config or study.config_path, text)
    study.write_json(study.tuning_path, tuning)
    return tuning
