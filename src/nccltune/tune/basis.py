# SPDX-License-Identifier: Apache-2.0
"""What rules rest on: the facts of a platform that a configuration's header keeps."""

from collections.abc import Mapping

from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.model.platform import Platform

FACTS = {
    "nccl": "NCCL",
    "driver": "driver",
    "gpu": "GPU",
    "gpus": "GPUs of a node",
    "topology": "topology",
    "settings": "NCCL settings",
}
"""The keys of the header, with their names in messages."""
_LONGEST = 150


def rests_on(platform: Platform) -> dict[str, str]:
    """Return the facts of a platform by key, without those that are not known.

    A plain study of measurements shows no settings; one that was measured here shows `none`.

    >>> rests_on(Platform(name="a", nccl_version="2.28.9", gpus=16, nodes=2))
    {'nccl': '2.28.9', 'gpus': '8'}
    """
    nodes = 1 if platform.emulated_nodes else platform.nodes or 1
    found = {
        "nccl": platform.nccl_version,
        "driver": platform.driver_version,
        "gpu": platform.gpu,
        "gpus": str(platform.gpus // nodes) if platform.gpus else None,
        "topology": platform.topology_hash,
        "settings": _settings_text(platform.settings)
        if platform.settings or platform.recorded_at
        else None,
    }
    return {key: value for key, value in found.items() if value}


def _settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as they stand in a header; many of them as their number and hash."""
    text = " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "none"
    # A header has no double quotes in values, and only characters that can be printed.
    plain = "".join(char if char.isprintable() else " " for char in text).replace('"', "'")
    if len(plain.encode()) <= _LONGEST:
        return plain
    return f"{len(settings)} variables, hash {config_hash(text.encode())}"
