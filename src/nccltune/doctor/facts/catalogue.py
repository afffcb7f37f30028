# SPDX-License-Identifier: Apache-2.0
"""All declared facts: the ones that rules can name, and that the reference page lists."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nccltune.doctor.facts import (  # noqa: F401 (each declares its facts)
    cloud,
    gpu,
    log,
    network,
    node,
    pci,
    results,
    settings,
    topo,
)
from nccltune.doctor.facts.declaration import FactName, declared


def catalogue() -> Mapping[str, FactName[Any]]:
    """Return every declared fact by its name."""
    return MappingProxyType(declared())
