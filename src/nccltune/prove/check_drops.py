# SPDX-License-Identifier: Apache-2.0
"""Rules that `check --apply` removed: a fact of the study until their choice is measured again."""

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.prove.result import RemovedRule
from nccltune.study import names
from nccltune.study.files import Study


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
    later = list(enumerate(islice(study.samples(), since, None), since))
    return [
        RemovedRule(drop.rule, _words(drop), by="check")
        for drop in drops
        if not _is_measured(drop.rule, (one for number, one in later if number >= drop.samples))
    ]


def _words(drop: CheckDrop) -> str:
    nccl = f", NCCL {drop.nccl_version}" if drop.nccl_version else ""
    return f"{drop.reason} ({drop.at[:10]}{nccl}); measure it again to have it offered again"


def _is_measured(rule: Rule, samples: Iterable[Sample]) -> bool:
    wanted = rule.choice.without_channels()
    return any(
        isinstance(sample.choice, Choice)
        and sample.choice.without_channels() == wanted
        and sample.source.purpose is Purpose.TUNE
        and sample.collective is rule.collective
        and rule.min_bytes <= sample.bytes <= rule.max_bytes
        and rule.nodes in (None, sample.nodes)
        and rule.ranks in (None, sample.ranks)
        for sample in samples
    )
