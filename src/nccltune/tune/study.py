# SPDX-License-Identifier: Apache-2.0
"""Tune a study: search the rules, and write the configuration and its evidence."""

import bisect
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from nccltune.analyze.gains import GainTable, gain_tables
from nccltune.analyze.timings import SortedSamples, Timings
from nccltune.formats.text.lines import check_text, encoding_of
from nccltune.formats.tuner_config.csv_rules import config_hash, mark, rows_text, write_rules
from nccltune.model.choice import Choice
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule, RuleState
from nccltune.model.sizes import parse_bytes
from nccltune.study.files import Study, write_whole
from nccltune.tune.basis import rests_on
from nccltune.tune.evidence import evidence
from nccltune.tune.result import RuleEvidence, TunedGroup, TuneOptions, Tuning
from nccltune.tune.search import Weights, search
from nccltune.tune.state import state_of
from nccltune.tune.worth import job_weights
from nccltune.workload.table import Workload


def tune(
    name: str,
    platform: Platform,
    found: SortedSamples,
    options: TuneOptions,
    *,
    created: str,
    job: Workload | None = None,
) -> Tuning:
    """Return the rules of a study with their evidence. Write no file.

    `name` is the name of the study, `created` an ISO 8601 date. `job` is what `options.workload`
    recorded. Raises InputError if the file `options.weights` cannot be read, or both are given.

    >>> from nccltune.analyze import sort_samples
    >>> from nccltune.examples import example
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> found = sort_samples(study.samples())
    >>> tuning = tune(study.name, study.platform(), found, TuneOptions(), created="2026-01-31")
    >>> len(tuning.rules) > 0
    True
    """
    if options.weights and job is not None:
        raise InputError(
            "‹weights› and ‹workload› exclude each other", hint="leave out one of them"
        )
    weights = read_weights(Path(options.weights)) if options.weights else None
    groups: list[TunedGroup] = search(
        [*found.timings, *found.partial], options, weights, found.doubts
    )
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
        wrong=[item.sentence for item in found.wrong],
    )


