# SPDX-License-Identifier: Apache-2.0
"""Find variables that NCCL does not know, and values that NCCL does not accept."""

import re
from collections.abc import Callable, Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch.program import Program
from nccltune.launch_lint.command import CommandVariable, View
from nccltune.launch_lint.finding import Edit, LaunchFinding, Replace, SetLead, error, note, warning
from nccltune.launch_lint.rules.shape import of_program
from nccltune.launch_lint.variables import enabled, fault, switch
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.names import listed
from nccltune.model.nccl_variables import PREFIX, RELEASES, is_foreign, nearest_variable, table

_JOINED = re.compile(r"[,;\s]\s*([A-Z][A-Z0-9_]{2,}=)")
_SUPPORTED = {
    "all_reduce": {"tree", "ring", "collnet", "collnetdirect", "collnetchain", "nvls", "nvlstree"},
    "all_gather": {"ring", "pat", "nvls", "collnet", "collnetdirect"},
    "reduce_scatter": {"ring", "pat", "nvls", "collnet", "collnetdirect"},
    "broadcast": {"ring"},
    "reduce": {"ring"},
}
"""Algorithms of each collective (NCCL `src/graph/tuning.cc`)."""
_ANY_PROTOCOL = {"tree", "ring"}
"""Algorithms that also work with other protocols than Simple."""


def edits_of(
    variable: CommandVariable, name: str | None, value: str | None = None
) -> tuple[Edit, ...]:
    """Return the edits that rename a variable or change its value.

    If `name` is None, the edits remove the variable. If `value` is None, the value is kept. For a
    variable in the MCA parameter `mca_base_env_list` there are no edits.
    """
    option = variable.option
    value = variable.value if value is None else value
    text = name if value is None else f"{name}={value}"
    if option is None:
        # Another word may give the same variable a right value.
        old = variable.value if name is not None else None
        return (SetLead(variable.name, text if name is not None else None, old=old),)
    word = option.words[0].text
    if option.meaning == "env":
        if name is None:
            return (Replace(option, ()),)
        if len(option.values) == 2:
            return (Replace(option, (word, name, value or "")),)
        return (Replace(option, (word, text or name)),)
    if option.meaning == "export":
        is_own = [part.partition("=")[0] == variable.name for part in option.value.split(",")]
        parts = zip(option.value.split(","), is_own, strict=True)
        kept = [text or "" if own else part for part, own in parts if name is not None or not own]
        return (Replace(option, (f"--export={','.join(kept)}",)),)
    return ()


def rewritten(
    kind: str,
    variable: CommandVariable,
    why: str,
    value: str | None = None,
    *,
    name: str | None = None,
    grade: Callable[..., LaunchFinding] = error,
) -> LaunchFinding:
    """Return a finding whose fix gives a variable another value, or another name."""
    name = name or variable.name
    text = name if value is None else f"{name}={value}"
    return grade(kind, why, f"write {text}", edits_of(variable, name, value))


def names(view: View) -> Iterator[LaunchFinding]:
    """Find `NCCL_ALG`, `NCCL_SOCKET_IFNAMES`: NCCL ignores variables that it does not know."""
    for variable in view.variables:
        if not variable.name or variable.name in table() or _is_joined(variable):
            continue
        if variable.name == "NCCL_PASS_SM" or variable.name.startswith("NCCL_PSM_"):
            yield note(
                "variable-of-vccl",
                f"{variable.name} is a variable of VCCL, which NCCL ignores",
                "with stock NCCL libnccltune-sendrecv.so sends without SMs: nccltune sendrecv env"
                " prints its settings, NCCLTUNE_SENDRECV=1 and, to copy as VCCL does,"
                " NCCLTUNE_SENDRECV_POLICY=vccl",
            )
            continue
        of_nccl = PREFIX + variable.name.removeprefix("RCCL_")
        if variable.name.startswith("RCCL_") and of_nccl in _SHARED:
            why = f"there is no variable {variable.name}: RCCL reads {of_nccl}"
            yield rewritten("variable-unknown", variable, why, name=of_nccl)
            continue
        if variable.name == "MPI" and variable.value == "1" and view.program is not None:
            yield note(
                "build-option",
                "MPI=1 has no effect at run time: it is an option of make of nccl-tests",
                "leave it out; a binary that was made without it starts each process as a test of"
                " its own",
            )
            continue
        name, colon, value = variable.name.partition(":")
        if colon and name in table():
            why = f"{variable.name} sets nothing: a name and its value are joined by '='"
            yield rewritten("variable-unknown", variable, why, value, name=name)
            continue
        right = nearest_variable(variable.name)
        level = variable.name.removeprefix(PREFIX)
        if (variable.value or "").upper() == "DEBUG" and level in _LEVELS:
            why = f"NCCL has no variable {variable.name}: the name and the value are exchanged"
            yield rewritten("variable-unknown", variable, why, level, name="NCCL_DEBUG")
        elif right is not None and right.endswith("=0") and not is_foreign(variable.name):
            why = f"NCCL has no variable {variable.name}: it has no effect"
            meant = {"1": "0", "0": "1"}.get(switch(variable.value or "") or "", "0")
            yield rewritten("variable-unknown", variable, why, meant, name=right[:-2])
        elif right is not None and "=" not in right and not is_foreign(variable.name):
            # A switch with one word more means another: `NCCL_NET_DISABLE` is not `..._INTRA`.
            is_longer = set(right.split("_")) > set(variable.name.split("_"))
            is_longer = is_longer and "ABLE" in variable.name
            yield error(
                "variable-unknown",
                f"{'NCCL has' if right.startswith(PREFIX) else 'there is'} no variable"
                f" {variable.name}: it has no effect",
                f"leave it out; the nearest is {right}" if is_longer else f"write {right}",
                () if is_longer else edits_of(variable, right),
            )
        elif variable.name.startswith(PREFIX) and not is_foreign(variable.name):
            yield note(
                "variable-unlisted",
                f"{variable.name} is no variable of NCCL {RELEASES}: only the program or a"
                " plugin could read it",
                f"for NCCL to leave devices out write {right}" if right else "",
            )


