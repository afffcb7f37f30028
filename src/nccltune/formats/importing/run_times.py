# SPDX-License-Identifier: Apache-2.0
"""Find when the runs of an import took place, and which of them ran close together.

Evidence, the best first:

1. time stamps in the lines of a run;
2. the modification time of the file, if the times of the files differ by at least the run time
   that the tables show;
3. the order of runs in one file.

If times contradict each other, the runs get no time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from nccltune.formats.reading.runs import RunFound, RunKey, RunRecord

START_S = 2.0
"""Lower bound of the seconds that an nccl-tests process runs outside its table, to start CUDA and
NCCL."""


class FileRuns:
    """The runs of one file in their order.

    `modified` is the time when the file was last written, in seconds since 1970. None if this time
    is unknown, as for standard input.
    """

    def __init__(self, name: str, runs: Sequence[RunFound], modified: float | None) -> None:
        self.name = name
        self.runs = runs
        self.modified = modified

    @property
    def seconds(self) -> float:
        """Return a lower bound of the time that the runs took, in seconds."""
        return sum(START_S + run.seconds for run in self.runs)


class RunTime:
    """The time of a run: `at` in seconds since 1970, measured by `clock` (`utc` or `local`).

    Both are None if the time is unknown.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        self.clock: str | None = None
        self.round: int | None = None

    @property
    def text(self) -> str | None:
        """Return the time in ISO 8601, the format of samples; None if it is unknown."""
        if self.at is None:
            return None
        return datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")


def run_times(
    files: Sequence[FileRuns], before: Sequence[RunRecord] = ()
) -> dict[RunFound, RunTime]:
    """Return when the runs of `files` took place, as far as there is evidence.

    `before` are the runs that the study already holds. All times of a study are of one clock (`utc`
    or `local`), because stamps without a time zone cannot be compared with times in UTC. If the new
    times are of another clock than the times in the study, the new runs get no time.
    """
    found = {run: RunTime() for file in files for run in file.runs}
    clocks = {record.clock for record in before if record.clock is not None}
    utc = {run: run.stamps.utc for run in found if run.stamps.utc is not None}
    local = {run: run.stamps.local for run in found if run.stamps.local is not None}
    by_file = _file_times(files, before)
    choice = _clock(found, utc, local, by_file)
    times: Mapping[RunFound, float] = {**by_file, **utc} if choice == "utc" else local
    if choice is not None and clocks <= {choice}:
        for run, seconds in times.items():
            found[run].at, found[run].clock = seconds, choice
    return found


def _clock(
    runs: Mapping[RunFound, RunTime],
    utc: Mapping[RunFound, float],
    local: Mapping[RunFound, float],
    by_file: Mapping[RunFound, float],
) -> str | None:
    """Return the clock (`utc` or `local`) that has a time for most runs; None if no run has a time.

    Times of files are UTC. In a tie, `utc` is returned only if all runs have UTC stamps.
    """
    if not runs or not (utc or local or by_file):
        return None
    if len(utc) == len(runs) or not local:
        return "utc"
    return "local" if len(local) >= len(utc.keys() | by_file.keys()) else "utc"


def _file_times(files: Sequence[FileRuns], before: Sequence[RunRecord]) -> dict[RunFound, float]:
    """Return the times of runs by the times of their files.

    Return an empty result if two files are closer together than the run time of the later file.
    Then the files were probably copied or checked out, and their times mean nothing.
    """
    dated = [
        (file.modified, file.seconds)
        for file in files
        if file.modified is not None and any(run.stamps.utc is None for run in file.runs)
    ]
    known = {(record.modified, record.seconds) for record in before if record.modified is not None}
    ordered = sorted([*dated, *known])
    for (earlier, _), (later, seconds) in pairwise(ordered):
        if later - earlier < seconds:
            return {}
    times = {}
    for file in files:
        if file.modified is None:
            continue
        end = file.modified
        for run in reversed(file.runs):
            end -= START_S + run.seconds
            times[run] = end
    return times


def rounds_by_order(runs: Sequence[RunFound]) -> list[int] | None:
    """Return the round of each run of one file, if the file repeats its choices in cycles.

    A round is one cycle: default, tree, default, tree has two rounds. Return None if there is no
    cycle; then the order is no evidence of rounds.
    """
    keys = [run.key for run in runs]
    rounds = [0] * len(keys)
    for condition in {key[:-1] for key in keys}:
        places = [at for at, key in enumerate(keys) if key[:-1] == condition]
        length = _cycle([keys[at].choice for at in places])
        if length is None:
            return None
        for number, at in enumerate(places):
            rounds[at] = number // length
    return rounds


def _cycle(choices: Sequence[str]) -> int | None:
    """Return the number of runs after which the same choices repeat, in any order.

    The last cycle may be incomplete. Return None if the choices do not repeat, or if there is only
    one choice.
    """
    count = len(choices)
    for length in range(2, count // 2 + 1):
        first = Counter(choices[:length])
        cycles = [Counter(choices[at : at + length]) for at in range(0, count, length)]
        whole = cycles[:-1] if count % length else cycles
        if len(first) > 1 and all(cycle == first for cycle in whole) and cycles[-1] <= first:
            return length
    return None


def stated_rounds(runs: Iterable[RunFound], next_round: dict[RunKey, int]) -> dict[RunFound, int]:
    """Return the round of each run: the next free round of its choice.

    The user states that the k-th runs of all choices ran close together. `next_round` has the first
    free round of each choice; this function advances it.
    """
    rounds = {}
    for run in runs:
        number = next_round.get(run.key, 0)
        rounds[run] = number
        next_round[run.key] = number + 1
    return rounds
