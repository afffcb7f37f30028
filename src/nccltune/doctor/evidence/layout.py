# SPDX-License-Identifier: Apache-2.0
"""Find the node that each file of a folder belongs to.

Three layouts are read:

- one folder per node, which may have subfolders, and may be below folders of racks
- the files of one node
- one folder with the files of many nodes, with the node's name in each file name
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import NamedTuple

from nccltune.doctor.evidence.item_names import named_part

_DEEPEST = 4
_FEW_READINGS = 3
_READING = re.compile(r"\d{1,3}")
_SIGN = re.compile(r"[-._]")
# A node may have several files of each of these items. So two files of such an item do not prove
# that there are two nodes.
_MANY = frozenset(
    {"log", "test", "job", "output", "diagnostics", "counters", "ethtool", "perftest"}
)


class NodeFiles(NamedTuple):
    """Files of one node, as paths below the folder.

    `is_own` is true if the files are in the node's own folder, or if their names contain the node's
    name.
    """

    name: str
    files: tuple[str, ...]
    is_own: bool


def nodes_in(root: Path, kind_of: Callable[[Path], str]) -> list[NodeFiles]:
    """Return the nodes of a folder. Files that belong to no node come first.

    `kind_of` returns the item of a file whose name does not identify an item.
    """
    folders, files = listed(root)
    found = _beside(root, files, kind_of) if files else []
    for name in folders:
        found += _below(root, name, 1)
    return _named(found)


def listed(path: Path) -> tuple[list[str], list[str]]:
    """Return folders and files, sorted, without hidden ones. Links count as files."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                (folders if is_folder else files).append(entry.name)
    except OSError:
        return [], []
    return sorted(folders), sorted(files)


def _below(root: Path, name: str, depth: int) -> list[NodeFiles]:
    """Return one node for a folder, or the nodes in its subfolders.

    The subfolders hold nodes if the folder has no file, and the subfolders look alike (_are_alike).
    For a folder without files and with only one subfolder, return the nodes in that subfolder if
    there are several.
    """
    folders, files = listed(root / name)
    if not files and len(folders) > 1 and depth < _DEEPEST and _are_alike(root / name, folders):
        return [node for one in folders for node in _below(root, f"{name}/{one}", depth + 1)]
    if not files and len(folders) == 1 and depth < _DEEPEST:
        inner = _below(root, f"{name}/{folders[0]}", depth + 1)
        if len(inner) > 1:
            return inner
    # If several files hold the same item (the output of one command), the reader uses the last one.
    # So files directly in the node's folder come last and win over those in subfolders.
    return [NodeFiles(name, (*_deeper(root, name, folders, depth), *_in(name, files)), True)]


def _deeper(root: Path, name: str, folders: Iterable[str], depth: int) -> list[str]:
    if depth >= _DEEPEST:
        return []
    found = []
    for one in folders:
        inner, files = listed(root / name / one)
        found += _deeper(root, f"{name}/{one}", inner, depth + 1)
        found += _in(f"{name}/{one}", files)
    return found


def _in(name: str, files: Iterable[str]) -> list[str]:
    return [f"{name}/{file}" for file in files]


def _are_alike(path: Path, folders: Iterable[str]) -> bool:
    """Return whether the folders look like folders of nodes or racks.

    Two folders of nodes hold entries of the same name. A folder of a rack holds several folders and
    no file.
    """
    seen: set[str] = set()
    for one in folders:
        below, files = listed(path / one)
        names = {*files, *(below if not files else ())}
        # A folder with no file but several folders is a rack of nodes, not a part of one node.
        if names & seen or (not files and len(below) > 1):
            return True
        seen |= names
    return False


def _beside(root: Path, files: list[str], kind_of: Callable[[Path], str]) -> list[NodeFiles]:
    """Return the nodes of files in one folder: one node, or several by their file names."""
    own = root.resolve().name
    if len(files) < 2:
        return [NodeFiles(own, tuple(files), False)]
    keys = _keys(root, files, kind_of)
    if len(set(keys.values())) < 2:
        return [NodeFiles(own, tuple(files), False)]
    by_node: dict[str, list[str]] = defaultdict(list)
    node_in = _finder(set(keys.values()))
    for file in files:
        key = keys[file] if file in keys else node_in(_stem(file))
        by_node[key].append(file)
    return [NodeFiles(key or own, tuple(by_node[key]), bool(key)) for key in sorted(by_node)]


def _keys(root: Path, files: list[str], kind_of: Callable[[Path], str]) -> dict[str, str]:
    """Return the node's name for each file name that contains a node's name.

    The result is empty if no item has files of two nodes: then all files are of one node.
    """
    by_item: dict[str, dict[str, str]] = defaultdict(dict)
    others = []
    for file in files:
        item, rest = named_part(_stem(file))
        if not item:
            others.append(file)
        elif item not in _MANY and rest:
            by_item[item][file] = rest
    node_in = _finder({rest for named in by_item.values() for rest in named.values()})
    for file in others:
        item = kind_of(root / file)
        if item and item not in _MANY:
            by_item[item][file] = node_in(_stem(file)) or _stem(file)
    found: dict[str, str] = {}
    several = False
    for named in by_item.values():
        rests = set(named.values())
        if all(_READING.fullmatch(rest) for rest in rests) and len(rests) <= _FEW_READINGS:
            continue
        several = several or len(rests) > 1
        found |= named
    return found if several else {}


def _finder(nodes: set[str]) -> Callable[[str], str]:
    """Return a function that returns the longest node name in a file name, or ""."""
    # Look up parts of the file name in the set. A search for each node name would be slow, because
    # there may be thousands of nodes.
    most = max((len(_SIGN.split(node)) for node in nodes), default=0)

    def node_in(stem: str) -> str:
        parts = _SIGN.split(stem)
        bounds = [0]
        for part in parts:
            bounds.append(bounds[-1] + len(part) + 1)
        found = (
            name
            for first in range(len(parts))
            for last in range(first + 1, min(first + most, len(parts)) + 1)
            if (name := stem[bounds[first] : bounds[last] - 1]) in nodes
        )
        return max(found, key=len, default="")

    return node_in


def _stem(file: str) -> str:
    stem = PurePath(file).stem.lower().replace("_", "-")
    return stem or file


def _named(nodes: list[NodeFiles]) -> list[NodeFiles]:
    """Shorten each node's name from its path to the last part of the path, if that is unique."""
    times: dict[str, int] = defaultdict(int)
    for node in nodes:
        times[node.name.rpartition("/")[2]] += 1
    shorter = []
    for node in nodes:
        last = node.name.rpartition("/")[2]
        shorter.append(node._replace(name=last) if times[last] == 1 else node)
    return shorter