_SHARED = frozenset(
    listed("""
NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE NCCL_SOCKET_IFNAME NCCL_IB_HCA NCCL_IB_DISABLE
NCCL_IB_GID_INDEX NCCL_IB_TC NCCL_NET_GDR_LEVEL NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE
NCCL_ALGO NCCL_PROTO NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_BUFFSIZE NCCL_TOPO_FILE
""")
)
"""Variables that RCCL reads under NCCL's names only."""
_LEVELS = ("VERSION", "WARN", "INFO", "TRACE")


def removed(view: View) -> Iterator[LaunchFinding]:
    """Find variables of old releases that NCCL does not read any more."""
    for variable in view.variables:
        known = table().get(variable.name)
        if known is None or not known.last or int(known.last.split(".")[1]) > _RECENT:
            continue
        instead = f"use {known.instead}, or leave it out" if known.instead else "leave it out"
        yield warning(
            "variable-removed",
            f"NCCL reads {variable.name} up to {known.last} only: newer releases ignore it",
            instead,
            edits_of(variable, None),
        )


_RECENT = 20
"""Minor version of NCCL 2.20. A variable that newer releases still read is not reported, because
users may run such a release."""


def values(view: View) -> Iterator[LaunchFinding]:
    """Find `NCCL_ALGO=Treee`, `NCCL_IB_DISABLE=true`, `NCCL_BUFFSIZE=4M`: wrong values."""
    for variable in view.variables:
        known = table().get(variable.name)
        if known is None or variable.value is None or _is_joined(variable):
            continue
        found = fault(known, variable.value)
        if found is None:
            continue
        right = found.right
        is_harmless = found.is_taken or variable.name.startswith("NCCL_DEBUG")
        yield (warning if is_harmless else error)(
            found.id,
            f"{variable.name}={variable.value}: {found.reason}",
            (f"write {variable.name}={right}" if right else f"leave out {variable.name}")
            + found.caution,
            edits_of(variable, variable.name if right else None, right) if found.is_clear else (),
        )


def joined(view: View) -> Iterator[LaunchFinding]:
    """Find `-x A=1,B=2`, which is one variable with the value `1,B=2`."""
    for variable in view.variables:
        if not _is_joined(variable) or variable.value is None:
            continue
        text = f"{variable.name}={variable.value}"
        parts = _JOINED.sub(r"\n\1", text).split("\n")
        edits: tuple[Edit, ...] = ()
        option = variable.option
        if option is not None and option.meaning == "env" and len(option.values) == 1:
            word = option.words[0].text
            edits = (Replace(option, tuple(w for part in parts for w in (word, part))),)
        yield error(
            "variables-joined",
            f"{text} is one variable, {variable.name}: variables are not joined by ',' or ';'",
            f"give each its own: {' '.join(parts)}",
            edits,
        )


def _is_joined(variable: CommandVariable) -> bool:
    option = variable.option
    if variable.value is None or (option is not None and option.meaning != "env"):
        return False
    if option is None and variable.name not in table():
        return False  # A variable of the script may hold a command line or settings for `env`.
    return variable.name.isidentifier() and _JOINED.search(variable.value) is not None


