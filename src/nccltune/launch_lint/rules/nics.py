# SPDX-License-Identifier: Apache-2.0
"""Find wrong interfaces, NICs, GIDs and networks in the values of NCCL's variables."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from nccltune.launch_lint.command import CommandVariable, View
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.rules.variables import edits_of, nodes_of, rewritten
from nccltune.launch_lint.words import is_open

_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}(/\d+)?|[0-9a-fA-F]*:[0-9a-fA-F:]+(/\d+)?")
_RDMA = re.compile(r"(mlx[45]|bnxt_re|irdma|efa|hns|qedr|cxgb4|hfi1|rocep|rxe)_?\w*")
_ETHERNET = re.compile(r"(eth|eno|ens|enp|em|bond|lo|docker|br|wlan|hsn|ipogif)\d\w*|lo|ib\d+")
_BRIDGES = ("docker", "virbr", "cni", "veth", "br-", "flannel", "cali", "lxc")


def interfaces(view: View) -> Iterator[LaunchFinding]:
    """Find interfaces that reach no other node, and values that are not names of interfaces."""
    for variable in view.variables:
        if variable.name not in ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"):
            continue
        value = variable.value or ""
        if not value or is_open(value):
            continue
        if (found := _list_fault(variable, "interface")) is not None:
            yield found
            continue
        if value.startswith("^"):
            if nodes_of(view) > 1 and "lo" not in value.lstrip("^=").split(","):
                why = (
                    f"{variable.name}={value}: such a list takes the place of NCCL's own, which"
                    " leaves out lo, too: NCCL may take the loopback, which reaches no other node"
                )
                yield rewritten("interface", variable, why, f"{value},lo", grade=warning)
            continue
        if re.search(r"[\s;]|:\D", value) and not _ADDRESS.fullmatch(value):
            parts = re.split(r"[\s;:,]+", value.removeprefix("="))
            right = ("=" if value.startswith("=") else "") + ",".join(filter(None, parts))
            why = f"{variable.name}={value}: names are separated by ',' without blanks"
            yield rewritten("interface", variable, why, right)
            continue
        named = value.removeprefix("=").split(",")
        if (fault := _interface_fault(named, view)) is not None:
            yield error(
                "interface",
                f"{variable.name}={value}: {fault}",
                f"leave out {variable.name}, or name the interface that all nodes reach",
                edits_of(variable, None),
            )


def _interface_fault(names: list[str], view: View) -> str | None:
    if any(_ADDRESS.fullmatch(name) for name in names):
        return "NCCL takes names of interfaces such as eth0, not addresses"
    if any(_RDMA.fullmatch(name) for name in names):
        return "this is an RDMA device (NCCL_IB_HCA takes it), not an IP interface"
    if nodes_of(view) < 2:
        return None
    if all(name == "lo" for name in names):
        return "the loopback interface reaches no other node"
    if all(name.startswith(_BRIDGES) for name in names):
        return "this is a bridge inside each node, which reaches no other node"
    return None


def _list_fault(variable: CommandVariable, kind: str) -> LaunchFinding | None:
    """Return a finding for `^` and `=` where NCCL does not read them, or None.

    NCCL reads `^`, then `=`, at the start of the whole list only (`src/transport/net_ib/init.cc`,
    `src/misc/socket.cc`).
    """
    value = variable.value or ""
    sign = re.match(r"[\^=]*", value)
    assert sign is not None
    lead = sign[0]
    rest = value[len(lead) :].split(",")
    later = [part for part in rest if part.startswith(("^", "="))]
    if lead in ("", "^", "=", "^=") and not later:
        # `NAME==eth0` of a shell is a list that begins with "=".
        return None
    bad = later[0] if later else lead
    # With other signs than at the start it is unknown which of the two was meant.
    is_same = all(re.match(r"[\^=]*", part)[0] == lead for part in later)  # type: ignore[index]
    right = "^=" if set(lead) == {"^", "="} else lead[:1]
    right += ",".join(part.lstrip("^=") for part in rest)
    edits = edits_of(variable, variable.name, right) if is_same else ()
    return error(
        kind,
        f"{variable.name}={value}: NCCL reads ^ and = only at the start of the whole list, in this"
        f" order, so that {bad!r} names nothing",
        f"write {variable.name}={right}"
        if is_same
        else "name either what is used, or after ^ what is not",
        edits,
    )


_PORT = re.compile(r"[\w.-]+(?::[0-9]{0,9}){0,3}", re.ASCII)


def _port_fault(variable: CommandVariable) -> LaunchFinding | None:
    """Return a finding for `mlx5_0/1`: the port of a device follows `:`."""
    value = variable.value or ""
    lead = value[: len(value) - len(value.lstrip("^="))]
    parts = [part for part in value[len(lead) :].split(",") if part]
    bad = next((part for part in parts if not _PORT.fullmatch(part)), None)
    if (none := next((part for part in parts if part.endswith(":0")), None)) is not None:
        right = lead + ",".join(re.sub(r":0$", ":1", part) for part in parts)
        why = f"{variable.name}={value}: ports count from 1, so that NCCL finds no {none!r}"
        return rewritten("hca", variable, why, right)
    if bad is None:
        return None
    right = lead + ",".join(re.sub(r"/([0-9]+)$", r":\1", part) for part in parts)
    known = all(_PORT.fullmatch(part) for part in right[len(lead) :].split(","))
    return error(
        "hca",
        f"{variable.name}={value}: {bad!r} is no name of a device; a port follows ':', as in"
        " mlx5_0:1",
        f"write {variable.name}={right}" if known else "name the devices that ibv_devices lists",
        edits_of(variable, variable.name, right) if known else (),
    )


# Without "=", mlx5 and mlx5_1 are prefixes of several.
_ONE_DEVICE = re.compile(r"(?!mlx[45]$|mlx5_1(?!\d))=?(\w*\d)(?::\d+)?")
_MANY_GPUS = 4
"""GPUs of a node that mostly has more than one RDMA device."""


def devices(view: View) -> Iterator[LaunchFinding]:
    """Find values of `NCCL_IB_HCA` that name no RDMA device, or that match several by prefix."""
    for variable in view.variables:
        value = variable.value or ""
        if variable.name != "NCCL_IB_HCA" or not value or is_open(value):
            continue
        if re.search(r"[\s;]", value):
            right = ",".join(part for part in re.split(r"[\s;,]+", value) if part)
            why = f"NCCL_IB_HCA={value}: devices are separated by ',' without blanks"
            yield rewritten("hca", variable, why, right)
            continue
        if (found := _list_fault(variable, "hca") or _port_fault(variable)) is not None:
            yield found
            continue
        named = [part.partition(":")[0] for part in value.lstrip("^=").split(",")]
        is_used = not value.startswith("^")
        if is_used and any(_ETHERNET.fullmatch(name) for name in named):
            yield error(
                "hca",
                f"NCCL_IB_HCA={value}: this is an IP interface (for NCCL_SOCKET_IFNAME), not an"
                " RDMA device such as mlx5_0",
                "name the devices that ibv_devices lists, or leave it out; NCCL_IB_DISABLE=1 turns"
                " InfiniBand off",
            )
        elif short := [name for name in named if _misspelt(name)]:
            right = re.sub(r"[\w-]+", lambda found: _misspelt(found[0]) or found[0], value)
            why = f"NCCL_IB_HCA={value}: devices are called mlx5_0 and so on, not {short[0]}"
            yield rewritten("hca", variable, why, right, grade=warning)
        elif is_used and "=" not in value[:1] and any(name == "mlx5_1" for name in named):
            yield note(
                "hca-prefix",
                "NCCL_IB_HCA takes prefixes: mlx5_1 is mlx5_10 to mlx5_19 as well;"
                f" ={value} takes exact names",
            )
        placement, each = view.prediction.placement, view.gpus_per_process
        gpus = placement.most * each if placement is not None and each is not None else 0
        one = _ONE_DEVICE.fullmatch(value)
        if one is not None and gpus >= _MANY_GPUS and nodes_of(view) > 1:
            yield note(
                "hca-shared",
                f"NCCL_IB_HCA={value}: all {gpus} GPUs of a node share {one[1]}",
                "leave it out where a node has more devices that reach the others",
            )


def _misspelt(name: str) -> str | None:
    """Return what `mlxl5_6`, `mlx_6` or `mlx5-6` means, None for other names."""
    # mlx4_0 is of another driver, and mlx5_bond_0 of other systems.
    match = re.fullmatch(r"(?!mlx\d_|mlx[^5]-)(\w+?)[_-](\d+)", name)
    is_mlx5 = match and SequenceMatcher(None, match[1].lower(), "mlx5").ratio() >= 0.75
    return f"mlx5_{match[2]}" if match and is_mlx5 else None


def gids(view: View) -> Iterator[LaunchFinding]:
    """Find the first GID for ports whose names say RoCE: RoCE v1 and a link-local address."""
    given = {variable.name: variable for variable in view.variables}
    index, devices = given.get("NCCL_IB_GID_INDEX"), given.get("NCCL_IB_HCA")
    named = (devices.value or "").lstrip("=") if devices is not None else ""
    if index is not None and index.value == "0" and re.match(r"roce(?:P?\d|p\d)", named):
        yield warning(
            "gid-index",
            "NCCL_IB_GID_INDEX=0: the first GID of a RoCE port mostly is RoCE v1 of a link-local"
            " address",
            "leave it out, NCCL 2.21 and newer choose; else give the RoCE v2 index of show_gids",
            edits_of(index, None),
        )


def networks(view: View) -> Iterator[LaunchFinding]:
    """Find wrong values of `NCCL_NET`. It takes Socket, IB, or the name of a plugin's network."""
    meant = {
        **dict.fromkeys(("sockets", "soket", "tcp", "ethernet", "eth", "ip", "tcpip"), "Socket"),
        **dict.fromkeys(("infiniband", "verbs", "roce", "rdma", "ibverbs", "ib_verbs"), "IB"),
    }
    for variable in view.variables:
        value = (variable.value or "").lower()
        if variable.name == "NCCL_NET" and value == "none":
            yield error(
                "variable-value",
                f"NCCL_NET={variable.value}: NCCL looks for a network of this name, and does not"
                " start",
                "write NCCL_NET_PLUGIN=none for no plugin, NCCL_NET=Socket for no InfiniBand",
            )
        right = meant.get(value)
        if variable.name != "NCCL_NET" or right is None:
            continue
        why = "NCCL has Socket and IB, others are names of plugins; it does not start with another"
        yield rewritten("variable-value", variable, f"NCCL_NET={variable.value}: {why}", right)
