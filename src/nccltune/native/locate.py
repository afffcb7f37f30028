# SPDX-License-Identifier: Apache-2.0
"""Find the installed native parts."""

import os
from pathlib import Path

import nccltune
from nccltune.model.errors import PlatformError

ENVIRONMENT_VARIABLE = "NCCLTUNE_NATIVE_DIR"
"""A folder with `lib/` and `bin/` to be used in place of the installed one."""
TUNER = Path("lib", "libnccl-tuner-nccltune.so")
NET = Path("lib", "libnccl-net-nccltune.so")
SENDRECV = Path("lib", "libnccltune-sendrecv.so")
HOST = Path("bin", "nccltune-host")
BENCH = Path("bin", "nccltune-bench")


def tuner_path() -> Path:
    """Return the absolute path of our tuner plugin.

    Raises PlatformError where it is not installed.
    """
    return _find(TUNER, "the tuner plugin")


def net_path() -> Path:
    """Return the absolute path of our network plugin.

    Raises PlatformError where it is not installed.
    """
    return _find(NET, "the network plugin")


def sendrecv_path() -> Path:
    """Return the absolute path of the send/recv library, which is preloaded before NCCL.

    Raises PlatformError where it is not installed.
    """
    return _find(SENDRECV, "the library for sends and receives")


def host_path() -> Path:
    """Return the absolute path of the program that loads a tuner plugin as NCCL does.

    Raises PlatformError where it is not installed.
    """
    return _find(HOST, "the plugin host")


def bench_path() -> Path:
    """Return the absolute path of the program that times collectives.

    Raises PlatformError where it is not installed.
    """
    return _find(BENCH, "the bench")


def _find(part: Path, what: str) -> Path:
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        path = Path(chosen).absolute() / part
        if path.is_file():
            return path
        raise PlatformError(
            f"{what} is not there",
            where=str(path),
            hint=f"{ENVIRONMENT_VARIABLE} names a folder that must hold {part}; unset it to use "
            "the installed one",
        )
    # An editable installation has the sources and the built parts in different folders, both of
    # which are in the package's path.
    folders = [Path(folder).absolute() / "native" for folder in nccltune.__path__]
    for folder in folders:
        if (folder / part).is_file():
            return folder / part
    looked = ", ".join(str(folder / part) for folder in folders)
    raise PlatformError(
        f"{what} ({part.name}) is not installed; looked for {looked}",
        hint="install the wheel for this machine, or build the compiled parts: `make install` in a "
        "checkout, `pip install .` elsewhere (needs a C++ compiler). Or set "
        f"{ENVIRONMENT_VARIABLE} to a folder that holds {part}",
    )