def quoted(view: View) -> Iterator[LaunchFinding]:
    """Find `NCCL_ALGO="Ring"` where no shell drops the quotes: in a file of docker, in YAML."""
    for variable in view.variables:
        known, value = table().get(variable.name), variable.value or ""
        if not re.fullmatch(r"([\"']).*\1", value) or (known and fault(known, value)):
            continue
        why = f"{variable.name}={value}: no shell reads this: the quotes are a part of the value"
        yield rewritten("value-quoted", variable, why, value[1:-1])


def paths(view: View) -> Iterator[LaunchFinding]:
    """Find `LD_LIBRARY_PATH=LD_LIBRARY_PATH:/lib`, where a `$` is missing."""
    for name, value, _ in view.variables:
        if name.endswith("PATH") and name in (value or "").split(":"):
            yield error(
                "path-without-dollar",
                f"{name}={value}: without '$' {name} is a folder, and what the variable holds is"
                " lost",
                f"write ${name}",
            )


def nodes_of(view: View) -> int:
    """Return how many nodes the command uses, or 0 if that is unknown."""
    placement = view.prediction.placement
    return max(len(view.prediction.hosts), len(placement.nodes) if placement is not None else 0)


_OF_NETWORKS = (
    *("NCCL_NSOCKS", "NCCL_FASTRAK", "NCCL_TCPX", "NCCL_CROSS"),
    *("NCCL_SOCKET_", "NCCL_NET", "NCCL_IB_"),
    *("FI_", "OFI_NCCL_"),
)
"""Beginnings of variables that choose a network, for which InfiniBand is switched off."""
_UNSET = CommandVariable("", None, None)
_LOCAL = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
_NEVER = ("LOC", "0")
"""Levels of NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL that no two devices are as near as."""


def left_over(view: View) -> Iterator[LaunchFinding]:
    """Find debugging settings that cost most of the bandwidth.

    They have no edits, because they may be what is measured.
    """
    given = {v.name: v for v in view.variables if v.value is not None}
    placement = view.prediction.placement
    several = placement is None or placement.most_gpus > 1
    chosen = [name for name in given if name.startswith(_OF_NETWORKS) and name != "NCCL_IB_DISABLE"]
    costs = {
        "NCCL_P2P_DISABLE": (
            several,
            "GPUs of a node exchange data through host memory instead of NVLink or PCIe",
        ),
        "NCCL_IB_DISABLE": (
            nodes_of(view) > 1 and not chosen,
            "nodes exchange data by TCP instead of InfiniBand or RoCE",
        ),
        "NCCL_SHM_DISABLE": (several, "GPUs of a node without peer access use the network"),
        "CUDA_LAUNCH_BLOCKING": (True, "every launch waits for its end, so that nothing overlaps"),
    }
    # Both: the network inside one node is what is measured.
    is_for_network = [v.value for n, v in given.items() if n in _LOCAL] == ["1", "1"]
    if is_for_network:
        both = " and ".join(f"{name}=1" for name in _LOCAL)
        yield note("network-only", f"{both}: GPUs of a node exchange data by the network alone")
    for name, (holds, cost) in costs.items():
        variable = given.get(name)
        other = {"NCCL_P2P_DISABLE": ("NCCL_P2P_LEVEL", "NCCL_NVLS_ENABLE")}.get(name, ())
        if variable is None or not holds or variable.value != "1":
            continue
        if is_for_network and name in _LOCAL:
            continue
        if any(given[one].value != "0" for one in other if one in given):
            continue  # The rule `contradictions` reports this pair.
        if name == "CUDA_LAUNCH_BLOCKING" and view.program is None:
            yield note("setting-left-over", f"{name}=1: {cost}; it is for finding faults")
            continue
        yield warning(
            "setting-left-over",
            f"{name}=1: {cost}",
            f"leave out {name}, unless this is what you measure",
        )
    is_tcp = given.get("NCCL_IB_DISABLE", _UNSET).value == "1" and not view.command.words
    if is_tcp and sum(name.startswith(("NCCL_IB_", "NCCL_NET")) for name in given) == 1:
        said = "where a job has several nodes, they exchange data by TCP, unless by a plugin"
        yield note("setting-left-over", f"NCCL_IB_DISABLE=1: {said}")
    level = given.get("NCCL_P2P_LEVEL")
    if level is not None and several and level.value in _NEVER:
        yield warning(
            "setting-left-over",
            f"NCCL_P2P_LEVEL={level.value}: no GPU reaches another one directly",
            "leave out NCCL_P2P_LEVEL, unless this is what you measure",
        )
    level = given.get("NCCL_NET_GDR_LEVEL")
    # A text beside a command may be for other nodes, too.
    several = placement is None or nodes_of(view) > 1 or not view.command.words
    if level is not None and several and level.value in _NEVER:
        said = f"NCCL_NET_GDR_LEVEL={level.value}: no NIC reaches the memory of a GPU"
        yield note("setting-left-over", f"{said} (GPUDirect RDMA is off)")


