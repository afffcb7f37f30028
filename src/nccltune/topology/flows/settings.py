# SPDX-License-Identifier: Apache-2.0
"""The NCCL settings that change the flows of a collective: paths, NICs, algorithm and channels."""

from collections.abc import Mapping, Sequence

import msgspec

from nccltune.model.choice import Algorithm
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.nccl_variables import RELEASES, is_foreign, nearest_variable, table
from nccltune.topology.nccl_model.settings import PathSettings, path_settings

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
    "NCCL_MNNVL_ENABLE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
)
"""The settings that are read here. No other setting changes a flow."""
_ALGORITHMS = (Algorithm.RING, Algorithm.TREE, Algorithm.NVLS, Algorithm.NVLS_TREE)


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that change flows; None is NCCL's default. `nics` is `NCCL_IB_HCA`."""

    path: PathSettings = PathSettings()
    nics: str | None = None
    algorithm: Algorithm | None = None
    cross_nic: int = 2
    nvls: bool | None = None
    mnnvl: bool = True
    min_channels: int | None = None
    max_channels: int | None = None


def flow_settings(environment: Mapping[str, str]) -> FlowSettings:
    """Return the flow settings in `environment`. Raises InputError for an invalid value."""
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
        mnnvl=_whole(environment, "NCCL_MNNVL_ENABLE") != 0,
        min_channels=_whole(environment, "NCCL_MIN_NCHANNELS"),
        max_channels=_whole(environment, "NCCL_MAX_NCHANNELS"),
    )


def check_name(name: str, modelled: Sequence[str] = READ, *, others: bool = False) -> None:
    """Raise InputError for a variable that is not `modelled`; with `others` if NCCL reads none."""
    is_read = name in table() or is_foreign(name)
    if name in modelled or (others and is_read):
        return
    meant, near = nearest_variable(name), nearest(name, modelled)
    problem = "not modelled" if is_read else f"no variable of NCCL {RELEASES}"
    raise InputError(f"{name} is {problem}", hint=f"did you mean {meant}?" if meant else near)


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None or not text.strip():
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{text!r} is not a whole number", where=name) from None


def _algorithm(text: str | None) -> Algorithm | None:
    """Return the algorithm of `NCCL_ALGO`; None for lists, of which NCCL makes a choice."""
    named = (text or "").strip().lower().replace("nvlstree", Algorithm.NVLS_TREE)
    return Algorithm(named) if named in _ALGORITHMS else None
