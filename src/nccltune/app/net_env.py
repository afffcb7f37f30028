# SPDX-License-Identifier: Apache-2.0
"""The settings that make stock NCCL load the network plugin, by version of NCCL."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from nccltune.app.env import Deployment
from nccltune.model.errors import InputError
from nccltune.model.nccl_releases import NcclRelease, nccl_release
from nccltune.native import net_path
from nccltune.native.locate import LONGEST_PATH
from nccltune.native.locate import NET_NAME as NAME

_USE_IT = (
    "No other network: a plugin that cannot be loaded is an error. Without this line NCCL would "
    "take its own sockets instead and log that at NCCL_DEBUG=INFO only."
)
_KEEP_IT = (
    "The plugin stays loaded: NCCL 2.28.3 to 2.29.7 forget its name when the last communicator "
    "ends, and the next one would not get it."
)


def net_deployment(*, plugin: Path | None = None, nccl: str | None = None) -> Deployment:
    """Return the settings that make NCCL load and use the network plugin.

    `plugin` is its path, `nccl` the NCCL version on the nodes; None assumes ours and one that takes
    a path. Raises InputError for those that do not work, PlatformError without a plugin.
    """
    release = None if nccl is None else _release(nccl)
    path = plugin or net_path()
    settings, meanings, notes = {}, {}, []
    if release is not None and not release.opens_paths:
        settings["NCCL_NET_PLUGIN"] = NAME
        meanings["NCCL_NET_PLUGIN"] = (
            f"NCCL {nccl} takes no path here: it looks for libnccl-net-{NAME}.so where the dynamic "
            "loader looks."
        )
        notes.append(
            f"{path.parent} has to be in LD_LIBRARY_PATH when the processes start, or in the "
            "configuration of ldconfig"
        )
    else:
        settings["NCCL_NET_PLUGIN"] = _checked(path)
        meanings["NCCL_NET_PLUGIN"] = (
            "Loaded in place of NCCL's own TCP transport."
            if release
            else "Loaded in place of NCCL's own TCP transport. NCCL up to 2.20 and 2.27.3 take no "
            "path: nccltune net env --nccl-version VERSION prints what they take."
        )
    settings["NCCL_NET"] = NAME
    meanings["NCCL_NET"] = _USE_IT
    if release is None or release.forgets_plugin:
        settings["NCCL_NET_PLUGIN_REF_COUNT"] = "1"
        meanings["NCCL_NET_PLUGIN_REF_COUNT"] = _KEEP_IT
    warnings = notes + net_conflicts(os.environ, settings)
    return Deployment(settings, meanings, warnings)


def net_conflicts(environment: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Return warnings for variables that `settings` replace or that do not affect the plugin."""
    found = [
        f"{name}={environment[name]} is set and will be replaced"
        for name in settings
        if environment.get(name) and environment[name] != settings[name]
    ]
    found += [
        f"{name} is set: it is for NCCL's own sockets; the plugin has {ours}"
        for name, ours in (
            ("NCCL_SOCKET_NTHREADS", "NCCLTUNE_NET_THREADS"),
            ("NCCL_NSOCKS_PERTHREAD", "NCCLTUNE_NET_FLOWS"),
        )
        if environment.get(name)
    ]
    return found


def _release(text: str) -> NcclRelease:
    if re.fullmatch(r"v?\d+\.\d+(\.\d+)?([-+].*)?", text) is None:
        raise InputError(f"{text!r} is not a version", where="‹nccl_version›", hint="as in 2.28.9")
    found = nccl_release(text)
    if found is None:
        raise InputError(
            f"NCCL {text} cannot load the network plugin", hint="NCCL 2.13 and newer can"
        )
    return found


def _checked(path: Path) -> str:
    text = str(path)
    if "," in text:
        raise InputError(
            "NCCL would read the comma as the end of the path", where=text, hint="move the plugin"
        )
    if len(text.encode()) > LONGEST_PATH:
        raise InputError(
            f"NCCL takes {LONGEST_PATH} bytes of a path at most", where=text, hint="move the plugin"
        )
    return text
