# SPDX-License-Identifier: Apache-2.0
"""Load YAML from other programs, in bounded time and memory.

A few lines of aliases can expand to billions of values ("billion laughs"). Each alias therefore
counts as many values as the node that it refers to.
"""

from typing import Any

from nccltune.model.errors import InputError

MAX_CHARACTERS = 4 << 20
MAX_NODES = 100_000
"""Limit for scalars, lists and mappings, with aliases expanded. A Kubernetes manifest has a few
hundred."""


def load_documents(
    text: str, where: str, repeated: list[tuple[str, int, int]] | None = None
) -> list[Any]:
    """Return the documents of a YAML text as plain values.

    `where` is the file name for errors. Puts in `repeated` keys that a mapping has twice, of which
    the last holds, with both lines. Raises InputError if the text is not YAML, is too large, or has
    an alias that contains itself.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError("is larger than 4 MiB, which no manifest is", where=where)
    import yaml

    twice = [] if repeated is None else repeated

    class BoundedLoader(yaml.SafeLoader):
        """A loader that counts the nodes of the document while it composes them."""

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self._nodes = 0
            self._sizes: dict[int, int] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias = self.check_event(yaml.AliasEvent)
            before = self._nodes
            self._nodes += 1
            node = super().compose_node(parent, index)
            if not alias:
                self._sizes[id(node)] = self._nodes - before
            elif id(node) in self._sizes:
                self._nodes += self._sizes[id(node)]
            else:
                raise yaml.YAMLError("an alias refers to what it is part of")
            if self._nodes > MAX_NODES:
                raise yaml.YAMLError(f"more than {MAX_NODES} values, aliases expanded")
            return node

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            first: dict[str, tuple[int, Any]] = {}
            named = (pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode))
            for key, value in named:
                line = key.start_mark.line + 1
                before, other = first.setdefault(key.value, (line, value))
                if other is not value and other.value != value.value and key.value != "<<":
                    twice.append((key.value, before, line))
            return node

    try:
        return list(yaml.load_all(text, Loader=BoundedLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"is not YAML: {error}", where=where) from error
