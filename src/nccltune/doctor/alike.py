# SPDX-License-Identifier: Apache-2.0
"""Nodes that are alike for a rule: it is asked once of all whose facts it needs are the same.

A thousand nodes of one cluster differ in few facts, so that nearly every rule is asked few times.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from nccltune.doctor.facts import Facts
from nccltune.doctor.rule import Rule

Key = tuple[bytes | None, ...]


class Alike:
    """What the facts of each node are, short enough to compare."""

    def __init__(self, nodes: Mapping[str, Facts]) -> None:
        encode = msgspec.msgpack.Encoder().encode
        # Nodes share values that were read once; those are digested once.
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

    def key(self, node: str, rule: Rule) -> Key:
        """The same for nodes of which `rule` says the same."""
        digests = self._digests[node]
        return tuple([digests.get(name) for name in rule.asked])
