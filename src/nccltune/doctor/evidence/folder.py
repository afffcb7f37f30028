# SPDX-License-Identifier: Apache-2.0
"""Folders of collected files: one folder a node below the one that is named, plain files in each.

Who collected is of no matter: `nccltune doctor --collect`, the shell script, or a person. A file is
known by its name, and else by what it begins with. Nothing outside the folder is read.
"""

import os
import re
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nccltune.doctor.evidence.catalogue import COMMANDS, TEXTS, VALUES
from nccltune.doctor.evidence.files import Unread, read_file
from nccltune.doctor.evidence.parsers.text import decode
from nccltune.doctor.evidence.raw import Cache, Evidence, Raw
from nccltune.formats.lines import check_text, visible
from nccltune.model.errors import InputError

MOST_BYTES = 32 << 20
_MOST_NODES = 20_000
_MOST_FILES = 500
_HEAD_BYTES = 4096
INDEX = "collected"
"""The item that says what was read when, and what could not be."""
# Names that people and other tools give, beside our own.
ALIASES = {
    "lspci-vvv": "lspci",
    "lsmod": "modules",
    "proc-modules": "modules",
    "proc-cmdline": "cmdline",
    "proc-cpuinfo": "cpuinfo",
    "proc-meminfo": "meminfo",
    "journalctl-k": "dmesg",
    "journal": "dmesg",
    "kern": "dmesg",
    "ulimit-a": "ulimit",
    "df": "df-shm",
    "df-dev-shm": "df-shm",
    "ip-addr": "addresses",
    "nvidia-smi-q": "nvidia-smi-q",
    "nvidia-smi-q-x": "nvidia-smi-q",
    "nvidia-smi-nvlink-s": "nvlink",
    "nvidia-smi-nvlink": "nvlink",
    "nvidia-smi-topo-m": "topo",
    "nvidia-smi-topo": "topo",
    "topo-m": "topo",
    "nvidia-imex-ctl": "imex",
    "rdma-statistic-show": "rdma-statistic",
    "show-gids": "show_gids",
    "ibv-devinfo": "ibv_devinfo",
    "nccl-conf": "etc-nccl-conf",
    "topo-dump": "topology",
    "graph-dump": "graph",
    "host-lspci": "vm-host-lspci",
    "gcloud-describe": "gcloud",
    "ib-write-bw": "perftest",
    "ib-read-bw": "perftest",
    **{f"nvidia-smi-topo-p2p-{kind}": f"p2p-{kind}" for kind in "rwnap"},
    **{f"topo-p2p-{kind}": f"p2p-{kind}" for kind in "rwnap"},
}
KNOWN = frozenset(
    {
        *(values.name for values in VALUES),
        *(text.name for text in TEXTS),
        *(command.name for command in COMMANDS),
        *ALIASES.values(),
        *("env", "logind", "profiles", "libraries", "plugins", "services", "packages", "ethtool"),
        *("user-nccl-conf", "named-nccl-conf", "lscpu", "meminfo", "ulimit", "nvbandwidth"),
        *("ibstat", "ibstatus", "rdma-link", "perfquery", "rdma-statistic", "pci-config"),
        *("if_inet", "topology", "graph", "given-topology", "given-graph"),
        *("cloud-metadata", "gcloud", "aws-topology", "aws-instance-type"),
        *("diagnostics", "rail-pings", "perftest", INDEX),
    }
)
_REAL = {item.name: item.path for item in TEXTS}
_TEXT_BYTES = bytes(byte for byte in range(256) if byte >= 32 or byte in b"\t\n\r")
_JOBS = frozenset({".sh", ".sbatch", ".slurm", ".yaml", ".yml", ".job", ".bash"})
_READING = re.compile(r"[.-]\d{1,3}$")
# The first bytes that tell a file of another name. Comments are one atomic group: they can be
# parted in as many ways as there are of them.
_BEGINNINGS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\A\s*(?:<\?xml[^>]*>\s*)?(?>(?:<!--.*?-->\s*)*)<system\b", re.S), "topology"),
    (re.compile(rb"\A\s*(?:<\?xml[^>]*>\s*)?(?>(?:<!--.*?-->\s*)*)<graphs\b", re.S), "graph"),
    (re.compile(rb"<nvidia_smi_log|=NVSMI LOG="), "nvidia-smi-q"),
    (re.compile(rb"#\s*nThread \d+|nccl-tests version|# Collective test", re.I), "test"),
    (re.compile(rb"^CA '", re.M), "ibstat"),
    (re.compile(rb"^Infiniband device '", re.M), "ibstatus"),
    (re.compile(rb"^hca_id:", re.M), "ibv_devinfo"),
    (re.compile(rb"^nvbandwidth Version", re.M), "nvbandwidth"),
    (re.compile(rb"NCCL DIAG "), "diagnostics"),
    (re.compile(rb"NCCL (?:INFO|WARN|version) "), "log"),
    (re.compile(rb"^\S*[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [^\n]+\n\t", re.M), "lspci"),
)


def read_folder(path: Path, *, cache: Cache | None = None) -> Iterator[Evidence]:
    """The nodes of a folder in the order of their names, each read when it is first looked into.

    A folder that holds files of one node itself is one node; files beside the nodes' folders
    (logs, job files) belong to none and are one more node of the folder's name. Raises InputError
    where there is no such folder, or nothing in it.
    """
    path = Path(path)
    if not path.is_dir():
        what = "is no folder" if path.exists() else "no such folder"
        raise InputError(what, where=str(path), hint="name what --collect wrote")
    shared = cache if cache is not None else Cache()
    folders, files = _listed(path)
    if not folders and not files:
        raise InputError(
            "is empty", where=str(path), hint="collect first: nccltune doctor --collect"
        )
    if _nodes_are_deeper(path, folders, files):
        raise InputError(
            "has folders of folders, and no node's files",
            where=str(path),
            hint=f"name the folder that holds a folder a node: nccltune doctor {path / folders[0]}",
        )
    if len(folders) > _MOST_NODES:
        raise InputError(
            f"holds {len(folders)} folders, and {_MOST_NODES} nodes are the most",
            where=str(path),
            hint="name a part of them",
        )
    return _nodes(path, folders, files, shared)


