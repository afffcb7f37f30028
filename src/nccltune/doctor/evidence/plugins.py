# SPDX-License-Identifier: Apache-2.0
"""Find plugins and NCCL libraries on a running node, in the folders that NCCL searches.

NCCL tries the value of the setting `NCCL_KIND_PLUGIN` as a path or name, then
`libnccl-KIND-VALUE.so`. If the setting has no value, NCCL tries `libnccl-KIND.so`
(plugin/plugin_open.cc, NCCL 2.27 to 2.30).
"""

import mmap
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nccltune.doctor.evidence.catalogue import PLUGIN_KINDS
from nccltune.doctor.evidence.files import Unread, below, read_file
from nccltune.doctor.evidence.parsers.elf import exported_names
from nccltune.formats.tuner_config.nccl_conf import first_settings
from nccltune.model.errors import InputError

FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/cuda/lib64",
)
KNOWN = (
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/aws-ofi-nccl/lib",
    "/opt/amazon/efa/lib",
    "/opt/amazon/efa/lib64",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    "/usr/local/gib/lib64",
    "/usr/local/fastrak/lib64",
    "/var/lib/tcpxo/lib64",
    "/usr/local/nvidia/lib64",
)
LIBRARIES = ("libnccl.so.2", "libibverbs.so.1", "libfabric.so.1")
_VERSION = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})[+ ]")
_IN_NAME = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)$")
_WHEEL = re.compile(r"^nvidia_nccl_cu\d+-(\d+\.\d+\.\d+)\S*\.dist-info$")
_MOST_LIBRARY = 2 << 30


def library_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the folders of LD_LIBRARY_PATH, then the usual library folders (FOLDERS)."""
    given = [part for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part]
    return list(dict.fromkeys([*given, *FOLDERS]))


def libraries_text(root: Path, environment: Mapping[str, str]) -> bytes:
    """Return a line `PATH -> TARGET` for each library that was found.

    NCCL libraries also have a line `PATH:NCCL version 2.28.9`.
    """
    folders = [*library_folders(environment), *KNOWN]
    folders += [f"{path}/nvidia/nccl/lib" for path in sys.path if path and root == Path("/")]
    paths = [f"{folder}/{name}" for folder in folders for name in LIBRARIES]
    paths += [
        path for path in re.split("[: ]", environment.get("LD_PRELOAD", "")) if "libnccl.so" in path
    ]
    lines, seen = [], set()
    for path in paths:
        file = below(root, path)
        try:
            real = file.resolve(strict=True)
            if not real.is_file() or real in seen:
                continue
        except (OSError, RuntimeError):
            continue
        seen.add(real)
        lines.append(f"{path} -> {real.name}")
        if "libnccl.so" in path and (version := library_version(file, real)):
            lines.append(f"{path}:NCCL version {version}")
    return "".join(f"{line}\n" for line in lines).encode()


def library_version(path: Path, real: Path) -> str | None:
    """Return the version of a libnccl.so.2 from its name, its wheel or its strings."""
    match = _IN_NAME.search(real.name)
    if match is not None:
        return match[1]
    # For .../site-packages/nvidia/nccl/lib/libnccl.so.2 the package's folder name has the version.
    if path.parent.parts[-3:] == ("nvidia", "nccl", "lib"):
        for entry in path.parents[3].glob("nvidia_nccl_cu*"):
            wheel = _WHEEL.match(entry.name)
            if wheel is not None:
                return wheel[1]
    try:
        with real.open("rb") as file:
            if real.stat().st_size > _MOST_LIBRARY:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = _VERSION.search(data)
                return found[1].decode() if found else None
    except (OSError, ValueError):
        return None


def plugins_text(root: Path, environment: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """Return the plugins that NCCL would load or that are in KNOWN, and the problems.

    The plugins are listed in the format that `parsers/symbols.py` reads.
    """
    settings = _settings(root, environment)
    out: list[str] = []
    problems: list[str] = []
    seen: set[tuple[str, Path]] = set()
    for kind in PLUGIN_KINDS:
        for path, named_by in _candidates(root, kind, settings, environment):
            real = below(root, path).resolve()
            if (kind, real) in seen:
                continue
            seen.add((kind, real))
            out.append(f"== {kind}\t{named_by}\t{path}")
            try:
                with real.open("rb") as file:
                    names = exported_names(file, "nccl")
            except (InputError, OSError) as error:
                problems.append(f"{path}: {error}")
                continue
            out += [name for name in names if "Plugin" in name]
    return "".join(f"{line}\n" for line in out).encode(), problems


def _settings(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the environment and of /etc/nccl.conf. The environment wins."""
    try:
        text = read_file(below(root, "/etc/nccl.conf"), 1 << 20).decode(errors="replace")
    except Unread:
        text = ""
    return {**first_settings(text), **environment}


def _candidates(
    root: Path, kind: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    setting = f"NCCL_{kind.upper()}_PLUGIN"
    value = settings.get(setting, "")
    folders = library_folders(environment)
    for part in filter(None, (part.strip() for part in value.split(","))):
        if part in ("none", "STATIC_PLUGIN"):
            continue
        if "/" in part:
            names = [part]
        else:
            names = [f"{f}/{n}" for n in (part, f"libnccl-{kind}-{part}.so") for f in folders]
        path = next((name for name in names if _is_file(root, name)), None)
        if path is not None:
            yield path, f"{setting}={part}"
    default = f"libnccl-{kind}.so"
    if not value:
        path = next((f"{f}/{default}" for f in folders if _is_file(root, f"{f}/{default}")), None)
        if path is not None:
            yield path, "the library path"
    for folder in KNOWN:
        if _is_file(root, f"{folder}/{default}"):
            yield f"{folder}/{default}", "a known folder, not in the library path"


def _is_file(root: Path, path: str) -> bool:
    try:
        return below(root, path).is_file()
    except (OSError, ValueError):
        return False
