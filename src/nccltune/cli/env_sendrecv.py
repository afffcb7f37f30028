# SPDX-License-Identifier: Apache-2.0
"""What puts the library for sends and receives by copy engines before NCCL."""

from collections.abc import Mapping
from pathlib import Path

from nccltune.cli.env_net import Deployment

_PRELOAD = "LD_PRELOAD"
_AS_NCCL = Path("nccltune-sendrecv")
"""The folder beside the library that holds it as libnccl.so.2."""


def sendrecv_deployment(*, library: Path | None = None) -> Deployment:
    """The settings that put the library before NCCL and turn it on.

    `library` is where it will be, if not where it is here. Raises InputError for a path that the
    dynamic loader cannot be given, and PlatformError without a library.
    """
    from nccltune.model.errors import InputError
    from nccltune.native import sendrecv_path

    path = library or sendrecv_path()
    if any(sign in str(path) for sign in ": "):
        raise InputError(
            "the dynamic loader would read a colon or a blank as the end of the path",
            where=str(path),
            hint="move the library",
        )
    settings = {_PRELOAD: str(path), "NCCLTUNE_SENDRECV": "1"}
    meanings = {
        _PRELOAD: "Loaded before NCCL, in programs that are linked with it, themselves or by a "
        "module (PyTorch, nccl-tests). For those that open libnccl.so.2 by name (vLLM, CuPy, JAX) "
        f"put {path.parent / _AS_NCCL} first in LD_LIBRARY_PATH instead.",
        "NCCLTUNE_SENDRECV": "On every rank. verify compares contents, dry-run decides and counts "
        "only, 0 is off.",
    }
    return Deployment(settings, meanings, [])


def sendrecv_conflicts(environment: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """What in `environment` the `settings` replace, or what keeps them from having an effect."""
    found = []
    loaded = environment.get(_PRELOAD)
    if loaded and loaded != settings[_PRELOAD]:
        found.append(
            f"{_PRELOAD}={loaded} is set and will be replaced: to have both, name both, "
            f"{settings[_PRELOAD]}:{loaded}"
        )
    if environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        found.append("CUDA_DEVICE_MAX_CONNECTIONS=1 is set: NCCL carries everything then")
    if environment.get("NCCL_COMM_BLOCKING") == "0":
        found.append(
            "NCCL_COMM_BLOCKING=0 is set: NCCL carries everything of communicators that do not "
            "block"
        )
    return found
