# SPDX-License-Identifier: Apache-2.0
"""The order of processes in the comparison of chunk sizes during traffic.

Each round has one process with NCCL itself, one with copy engines and whole messages, and one with
each chunk size. The order is reversed in every second round, so that drift cancels.
"""

from collections.abc import Sequence

from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.process_order import ProcessSteps
from nccltune.measure.engine.process_record import ProcessRun
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.experiments.copies.settings import COPY_ENGINE

Round = dict[Settings, ProcessRun]
"""The processes of one round, by their settings."""


class RoundsBesideTraffic:
    """Decides which process to start next, until `rounds` rounds are complete.

    `chunks` are the settings with a chunk size.
    """

    def __init__(self, results: NeighbourGains, chunks: Sequence[Settings], *, rounds: int) -> None:
        self.results = results
        self.chunks = list(chunks)
        self.rounds = rounds
        self.stage = "rounds"

    def steps(self) -> ProcessSteps:
        """Yield the settings of every process to start, until nothing is left to decide."""
        # An interruption can split a round, and a split round does not count. Allow twice the
        # rounds.
        for number in range(2 * self.rounds):
            if self.compared:
                break
            for settings in self._all[:: -1 if number % 2 else 1]:
                # If copy engines failed, there is nothing to compare: start no further process.
                if not {settings, COPY_ENGINE} & set(self.results.failed):
                    yield settings
        self.stage = "done"

    @property
    def compared(self) -> bool:
        """Return whether all rounds have run."""
        return len(self.complete()) >= self.rounds

    def complete(self) -> list[Round]:
        """Return the complete rounds. Each is from one session (one run of nccltune).

        Settings that failed are left out. The order reverses after each round, so the last process
        of a round and the first of the next round have the same settings. A process of an
        interrupted round is therefore never counted in a later round.
        """
        ran = [item for item in self._all if item not in self.results.failed]
        runs = [run for item in ran for run in self.results.runs_with(item)]
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
        """Return about how many processes must still be started."""
        if COPY_ENGINE in self.results.failed:
            return 0
        ran = sum(item not in self.results.failed for item in self._all)
        return ran * max(0, self.rounds - len(self.complete()))

    @property
    def _all(self) -> list[Settings]:
        return [DEFAULT, COPY_ENGINE, *self.chunks]
