# SPDX-License-Identifier: Apache-2.0
"""Raw text of a node by item, as tools and the kernel printed it.

An item is one input of a node, such as `lspci`. The items of a running node and of a folder of
collected files have the same form, so the same code makes facts of either.
"""

import re
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar, cast

from nccltune.doctor.evidence.parsers.text import decode
from nccltune.doctor.evidence.parsers.tree import Tree, parse_tree
from nccltune.doctor.facts import UnusedFile

Record = TypeVar("Record")


class Raw(NamedTuple):
    """Raw text of an item.

    - `source`: file or command that messages name
    - `real`: path on the node of which a collected file is a copy
    - `is_file`: the text is that of a file, so messages can name its lines
    - `is_given`: the user gave the file, so it is reported if nothing in it was used
    - `is_sure`: the content of the file identifies the item, not only the file name
    """

    name: str
    source: str
    data: bytes
    is_file: bool = True
    real: str = ""
    is_given: bool = False
    is_sure: bool = True

    def place(self, line: int | None = None) -> str:
        """Return the place of a line of the decoded text: `file:line`, or the command."""
        if line is None or not self.is_file:
            return self.source
        numbers = _lines_in_file(self.data) if b"\r" in self.data else ()
        return f"{self.source}:{numbers[line - 1] if line <= len(numbers) else line}"


_LINE_END = re.compile(rb"\r\n?|\n")


@lru_cache(maxsize=4)
def _lines_in_file(data: bytes) -> Sequence[int]:
    """Return the line of the file of each line of its decoded text, in which a lone CR (of a
    progress bar) ends a line, too."""
    ends = (match[0] != b"\r" for match in _LINE_END.finditer(data))
    return array("I", accumulate(ends, initial=1))


_POSTS = ("log", "test", "output")
_NO_POSTS = frozenset(
    {*_POSTS, "job", "env", "profiles", "topology", "given-topology", "docker-inspect"}
    | {"etc-nccl-conf", "user-nccl-conf", "named-nccl-conf"}
)
_NAMES_SETTING = re.compile(rb"\b(?:NCCL|GLOO|UCX|FI)_[A-Z]")


class Cache:
    """Results of parsers by their input. Many files are the same on all nodes, and equal files are
    parsed once."""

    def __init__(self) -> None:
        self._made: dict[tuple[Callable[..., Any], int, int], Any] = {}

    def get(self, parser: Callable[[str], Record], data: bytes) -> Record:
        """Return the result of `parser` for `data`."""
        # Python seeds its hash of bytes in each process, so nobody can craft files with equal
        # hashes.
        key = (parser, hash(data), len(data))
        if key not in self._made:
            self._made[key] = parser(decode(data))
        found: Record = self._made[key]
        return found