def _weighted(
    groups: list[TunedGroup], job: Workload, found: SortedSamples, options: TuneOptions
) -> list[TunedGroup]:
    """Search again where the job communicates, with its time at each size as the weight."""
    for (collective, scale), weights in job_weights(job, groups).items():
        own = [
            item
            for item in (*found.timings, *found.partial)
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


MAX_WEIGHT = 1e12
"""The largest weight. With larger weights a sum of costs overflows, or the penalty of a rule is
lost to rounding."""


def _text(path: Path) -> str:
    """Return the text of a file. Raises InputError if the file cannot be read or is not text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        check_text(data)
        return data.decode(encoding_of(data))
    except InputError as error:
        raise InputError(error.message, where=str(path), hint=error.hint) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            "is not UTF-8 text", where=f"{path}:{line}", hint="write lines of bytes,weight"
        ) from error


def read_weights(path: Path) -> Weights:
    """Return the weights of a CSV file of `bytes,weight` lines.

    Lines that begin with `#` are comments. Sizes are written as `64K` or in bytes. A size has the
    weight of the nearest smaller or equal size in the file. Sizes below all sizes in the file have
    the weight of the smallest size in the file. Raises InputError if the file cannot be read, has a
    bad line, or has no weight above 0.
    """
    text = _text(path)
    found: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped.replace(" ", "") == "bytes,weight":
            continue
        where = f"{path}:{number}"
        size_text, comma, weight_text = stripped.partition(",")
        try:
            weight = float(weight_text) if comma else -1.0
        except ValueError:
            weight = -1.0
        if not 0 <= weight <= MAX_WEIGHT:
            raise InputError(
                f"{line!r} is not a weight",
                where=where,
                hint=f"write bytes,weight such as 64K,12.5; weights are 0 to {MAX_WEIGHT:g}",
            )
        try:
            found[parse_bytes(size_text)] = weight
        except InputError as error:
            raise InputError(error.message, where=where, hint=error.hint) from error
    if not any(found.values()):
        raise InputError("holds no weight above 0", where=str(path))
    sizes = sorted(found)

    def weight_of(size: int) -> float:
        return found[sizes[max(0, bisect.bisect_right(sizes, size) - 1)]]

    return weight_of


def widen(
    groups: Sequence[TunedGroup], timings: Sequence[Timings], options: TuneOptions
) -> list[TunedGroup]:
    """Return the groups with rules for one scale replaced by rules for any scale, where possible.

    A range of sizes gets a rule for any scale if all scales have a rule with the same choice there,
    and it is sure in this range at each scale. A part of a rule outside the range stays a rule
    of its scale if the part has measured sizes. Collectives with separately measured registered
    buffers or pipe ops do not change. A rule for any scale also matches scales that were never
    measured, so it needs `--any-scale`.
    """
    tables = {
        (table.collective, table.scale): table
        for table in gain_tables(timings, options.assumed_noise)
    }
    result = list(groups)
    for collective in dict.fromkeys(group.collective for group in groups):
        own_groups = [group for group in groups if group.collective is collective]
        if any((group.registered, group.pipe_ops) != (None, None) for group in own_groups):
            # A rule for any scale would also apply to registered buffers or groups of calls, for
            # which the separate measurement may have found other rules.
            continue
        places = [
            place
            for place, group in enumerate(result)
            if group.collective is collective and group.registered is None
        ]
        if len(places) < 2:
            continue
        for rule in [item for item in result[places[0]].rules if _is_sure(item)]:
            common = _common(rule.rule, [result[place] for place in places])
            if common is None:
                continue
            low, high = common
            own = [tables[collective, result[place].scale] for place in places]
            if not all(_holds(table, rule.rule.choice, low, high, options) for table in own):
                continue
            wide = Rule(collective, low, high, rule.rule.choice)
            for place, table in zip(places, own, strict=True):
                result[place] = _replaced(result[place], table, wide, options)
    return result


def _common(rule: Rule, groups: Sequence[TunedGroup]) -> tuple[int, int] | None:
    """Return the range in which every group has a rule with the choice of `rule`.

    Return None if a group has no such rule in the range of `rule`, or several.
    """
    low, high = rule.min_bytes, rule.max_bytes
    for group in groups:
        same = [
            other.rule
            for other in group.rules
            if _is_sure(other)
            and other.rule.choice == rule.choice
            and other.rule.nodes is not None
            and other.rule.min_bytes <= high
            and other.rule.max_bytes >= low
        ]
        if len(same) != 1:
            return None
        low, high = max(low, same[0].min_bytes), min(high, same[0].max_bytes)
    return low, high


def _is_sure(item: RuleEvidence) -> bool:
    return item.state is RuleState.SURE


def _covered(table: GainTable, low: int, high: int) -> list[int]:
    return [size for size in table.sizes if low <= size <= high]


def _holds(table: GainTable, choice: Choice, low: int, high: int, options: TuneOptions) -> bool:
    sizes = _covered(table, low, high)
    return bool(sizes) and state_of(table, choice, sizes, options.min_gain) is RuleState.SURE


def _replaced(group: TunedGroup, table: GainTable, wide: Rule, options: TuneOptions) -> TunedGroup:
    rules: list[RuleEvidence] = []
    for item in group.rules:
        rule = item.rule
        overlaps = rule.min_bytes <= wide.max_bytes and rule.max_bytes >= wide.min_bytes
        if not _is_sure(item) or rule.choice != wide.choice or not overlaps:
            rules.append(item)
            continue
        for low, high in (
            (rule.min_bytes, wide.min_bytes - 1),
            (wide.max_bytes + 1, rule.max_bytes),
        ):
            covered = _covered(table, low, high)
            if covered:
                part = msgspec.structs.replace(rule, min_bytes=low, max_bytes=high)
                rules.append(evidence(table, part, covered, options))
        whole = _covered(table, wide.min_bytes, wide.max_bytes)
        rules.append(evidence(table, wide, whole, options))
    rules.sort(key=lambda item: item.rule.min_bytes)
    return msgspec.structs.replace(group, rules=rules)
