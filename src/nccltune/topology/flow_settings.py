# SPDX-License-Identifier: Apache-2.0
"""The settings of NCCL that decide where a collective's bytes go: those of paths, and the rest."""

from collections.abc import Mapping

import msgspec

from nccltune.model.choice import Algorithm
from nccltune.model.errors import InputError
from nccltune.topology.settings import PathSettings, path_settings

READ = (
    "NCCL_NET_GDR_READ",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_C2C",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_NVB_DISABLE",
    "NCCL_PXN_DISABLE",
    "NCCL_PXN_C2C",
    "NCCL_IB_HCA",
    "NCCL_ALGO",
    "NCCL_CROSS_NIC",
    "NCCL_NVLS_ENABLE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
)
"""The names that count here; others change no flow."""
_ALGORITHMS = (Algorithm.RING, Algorithm.TREE, Algorithm.NVLS)


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is set; None leaves it to NCCL. `nics` is `NCCL_IB_HCA`'s list as given."""

    path: PathSettings = PathSettings()
    nics: str | None = None
    algorithm: Algorithm | None = None
    cross_nic: int = 2
    nvls: bool | None = None
    min_channels: int | None = None
    max_channels: int | None = None


def flow_settings(environment: Mapping[str, str]) -> FlowSettings:
    """The flow settings among `environment`; other names are passed over.

    Raises InputError for a number that is none.
    """
    nvls = _whole(environment, "NCCL_NVLS_ENABLE")
    cross_nic = _whole(environment, "NCCL_CROSS_NIC")
    if cross_nic is not None and cross_nic not in (0, 1, 2):
        raise InputError(f"{cross_nic} is not 0, 1 or 2", where="NCCL_CROSS_NIC")
    return FlowSettings(
        path=path_settings(environment),
        nics=environment.get("NCCL_IB_HCA") or None,
        algorithm=_algorithm(environment.get("NCCL_ALGO")),
        cross_nic=2 if cross_nic is None else cross_nic,
        nvls=None if nvls is None or nvls == 2 else nvls != 0,
        min_channels=_whole(environment, "NCCL_MIN_NCHANNELS"),
        max_channels=_whole(environment, "NCCL_MAX_NCHANNELS"),
    )


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None or not text.strip():
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{text!r} is not a whole number", where=name) from None


def _algorithm(text: str | None) -> Algorithm | None:
    """The one algorithm of `NCCL_ALGO` that the flow model knows; None where it names several or
    leaves them to NCCL. A list by collective (`allreduce:tree`, NCCL 2.24) is left to NCCL too."""
    named = (text or "").strip().lower()
    return Algorithm(named) if named in _ALGORITHMS else None
