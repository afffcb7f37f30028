# SPDX-License-Identifier: Apache-2.0
"""The settings that load the send/recv library before NCCL."""

import os
from collections.abc import Mapping
from pathlib import Path

from nccltune.app.env import Deployment, has_threshold
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.measure.experiments.copies.settings import (
    CONNECTIONS,
    ENOUGH_CONNECTIONS,
    MEANING,
    ON,
    TOO_FEW_CONNECTIONS,
)
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.native import sendrecv_path
from nccltune.study import names

_PRELOAD = "LD_PRELOAD"
_AS_NCCL = Path("nccltune-sendrecv")
"""The folder next to the library that has the library under the name libnccl.so.2."""


def sendrecv_deployment(*, library: Path | None = None, study: Path | None = None) -> Deployment:
    """Return the settings that load the library before NCCL and turn it on.

    What comparisons in `study` recommend is added, and may turn it off. `library` is its path on
    the nodes; None is ours. Raises InputError for a path that LD_PRELOAD cannot express and for a
    study without such settings, PlatformError without the library.
    """
    if study is not None and not has_threshold(study):
        raise InputError(
            "holds no threshold of copy engines",
            where=str(study),
            hint=f"find it: nccltune sendrecv sweep -o {study}",
        )
    path = library or sendrecv_path()
    if any(sign in str(path) for sign in ": "):
        raise InputError(
            "the dynamic loader would read a colon or a blank as the end of the path",
            where=str(path),
            hint="move the library",
        )
    connections = os.environ.get(CONNECTIONS) or ENOUGH_CONNECTIONS
    settings = {_PRELOAD: str(path), ON: "1", CONNECTIONS: connections}
    meanings = {
        _PRELOAD: "Loaded before NCCL, in programs that are linked with it, themselves or by a "
        "module (PyTorch, nccl-tests). For those that open libnccl.so.2 by name (vLLM, CuPy, JAX) "
        f"put {path.parent / _AS_NCCL} first in LD_LIBRARY_PATH instead.",
        ON: "On every rank. verify compares contents, dry-run decides and counts only, 0 is off.",
        CONNECTIONS: "Must be set before the program starts. 1 for programs that require it "
        "(Megatron-LM); 1 or 16 under NVIDIA's MPS, where all processes share them.",
    }
    notes = []
    if study is not None:
        found = _recommended(study / names.SENDRECV_CONF)
        settings |= found
        meanings |= {
            name: f"{MEANING[name][0].upper()}{MEANING[name][1:]}, by {study}." for name in found
        }
        if found.get(ON) == "0":
            notes.append(
                f"{study} has found that copy engines do not pay there: {ON}=0 leaves everything "
                "to NCCL, as without these lines"
            )
    return Deployment(settings, meanings, notes + sendrecv_conflicts(os.environ, settings))


def _recommended(conf: Path) -> dict[str, str]:
    found = read_conf(conf)
    for name in found:
        if name not in MEANING:
            raise InputError(
                f"{name} is not a setting of the library before NCCL",
                where=str(conf),
                hint=nearest(name, list(MEANING)),
            )
    return found


def sendrecv_conflicts(environment: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Return warnings for variables that `settings` replace, or that change how it waits."""
    found = []
    loaded = environment.get(_PRELOAD)
    if loaded and loaded != settings[_PRELOAD]:
        found.append(
            f"{_PRELOAD}={loaded} is set and will be replaced: to have both, name both, "
            f"{settings[_PRELOAD]}:{loaded}"
        )
    connections = environment.get(CONNECTIONS)
    if connections in TOO_FEW_CONNECTIONS:
        found.append(
            f"{CONNECTIONS}={connections} is set: NCCL then carries everything; "
            "unset it, or use 1, or at least 16"
        )
    if connections == "1":
        found.append(
            f"{CONNECTIONS}=1 is set: streams then wait by kernels, and a threshold "
            "measured with 32 connections is too low; use at least NCCLTUNE_SENDRECV_FROM=8M"
        )
    return found
