# SPDX-License-Identifier: Apache-2.0
"""The order of processes in a race. A race has four stages:

1. alone     every candidate runs once; at most half of them stay, and none that can no longer reach
             the threshold; this is repeated until the remaining candidates have run three times
2. together  the best candidates of different settings run in combinations
3. without   the best combination runs without each of its settings; a setting that adds nothing is
             removed
4. proof     the champion (the best settings) and the default run in pairs, in alternating order

Only the proof decides whether the champion is recommended. The earlier processes do not count for
that, because they were used to choose the champion. In stages 1 to 3 the default runs before and
after every two candidates.
"""

import random
from collections.abc import Sequence
from itertools import combinations

from nccltune.measure.engine.gains import NeighbourGains, Score
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.settings_experiment import ProcessSteps, alternating, shuffled_starts
from nccltune.measure.engine.workload import Call
from nccltune.measure.experiments.p2p.settings import SettingCandidate, merged, problem

PROOF_PAIRS = 6
_ALONE_STARTS = 3
_TOGETHER_STARTS = 3
_MOST_TOGETHER = 4


class Race:
    """Decides which process to start next in a race between `candidates`.

    `threshold` is the least mean gain (a log) to recommend settings. `seed` shuffles the order.
    """

    def __init__(
        self,
        results: NeighbourGains,
        candidates: Sequence[SettingCandidate],
        *,
        threshold: float,
        seed: int = 1,
    ) -> None:
        self.results = results
        self.stage = "alone"
        self.candidates = list(candidates)
        self.champion: Settings | None = None
        self.proof_from: int | None = None
        """The number of the first process of the proof; None until the proof begins."""
        self._threshold = threshold
        self._random = random.Random(seed)  # noqa: S311 - only decides an order

    def steps(self) -> ProcessSteps:
        """Yield the settings of every process to start, until nothing is left to decide."""
        alive = self.candidates
        for starts in range(1, _ALONE_STARTS + 1):
            yield from self._starts([candidate.settings for candidate in alive], starts)
            alive = self._survivors(alive, starts)
        winners = self._winners(alive)
        if not winners:
            self.stage = "done"
            return
        self.champion = winners[0].settings
        self.stage = "together"
        yield from self._combine(winners)
        self.stage = "without"
        yield from self._prune()
        self.stage = "proof"
        yield from self._prove()
        self.stage = "done"

    def proof_gains(self) -> list[dict[Call, float]]:
        """Return, for each pair of the proof, the gain of the champion over the default."""
        if self.champion is None or self.proof_from is None:
            return []
        return self.results.pair_gains(self.champion, self.proof_from)

    def still_to_start(self) -> int:
        """Return roughly how many processes must still be started."""
        proof = 2 * PROOF_PAIRS
        if self.stage == "alone":
            begun = sum(
                bool(self.results.runs_with(candidate.settings)) for candidate in self.candidates
            )
            return 3 * (len(self.candidates) - begun) // 2 + len(self.candidates) // 2 + 10 + proof
        ahead = {"together": 10 + proof, "without": 6 + proof, "proof": proof}
        return max(0, ahead.get(self.stage, 0) - 2 * len(self.proof_gains()))

    def _starts(self, settings: Sequence[Settings], starts: int) -> ProcessSteps:
        yield from shuffled_starts(self.results, settings, starts, self._random)

    def _survivors(
        self, candidates: Sequence[SettingCandidate], starts: int
    ) -> list[SettingCandidate]:
        """Return the candidates, at most half, that may reach the threshold and lead their
        setting."""
        scored = [
            (candidate, self.results.score(candidate.settings, starts))
            for candidate in candidates
            if candidate.settings not in self.results.failed
        ]
        lead: dict[str, Score] = {}
        for candidate, score in scored:
            if candidate.of not in lead or score.gain > lead[candidate.of].gain:
                lead[candidate.of] = score
        open_ = [
            (candidate, score)
            for candidate, score in scored
            if score.high > self._threshold and score.high >= lead[candidate.of].low
        ]
        open_.sort(key=lambda item: -item[1].gain)
        return [candidate for candidate, _ in open_[: max(1, (len(candidates) + 1) // 2)]]

    def _winners(self, candidates: Sequence[SettingCandidate]) -> list[SettingCandidate]:
        """Return the best candidate of each setting that is faster, the fastest first."""
        best: dict[str, tuple[float, SettingCandidate]] = {}
        for candidate in candidates:
            gain = self.results.score(candidate.settings, _ALONE_STARTS).gain
            if gain > 0 and (candidate.of not in best or gain > best[candidate.of][0]):
                best[candidate.of] = (gain, candidate)
        return [candidate for _, candidate in sorted(best.values(), key=lambda item: -item[0])]

    def _combine(self, winners: Sequence[SettingCandidate]) -> ProcessSteps:
        joined = combined_winners([candidate.settings for candidate in winners])
        for starts in range(2, _TOGETHER_STARTS + 1):
            yield from self._starts(joined, starts)
            joined = self._may_lead(joined, starts)
        self._choose_champion([winners[0].settings, *joined], _TOGETHER_STARTS)

    def _may_lead(self, settings: Sequence[Settings], starts: int) -> list[Settings]:
        assert self.champion is not None
        least = self.results.score(self.champion, _ALONE_STARTS).low
        return [
            item
            for item in settings
            if item not in self.results.failed and self.results.score(item, starts).high > least
        ]

    def _choose_champion(self, settings: Sequence[Settings], starts: int) -> None:
        ran = [item for item in settings if item not in self.results.failed]
        self.champion = max(ran, key=lambda item: self.results.score(item, starts).gain)

    def _prune(self) -> ProcessSteps:
        assert self.champion is not None
        while len(self.champion.values) > 1:
            champion = self.champion
            fewer = [champion.without(name) for name, _ in champion.values]
            fewer = [item for item in fewer if not problem(item)]
            yield from self._starts(fewer, _TOGETHER_STARTS)
            ran = [item for item in fewer if item not in self.results.failed]
            if not ran:
                return
            best = max(ran, key=lambda item: self.results.score(item, _TOGETHER_STARTS).gain)
            lost = (
                self.results.score(champion, _TOGETHER_STARTS).gain
                - self.results.score(best, _TOGETHER_STARTS).gain
            )
            if lost > self._threshold:
                return
            self.champion = best

    def _prove(self) -> ProcessSteps:
        assert self.champion is not None
        self.proof_from = self.results.next_process
        # An interruption can split a pair, and a split pair does not count. Allow twice the pairs.
        for pair in alternating(DEFAULT, self.champion, 2 * PROOF_PAIRS):
            if len(self.proof_gains()) >= PROOF_PAIRS or self.champion in self.results.failed:
                return
            yield from pair


def combined_winners(winners: Sequence[Settings]) -> list[Settings]:
    """Return combinations of winners (fastest first): all that are compatible, then pairs."""
    found: list[Settings] = []
    whole = winners[0]
    for item in winners[1:]:
        whole = merged(whole, item) or whole
    pairs = [merged(one, other) for one, other in combinations(winners, 2)]
    for both in (whole, *pairs):
        if both is not None and both not in found and both not in winners:
            found.append(both)
    return found[:_MOST_TOGETHER]
