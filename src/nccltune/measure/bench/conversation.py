# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of `nccltune-bench`; docs/design/bench.md is the contract.

Unknown fields in answers are ignored, because a newer bench may send more. Requests hold only
fields that the contract names.
"""

import msgspec

from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective

SCHEMA_VERSION = 1
LASTING_ERRORS = frozenset({"wrong", "timeout", "nccl", "cuda", "memory", "unsupported"})
"""Kinds of failure that would occur again if the same point were measured again."""


class Measure(msgspec.Struct, kw_only=True, tag_field="op", tag="measure"):
    """A request to time every (size, choice) once in each of `rounds` shuffled rounds.

    The default is timed `default_repeats` times per round. With `load` the GPUs compute at the same
    time. With `traffic` the ranks exchange messages of that many bytes at the same time.
    """

    id: int
    collective: Collective
    bytes: list[int]
    choices: list[AnyChoice]
    dtype: str = "float"
    redop: str = "sum"
    root: int = 0
    in_place: bool = False
    registered: bool = False
    graph: bool = False
    load: bool = False
    traffic: int = 0
    rounds: int = 1
    first_round: int = 0
    default_repeats: int = 2
    warmup: int = 2
    iterations: int = 20
    seed: int = 0
    check: bool = True
    timeout_s: float = 30.0


class TableRequest(msgspec.Struct, kw_only=True, tag_field="op", tag="table"):
    """A request for NCCL's own predictions."""

    id: int
    collective: Collective
    bytes: list[int]


class BenchGpu(msgspec.Struct, frozen=True):
    """A GPU of the run. `host_hash` is a hash of the host's name."""

    rank: int
    name: str | None = None
    host_hash: str | None = None


class Nccl(msgspec.Struct, frozen=True):
    """The NCCL library: its version, its path, and why that one was opened (`came_from`)."""

    version: str | None = None
    path: str | None = None
    came_from: str | None = msgspec.field(default=None, name="from")


class Tuner(msgspec.Struct, frozen=True):
    """Our tuner plugin in the processes of the bench."""

    path: str | None = None
    control: int | None = None
    interface: int | None = None


class Abilities(msgspec.Struct, frozen=True):
    """What the bench can do with this NCCL on these GPUs."""

    collectives: list[str] = []
    dtypes: list[str] = []
    registered: bool = False
    graph: bool = False
    load: bool = False
    traffic: bool = False
    chunk: bool = False


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer of the bench: its versions, ranks, GPUs and abilities.

    `replay` names the recording that timings are drawn from; it is None on GPUs.
    """

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
    """What ran, as far as it is known."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    chunk_bytes: int | None = None

    def choice(self) -> Choice | None:
        """Return this as a choice; None where the algorithm or the protocol is unknown to
        nccltune."""
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
    """The reason why a point has no timing. `kind` is one of the kinds that the contract lists."""

    kind: str
    text: str = ""
    rank: int | None = None


class BenchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One timing, or the reason why there is none.

    time_us           time of one iteration on the slowest rank
    load_us           time of one kernel of a load while the calls ran
    load_alone_us     time of one kernel of a load without calls
    traffic_us        time of one exchange of traffic while the calls ran
    traffic_alone_us  time of one exchange of traffic without calls
    """

    id: int = 0
    bytes: int
    choice: AnyChoice = DEFAULT
    ran: ExecutedChoice | None = None
    applied: bool = True
    round: int = 0
    repeat: int = 0
    iterations: int | None = None
    time_us: float | None = None
    times_us: list[float] = []
    host_us: float | None = None
    load_alone_us: float | None = None
    load_us: float | None = None
    traffic_alone_us: float | None = None
    traffic_us: float | None = None
    wrong: int | None = None
    error: PointError | None = None

    @property
    def is_kept(self) -> bool:
        """Return whether a study keeps this point. It does not keep points in flight when a rank
        died."""
        return self.error is None or self.error.kind in LASTING_ERRORS

    @property
    def ok(self) -> bool:
        """Return whether this is a timing of the requested choice with a correct result."""
        return self.time_us is not None and self.error is None and self.applied and not self.wrong


class Predicted(msgspec.Struct, frozen=True):
    """The combination that NCCL would pick by its own predictions."""

    algorithm: str | None = None
    protocol: str | None = None


class TableRow(msgspec.Struct, frozen=True):
    """NCCL's predictions at one size in us, by `algorithm/protocol`.

    A combination that NCCL cannot run is absent; one whose cost is unknown is None.
    """

    bytes: int
    costs: dict[str, float | None] = {}
    predicted: Predicted | None = None


class Op(msgspec.Struct, frozen=True):
    """The fields that answers share. `kind`, `text` and `hint` are set in an error."""

    op: str
    id: int | None = None
    kind: str | None = None
    text: str | None = None
    hint: str | None = None
    rows: list[TableRow] = []
    points: int | None = None