class NodeEvidence:
    """All items of one node. `load` adds the items and is called when an item is first used.

    - `live`: the items were read on this running node
    - `real`: path of the original file on the node, by item name
    - `is_node`: false for files beside the nodes' folders, which belong to no node
    - `refused`: files of which nothing can be used, with reasons
    - `has_index`: a collector wrote the files
    """

    def __init__(
        self,
        host: str,
        *,
        live: bool,
        cache: Cache | None = None,
        load: "Callable[[NodeEvidence], None] | None" = None,
    ) -> None:
        self.host = host
        self.live = live
        self.is_node = live
        self.has_index = False
        self._load = load
        self._problems: list[str] = []
        self.refused: list[UnusedFile] = []
        self._used: set[int] = set()
        self.real: dict[str, str] = {}
        self._items: dict[str, list[Raw]] = {}
        self._records: dict[tuple[Callable[..., Any], int], tuple[Any, Raw]] = {}
        self._cache = cache if cache is not None else Cache()

    @property
    def problems(self) -> list[str]:
        """List of what could not be read, and why. Callers may add to it."""
        self._loaded()
        return self._problems

    def refuse(self, file: str, why: str) -> None:
        """Record a file of which nothing can be used. The file is also added to `problems`."""
        self.refused.append(UnusedFile(file=file, why=why))
        self._problems.append(f"{file}: {why}")

    def use(self, raw: Raw) -> None:
        """Record that facts were read from an item."""
        self._used.add(id(raw))

    def unused(self) -> list[UnusedFile]:
        """Return the files of which nothing was used, each with the reason.

        Call this after all facts were read.
        """
        self._loaded()
        used = {raw.source for raws in self._items.values() for raw in raws if self._is_used(raw)}
        found = {one.file: one for one in self.refused}
        for name, raws in self._items.items():
            for raw in raws:
                if not (raw.is_file and raw.is_given) or raw.source in used:
                    continue
                # A collector writes several sources of the same fact, and one source is used. So an
                # unused file is normal. Only report a file that was parsed without a result, and
                # that is known by its name only.
                if self.has_index and (raw.is_sure or not self._was_parsed(raw)):
                    continue
                one = UnusedFile(file=raw.source, why=self._why(name, raw))
                found.setdefault(raw.source, one)
        return list(found.values())

    def _is_used(self, raw: Raw) -> bool:
        return id(raw) in self._used

    def _was_parsed(self, raw: Raw) -> bool:
        return any(known is raw for _, known in self._records.values())

    def _why(self, name: str, raw: Raw) -> str:
        if not raw.data.strip():
            return "is empty"
        other = next((one for one in self._items[name] if self._is_used(one)), None)
        if other is not None:
            return f"{other.source} was read in its place"
        if not self._was_parsed(raw):
            return _LESS.get(name, "no rule needed it")
        first = decode(raw.data[:400]).strip().partition("\n")[0][:80]
        return f"nothing in it was understood (its name suggests {name}): {first}"

    def _loaded(self) -> None:
        # Loading is lazy: each of several processes uses only some nodes of a folder, and does not
        # read the files of the others.
        if self._load is not None:
            load, self._load = self._load, None
            load(self)

    def put(self, raw: Raw) -> None:
        """Add an item. Several items of one name are successive readings."""
        self._items.setdefault(raw.name, []).append(raw)

    def replace(self, raw: Raw) -> None:
        """Replace all items that have the name of `raw`."""
        self._items[raw.name] = [raw]

    def all(self, name: str) -> list[Raw]:
        """Return all items of that name, in order."""
        self._loaded()
        return self._items.get(name, [])

    def posts(self) -> list[Raw]:
        """Return logs and outputs, and the outputs of tools that somebody pasted with words or
        commands that name a setting."""
        found = [raw for name in _POSTS for raw in self.all(name)]
        if self.live or self.has_index:
            return found
        others = (raw for name in self.names if name not in _NO_POSTS for raw in self.all(name))
        return found + [raw for raw in others if raw.is_given and _NAMES_SETTING.search(raw.data)]

    def get(self, name: str) -> Raw | None:
        """Return the last item of that name, None if there is none."""
        self._loaded()
        found = self._items.get(name)
        return found[-1] if found else None

    @property
    def names(self) -> list[str]:
        """Names of all items."""
        self._loaded()
        return list(self._items)

    def parsed(self, name: str, parser: Callable[[str], Record]) -> tuple[Record, Raw] | None:
        """Return the result of a parser for the last item of that name, and the item's Raw.

        Return None if there is no such item.
        """
        raw = self.get(name)
        return None if raw is None else (self.parse(raw, parser), raw)

    def parse(self, raw: Raw, parser: Callable[[str], Record]) -> Record:
        """Return the result of a parser for an item.

        The number of lines that the parser did not understand is added to `problems` once.
        """
        known = self._records.get((parser, id(raw)))
        if known is not None:
            return cast("Record", known[0])
        record = self._cache.get(parser, raw.data)
        # Keep the item with its record, so that no other object gets the same id.
        self._records[parser, id(raw)] = (record, raw)
        if raw.is_sure or _holds(record):
            self.use(raw)
        unread = getattr(record, "unread", 0)
        if unread:
            said = f"{raw.source}: {unread} line{'s' if unread > 1 else ''} not understood"
            if said not in self.problems:
                self.problems.append(said)
        return record

    def where(self, raw: Raw, live: str, line: int | None = None) -> str:
        """Return where a fact was read: `live` on the running node, else the place in the file."""
        return live if self.live else raw.place(line)

    def tree(self, name: str) -> tuple[Tree, Raw] | None:
        """Return the last item `name`, parsed as a tree of paths and values, and its Raw; None
        where there is no such item."""
        return self.parsed(name, parse_tree)

    def text(self, name: str) -> tuple[str, Raw] | None:
        """Return the text of the item `name`, and the item's Raw."""
        found = self.parsed(name, str)
        if found is not None and found[0].strip():
            raw = found[1]
            if raw.is_sure or name not in _MARKED_TEXTS:
                self.use(raw)
        return found


# Items with a known format that `text` returns unparsed. If only the file name identifies such an
# item, the text may have another format and does not count as used.
_MARKED_TEXTS = frozenset({"df-shm", "cgroup", "ldconfig", "nvidia-version"})
# Items that have less than another output of the same tool, and what they lack.
_LESS = {
    "lspci-tree": "has neither link speeds nor ACS: give the output of sudo lspci -vvv",
    "rocm-smi": "its table of GPUs decides nothing: give rocm-smi --showtopo, and dmesg",
}
_COUNTS = frozenset({"unread", "left_out", "line", "peers_line"})


def _holds(record: object) -> bool:
    """Return whether a parser's result has any data. Unparsed text does not count as data."""
    if isinstance(record, str) or record is None:
        return False
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        fields = record._asdict()
        return any(fields[name] not in (None, (), [], {}, "") for name in fields.keys() - _COUNTS)
    return bool(record) if isinstance(record, tuple | list | dict) else True
