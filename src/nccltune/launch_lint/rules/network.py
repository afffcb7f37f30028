# SPDX-License-Identifier: Apache-2.0
"""Find faults in settings of libfabric and of the plugin through which NCCL uses it.

NCCL reads none of them: only aws-ofi-nccl does. Sources: its `doc/efa-env-var.md` and
`include/nccl_ofi_param.h` (1.19).
"""

from collections.abc import Iterator

from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.rules.variables import edits_of
from nccltune.launch_lint.words import is_open, nearest
from nccltune.model.nccl_variables import OFI_PARAMETERS, OFI_PREFIX

_VALUES = {
    "OFI_NCCL_PROTOCOL": ("SENDRECV", "RDMA"),
    "OFI_NCCL_TUNER_TYPE": ("INTERNAL", "REGION", "MODEL"),
    "OFI_NCCL_PROGRESS_MODEL": ("UNSPEC", "AUTO", "MANUAL"),
}
_OVER_TCP = ("tcp", "sockets", "udp")
_NOT_NEEDED = ("FI_EFA_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_ENABLE_SHM_TRANSFER")


_ENDS = ("FI_EFA_MTU_SIZE", "FI_EFA_TX_IOV_LIMIT", "FI_EFA_RX_IOV_LIMIT")
"""Variables that libfabric does not accept any more (`prov/efa/src/efa_env.c` of 2.x)."""
_OLD = "FI_OFI_RXR_"


def provider(view: View) -> Iterator[LaunchFinding]:
    """Find a provider of libfabric that is plain TCP, alone or beside settings of EFA."""
    given = {v.name: v for v in view.variables if v.value is not None}
    chosen = given.get("FI_PROVIDER")
    value = (chosen.value or "").lower() if chosen is not None else ""
    if chosen is None or value.partition(";")[0] not in _OVER_TCP:
        return
    said = f"FI_PROVIDER={chosen.value}: a libfabric plugin of NCCL then sends by TCP"
    if efa := next((name for name in given if name.startswith("FI_EFA_")), None):
        yield warning(
            "settings-contradict",
            f"{said}, and {efa} has no effect",
            "leave out FI_PROVIDER, or write FI_PROVIDER=efa",
            edits_of(chosen, None),
        )
    else:
        yield note("fi-provider", f"{said}; without such a plugin it has no effect")


def efa(view: View) -> Iterator[LaunchFinding]:
    """Find settings of EFA that cost bandwidth, or that current releases do not need."""
    given = {v.name: v for v in view.variables if v.value is not None}
    rdma = given.get("FI_EFA_USE_DEVICE_RDMA")
    if rdma is not None and rdma.value == "0":
        yield warning(
            "setting-left-over",
            "FI_EFA_USE_DEVICE_RDMA=0: EFA's RDMA is off, which P4d, P5 and newer instances have",
            "leave it out, unless this is what you measure",
        )
    elif old := [name for name in _NOT_NEEDED if name in given]:
        yield note(
            "efa-not-needed",
            f"{', '.join(old)}: not needed since aws-ofi-nccl 1.7 with libfabric 1.18",
        )
    uses_efa = any(name.startswith("FI_EFA_") for name in given) or (
        "FI_PROVIDER" in given and given["FI_PROVIDER"].value == "efa"
    )
    if "RDMAV_FORK_SAFE" in given and uses_efa:
        yield note(
            "efa-not-needed",
            "RDMAV_FORK_SAFE is not for EFA: aws-ofi-nccl sets what it needs, and with new kernels"
            " this can break",
        )


def removed(view: View) -> Iterator[LaunchFinding]:
    """Find variables of EFA that newer releases of libfabric ignore, or end the process for."""
    for variable in view.variables:
        name, value = variable.name, variable.value or ""
        if name in _ENDS or (name == "FI_EFA_TX_MIN_CREDITS" and value == "0"):
            yield error(
                "efa-refused",
                f"{name}{'=0' * (name not in _ENDS)}: libfabric 2 ends the process",
                "leave it out",
                edits_of(variable, None),
            )
    if old := [variable.name for variable in view.variables if variable.name.startswith(_OLD)]:
        kept = [f"FI_EFA_{name.removeprefix(_OLD)}" for name in old if "RX_COPY_" in name]
        said = f"{', '.join(old)}: without effect, newer releases of libfabric have no {_OLD}*"
        yield note("efa-not-needed", said + f" ({' and '.join(kept)} there)" * bool(kept))


def plugin(view: View) -> Iterator[LaunchFinding]:
    """Find misspelt names and values of aws-ofi-nccl's variables."""
    for variable in view.variables:
        name, value = variable.name, variable.value or ""
        if not name.startswith(OFI_PREFIX):
            continue
        rest, known = name.removeprefix(OFI_PREFIX), _VALUES.get(name, ())
        near = nearest(rest, OFI_PARAMETERS, 0.9)
        if near is not None and near != rest:
            yield error(
                "variable-unknown",
                f"aws-ofi-nccl has no variable {name}: it has no effect",
                f"write {OFI_PREFIX}{near}",
                edits_of(variable, f"{OFI_PREFIX}{near}"),
            )
        elif known and value and not is_open(value) and value.upper() not in known:
            yield error("variable-value", f"{name}={value}: aws-ofi-nccl takes {', '.join(known)}")
