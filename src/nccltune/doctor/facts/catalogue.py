# SPDX-License-Identifier: Apache-2.0
"""All declared facts. Rules can name these facts, and the reference page lists them."""

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
