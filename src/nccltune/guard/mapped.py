# SPDX-License-Identifier: Apache-2.0
"""Recognise NCCL, its plugins and our libraries among the files that a process has mapped."""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

import nccltune
from nccltune.doctor.evidence.parsers.elf import exported_names
from nccltune.doctor.evidence.plugins import library_version
from nccltune.model.errors import InputError, PlatformError
from nccltune.native import net_path, recorder_path, sendrecv_path, tuner_path
from nccltune.native.processes import MappedFile, inside

_KIND = re.compile(r"nccl(Tuner|Net|Profiler|Env)(?:Plugin)?_v\d+")
_OURS = re.compile(r"/(?:libnccl-(tuner|net|profiler)-nccltune\.so|nccltune-(net|sendrecv)/[^/]+)$")
_SENDRECV, _BENCH = "/libnccltune-sendrecv.so", "/nccltune-bench"
_RELEASE = re.compile(rb"(?:\0|nccltune )(\d+\.\d+\.\d+)(?:\0|, interface)")
NCCL, SENDRECV = "nccl", "sendrecv"


class MappedLibrary(msgspec.Struct, frozen=True):
    """NCCL, a plugin or our send/recv library in the memory of a process.

    `kinds` are `nccl`, `sendrecv`, or the kinds of plugin that the file exports: `tuner`, `net`,
    `profiler`, `env`. `version` is NCCL's, or the release of nccltune. `sha256` is None for NCCL,
    and where `problem` has the reason.
    """

    path: str
    kinds: list[str]
    inode: int
    is_ours: bool = False
    version: str | None = None
    sha256: str | None = None
    problem: str | None = None

    @property
    def identity(self) -> str:
        """Return what tells two files apart: the content, else path, version and inode."""
        return self.sha256 or f"{self.path} {self.version} {self.inode}"


class LibraryReader:
    """Reads libraries; a file that several processes have mapped is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, MappedFile], MappedLibrary | None] = {}

    def read(
        self, folder: Path, files: Collection[MappedFile], named: Collection[str]
    ) -> list[MappedLibrary]:
        """Return those `files` of `/proc/PID` with `nccl` in their names, and plugins of
        `named`."""
        found = []
        for file in files:
            name = file.path.rpartition("/")[2]
            if not ("nccl" in name or file.path in named or name in named):
                continue
            library = self._library(folder, file)
            if library is not None:
                found.append(library)
        return found

    def _library(self, folder: Path, file: MappedFile) -> MappedLibrary | None:
        # The kernel shows a path below our root where it can, so also for a process after chroot.
        for path in (inside(folder, file.path), Path(file.path)):
            try:
                status = path.stat()
            except OSError:
                continue
            if status.st_ino == file.inode and not file.is_gone:
                key = (status.st_dev, file)
                if key not in self._known:
                    self._known[key] = _read(path, file)
                return self._known[key]
        return _unread(file, "its file was replaced or removed since it was loaded")


def _unread(file: MappedFile, problem: str) -> MappedLibrary | None:
    kinds = _kinds_by_name(file.path)
    is_ours = _is_ours(file.path)
    return MappedLibrary(file.path, kinds, file.inode, is_ours, problem=problem) if kinds else None


def _read(path: Path, file: MappedFile) -> MappedLibrary | None:
    try:
        with path.open("rb") as opened:
            exported = exported_names(opened, "nccl")
    except (InputError, OSError) as error:
        return _unread(file, f"its symbols cannot be read: {error}")
    kinds = sorted({match[1].lower() for name in exported if (match := _KIND.match(name))})
    is_ours = _is_ours(file.path) or "nccltune_tuner_version" in exported
    if is_ours and not kinds:
        kinds = [SENDRECV]
    if not is_ours and "ncclGetVersion" in exported:
        kinds = [NCCL]
    if not kinds:
        return None
    if kinds == [NCCL]:
        version = library_version(path, path)
        return MappedLibrary(file.path, kinds, file.inode, version=version)
    try:
        data = path.read_bytes()
    except OSError as error:
        return _unread(file, f"cannot be read: {error.strerror}")
    digest = hashlib.sha256(data).hexdigest()
    version = _release(data, digest) if is_ours else None
    return MappedLibrary(file.path, kinds, file.inode, is_ours, version, digest)


def _kinds_by_name(path: str) -> list[str]:
    if _is_ours(path):
        match = _OURS.search(path)
        return [(match[1] or match[2]) if match else SENDRECV]
    match = re.search(r"/libnccl(?:-(tuner|net|profiler|env)[^/]*\.so|\.so\.2)[^/]*$", path)
    return [match[1] or NCCL] if match else []


def _is_ours(path: str) -> bool:
    return path.endswith((_SENDRECV, _BENCH)) or _OURS.search(path) is not None


def _release(data: bytes, digest: str) -> str | None:
    """Return the release of a library of ours: this one's, or the only one its text states."""
    for installed in (tuner_path, net_path, recorder_path, sendrecv_path):
        try:
            if hashlib.sha256(installed().read_bytes()).hexdigest() == digest:
                return nccltune.__version__
        except (OSError, PlatformError):
            continue
    stated = {match.decode() for match in _RELEASE.findall(data)}
    return stated.pop() if len(stated) == 1 else None
