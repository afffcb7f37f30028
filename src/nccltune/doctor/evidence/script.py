# SPDX-License-Identifier: Apache-2.0
"""Make the shell script that collects the files of a node, from the list in `catalogue`."""

import shlex
from importlib.resources import files

import nccltune
from nccltune.doctor.evidence import plugins
from nccltune.doctor.evidence.catalogue import (
    COMMANDS,
    LOGIND,
    PACKAGES,
    PCI,
    PCI_CLASSES,
    PLUGIN_KINDS,
    PROFILES,
    SERVICES,
    SETTINGS,
    TEXTS,
    VALUES,
    ToolCommand,
)
from nccltune.doctor.evidence.parsers.kernel_log import WORDS
from nccltune.doctor.evidence.redacting import CMDLINE_NAMES, LIBRARY_WORDS, MOUNT_POINTS

_TEXT_FILTERS = {
    "cmdline": "words",
    "cpuinfo": "first_cpu",
    "etc-nccl-conf": "conf",
    "mounts": "mounts",
}
_TOOL_FILTERS = {"dmesg": "kernel_log", "ldconfig": "libraries"}
_PLAIN = ("nvidia-smi", "nvlink", "ibv_devinfo", "lspci", "addresses")


def collect_script() -> str:
    """Return a POSIX shell script that writes the same files as `nccltune doctor --collect`."""
    text = files("nccltune.doctor.evidence").joinpath("collect.sh.in").read_text(encoding="utf-8")
    device = "/sys/bus/pci/devices/*"
    filled = {
        "VERSION": nccltune.__version__,
        "LOG": "|".join(WORDS),
        "CMDLINE": "|".join(CMDLINE_NAMES),
        "LIBRARY_WORDS": "|".join(LIBRARY_WORDS),
        "MOUNT_POINTS": "|".join(MOUNT_POINTS),
        "SETTINGS": "|".join(SETTINGS),
        "CLASSES": "|".join(PCI_CLASSES),
        "PCI_VALUES": "".join(
            f' "$device"{pattern.removeprefix(device)}' for pattern in PCI.patterns
        ),
        "PCI_LINKS": "".join(
            f' "$device"{pattern.removeprefix(device)}' for pattern in PCI.links[1:]
        ),
        "VALUES": _values(),
        "TEXTS": "\n".join(
            f"text {item.name} {_TEXT_FILTERS.get(item.name, 'same')} {item.path}" for item in TEXTS
        ),
        "COMMANDS": "\n".join(_command(item) for item in COMMANDS),
        "LOGIND": " ".join(LOGIND),
        "PROFILES": " ".join(PROFILES),
        "SERVICES": " ".join(SERVICES),
        "PACKAGES": " ".join(PACKAGES),
        "FOLDERS": " ".join(plugins.FOLDERS),
        "KNOWN": " ".join(plugins.KNOWN),
        "LIBRARIES": " ".join(plugins.LIBRARIES),
        "KINDS": " ".join(PLUGIN_KINDS),
    }
    for name, value in filled.items():
        text = text.replace(f"@{name}@", value)
    return text


def _values() -> str:
    lines = []
    for item in VALUES:
        if item.name == PCI.name:
            continue
        lines.append(f': >"$dir/{item.name}.txt"')
        if item.patterns:
            lines.append(f"values {item.name} {' '.join(item.patterns)}")
        if item.links:
            lines.append(f"links {item.name} {' '.join(item.links)}")
    return "\n".join(lines)


def _command(item: ToolCommand) -> str:
    chosen = _TOOL_FILTERS.get(item.name) or ("plain" if item.name.startswith(_PLAIN) else "same")
    # Some versions of `timeout` accept only whole seconds.
    return f"run {item.name} {round(item.deadline_s + 0.5)} {chosen} {shlex.join(item.words)}"
