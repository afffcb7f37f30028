# SPDX-License-Identifier: Apache-2.0
"""Group nodes whose facts are equal for a rule, so that the rule is evaluated once per group.

The nodes of a cluster differ in few facts: most rules have one or two groups.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from nccltune.doctor.facts import Facts
from nccltune.doctor.rule import DoctorRule

Key = tuple[bytes | None, ...]


class NodeGroups:
    """Groups of nodes with equal facts. Facts are compared by their digests (16 bytes)."""

    def __init__(self, nodes: Mapping[str, Facts]) -> None:
        encode = msgspec.msgpack.Encoder().encode
        # Equal values of nodes may be one object. Such an object is digested once.
        known: dict[int, bytes] = {}

        def digest(value: Any) -> bytes:
            found = known.get(id(value))
            if found is None:
                found = known[id(value)] = blake2b(encode(value), digest_size=16).digest()
            return found

        self._digests: dict[str, dict[str, bytes]] = {
            node: {name: digest(fact.value) for name, fact in facts.items()}
            for node, facts in nodes.items()
        }

    def key(self, node: str, rule: DoctorRule) -> Key:
        """Return the group of `node` for `rule`. Nodes with equal values of all facts that the rule
        needs have the same group."""
        digests = self._digests[node]
        return tuple([digests.get(name) for name in rule.asked])
