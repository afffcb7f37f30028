# SPDX-License-Identifier: Apache-2.0
"""What was read of a node, as the tools and the kernel printed it, by the name of its item.

A running node and a folder of collected files give the same, so that all else is written once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from nccltune.doctor.evidence.parsers.text import decode
from nccltune.doctor.evidence.parsers.tree import Tree, parse_tree
from nccltune.doctor.facts import UnusedFile

Record = TypeVar("Record")


class Raw(NamedTuple):
    """An item: `source` is the file or the command for people, `real` the path on the node that a
    collected file is a copy of. `is_file`: lines of it can be named. `is_given`: somebody gave the
    file, so that it matters whether anything of it was used. `is_sure`: its content says so, not
    its name alone."""

    name: str
    source: str
    data: bytes
    is_file: bool = True
    real: str = ""
    is_given: bool = False
    is_sure: bool = True

    def place(self, line: int | None = None) -> str:
        """Where something stands: `file:line`, or the command."""
        return f"{self.source}:{line}" if line is not None and self.is_file else self.source


class Cache:
    """Results of parsers by what they read: nodes have many files alike, and each is read once."""

    def __init__(self) -> None:
        self._made: dict[tuple[Callable[..., Any], int, int], Any] = {}

    def get(self, parser: Callable[[str], Record], data: bytes) -> Record:
        """What `parser` makes of `data`."""
        # Python's hash of bytes is keyed anew in each process: nobody can make two files alike.
        key = (parser, hash(data), len(data))
        if key not in self._made:
            self._made[key] = parser(decode(data))
        found: Record = self._made[key]
        return found


class Evidence:
    """All items of one node; `load` puts them in when one is first asked for. `real` says which
    file of the node an item is a copy of, by its name. `is_node`: the items are those of a node,
    not files beside nodes. `refused` are files of which nothing can be used. `has_index`: a
    collector wrote the files."""

    def __init__(
        self,
        host: str,
        *,
        live: bool,
        cache: Cache | None = None,
        load: "Callable[[Evidence], None] | None" = None,
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
        """What could not be read, and why; to be added to."""
        self._loaded()
        return self._problems

    def refuse(self, file: str, why: str) -> None:
        """Note a file of which nothing can be used; it is a problem, too."""
        self.refused.append(UnusedFile(file=file, why=why))
        self._problems.append(f"{file}: {why}")

    def use(self, raw: Raw) -> None:
        """Note that facts were read of an item."""
        self._used.add(id(raw))

    def unused(self) -> list[UnusedFile]:
        """Return the files of which nothing was used, each with the reason.

        To be asked once all facts were read.
        """
        self._loaded()
        used = {raw.source for raws in self._items.values() for raw in raws if self._is_used(raw)}
        found = {one.file: one for one in self.refused}
        for name, raws in self._items.items():
            for raw in raws:
                if not (raw.is_file and raw.is_given) or raw.source in used:
                    continue
                # A collector reads more than one source of a fact, of which one is enough.
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
            return "no rule needed it"
        first = decode(raw.data[:400]).strip().partition("\n")[0][:80]
        return f"nothing in it was understood (its name says {name}): {first}"

    def _loaded(self) -> None:
        # A folder of many nodes is read by several processes, each of which skips the others'.
        if self._load is not None:
            load, self._load = self._load, None
            load(self)

    def put(self, raw: Raw) -> None:
        """Add an item; several of one name are readings one after the other."""
        self._items.setdefault(raw.name, []).append(raw)

    def replace(self, raw: Raw) -> None:
        """Put an item in place of all of that name."""
        self._items[raw.name] = [raw]

    def all(self, name: str) -> list[Raw]:
        """All items of that name, in order."""
        self._loaded()
        return self._items.get(name, [])

    def get(self, name: str) -> Raw | None:
        """The last item of that name."""
        self._loaded()
        found = self._items.get(name)
        return found[-1] if found else None

    @property
    def names(self) -> list[str]:
        """Names of what there is."""
        self._loaded()
        return list(self._items)

    def parsed(self, name: str, parser: Callable[[str], Record]) -> tuple[Record, Raw] | None:
        """What a parser makes of the last item of that name, and the item."""
        raw = self.get(name)
        return None if raw is None else (self.parse(raw, parser), raw)

    def parse(self, raw: Raw, parser: Callable[[str], Record]) -> Record:
        """What a parser makes of an item. Lines that it did not understand are told once."""
        known = self._records.get((parser, id(raw)))
        if known is not None:
            return cast("Record", known[0])
        record = self._cache.get(parser, raw.data)
        # The item is kept beside its record, so that its id stays its own.
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
        """Where a fact was read: `live` on the running node, else the place in the file."""
        return live if self.live else raw.place(line)

    def tree(self, name: str) -> tuple[Tree, Raw] | None:
        """An item of paths and values."""
        return self.parsed(name, parse_tree)

    def text(self, name: str) -> tuple[str, Raw] | None:
        """An item's text."""
        found = self.parsed(name, _same)
        if found is not None and found[0].strip():
            raw = found[1]
            if raw.is_sure or name not in _MARKED_TEXTS:
                self.use(raw)
        return found


# Texts with a form of their own, which a name alone does not vouch for.
_MARKED_TEXTS = frozenset({"df-shm", "cgroup", "ldconfig", "nvidia-version"})
_COUNTS = frozenset({"unread", "left_out", "others", "seconds"})


def _holds(record: object) -> bool:
    """Whether a parser found anything. A text that is only kept says nothing of that."""
    if isinstance(record, str) or record is None:
        return False
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        fields = record._asdict()
        return any(fields[name] not in (None, (), [], {}, "") for name in fields.keys() - _COUNTS)
    return bool(record) if isinstance(record, tuple | list | dict) else True


def _same(text: str) -> str:
    return text
