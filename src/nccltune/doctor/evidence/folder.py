# SPDX-License-Identifier: Apache-2.0
"""Read folders of files collected by `nccltune doctor --collect`, the shell script, or a person.

Nothing outside the folder is read, and no link is followed.
"""

import re
import stat
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path, PurePath
from typing import BinaryIO

from nccltune.doctor.evidence.catalogue import TEXTS
from nccltune.doctor.evidence.files import Unread, read_file
from nccltune.doctor.evidence.item_names import INDEX, is_source
from nccltune.doctor.evidence.kinds import OUTPUT, FileItems, kinds_of, plain_bytes
from nccltune.doctor.evidence.layout import NodeFiles, nodes_in
from nccltune.doctor.evidence.parsers.failures import mentions_failure
from nccltune.doctor.evidence.parsers.text import decode
from nccltune.doctor.evidence.raw import Cache, NodeEvidence, Raw
from nccltune.formats.importing.unrecognised import KNOWN, describe
from nccltune.formats.text.lines import check_text, visible
from nccltune.model.errors import InputError

MOST_BYTES = 32 << 20
STANDARD_INPUT = Path("<standard input>")
PROGRAMS = frozenset({"log", "test", "diagnostics", "job", OUTPUT})
"""What a user starts on several nodes."""
_MOST_NODES = 20_000
_MOST_FILES = 500
_HEAD_BYTES = 4096
_REAL = {item.name: item.path for item in TEXTS}
_TEXT_BYTES = bytes(byte for byte in range(256) if byte >= 32 or byte in b"\t\n\r")


def read_folder(path: Path, *, cache: Cache | None = None) -> Iterator[NodeEvidence]:
    """Return the nodes of a folder. The files of a node are read when the node is first used.

    The module `layout` finds the node of each file. Files that belong to no node form one more node
    with the name of the folder. Examples are logs and job files beside the nodes' folders.

    Raises InputError if the folder does not exist, is empty, or holds too many nodes.
    """
    path = Path(path)
    if not path.is_dir():
        what = "is no folder" if path.exists() else "no such folder"
        raise InputError(what, where=str(path), hint="name what --collect wrote")
    shared = cache if cache is not None else Cache()
    nodes = nodes_in(path, _kind_of)
    if not nodes:
        raise InputError(
            "is empty", where=str(path), hint="collect first: nccltune doctor --collect"
        )
    if len(nodes) > _MOST_NODES:
        raise InputError(
            f"holds {len(nodes)} nodes, and {_MOST_NODES} are the most",
            where=str(path),
            hint="name a part of them",
        )
    return (_node(path, node, shared) for node in nodes)


def _node(root: Path, node: NodeFiles, cache: Cache) -> NodeEvidence:
    name = visible(node.name)
    evidence = NodeEvidence(
        name, live=False, cache=cache, load=partial(_put_files, root=root, names=node.files)
    )
    evidence.is_node = node.is_own
    return evidence


