# SPDX-License-Identifier: Apache-2.0
"""Which process to start next.

1. alone     every move once; what cannot be worth it any more is dropped, then at most half go on,
             and the survivors run again, and again
2. together  the winners of different settings, joined
3. without   the best, less each of its settings: one that adds nothing is left out
4. proof     the best against the default in pairs of neighbours, now one first, now the other;
             only these count for the verdict, because those before chose the best

The default runs before and after every two candidates, in the proof as often as the candidate.
"""

import random
from collections.abc import Generator, Iterator, Sequence
from itertools import combinations

from nccltune.measure.p2p.board import Board, Score
from nccltune.measure.p2p.settings import DEFAULT, Move, Settings, problem
from nccltune.measure.p2p.workload import Call

PROOF_PAIRS = 6
_ALONE_STARTS = 3
_TOGETHER_STARTS = 3
_MOST_TOGETHER = 4
_SPACING = 2

Plan = Generator[Settings, None, None]
"""Settings of the process to start next; the board has its outcome when the next is asked for."""


class Race:
    """A race of `moves` on a board. `threshold` is the gain (log, mean over the raced sizes) that
    settings must bring to be worth it."""

    def __init__(
        self, board: Board, moves: Sequence[Move], *, threshold: float, seed: int = 1
    ) -> None:
        self.board = board
        self.stage = "alone"
        self.moves = list(moves)
        self.champion: Settings | None = None
        self.proof_from: int | None = None
        """The number of the first process of the proof; None before that."""
        self._threshold = threshold
        self._random = random.Random(seed)  # noqa: S311 - an order, not a secret

    def steps(self) -> Plan:
        """Every process to start, until nothing is open."""
        alive = self.moves
        for starts in range(1, _ALONE_STARTS + 1):
            yield from self._heat([move.settings for move in alive], starts)
            alive = self._survivors(alive, starts)
        winners = self._winners(alive)
        if not winners:
            self.stage = "done"
            return
        self.champion = winners[0].settings
        self.stage = "together"
        yield from self._join(winners)
        self.stage = "without"
        yield from self._prune()
        self.stage = "proof"
        yield from self._prove()
        self.stage = "done"

    def proof(self) -> list[dict[Call, float]]:
        """The gains of the champion in its proof, one for each pair."""
        if self.champion is None or self.proof_from is None:
            return []
        return self.board.pairs(self.champion, self.proof_from)

    def still_to_start(self) -> int:
        """About how many processes are still to come. Rough: results decide."""
        proof = 2 * PROOF_PAIRS
        if self.stage == "alone":
            begun = sum(bool(self.board.of(move.settings)) for move in self.moves)
            return 3 * (len(self.moves) - begun) // 2 + len(self.moves) // 2 + 10 + proof
        ahead = {"together": 10 + proof, "without": 6 + proof, "proof": proof}
        return max(0, ahead.get(self.stage, 0) - 2 * len(self.proof()))

    def _heat(self, settings: Sequence[Settings], starts: int) -> Plan:
        """Bring every one of them to so many starts, in a shuffled order, defaults between."""
        yield from heat(self.board, settings, starts, self._random)

    def _survivors(self, moves: Sequence[Move], starts: int) -> list[Move]:
        """Those that may still be worth it and the best of their setting, at most half."""
        scored = [
            (move, self.board.score(move.settings, starts))
            for move in moves
            if move.settings not in self.board.failed
        ]
        lead: dict[str, Score] = {}
        for move, score in scored:
            if move.of not in lead or score.gain > lead[move.of].gain:
                lead[move.of] = score
        open_ = [
            (move, score)
            for move, score in scored
            if score.high > self._threshold and score.high >= lead[move.of].low
        ]
        open_.sort(key=lambda item: -item[1].gain)
        return [move for move, _ in open_[: max(1, (len(moves) + 1) // 2)]]

    def _winners(self, moves: Sequence[Move]) -> list[Move]:
        """The best move of every setting that leads the default, the best first."""
        best: dict[str, tuple[float, Move]] = {}
        for move in moves:
            gain = self.board.score(move.settings, _ALONE_STARTS).gain
            if gain > 0 and (move.of not in best or gain > best[move.of][0]):
                best[move.of] = (gain, move)
        return [move for _, move in sorted(best.values(), key=lambda item: -item[0])]

    def _join(self, winners: Sequence[Move]) -> Plan:
        joined = joins([move.settings for move in winners])
        for starts in range(2, _TOGETHER_STARTS + 1):
            yield from self._heat(joined, starts)
            joined = self._may_lead(joined, starts)
        self._crown([winners[0].settings, *joined], _TOGETHER_STARTS)

    def _may_lead(self, settings: Sequence[Settings], starts: int) -> list[Settings]:
        """Those that may still beat the champion."""
        assert self.champion is not None
        least = self.board.score(self.champion, _ALONE_STARTS).low
        return [
            item
            for item in settings
            if item not in self.board.failed and self.board.score(item, starts).high > least
        ]

    def _crown(self, settings: Sequence[Settings], starts: int) -> None:
        ran = [item for item in settings if item not in self.board.failed]
        self.champion = max(ran, key=lambda item: self.board.score(item, starts).gain)

    def _prune(self) -> Plan:
        assert self.champion is not None
        while len(self.champion.values) > 1:
            champion = self.champion
            fewer = [champion.without(name) for name, _ in champion.values]
            fewer = [item for item in fewer if not problem(item)]
            yield from self._heat(fewer, _TOGETHER_STARTS)
            ran = [item for item in fewer if item not in self.board.failed]
            if not ran:
                return
            best = max(ran, key=lambda item: self.board.score(item, _TOGETHER_STARTS).gain)
            lost = (
                self.board.score(champion, _TOGETHER_STARTS).gain
                - self.board.score(best, _TOGETHER_STARTS).gain
            )
            if lost > self._threshold:
                return
            self.champion = best

    def _prove(self) -> Plan:
        assert self.champion is not None
        self.proof_from = self.board.end
        # One pair is lost where an interruption parts it.
        for pair in alternating(DEFAULT, self.champion, 2 * PROOF_PAIRS):
            if len(self.proof()) >= PROOF_PAIRS or self.champion in self.board.failed:
                return
            yield from pair


def heat(board: Board, settings: Sequence[Settings], starts: int, order: random.Random) -> Plan:
    """Bring every one of them to so many starts on the board, shuffled by `order`, a default before
    and after every two."""
    missing = [item for item in settings for _ in range(starts - len(board.of(item)))]
    order.shuffle(missing)
    for item in missing:
        if item in board.failed:
            continue
        since = board.candidates_since_default()
        if since is None or since >= _SPACING:
            yield DEFAULT
        yield item
    if board.candidates_since_default():
        yield DEFAULT


def alternating(one: Settings, other: Settings, most: int) -> Iterator[tuple[Settings, Settings]]:
    """Pairs of neighbours, `one` first in every other of them: what drifts cancels."""
    for number in range(most):
        yield (one, other) if number % 2 == 0 else (other, one)


def joins(winners: Sequence[Settings]) -> list[Settings]:
    """Winners of different settings joined, given the best first: all that go together, then
    pairs."""
    found: list[Settings] = []
    whole = winners[0]
    for item in winners[1:]:
        whole = whole.merged(item) or whole
    pairs = [one.merged(other) for one, other in combinations(winners, 2)]
    for both in (whole, *pairs):
        if both is not None and both not in found and both not in winners:
            found.append(both)
    return found[:_MOST_TOGETHER]
