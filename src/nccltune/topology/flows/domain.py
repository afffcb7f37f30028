# SPDX-License-Identifier: Apache-2.0
"""NVLink domains of several nodes (MNNVL): a rack in which NVSwitches join the GPUs of all trays.

NCCL joins nodes whose GPUs report the same fabric UUID and clique. Its log shows the result, which
`doctor` writes into platform.json. A topology file has neither. A tray of such a rack is known by
its GPUs: their device id, or NVLink to switches outside of the tray together with NVLink-C2C.
"""

from nccltune.model.errors import InputError
from nccltune.model.topology import Gpu, Topology
from nccltune.topology.flows.settings import FlowSettings
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.change import devices_of
from nccltune.topology.hardware.classify import model_of
from nccltune.topology.hardware.fill_in import SWITCH

_SINCE = (2, 20, 0)
_MOST_GPUS = {90: 32, 100: 72}
"""The GPUs of the largest domain by compute capability: GH200 NVL32, GB200 and GB300 NVL72."""


def joined(
    topology: Topology,
    nodes: int,
    gpus: int,
    chosen: FlowSettings,
    version: Version | None = None,
    domains: int | None = None,
) -> bool:
    """Return whether NVLink joins `nodes` such nodes with `gpus` GPUs each into one domain.

    False if NCCL_MNNVL_ENABLE=0, before NCCL 2.20, which does not know such domains, and if
    `domains` is 0 (see `expect`). Raises InputError if the GPUs are more than a domain has, or the
    nodes form several domains, because NVLink in racks and a network between them is not modelled.
    """
    too_old = version is not None and version < _SINCE
    if nodes == 1 or not chosen.mnnvl or too_old or domains == 0 or not is_tray(topology):
        return False
    if domains is not None and domains > 1:
        raise InputError(
            f"NVLink joined its nodes into {domains} domains (fabric and clique), and NVLink in "
            "domains with a network between them is not modelled",
            where=topology.source,
            hint="measure nodes of one clique, or NICs alone: NCCL_MNNVL_ENABLE=0",
        )
    sm = min((gpu.sm for gpu in _gpus(topology) if gpu.sm), default=100)
    most = _MOST_GPUS[90 if sm < 100 else 100]
    if nodes * gpus > most:
        raise InputError(
            f"its nodes are trays of racks with NVLink between nodes, at most {most} GPUs a rack: "
            f"{nodes * gpus} GPUs need several racks, and NVLink in racks with a network between "
            "them is not modelled",
            where=topology.source,
            hint=f"ask for up to {most // gpus} nodes (one rack), or for NICs alone: "
            "--env NCCL_MNNVL_ENABLE=0",
        )
    return True


def note(nodes: int) -> str:
    """Return a sentence on what is assumed of `nodes` joined nodes."""
    return (
        f"assumed: the {nodes} nodes are trays of one rack, in one NVLink domain (MNNVL); the file "
        "does not show the clique. NCCL_MNNVL_ENABLE=0 leaves their NICs"
    )


def is_tray(topology: Topology) -> bool:
    """Return whether a node is a tray of a rack with NVLink between nodes."""
    models = [model_of(one) for one in devices_of(topology) if one.gpu is not None]
    if models and all(model is not None and model.nvlink == "rack" for model in models):
        return True
    gpus = _gpus(topology)
    return bool(gpus) and all(
        gpu.c2c and any(link.target.startswith(_HIDDEN) for link in gpu.nvlinks) for gpu in gpus
    )


_HIDDEN = SWITCH.partition(":")[0]
"""The start of the bus id of a switch that is outside of the tray; its end differs by version."""


def _gpus(topology: Topology) -> list[Gpu]:
    return [one.gpu for one in devices_of(topology) if one.gpu is not None]
