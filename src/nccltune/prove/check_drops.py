# SPDX-License-Identifier: Apache-2.0
"""Rules that `check --apply` removed: a fact of the study until their choice is measured again."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.model.sizes import format_bytes
from nccltune.prove.result import RemovedRule
from nccltune.study import names
from nccltune.study.files import Study
from nccltune.tune.result import RuleEvidence


class CheckDrop(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `check.jsonl`: a rule that was removed, why, when and under which NCCL.

    `samples` is the number of samples of the study then: later ones were measured afterwards.
    """

    schema_version: int = SCHEMA_VERSION
    rule: Rule
    reason: str
    nccl_version: str | None
    at: str
    samples: int


def keep_drops(
    study: Study, dropped: Sequence[RemovedRule], nccl_version: str | None, at: str
) -> None:
    """Append removed rules to STUDY/check.jsonl. Raises UnwritableError if that fails."""
    samples = sum(1 for _ in study.samples()) if study.samples_path.is_file() else 0
    study.append_lines(
        study.path / names.CHECK_DROPS,
        [
            CheckDrop(
                rule=item.rule,
                reason=item.reason,
                nccl_version=nccl_version,
                at=at,
                samples=samples,
            )
            for item in dropped
        ],
    )


def drops_in_force(study: Study) -> list[RemovedRule]:
    """Return the rules that `check` removed and whose choice was not measured afterwards.

    Raises StudyError for a damaged file.
    """
    path = study.path / names.CHECK_DROPS
    drops = list(study.read_lines(path, CheckDrop)) if path.is_file() else []
    if not drops:
        return []
    since = min(drop.samples for drop in drops)
    for number, sample in enumerate(islice(study.samples(), since, None), since):
        drops = [
            drop for drop in drops if number < drop.samples or not _measures(sample, drop.rule)
        ]
        if not drops:
            break
    return [RemovedRule(drop.rule, _words(drop), by="check") for drop in drops]


def overlapping(evidence: RuleEvidence, drop: RemovedRule) -> RemovedRule | None:
    """Return what becomes of a rule that offers a removed choice again for some of its calls.

    With other options a rule has other borders and conditions. What it has left is the larger part
    with measured sizes beyond the removed rule. Return None for a rule for other calls.
    """
    rule, gone = evidence.rule, drop.rule
    meet = all(
        None in pair or pair[0] == pair[1]
        for pair in (
            (rule.nodes, gone.nodes),
            (rule.ranks, gone.ranks),
            (rule.pipe_ops, gone.pipe_ops),
            (rule.registered, gone.registered),
        )
    )
    if (
        not meet
        or rule.collective is not gone.collective
        or rule.choice.without_channels() != gone.choice.without_channels()
        or rule.max_bytes < gone.min_bytes
        or rule.min_bytes > gone.max_bytes
    ):
        return None
    below = [size for size in evidence.sizes if size < gone.min_bytes]
    above = [size for size in evidence.sizes if size > gone.max_bytes]
    if not below and not above:
        return drop
    ends = (
        (rule.min_bytes, gone.min_bytes - 1)
        if len(below) >= len(above)
        else (gone.max_bytes + 1, rule.max_bytes)
    )
    where = f"from {format_bytes(gone.min_bytes)} to {format_bytes(gone.max_bytes)}"
    return msgspec.structs.replace(
        drop,
        reason=f"{drop.reason}; the removed rule was {where}",
        narrowed=msgspec.structs.replace(rule, min_bytes=ends[0], max_bytes=ends[1]),
    )


def _words(drop: CheckDrop) -> str:
    nccl = f", NCCL {drop.nccl_version}" if drop.nccl_version else ""
    return f"{drop.reason} ({drop.at[:10]}{nccl}); measure it again to have it offered again"


def _measures(sample: Sample, rule: Rule) -> bool:
    return (
        isinstance(sample.choice, Choice)
        and sample.choice.without_channels() == rule.choice.without_channels()
        and sample.source.purpose is Purpose.TUNE
        and sample.collective is rule.collective
        and rule.min_bytes <= sample.bytes <= rule.max_bytes
        and rule.nodes in (None, sample.nodes)
        and rule.ranks in (None, sample.ranks)
    )
