# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of `nccltune-bench`; docs/design/bench.md specifies them.

Unknown fields in answers are ignored, because a newer bench may send more. The bench refuses a
request with a field that it does not know.
"""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

import msgspec

from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective

SCHEMA_VERSION = 1
LASTING_ERRORS = frozenset({"wrong", "timeout", "nccl", "cuda", "memory", "unsupported"})
"""Kinds of failure that would occur again; only these are recorded with a point."""


class Measure(msgspec.Struct, kw_only=True, tag_field="op", tag="measure"):
    """A request to time every choice at every size once in each of `rounds` rounds.

    The order within a round is shuffled by `seed`. The default is timed `default_repeats` times.
    `bytes` and times are those of a group of `group_calls` calls. With `load`, the GPUs run compute
    kernels during the calls.
    """

    id: int
    collective: Collective
    bytes: list[int]
    choices: list[AnyChoice]
    dtype: str = "float"
    redop: str = "sum"
    root: int = 0
    registered: bool = False
    graph: bool = False
    group_calls: int = 1
    load: bool = False
    rounds: int = 1
    first_round: int = 0
    default_repeats: int = 2
    warmup: int = 2
    iterations: int = 20
    seed: int = 0
    check: bool = True
    timeout_s: float = 30.0


class TableRequest(msgspec.Struct, kw_only=True, tag_field="op", tag="table"):
    """A request for the times that NCCL predicts by its own cost model."""

    id: int
    collective: Collective
    bytes: list[int]
    registered: bool = False
    group_calls: int = 1


class BenchGpu(msgspec.Struct, frozen=True):
    """The GPU of one rank. `host_hash` is a hash that identifies the host."""

    rank: int
    name: str | None = None
    host_hash: str | None = None


class Nccl(msgspec.Struct, frozen=True):
    """The NCCL library that the bench opened; `came_from` (JSON: `from`) as `torch`."""

    version: str | None = None
    path: str | None = None
    came_from: str | None = msgspec.field(default=None, name="from")


class Tuner(msgspec.Struct, frozen=True):
    """Our tuner plugin in the bench: its control interface's and NCCL's interface's version."""

    path: str | None = None
    control: int | None = None
    interface: int | None = None


class Abilities(msgspec.Struct, frozen=True):
    """What the bench supports with this NCCL and these GPUs."""

    collectives: list[str] = []
    dtypes: list[str] = []
    registered: bool = False
    graph: bool = False
    group_calls: bool = False
    load: bool = False
    chunk: bool = False


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer of the bench; `replay` names the recording of drawn timings, if any."""

    schema_version: int
    version: str
    backend: str
    replay: str | None = None
    nccl: Nccl
    driver: str | None = None
    tuner: Tuner = Tuner()
    nodes: int
    ranks: int
    gpus: list[BenchGpu] = []
    can: Abilities = Abilities()


class ExecutedChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The algorithm, protocol, channels and chunk size that NCCL executed; None where unknown."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    chunk_bytes: int | None = None

    def choice(self) -> Choice | None:
        """Return what NCCL executed as a `Choice`; None if a part is missing or unknown."""
        try:
            return msgspec.convert(
                {
                    key: value
                    for key, value in msgspec.structs.asdict(self).items()
                    if value is not None
                },
                Choice,
            )
        except msgspec.ValidationError:
            return None


class PointError(msgspec.Struct, frozen=True):
    """The reason why a point has no timing. docs/design/bench.md lists the values of `kind`."""

    kind: str
    text: str = ""
    rank: int | None = None


class TunerInputs(msgspec.Struct, frozen=True):
    """NCCL's `numPipeOps` and `regBuff` of a call; `registered` is None if NCCL passes none."""

    pipe_ops: int = 1
    registered: bool | None = None


class BenchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One timing, or the reason why there is none.

    ran      what NCCL executed; None if unknown
    seen     what NCCL's tuner got besides the size; None if unknown
    applied  False if NCCL did not execute the requested choice
    time_us  of one call or group of calls on the slowest rank
    load_us  of one compute kernel while the calls ran, and `load_alone_us` without the calls
    wrong    number of wrong elements in the result; None if it was not checked
    """

    id: int = 0
    bytes: int
    choice: AnyChoice = DEFAULT
    ran: ExecutedChoice | None = None
    seen: TunerInputs | None = None
    applied: bool = True
    round: int = 0
    repeat: int = 0
    iterations: int | None = None
    time_us: float | None = None
    times_us: list[float] = []
    host_us: float | None = None
    load_alone_us: float | None = None
    load_us: float | None = None
    wrong: int | None = None
    error: PointError | None = None

    @property
    def is_kept(self) -> bool:
        """Return whether a study records this point: not if its error may not occur again."""
        return self.error is None or self.error.kind in LASTING_ERRORS

    @property
    def ok(self) -> bool:
        """Return whether this is a timing of the requested choice with a correct result."""
        return self.time_us is not None and self.error is None and self.applied and not self.wrong


class Predicted(msgspec.Struct, frozen=True):
    """The algorithm and protocol that NCCL would pick by its own predictions; None if unknown."""

    algorithm: str | None = None
    protocol: str | None = None


class TableRow(msgspec.Struct, frozen=True):
    """NCCL's predicted times at one size in us, by `algorithm/protocol`; None without one.

    A combination that NCCL cannot run has no entry.
    """

    bytes: int
    costs: dict[str, float | None] = {}
    predicted: Predicted | None = None
    seen: TunerInputs | None = None
    error: PointError | None = None


class Op(msgspec.Struct, frozen=True):
    """Any answer, before its type (`op`) is known: an error, a table, or `done`."""

    op: str
    id: int | None = None
    kind: str | None = None
    text: str | None = None
    hint: str | None = None
    rows: list[TableRow] = []
    points: int | None = None


DEFAULT_REPEATS = 2
"""The number of timings of the default in every round. Their difference shows the noise."""


class PointKey(NamedTuple):
    """The key of one point of a sweep."""

    collective: Collective
    bytes: int
    choice: AnyChoice
    round: int
    repeat: int
    calls: CallKind = PLAIN


class RoundRequest(NamedTuple):
    """One round of some choices at some sizes of one collective.

    `repeats` are those of the default. With `check`, the bench compares results with a reference.
    """

    collective: Collective
    sizes: tuple[int, ...]
    choices: tuple[AnyChoice, ...]
    round: int
    check: bool = False
    repeats: tuple[int, ...] = tuple(range(DEFAULT_REPEATS))
    calls: CallKind = PLAIN

    def points(self) -> Iterator[PointKey]:
        """Yield the key of every requested point."""
        for size in self.sizes:
            for choice in self.choices:
                for repeat in self.repeats if choice == DEFAULT else (0,):
                    yield PointKey(self.collective, size, choice, self.round, repeat, self.calls)

    def without(self, known: Container[PointKey]) -> "list[RoundRequest]":
        """Return requests for those points of this request that are not in `known`."""
        missing: dict[tuple[tuple[AnyChoice, ...], tuple[int, ...]], list[int]] = {}
        for size in self.sizes:
            keys = self._replace(sizes=(size,)).points()
            left = [key for key in keys if key not in known]
            if left:
                choices = tuple(dict.fromkeys(key.choice for key in left))
                repeats = tuple(key.repeat for key in left if key.choice == DEFAULT)
                missing.setdefault((choices, repeats or self.repeats), []).append(size)
        return [
            self._replace(sizes=tuple(sizes), choices=choices, repeats=repeats)
            for (choices, repeats), sizes in missing.items()
        ]


class FurtherRounds(NamedTuple):
    """Further rounds at one size: the choices beside the default, and the rounds' numbers."""

    choices: tuple[Choice, ...]
    rounds: tuple[int, ...]


RequestSource = Callable[[], list[RoundRequest]]
"""Returns the next requests, which must be answered before the next call; empty at the end."""
