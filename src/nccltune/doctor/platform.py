# SPDX-License-Identifier: Apache-2.0
"""What was found of nodes as a study's `platform.json`."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from nccltune.doctor.facts import Facts
from nccltune.model.platform import Platform


def fill_platform(platform: Platform, nodes: Mapping[str, Facts], at: str) -> Platform:
    """`platform` with what the nodes tell where it knows nothing; what it knows stays.

    Where nodes differ, what most of them have. `at` is the time of reading, ISO 8601.
    """
    told: dict[str, Any] = {
        "gpu": _most(_gpu(facts) for facts in nodes.values()),
        "gpus": _most(_gpu_count(facts) for facts in nodes.values()),
        "link": _most(_link(facts) for facts in nodes.values()),
        "network": _most(_network(facts) for facts in nodes.values()),
        "nodes": len(nodes) if len(nodes) > 1 else None,
        "nccl_version": _most(facts.value("nccl.version") for facts in nodes.values()),
        "driver_version": _most(facts.value("gpu.driver") for facts in nodes.values()),
        "recorded_at": at,
    }
    news = {
        name: value
        for name, value in told.items()
        if value is not None and getattr(platform, name) is None
    }
    settings = platform.settings or _settings(nodes)
    return msgspec.structs.replace(platform, **news, settings=settings)


def _most(values: Any) -> Any:
    known = Counter(value for value in values if value is not None)
    return known.most_common(1)[0][0] if known else None


def _gpu(facts: Facts) -> str | None:
    names = [gpu.get("name") for gpu in facts.value("gpus") or () if gpu.get("name")]
    return _most(names)  # type: ignore[no-any-return]


def _gpu_count(facts: Facts) -> int | None:
    return len(facts.value("gpus") or ()) or None


def _link(facts: Facts) -> str | None:
    paths = facts.value("gpu.paths")
    if not paths:
        return None
    return "NVLink" if any(path.get("kind") in ("NVL", "NVB") for path in paths) else "PCIe"


def _network(facts: Facts) -> str | None:
    used = facts.value("log.net")
    if used:
        return str(used)
    layers = [hca.get("link_layer") for hca in facts.value("hcas") or () if hca.get("link_layer")]
    return {"Ethernet": "RoCE", "Unspecified": "EFA"}.get(layers[0], layers[0]) if layers else None


def _settings(nodes: Mapping[str, Facts]) -> dict[str, str]:
    """The NCCL_* settings in force that most nodes have."""
    counted: Counter[tuple[str, str]] = Counter()
    for facts in nodes.values():
        for record in facts.value("settings") or ():
            name = record.get("name") or ""
            if record.get("in_force") and name.startswith("NCCL_"):
                counted[name, record.get("value") or ""] += 1
    # A share of the nodes asks for a majority: an outlier's setting is not the platform's.
    return {name: value for (name, value), count in counted.items() if 2 * count > len(nodes)}
