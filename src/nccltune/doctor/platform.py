# SPDX-License-Identifier: Apache-2.0
"""Fill a study's `platform.json` with facts of nodes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.gpu import GPU_DRIVER, GPU_PATHS, GPUS
from nccltune.doctor.facts.log import LOG_NET, LOG_NVLINK_DOMAINS
from nccltune.doctor.facts.network import HCAS
from nccltune.doctor.facts.settings import NCCL_VERSION, SETTINGS
from nccltune.model.platform import Platform


def fill_platform(platform: Platform, nodes: Mapping[str, Facts], at: str) -> Platform:
    """Return `platform` with its unknown fields filled from the nodes. Known fields are kept.

    If nodes differ, the most common value is used. `at` is the time of reading, ISO 8601.
    """
    found: dict[str, Any] = {
        "gpu": _most(_gpu(facts) for facts in nodes.values()),
        "gpus": _most(_gpu_count(facts) for facts in nodes.values()),
        "link": _most(_link(facts) for facts in nodes.values()),
        "network": _most(_network(facts) for facts in nodes.values()),
        "nodes": len(nodes) if len(nodes) > 1 else None,
        "nccl_version": _most(facts.value(NCCL_VERSION) for facts in nodes.values()),
        "nvlink_domains": _most(facts.value(LOG_NVLINK_DOMAINS) for facts in nodes.values()),
        "driver_version": _most(facts.value(GPU_DRIVER) for facts in nodes.values()),
        "recorded_at": at,
    }
    news = {
        name: value
        for name, value in found.items()
        if value is not None and getattr(platform, name) is None
    }
    settings = platform.settings or _settings(nodes)
    return msgspec.structs.replace(platform, **news, settings=settings)


def _most(values: Any) -> Any:
    known = Counter(value for value in values if value is not None)
    return known.most_common(1)[0][0] if known else None


def _gpu(facts: Facts) -> str | None:
    names = [gpu.name for gpu in facts.value(GPUS) or () if gpu.name]
    return _most(names)  # type: ignore[no-any-return]


def _gpu_count(facts: Facts) -> int | None:
    gpus = facts.value(GPUS)
    return len(gpus) if gpus else None


def _link(facts: Facts) -> str | None:
    paths = facts.value(GPU_PATHS)
    if not paths:
        return None
    return "NVLink" if any(path.kind in ("NVL", "NVB") for path in paths) else "PCIe"


def _network(facts: Facts) -> str | None:
    used = facts.value(LOG_NET)
    if used:
        return str(used)
    layers = [hca.link_layer for hca in facts.value(HCAS) or () if hca.link_layer]
    return {"Ethernet": "RoCE", "Unspecified": "EFA"}.get(layers[0], layers[0]) if layers else None


def _settings(nodes: Mapping[str, Facts]) -> dict[str, str]:
    """Return the NCCL_* settings in force that most nodes have."""
    counted: Counter[tuple[str, str]] = Counter()
    for facts in nodes.values():
        for record in facts.value(SETTINGS) or ():
            name = record.name or ""
            if record.in_force and name.startswith("NCCL_"):
                counted[name, record.value or ""] += 1
    # Require a majority: a setting of a single outlier is not a setting of the platform.
    return {name: value for (name, value), count in counted.items() if 2 * count > len(nodes)}
