# SPDX-License-Identifier: Apache-2.0
"""Carries a sweep out whose settings need processes of their own: what its order asks for is run by
the session, and put on the board."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, TypedDict, TypeVar

from nccltune.measure.conversation import Hello
from nccltune.measure.p2p.board import Board
from nccltune.measure.p2p.race import Plan
from nccltune.measure.p2p.runs import Runs
from nccltune.measure.p2p.session import OutOfBudgetError, Process, Session, Starter, Status
from nccltune.measure.p2p.settings import Settings
from nccltune.measure.p2p.workload import Workload


class Ordering(Protocol):
    """Which process to start next."""

    board: Board
    stage: str

    def steps(self) -> Plan:
        """Every process to start, until nothing is open."""

    def still_to_start(self) -> int:
        """About how many processes are still to come."""


class Asked(Protocol):
    """What is wanted of any sweep."""

    @property
    def budget_s(self) -> float | None:
        """Seconds at most."""

    @property
    def seed(self) -> int:
        """Of what is drawn."""


class Facts(TypedDict):
    """What any result says of how it came about."""

    reason: str
    failed: dict[str, str]
    noise: float
    nodes: int
    ranks: int
    processes: int
    known: int
    seconds: float
    replay: str | None


AskedT = TypeVar("AskedT", bound=Asked)
OrderT = TypeVar("OrderT", bound=Ordering)
VerdictT = TypeVar("VerdictT")


class ProcessSweep(ABC, Generic[AskedT, OrderT, VerdictT]):
    """One sweep in one study. `first` is a running process with the default settings, whose hello
    said what this machine is; `now` is a clock in seconds. Raises InputError for what is wanted but
    cannot be, and PlatformError for what cannot be measured there."""

    retry: ClassVar[bool] = False
    """Whether what failed in an earlier session is started again."""

    def __init__(
        self,
        start: Starter,
        first: Process,
        runs: Runs,
        wanted: AskedT,
        told: Callable[[Status], None] = lambda _: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted = wanted
        self._check(first.hello)
        self._told = told
        # Asked now: what says so goes with the process.
        self._made = first.effective()
        self._session = Session(
            start,
            first,
            runs,
            self._workload(first.hello),
            seed=wanted.seed,
            budget_s=wanted.budget_s,
            retry=self.retry,
            now=now,
        )
        self._order = self._new_order()

    @property
    def order(self) -> OrderT:
        """What has run and what comes next."""
        return self._order

    @property
    def seconds_to_come(self) -> float:
        """About how long it takes from here."""
        return self._order.still_to_start() * self._session.expected_s

    def run(self) -> VerdictT:
        """Sweep until it is decided or the budget is spent. What is measured is in the study when
        this returns or raises."""
        try:
            if self._session.look_around():
                self._order = self._new_order()
            for settings in self._order.steps():
                for run in self._session.run(settings):
                    self._order.board.add(run)
                self._tell(settings)
        except OutOfBudgetError:
            return self.verdict("budget")
        return self.verdict("done")

    @abstractmethod
    def verdict(self, reason: str) -> VerdictT:
        """What can be said so far."""

    def _check(self, hello: Hello) -> None:
        """Raise InputError for what could decide nothing, and PlatformError for where."""

    @abstractmethod
    def _workload(self, hello: Hello) -> Workload:
        """What a process measures."""

    @abstractmethod
    def _new_order(self) -> OrderT: ...

    def _facts(self, reason: str) -> Facts:
        board, session = self._order.board, self._session
        return Facts(
            reason=reason,
            failed={item.label: text for item, text in board.failed.items()},
            noise=board.noise(board.raced),
            nodes=session.hello.nodes,
            ranks=session.hello.ranks,
            processes=session.processes,
            known=session.known,
            seconds=session.spent_s,
            replay=session.hello.replay,
        )

    def _tell(self, settings: Settings) -> None:
        score = self._order.board.score(settings)
        self._told(
            Status(
                spent_s=self._session.spent_s,
                left_s=self.seconds_to_come,
                processes=self._session.processes,
                known=self._session.known,
                stage=self._order.stage,
                settings=settings,
                gain=math.exp(score.gain) if score.n else None,
            )
        )