def by_sockets(view: View) -> Iterator[LaunchFinding]:
    """Find `NCCL_NET=Socket` on several nodes, without a network for which it is chosen."""
    given = {v.name: v for v in view.variables if v.value is not None}
    net, nodes = given.get("NCCL_NET", _UNSET).value or "", nodes_of(view)
    by_tcp = [name for name, v in given.items() if _BY_TCP.match(name) and v.value != "none"]
    if net.lower() != "socket" or by_tcp or nodes == 1 or (not nodes and view.command.words):
        return
    if given.get("NCCL_IB_DISABLE", _UNSET).value != "1":
        where = "nodes" if nodes else "where a job has several nodes, they"
        said = f"{where} exchange data by TCP instead of InfiniBand or RoCE"
        yield note("setting-left-over", f"NCCL_NET={net}: {said}, if they have one of these")


_BY_TCP = re.compile(r"NCCL_(?:NSOCKS|SOCKET_NTHREADS|FASTRAK|TCPX|NET_PLUGIN)|(?:OFI_NCCL|FI)_")


@of_program
def no_algorithm(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `NCCL_ALGO=Tree` with broadcast: NCCL 2.5, 2.6, and 2.24 and newer fail."""
    if program.collective not in _SUPPORTED:
        return
    collective = program.collective
    given = {v.name: v for v in view.variables if v.value is not None}
    possible = set(_SUPPORTED[collective])
    if nodes_of(view) == 1 and view.prediction.placement is not None:
        possible.discard("nvlstree")
    left: dict[str, set[str]] = {}
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        value = given[name].value if name in given else None
        if not value or is_open(value) or fault(table()[name], value) is not None:
            continue
        choices = enabled(table()[name], value, collective)
        if name == "NCCL_ALGO":
            left[name] = possible & choices
        elif "simple" not in choices:
            left[name] = possible & _ANY_PROTOCOL if choices else set()
    # One variable alone may leave nothing, or only both together.
    blamed = [name for name, algorithms in left.items() if not algorithms]
    if not blamed and len(left) == 2 and not left["NCCL_ALGO"] & left["NCCL_PROTO"]:
        blamed = list(left)
    if blamed:
        yield warning(
            "no-algorithm",
            f"{' with '.join(f'{name}={given[name].value}' for name in blamed)} leaves nothing that"
            f" {collective} can use here: NCCL 2.24 and newer fail, and 2.5 and 2.6",
            f"leave out {' or '.join(blamed)}",
            edits_of(given[blamed[-1]], None),
        )


def visible_devices(view: View) -> Iterator[LaunchFinding]:
    """Find wrong values of CUDA_VISIBLE_DEVICES, such as one GPU for 8 processes on a node."""
    given = [v for v in view.variables if v.name == "CUDA_VISIBLE_DEVICES"]
    placement = view.prediction.placement
    if not given or given[-1].value is None or placement is None or not placement.nodes:
        return
    variable, value = given[-1], given[-1].value or ""
    if is_open(value) or any(v.name == "NCCL_TESTS_DEVICE" for v in view.variables):
        return
    entries = [part.strip() for part in value.split(",")] if value.strip() else []
    processes = placement.most
    gpus = view.gpus_per_process
    need = processes * (gpus if gpus is not None else 1)
    indexes = [index for entry in entries if (index := whole_number(entry)) is not None]
    why = None
    if entries and any(entry.startswith("-") for entry in entries):
        entries = entries[: next(n for n, e in enumerate(entries) if e.startswith("-"))]
    if len(set(entries)) < len(entries):
        why = "a device is named twice, so that CUDA shows none"
    elif len(entries) < need:
        shown = f"{len(entries)} GPU{'' if len(entries) == 1 else 's'}"
        why = f"a node shows {shown}, and its processes use {need}"
    elif any(index >= view.site.gpus_per_node for index in indexes):
        last = view.site.gpus_per_node - 1
        why = f"the node has GPUs 0 to {last} ({view.site.gpus_source})"
    if view.flavor.launcher is Launcher.DEEPSPEED:
        return  # It ignores the variable, or takes its devices.
    if view.command.last("hostfile") and "assumed" in (view.prediction.assumed or ""):
        return  # The hosts are in a file that is not here.
    if why is None or (gpus is None and view.flavor.launcher is Launcher.LOCAL):
        return
    if gpus is None and 0 < len(entries) < need and len(set(entries)) == len(entries):
        yield note(
            "visible-devices", f"CUDA_VISIBLE_DEVICES={value}: {need} processes share {shown}"
        )
        return
    yield error(
        "visible-devices",
        f"CUDA_VISIBLE_DEVICES={value}: {why}",
        "leave it out, or name as many GPUs as a node's processes use",
        edits_of(variable, None),
    )
