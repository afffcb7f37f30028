# SPDX-License-Identifier: Apache-2.0
"""What NCCL chooses at each size on a platform, how long its own model says it takes, and why."""

from collections.abc import Iterable, Mapping

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.forced import forced
from nccltune.model.numbers import significant
from nccltune.model.topology import Topology
from nccltune.predict.choice import CallTime, Launch, call_time, fastest, launch
from nccltune.predict.communicator import Communicator, communicator
from nccltune.predict.constants import NEWEST, rules_of
from nccltune.predict.model import Modelled, cost_model
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.settings import version_text

SIZES: tuple[int, ...] = tuple(8 << power for power in range(31))
"""8 B to 8 GiB by powers of two."""
MOST_NODES = 1 << 20
_CORRECTED = 0.99
"""Below this part of its bandwidth, a choice is corrected for the size."""


class SizePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """NCCL's choice at one size, counted as NCCL's tuner counts it.

    - `terms`: the time that the model gives each choice that NCCL has here, by its terms.
    - `reason`: why this choice has the least time.
    """

    size: int
    choice: Choice
    time_us: float
    busbw_gb_per_s: float
    launch: Launch
    reason: str
    terms: dict[Choice, CallTime]

    @property
    def times_us(self) -> dict[Choice, float]:
        """Return the time of each choice that NCCL has here."""
        return {choice: one.total_us for choice, one in self.terms.items()}


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """NCCL's choices for a collective, by size.

    - `modelled`: latency and bandwidth of each choice that NCCL has here.
    - `excluded`: why NCCL does not have the others.
    - `notes`: what was assumed.
    """

    collective: Collective
    communicator: Communicator
    modelled: dict[Choice, Modelled]
    excluded: dict[Choice, str]
    sizes: tuple[SizePrediction, ...]
    notes: tuple[str, ...]


class SizeChange(msgspec.Struct, frozen=True):
    """A size at which two versions of NCCL choose differently, or the model's time differs.

    `ratio` is the time that the model of the second version gives its own choice, divided by that
    of the first version.
    """

    size: int
    before: Choice
    after: Choice
    ratio: float


def predict(
    topology: Topology,
    *,
    collective: Collective = Collective.ALLREDUCE,
    nodes: int = 1,
    version: Version = NEWEST,
    ranks_per_node: int | None = None,
    settings: Mapping[str, str] | None = None,
    sizes: Iterable[int] = SIZES,
) -> Prediction:
    """Return what NCCL chooses for `collective` on `nodes` nodes that all equal `topology`.

    - `version`: the version of NCCL, from 2.19 on.
    - `ranks_per_node`: use the first GPUs of the node; None is all.
    - `settings`: `NCCL_*` variables, see `communicator`.

    The call is alone in its group, without a tuner plugin, and its buffers are not registered.

    Raises InputError for a version before 2.19, a collective that NCCL does not tune, a single
    rank, several nodes without a NIC, and settings that cannot be read or that leave no choice.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> found = predict(load_topology(example("h200x4-1-node")), version=(2, 28, 9))
    >>> [(one.size, one.choice.label) for one in found.sizes[::15]]
    [(8, 'ring/ll'), (262144, 'ring/ll'), (8589934592, 'ring/simple')]
    """
    if collective not in TUNED:
        raise InputError(
            f"NCCL makes no choice for {collective.prose}: it consists of send and receive",
            hint=" ".join(TUNED),
        )
    if not 1 <= nodes <= MOST_NODES:
        raise InputError(f"{nodes} is not between 1 and {MOST_NODES} nodes")
    rules_version = min(version, NEWEST)
    comm = communicator(
        topology,
        nodes=nodes,
        version=rules_version,
        ranks_per_node=ranks_per_node,
        settings=settings,
    )
    named = settings or {}
    limits = forced(named.get("NCCL_ALGO"), named.get("NCCL_PROTO"), collective)
    for name, left in (("NCCL_ALGO", limits.algorithms), ("NCCL_PROTO", limits.protocols)):
        if named.get(name) and left is None and ":" not in named[name]:
            raise InputError(f"{named[name]!r} names nothing that NCCL has", where=name)
    modelled, excluded = cost_model(comm, collective, limits)
    notes = list(comm.notes)
    quick = [choice.label for choice, one in modelled.items() if not one.latency_us]
    if quick:
        notes.append(
            f"NCCL's own model has no latency for {', '.join(quick)} over paths without NVLink, and"
            " so chooses it for small sizes, too: its times there are too short"
        )
    if version > NEWEST:
        notes.append(
            f"NCCL {version_text(version)} may have a newer model than the newest known, that of "
            f"{version_text(NEWEST)}"
        )
    return Prediction(
        collective=collective,
        communicator=comm,
        modelled=modelled,
        excluded=excluded,
        sizes=tuple(_at(comm, collective, modelled, size) for size in sizes),
        notes=tuple(notes),
    )


def changes(before: Prediction, after: Prediction) -> list[SizeChange]:
    """Return the difference of two predictions of the same sizes, for every size."""
    return [
        SizeChange(one.size, one.choice, two.choice, two.time_us / one.time_us)
        for one, two in zip(before.sizes, after.sizes, strict=True)
    ]


def _at(
    comm: Communicator, collective: Collective, modelled: Mapping[Choice, Modelled], size: int
) -> SizePrediction:
    terms = {
        choice: call_time(comm, collective, choice, found, size)
        for choice, found in modelled.items()
    }
    times = {choice: one.total_us for choice, one in terms.items()}
    taken = fastest(times, last_of_equals=rules_of(comm.version).last_of_equals)
    return SizePrediction(
        size=size,
        choice=taken,
        time_us=times[taken],
        busbw_gb_per_s=collective.busbw_gb_per_s(size, times[taken], comm.ranks),
        launch=launch(comm, collective, taken, size),
        reason=_reason(modelled, terms, taken, size),
        terms=terms,
    )


def _reason(
    modelled: Mapping[Choice, Modelled], terms: Mapping[Choice, CallTime], taken: Choice, size: int
) -> str:
    """Return what makes a choice faster than the next best: its latency or its bandwidth."""
    mine = terms[taken]
    others = [choice for choice in terms if choice != taken and not modelled[choice].by_hand]
    if not others:
        return "the only choice"
    second = min(others, key=lambda choice: terms[choice].total_us)
    other = terms[second]
    if other.total_us == mine.total_us:
        return f"as fast as {second.label}; NCCL then goes by its order of algorithms"
    if other.latency_us - mine.latency_us >= other.transfer_us - mine.transfer_us:
        one, two = significant(mine.latency_us), significant(other.latency_us)
        longer = " at this size" if other.latency_us > modelled[second].latency_us else ""
        return f"latency {one} us, that of {second.label} is {two} us{longer}"
    corrected = size / (1000 * other.transfer_us) / modelled[second].gb_per_s
    words = f" x {corrected:.2g} at this size" if corrected < _CORRECTED else ""
    return f"{second.label} is limited by {modelled[second].limit.words}{words}"