def _kind_of(path: Path) -> str:
    """Return the first item that a file's content or name identifies.

    Return "" if the file is not recognised or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return ""
        items = kinds_of(path.name, plain_bytes(read_file(path, MOST_BYTES))).items
    except (Unread, OSError):
        return ""
    return items[0] if items else ""


def _put_files(evidence: NodeEvidence, root: Path, names: Sequence[str]) -> None:
    if len(names) > _MOST_FILES:
        left = len(names) - _MOST_FILES
        shown = f"{evidence.host}/ ({left} more files)"
        evidence.refuse(shown, f"only the first {_MOST_FILES} files of a node are read")
    # Read the index file first, because it has the original paths of the other items.
    for name in sorted(names[:_MOST_FILES], key=lambda one: PurePath(one).stem != INDEX):
        put_file(evidence, root / name, visible(name))


@lru_cache(maxsize=1)
def _piped(stream: BinaryIO) -> bytes:
    # Files that prove to be of this node are read twice.
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unread(f"is larger than {MOST_BYTES >> 20} MiB")
    return data


def put_file(
    evidence: NodeEvidence,
    path: Path,
    shown: str,
    *,
    asked: bool = False,
    others: dict[str, NodeEvidence] | None = None,
) -> None:
    """Add a file to `evidence`, as the items that the file's content or name identifies.

    A file that cannot be read, is not text, is empty, or whose kind is not recognised, is listed in
    `evidence.refused`. Outputs of several machines in one file are added to `others`, by machine,
    or are listed in `evidence.refused` too.

    Raises InputError if a file that the user named (`asked`) cannot be read or is not text.
    """
    try:
        if not asked and not stat.S_ISREG(path.lstat().st_mode):
            what = "is a link" if path.is_symlink() else "is no regular file"
            raise Unread(f"{what}, not followed" if path.is_symlink() else what)
        is_piped = asked and path == STANDARD_INPUT
        data = _piped(sys.stdin.buffer) if is_piped else read_file(path, MOST_BYTES)
        _check_text(data)
        data = _unquoted(plain_bytes(data))
        kinds = kinds_of(path.name, data, collected=evidence.has_index)
        is_indented = not any(line[:1].strip() for line in data[:_HEAD_BYTES].split(b"\n"))
        if is_indented or (not kinds.items and not kinds.unclear):
            flat = _dedented(data)
            found = kinds_of(path.name, flat)
            if not kinds.items or found.items == kinds.items:
                data, kinds = flat, found
    except (Unread, OSError) as error:
        if asked:
            hint = _CUT if "is larger" in str(error) else None
            raise InputError(str(error) or "no such file", where=shown, hint=hint) from error
        evidence.refuse(shown, str(error))
        return
    if others is not None and (parts := _parts_of_hosts(path.name, data)):
        for host, part in parts.items():
            other = others.setdefault(host, NodeEvidence(host, live=False)) if host else evidence
            _put_items(other, evidence, kinds_of(path.name, part), shown, part)
        return
    if others is not None and _put_machines(others, kinds.unclear, shown, data):
        kinds = kinds._replace(unclear={})
    if _OF_DOCTOR.match(data) is not None:
        evidence.refuse(shown, "it is what nccltune doctor printed: pass the files it looked at")
    elif INDEX in kinds.items:
        evidence.has_index = True
        _index(evidence, data)
    elif not kinds.items and not kinds.unclear:
        reason = _PROSE if mentions_failure(data) else _described(data) if asked else _UNKNOWN
        reason = _CODE if is_source(path.name) else reason
        evidence.refuse(shown, reason if data.strip() else "is empty")
    else:
        _put_items(evidence, evidence, kinds, shown, data)


def is_known(path: Path) -> bool:
    """Return whether the doctor reads a path; of a folder this shows later."""
    evidence = NodeEvidence("", live=False)
    with suppress(InputError):
        put_file(evidence, path, "", asked=True)
        return not evidence.refused
    return path.is_dir()


def _put_items(
    evidence: NodeEvidence, printed: NodeEvidence, kinds: FileItems, shown: str, data: bytes
) -> None:
    """Add a text to `evidence`, what programs of several nodes print to `printed`."""
    for item in kinds.unclear:
        printed.refuse(shown, f"has two outputs of {item}: {_UNCLEAR}")
    for item in kinds.items:
        part = _part(kinds.sections.get(item), data)
        real = evidence.real.get(item, _REAL.get(item, ""))
        node = printed if item in PROGRAMS else evidence
        node.put(Raw(item, shown, part, real=real, is_given=True, is_sure=kinds.sure))


_PROMPT = re.compile(
    rb"^(?:\([\w.-]+\) )?\[?[\w.-]+@(?P<host>[\w.-]+)[: ][^\n#$%>]{0,100}[#$%>] ", re.M
)


def _parts_of_hosts(name: str, data: bytes) -> dict[str, bytes]:
    """Return what stands behind the prompts of each host, and before all of them (host "").

    It is empty unless some tool's output is there of two hosts.
    """
    prompts = list(_PROMPT.finditer(data))
    spans: dict[str, list[tuple[int, int]]] = {}
    for at, stop in zip(prompts, [*(at.start() for at in prompts[1:]), len(data)], strict=False):
        spans.setdefault(visible(decode(at["host"]), 100), []).append((at.start(), stop))
    if len(spans) < 2:
        return {}
    parts = {host: _part(found, data) for host, found in spans.items()}
    tools = [item for part in parts.values() for item in {*kinds_of(name, part).items} - PROGRAMS]
    if len(tools) == len(set(tools)):
        return {}
    before = data[: prompts[0].start()]
    return {"": before, **parts} if before.strip() else parts


def _part(sections: Sequence[tuple[int, int]] | None, data: bytes) -> bytes:
    """Return the bytes of an item in a file: its sections, or the whole file without sections.

    Empty lines are added before a section, so its lines have the same numbers as in the file.
    """
    if sections is None:
        return data
    found, at = [], 0
    for start, end in sections:
        found += [b"\n" * data.count(b"\n", at, start), data[start:end]]
        at = end
    return b"".join(found)


# Before an output: a shell's prompt with its host, or a heading.
_MACHINE = re.compile(
    r"^\[?[\w.-]+@(?P<host>[\w.-]+)[: ]"
    r"|^[ \t]*(?:[#*=-]+ *)?(?P<heading>\w[\w .()-]{0,40}?) *(?::|\*+:?|[=-]{2,})?[ \t]*$"
)


def _put_machines(
    others: dict[str, NodeEvidence],
    outputs: Mapping[str, Sequence[tuple[int, int]]],
    shown: str,
    data: bytes,
) -> bool:
    """Add the outputs of each machine in a file to `others`; return whether that was possible.

    The first output of each tool is of the first machine. A machine is called as the prompt or the
    heading above its first output says.
    """
    if len({len(spans) for spans in outputs.values()}) != 1:
        return False
    first = min(outputs.values(), key=lambda spans: spans[0])
    names, before = [], 0
    for number, (start, _) in enumerate(first, 1):
        above = [line for line in decode(data[before:start]).split("\n") if line.strip()][-2:]
        matches = [match for line in above if (match := _MACHINE.match(line)) is not None]
        said = (match["host"] or match["heading"] for match in matches)
        names.append(visible(next(said, f"{PurePath(shown).name} output {number}"), 100))
        before = start
    if len({*names, *others}) < len(names) + len(others):
        return False
    for number, name in enumerate(names):
        others[name] = NodeEvidence(name, live=False)
        for item, spans in outputs.items():
            part = _part([spans[number]], data)
            others[name].put(Raw(item, shown, part, is_given=True))
    return True


_QUOTE = re.compile(rb"^(?:> ?)+", re.M)
_ADDED = re.compile(rb"^\+", re.M)
_INDENTED = re.compile(rb"(?:^[ \t]+[^\n]*\n?|^\n)+", re.M)


def _unquoted(data: bytes) -> bytes:
    """Return a text without the `> ` of a reply, and the `+` of a diff if each line has it."""
    if data.startswith(b"+") and all(
        line.startswith(b"+") for line in data.split(b"\n") if line.strip()
    ):
        data = _ADDED.sub(b"", data)
    return data if data.lstrip().startswith(b"<") else _QUOTE.sub(b"", data)


def _dedented(data: bytes) -> bytes:
    """Return a text whose indented blocks begin at the left margin."""
    return _INDENTED.sub(
        lambda match: textwrap.dedent(match[0].decode(errors="replace")).encode(), data
    )


_OF_DOCTOR = re.compile(rb"\s*verdict {2,}(?s:.{1,400}?)\bcannot\s+tell \d+\s")
_PROSE = "it mentions a failure and holds no output of a tool, so that nothing can be decided"
_CODE = "it is a source file, and shows no run of a program"
_CUT = "leave out lines of calls (grep -v opCount), or give both ends: head -c 15M, tail -c 15M"
_UNKNOWN = "its kind is not recognised"
_UNCLEAR = "which machine each is of is not known; give each as a file of its own"


def _described(data: bytes) -> str:
    """Return what a text is that `nccltune analyze` knows, and the doctor does not."""
    found = describe(decode(data[:_HEAD_BYTES]))
    return _UNKNOWN if found.hint == KNOWN else found.message


def _check_text(data: bytes) -> None:
    start = data[:_HEAD_BYTES]
    try:
        # Fast path: nearly all files consist of printable ASCII and need no closer check.
        if start.translate(None, _TEXT_BYTES):
            check_text(start)
    except InputError as error:
        raise Unread(error.message) from error


_NOT_READ = re.compile(r"^not read\t(?P<what>[^\n]{1,400})$", re.M)
_READ = re.compile(r"^read\t(?P<item>[\w-]{1,40})\t(?P<path>/[^\t\n]{1,400})$", re.M)


def _index(evidence: NodeEvidence, data: bytes) -> None:
    """Add the collector's notes: original paths of items, and what could not be read."""
    text = decode(data)
    evidence.real.update((match["item"], match["path"]) for match in _READ.finditer(text))
    problems = [match["what"].replace("\t", ": ") for match in _NOT_READ.finditer(text)]
    evidence.problems.extend(list(dict.fromkeys(problems))[:200])