def _nodes_are_deeper(path: Path, folders: list[str], files: list[str]) -> bool:
    """Whether all folders hold folders and no files, and no file is beside them."""
    inner = (_listed(path / name) for name in folders)
    return not files and all(below and not beside for below, beside in inner)


def _nodes(path: Path, folders: list[str], files: list[str], cache: Cache) -> Iterator[Evidence]:
    if files:
        name = visible(path.resolve().name)
        yield Evidence(
            name, live=False, cache=cache, load=lambda one: _put_files(one, path, "", files)
        )
    for name in folders:
        yield Evidence(
            visible(name), live=False, cache=cache, load=partial(_put_node, path=path / name)
        )


def _put_node(evidence: Evidence, path: Path) -> None:
    below, files = _listed(path)
    _put_files(evidence, path, f"{evidence.host}/", files)
    if below:
        shown = visible(", ".join(below[:3]))
        evidence.problems.append(f"{evidence.host}: folders below a node's are not read: {shown}")


def _listed(path: Path) -> tuple[list[str], list[str]]:
    """Folders and files, sorted, without hidden ones; links are files, to be judged by whoever
    reads them."""
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


def _put_files(evidence: Evidence, folder: Path, shown: str, names: list[str]) -> None:
    if len(names) > _MOST_FILES:
        evidence.problems.append(f"{shown or folder}: only the first {_MOST_FILES} files were read")
    for name in names[:_MOST_FILES]:
        put_file(evidence, folder / name, shown + visible(name))


def put_file(evidence: Evidence, path: Path, shown: str, *, asked: bool = False) -> None:
    """Put in a file as what its name or content says. One that cannot be read, or that nothing is
    known of, is told among the problems; InputError where it was `asked` for."""
    try:
        if not asked and not stat.S_ISREG(path.lstat().st_mode):
            what = "is a link" if path.is_symlink() else "is no regular file"
            raise Unread(f"{what}, not followed" if path.is_symlink() else what)
        data = read_file(path, MOST_BYTES)
        name = item_name(path.name, data)
    except (Unread, OSError) as error:
        if asked:
            raise InputError(str(error) or "no such file", where=shown) from error
        evidence.problems.append(f"{shown}: {error}")
        return
    if name == INDEX:
        _index(evidence, data)
    elif name == "":
        if asked:
            raise InputError(
                "is nothing that the doctor knows",
                where=shown,
                hint="known are NCCL's logs, topology and graph files, job files and the outputs "
                "that docs/reference/collecting.md lists",
            )
        evidence.problems.append(f"{shown}: is nothing that is known here")
    else:
        for item in _all_that_it_is(name, data):
            real = evidence.real.get(item, _REAL.get(item, ""))
            evidence.put(Raw(item, shown, data, real=real))


def _all_that_it_is(name: str, data: bytes) -> list[str]:
    """A test under NCCL_DEBUG=INFO prints its table, a log, and NCCL's diagnostics into one."""
    if name not in ("log", "test", "diagnostics"):
        return [name]
    marks = (("test", b"nThread "), ("log", b" NCCL INFO "), ("diagnostics", b"NCCL DIAG "))
    return list(dict.fromkeys([name, *(item for item, mark in marks if mark in data)]))


def item_name(name: str, data: bytes) -> str:
    """The item that a file is: by its name without the end and the number of a reading, else by
    its content; "" where neither tells."""
    start = data[:_HEAD_BYTES]
    try:
        # What has no control character at all, as nearly all have, needs no closer look.
        if start.translate(None, _TEXT_BYTES):
            check_text(start)
    except InputError as error:
        raise Unread(error.message) from error
    head, dot, tail = name.rpartition(".")
    stem, end = (head, f".{tail}".lower()) if dot and head else (name, "")
    stem = stem.lower().replace("_", "-") if stem.lower() not in KNOWN else stem.lower()
    # etc-nccl.conf is as good as etc-nccl-conf.txt.
    stem = f"{stem}-conf" if end == ".conf" else stem
    for one in (stem, _READING.sub("", stem)):
        known = ALIASES.get(one, one)
        if known in KNOWN and end not in _JOBS:
            return known
    if end in _JOBS:
        return "job"
    for pattern, item in _BEGINNINGS:
        if pattern.search(start):
            return item
    # A log may begin with what the program prints before NCCL does.
    return "log" if b" NCCL INFO " in data[: 1 << 20] else ""


_NOT_READ = re.compile(r"^not read\t(?P<what>[^\n]{1,400})$", re.M)
_READ = re.compile(r"^read\t(?P<item>[\w-]{1,40})\t(?P<path>/[^\t\n]{1,400})$", re.M)


def _index(evidence: Evidence, data: bytes) -> None:
    """Take in what the collector noted: files that items are copies of, and what it could not
    read. Its file comes before those whose place it tells, by the order of names."""
    text = decode(data)
    evidence.real.update((match["item"], match["path"]) for match in _READ.finditer(text))
    problems = [match["what"].replace("\t", ": ") for match in _NOT_READ.finditer(text)]
    evidence.problems.extend(list(dict.fromkeys(problems))[:200])
