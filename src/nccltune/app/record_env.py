# SPDX-License-Identifier: Apache-2.0
"""The settings that make NCCL record what a job calls."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from nccltune.app.env import Deployment
from nccltune.model.errors import InputError
from nccltune.native import recorder_path
from nccltune.native.locate import LONGEST_PATH

PLUGIN, FOLDER, NEXT = "NCCL_PROFILER_PLUGIN", "NCCLTUNE_RECORD", "NCCLTUNE_RECORD_NEXT"


def record_deployment(folder: Path, *, recorder: Path | None = None) -> Deployment:
    """Return the settings that record the calls of each process into a file in `folder`.

    A profiler plugin that this environment names gets all events, too. `recorder` is the path of
    the recorder on the nodes; None is its path on this machine. Raises InputError for a folder that
    is a file and a path that NCCL does not take, PlatformError if the recorder is not installed.
    """
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise InputError("is no folder", where=str(folder), hint="name a folder for the recorder")
    warnings = []
    if not folder.parent.is_dir():
        warnings.append(
            f"{folder.parent} is no folder on this machine, and the recorder makes only the last "
            f"one of its path. On the nodes: mkdir -p {shlex.quote(str(folder))}"
        )
    path = recorder or recorder_path()
    if len(str(path).encode()) > LONGEST_PATH:
        raise InputError(
            f"NCCL takes {LONGEST_PATH} bytes of a path at most", where=str(path), hint="move it"
        )
    settings = {PLUGIN: str(path), FOLDER: str(folder)}
    meanings = {
        PLUGIN: "The recorder counts calls and takes no times. It is for NCCL 2.27.5 and newer; "
        "older releases do not load it.",
        FOLDER: "A folder that all ranks can write. Each process writes a file at its end, and at "
        f"calls after:\ntouch {shlex.quote(settings[FOLDER] + '/.write')}",
    }
    if other := _other_profiler(os.environ, path):
        settings[NEXT] = other
        meanings[NEXT] = f"{PLUGIN} had this plugin, which gets all events, too."
    return Deployment(settings, meanings, warnings)


def _other_profiler(environment: Mapping[str, str], recorder: Path) -> str | None:
    """Return the profiler plugin that an environment has beside the recorder."""
    named = environment.get(PLUGIN, "")
    if named.lower() == "none" or named in ("nccltune", str(recorder), recorder.name):
        named = ""
    return named or environment.get(NEXT) or None
