# SPDX-License-Identifier: Apache-2.0
"""Find the installed compiled parts."""

import os
from pathlib import Path

import nccltune
from nccltune.model.errors import PlatformError

ENVIRONMENT_VARIABLE = "NCCLTUNE_NATIVE_DIR"
"""Environment variable with a folder (`lib/` and `bin/`) to use instead of the installed parts."""
TUNER = Path("lib", "libnccl-tuner-nccltune.so")
NET = Path("lib", "libnccl-net-nccltune.so")
LONGEST_PATH = 254
"""The longest path of a plugin in bytes: since 2.26, NCCL stores the name in 255 bytes."""
NET_NAME = "nccltune"
"""The network plugin's name: the value of NCCL_NET, and `x` in the file name `libnccl-net-x.so`."""
RECORDER = Path("lib", "libnccl-profiler-nccltune.so")
SENDRECV = Path("lib", "libnccltune-sendrecv.so")
HOST = Path("bin", "nccltune-host")
BENCH = Path("bin", "nccltune-bench")


def tuner_path() -> Path:
    """Return the path of the tuner plugin. Raises PlatformError if it is not installed."""
    return _find(TUNER, "the tuner plugin")


def net_path() -> Path:
    """Return the path of the network plugin. Raises PlatformError if it is not installed."""
    return _find(NET, "the network plugin")


def recorder_path() -> Path:
    """Return the absolute path of the profiler plugin that records calls.

    Raises PlatformError if it is not installed.
    """
    return _find(RECORDER, "the recorder")


def sendrecv_path() -> Path:
    """Return the path of the send/recv library, to be preloaded. Raises PlatformError."""
    return _find(SENDRECV, "the library for sends and receives")


def host_path() -> Path:
    """Return the path of the program that loads a tuner plugin as NCCL does; PlatformError."""
    return _find(HOST, "the plugin host")


def bench_path() -> Path:
    """Return the path of the program that times collectives. Raises PlatformError."""
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
    # In an editable installation, the sources and the built parts are in different folders. The
    # package's path has both folders.
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
