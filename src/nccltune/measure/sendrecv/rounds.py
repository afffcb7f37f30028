# SPDX-License-Identifier: Apache-2.0
"""Which process to start next beside traffic: rounds of NCCL itself, copy engines and each chunk,
forwards in one and backwards in the next, so that what drifts cancels."""

from collections.abc import Sequence

from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.race import Plan
from nccltune.measure.p2p.runs import Run
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.sendrecv.settings import COPY_ENGINE

Round = dict[Settings, Run]
"""A process of each."""


class Rounds:
    """The processes on a board, `rounds` of each of the `chunks` and of what they are compared
    with."""

    def __init__(self, board: Board, chunks: Sequence[Settings], *, rounds: int) -> None:
        self.board = board
        self.chunks = list(chunks)
        self.rounds = rounds
        self.stage = "rounds"

    def steps(self) -> Plan:
        """Every process to start, until nothing is open."""
        # One round is lost where an interruption parts it.
        for number in range(2 * self.rounds):
            if self.compared:
                break
            for settings in self._all[:: -1 if number % 2 else 1]:
                # Nothing is over copy engines that do not run.
                if not {settings, COPY_ENGINE} & set(self.board.failed):
                    yield settings
        self.stage = "done"

    @property
    def compared(self) -> bool:
        """Whether all rounds have run."""
        return len(self.complete()) >= self.rounds

    def complete(self) -> list[Round]:
        """The rounds without a gap, each of one session; of what failed there is nothing in them.

        An order that is turned round at its end has the same settings on both sides of it, so that
        processes which an interruption left over are in no later round.
        """
        ran = [item for item in self._all if item not in self.board.failed]
        runs = [run for item in ran for run in self.board.of(item)]
        found: list[Round] = []
        now: Round = {}
        for run in sorted(runs, key=lambda run: run.process):
            if run.settings in now or any(one.session != run.session for one in now.values()):
                now = {}
            now[run.settings] = run
            if len(now) == len(ran):
                found.append(now)
                now = {}
        return found[: self.rounds]

    def still_to_start(self) -> int:
        """About how many processes are still to come."""
        if COPY_ENGINE in self.board.failed:
            return 0
        ran = sum(item not in self.board.failed for item in self._all)
        return ran * max(0, self.rounds - len(self.complete()))

    @property
    def _all(self) -> list[Settings]:
        return [DEFAULT, COPY_ENGINE, *self.chunks]
