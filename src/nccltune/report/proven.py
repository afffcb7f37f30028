# SPDX-License-Identifier: Apache-2.0
"""Compute the proven gain of the rules of each collective and scale."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.model.rule import Rule
from nccltune.prove.result import Proof, ProvenSize, RuleProof
from nccltune.tune.result import TunedGroup


class ProvenGain(NamedTuple):
    """The proven gain of the rules of one group that hold: their geometric mean by octaves.

    `sizes` are those that such a rule covers, `measured` all of the proof, ascending.
    """

    gain: float
    rules: int
    sizes: list[int]
    measured: list[int]


def proven_gains(proof: Proof | None, groups: Sequence[TunedGroup]) -> list[ProvenGain | None]:
    """Return the proven gain of every group; None unless all rules were measured and one holds."""
    if proof is None:
        return [None] * len(groups)
    judged = {item.rule: item for item in proof.rules}
    return [_of_group(proof, group, judged) for group in groups]


def _of_group(proof: Proof, group: TunedGroup, judged: dict[Rule, RuleProof]) -> ProvenGain | None:
    rules = [evidence.rule for evidence in group.rules]
    if any(rule not in judged for rule in rules):
        return None
    sizes = next(
        (
            found.sizes
            for found in proof.groups
            if (found.collective, found.scale) == (group.collective, group.scale)
            and found.registered == bool(group.registered)
            and found.pipe_ops == (group.pipe_ops or 1)
        ),
        [],
    )
    holding = [
        (item, covered)
        for rule in rules
        if (item := judged[rule]).verdict == "holds"
        and item.gain is not None
        and (covered := _covered(item, sizes))
    ]
    if not holding:
        return None
    weights = [_octaves(covered) for _, covered in holding]
    mean = math.fsum(
        weight * math.log(item.gain or 1.0)
        for weight, (item, _) in zip(weights, holding, strict=True)
    ) / math.fsum(weights)
    return ProvenGain(
        gain=math.exp(mean),
        rules=len(holding),
        sizes=sorted({size for _, covered in holding for size in covered}),
        measured=sorted(size.bytes for size in sizes),
    )


def _covered(item: RuleProof, sizes: Sequence[ProvenSize]) -> list[int]:
    rule = item.rule
    return [
        size.bytes
        for size in sizes
        if size.choice is not None
        and size.gain is not None
        and rule.min_bytes <= size.bytes <= rule.max_bytes
    ]


def _octaves(sizes: Sequence[int]) -> float:
    """Return the octaves from the smallest to the largest size, at least 0.1."""
    return max(0.1, math.log2(max(1, *sizes) / max(1, min(sizes))))
