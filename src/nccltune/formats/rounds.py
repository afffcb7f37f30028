# SPDX-License-Identifier: Apache-2.0
"""Rounds of timings that carry none: how often the same thing was measured before."""

from collections.abc import Hashable, Iterable

from nccltune.model.choice import AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample

PointKey = tuple[int, str | None, str | None, int | None, bool]
"""bytes, dtype, redop, root, in_place."""
Scope = dict[PointKey, int]


class RoundCounter:
    """Counts timings of one thing: collective, scale, registration, choice, size, type, operation,
    root and placement. The count is the round of the next one: repeats come from `-N` cycles or
    from running the same test again, into the same file or another one."""

    def __init__(self) -> None:
        self._scopes: dict[Hashable, Scope] = {}
        self.rounds = 0

    def scope(
        self,
        collective: Collective,
        choice: AnyChoice,
        nodes: int | None,
        ranks: int | None,
        registered: bool = False,
        graph: bool = False,
    ) -> Scope:
        """Counts by point, for readers that count many at once (`scope[key]` = next round)."""
        key = (collective, choice, nodes, ranks, registered, graph)
        scope = self._scopes.get(key)
        if scope is None:
            scope = self._scopes[key] = {}
        return scope

    def seed(self, samples: Iterable[Sample]) -> None:
        """Go on after samples that a study holds already."""
        for sample in samples:
            scope = self.scope(
                sample.collective,
                sample.choice,
                sample.nodes,
                sample.ranks,
                sample.registered,
                sample.graph,
            )
            key = (sample.bytes, sample.dtype, sample.redop, sample.root, sample.in_place)
            scope[key] = max(scope.get(key, 0), sample.round + 1)
            self.rounds = max(self.rounds, sample.round + 1)
