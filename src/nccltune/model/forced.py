# SPDX-License-Identifier: Apache-2.0
"""The choices that `NCCL_ALGO` and `NCCL_PROTO` leave to NCCL."""

from typing import NamedTuple

from nccltune.model.choice import (
    ALGORITHMS,
    PROTOCOLS,
    Algorithm,
    Choice,
    Protocol,
    parse_algorithm,
    parse_protocol,
)
from nccltune.model.collective import Collective


class Forced(NamedTuple):
    """The choices that `NCCL_ALGO` and `NCCL_PROTO` leave to NCCL for one collective.

    - `choice`: set if one algorithm and one protocol are left.
    - `partly`: only the algorithm is forced, or only the protocol.
    - `restricted`: nothing is forced, but some algorithms or protocols are excluded.
    - `algorithms`, `protocols`: the algorithms and protocols that are left (None: all).
    """

    choice: Choice | None
    partly: bool
    restricted: bool
    algorithms: frozenset[Algorithm] | None = None
    protocols: frozenset[Protocol] | None = None

    def excludes(self, choice: Choice) -> str:
        """Return why a choice is left out; empty if it is left to NCCL."""
        if self.algorithms is not None and choice.algorithm not in self.algorithms:
            return "NCCL_ALGO excludes it"
        outside = self.protocols is not None and choice.protocol not in self.protocols
        return "NCCL_PROTO excludes it" if outside else ""


def forced(algorithms: str | None, protocols: str | None, collective: Collective) -> Forced:
    """Interpret the two settings as NCCL does.

    Examples are `ring`, `^nvls`, `ring,tree`, `ring;allreduce:tree` (per collective since 2.24).
    """
    algo = _allowed(algorithms, collective, tuple(item.value for item in ALGORITHMS))
    proto = _allowed(protocols, collective, tuple(item.value for item in PROTOCOLS))
    one_algo = algo is not None and len(algo) == 1
    one_proto = proto is not None and len(proto) == 1
    left = (
        None if algo is None else frozenset(map(parse_algorithm, algo)),
        None if proto is None else frozenset(map(parse_protocol, proto)),
    )
    choice = None
    if algo is not None and one_algo:
        if proto is not None and one_proto:
            choice = Choice(parse_algorithm(algo[0]), parse_protocol(proto[0]))
        # Algorithms other than tree and ring have only the simple protocol (all versions to 2.32).
        elif algo[0] not in ("tree", "ring"):
            choice = Choice(parse_algorithm(algo[0]), PROTOCOLS[2])
    partly = choice is None and (one_algo or one_proto)
    limited = algo is not None or proto is not None
    return Forced(choice, partly, choice is None and not partly and limited, *left)


def _allowed(
    setting: str | None, collective: Collective, names: tuple[str, ...]
) -> list[str] | None:
    """Return the names that a setting allows for a collective; None for all or no known one."""
    if setting is None:
        return None
    allowed: list[str] | None = None
    for entry in setting.strip().lower().split(";"):
        prefix, colon, listed = entry.partition(":")
        if not colon:
            listed = prefix
        elif prefix.strip() != collective.value:
            continue
        excluded = listed.startswith("^")
        words = {word.strip().replace("_", "") for word in listed.removeprefix("^").split(",")}
        allowed = [name for name in names if (name.replace("_", "") in words) is not excluded]
    return allowed if allowed else None
