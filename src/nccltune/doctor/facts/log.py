# SPDX-License-Identifier: Apache-2.0
"""Facts of NCCL's log."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records


class LogMessage(FactRecord):
    """One record of the fact `log.lines`."""

    text: Annotated[
        str | None, ("the message, from 'NCCL WARN' or 'NCCL INFO' on without these words")
    ] = None
    count: Annotated[int | None, "how often it was seen"] = None


LOG_LINES = records(
    "log.lines",
    LogMessage,
    meaning=(
        "different messages of the NCCL log, without host, process and time, lines of channels "
        "and transports left out; at most 2,000, warnings first"
    ),
    read="NCCL_DEBUG=INFO log",
)
LOG_GDR_DISABLED = records(
    "log.gdr_disabled",
    LogMessage,
    meaning="messages that GPUDirect RDMA is disabled for a NIC, of NICs that could have it",
    read="'GPU Direct RDMA Disabled for HCA' in the NCCL log, not of sockets or Omni-Path",
)


class LogTransport(FactRecord):
    """One record of the fact `log.vias`."""

    direction: Annotated[str | None, "send, receive"] = None
    via: Annotated[str | None, "NET/IB/0/GDRDMA, P2P/IPC, SHM/direct/direct"] = None
    gdr: Annotated[bool | None, "GPUDirect RDMA"] = None
    count: Annotated[int | None, "connections"] = None


LOG_VIAS = records(
    "log.vias",
    LogTransport,
    meaning="the different transports of connections",
    read="'via' lines of the NCCL log",
)
LOG_GDR_LACKING = fact(
    "log.gdr_lacking",
    list[str],
    meaning="hosts that receive without GPUDirect RDMA for GPUs for which other hosts have it",
    read="'[receive] via NET/IB' lines of the NCCL log",
)
LOG_NET = fact(
    "log.net",
    str,
    meaning="network in use: IB, Socket, AWS Libfabric, FasTrak, or a plugin's name",
    read="'Using network' in the NCCL log",
)
LOG_NET_DEVICES = fact(
    "log.net_devices",
    list[str],
    meaning="devices of the network in use: mlx5_0:1",
    read="'NET/IB : Using', 'NET/Socket : Using' in the NCCL log",
)
LOG_NET_RELAXED_ORDERING = fact(
    "log.net_relaxed_ordering",
    bool,
    meaning="the IB transport uses relaxed ordering ([RO])",
    read="'NET/IB : Using ... [RO]' in the NCCL log",
)
LOG_INTERFACES = fact(
    "log.interfaces",
    str,
    meaning="interfaces of the network Socket without those of containers and tunnels: eth0,eth1",
    read="'NET/Socket : Using' in the NCCL log",
)
LOG_RCCL = fact(
    "log.rccl", bool, meaning="RCCL wrote the log: AMD GPUs", read="'RCCL version' in the log"
)
LOG_BOOTSTRAP = fact(
    "log.bootstrap",
    str,
    meaning="interface of the bootstrap: eth0",
    read="'Bootstrap : Using' in the NCCL log",
)
LOG_RANKS = fact(
    "log.ranks",
    int,
    meaning="ranks of the largest communicator",
    read="'nranks' in the NCCL log",
)
LOG_NODES = fact(
    "log.nodes",
    int,
    meaning="nodes of the largest communicator",
    read="'nNodes' in the NCCL log",
)
LOG_COLL_CHANNELS = fact(
    "log.coll_channels",
    int,
    meaning="collective channels of the largest communicator",
    read="'N coll channels' in the NCCL log",
)
LOG_NVLS_CHANNELS = fact(
    "log.nvls_channels",
    int,
    meaning="NVLS channels of the largest communicator",
    read="'N nvls channels' in the NCCL log",
)


class LogInit(FactRecord):
    """One record of the fact `log.unfinished`."""

    comm: Annotated[str | None, "the communicator's id, or its split"] = None
    ranks: Annotated[int | None, "ranks of the communicator"] = None
    started: Annotated[int | None, "ranks with 'Init START'"] = None
    completed: Annotated[int | None, "ranks with 'Init COMPLETE'"] = None
    unfinished: Annotated[list[int] | None, "ranks that started and did not complete"] = None
    hosts: Annotated[list[str] | None, "hosts of these ranks"] = None
    whole: Annotated[bool | None, "the log does not end before their lines"] = None
    met: Annotated[bool | None, "their last lines are of what follows the bootstrap"] = None


LOG_UNFINISHED = records(
    "log.unfinished",
    LogInit,
    meaning=(
        "communicators whose initialisation some ranks started and did not complete; not known of "
        "logs with lines left out"
    ),
    read="'Init START' and 'Init COMPLETE' in the NCCL log",
)


class LogSettingApart(FactRecord):
    """One record of the fact `log.settings_apart`."""

    name: Annotated[str | None, "NCCL_ALGO"] = None
    said: Annotated[str | None, "its values, and the ranks and hosts of each"] = None


LOG_SETTINGS_APART = records(
    "log.settings_apart",
    LogSettingApart,
    meaning="settings that the ranks of one communicator have to share and do not",
    read="'set by environment' and 'Init COMPLETE' in the NCCL log",
)


LOG_SHARED_NAMES = fact(
    "log.shared_names",
    list[str],
    meaning="host names whose processes have several addresses on one interface, and these",
    read="'Bootstrap : Using' in the NCCL log",
)
LOG_HOST_VERSIONS = fact(
    "log.host_versions", list[str], meaning="hosts by version and network", read="the NCCL log"
)


class LogHang(FactRecord):
    """One record of the fact `log.hangs`."""

    text: Annotated[str | None, "words of a person"] = None
    last: Annotated[str | None, "the last message of the log"] = None
    stage: Annotated[str | None, "how far NCCL had come then"] = None


LOG_HANGS = records(
    "log.hangs",
    LogHang,
    meaning="words of a person that the job hangs, beside NCCL's log",
    read="text around the NCCL log",
)


LOG_CONTAINERS = fact(
    "log.containers",
    str,
    meaning="words of a person that the ranks are in several containers of one node",
    read="text around the NCCL log",
)


class LogWorkaround(FactRecord):
    """One record of the fact `log.workarounds`."""

    key: Annotated[str | None, "NCCL_P2P_DISABLE=1, or the name where the value is a list"] = None
    text: Annotated[str | None, "words of a person"] = None
    removed: Annotated[bool | None, "it works without the setting"] = None


LOG_WORKAROUNDS = records(
    "log.workarounds",
    LogWorkaround,
    meaning="settings with or without which a person says that a program works",
    read="text around logs and outputs",
)


class LogInitTimes(FactRecord):
    """One record of the fact `log.init_times`."""

    ranks: Annotated[int | None, "ranks of the communicator"] = None
    total_s: Annotated[float | None, "seconds"] = None
    part: Annotated[str | None, "its longest part: kernels, bootstrap, topo, ..."] = None
    part_s: Annotated[float | None, "seconds of that part"] = None


LOG_INIT_TIMES = records(
    "log.init_times",
    LogInitTimes,
    meaning="the slowest initialisation of each log",
    read="'Init timings' in the NCCL log (2.22 and newer)",
)
LOG_FABRIC_NODES = fact(
    "log.fabric_nodes",
    int,
    meaning="hosts whose GPUs are in one NVLink domain (the same fabric and clique)",
    read="'MNNVL busId' lines of the NCCL log",
)
LOG_FABRIC_FAULTS = fact(
    "log.fabric_faults",
    list[str],
    meaning="GPUs that are not registered with their NVLink fabric, or have a fault in its health",
    read="state and healthMask in 'MNNVL busId' lines of the NCCL log",
)
LOG_NVLINK_DOMAINS = fact(
    "log.nvlink_domains",
    int,
    meaning="domains of several hosts into which NVLink joins the largest communicator; 0 if none",
    read="'MNNVL' in the 'nRanks' lines of the NCCL log",
)
LOG_CALLS_APART = fact(
    "log.calls_apart",
    list[str],
    meaning="the first call of each communicator in which its ranks differ",
    read="lines of NCCL_DEBUG_SUBSYS=COLL of the NCCL log",
)
LOG_GPU_NAMES = fact(
    "log.gpu_names",
    list[str],
    meaning="names of the GPUs in the device list of nccl-tests",
    read="'# Rank' lines of nccl-tests",
)


class LogTunerRule(FactRecord):
    """One record of the fact `log.tuner_rules`."""

    text: Annotated[str | None, "the line, from 'Loaded config' on"] = None
    nodes: Annotated[int | None, "nodes that it is for; -1 any"] = None
    ranks: Annotated[int | None, "ranks that it is for; -1 any"] = None
    channels: Annotated[int | None, "its channels; -1 those of the default"] = None
    applies: Annotated[bool | None, "a communicator of the log has this scale"] = None


LOG_TUNER_RULES = records(
    "log.tuner_rules",
    LogTunerRule,
    meaning="rules that NVIDIA's example tuner plugin loaded",
    read="'Loaded config' lines of the NCCL log (NCCL_DEBUG_SUBSYS=TUNING)",
)
LOG_TUNER_SCALES = fact(
    "log.tuner_scales",
    list[str],
    meaning="scales of the communicators that the tuner plugin was started for: 4 nodes, 32 ranks",
    read="'Initializing tuner' lines of the NCCL log; else the largest communicator",
)


class LogGraph(FactRecord):
    """One record of the fact `log.graphs`."""

    pattern: Annotated[int | None, "4 is ring; see the reference of graph files"] = None
    channels: Annotated[int | None, "channels"] = None
    gb_per_s_intra: Annotated[float | None, "a channel, in the node"] = None


LOG_GRAPHS = records(
    "log.graphs",
    LogGraph,
    meaning="graphs that NCCL found",
    read="'Pattern ...' lines with NCCL_DEBUG_SUBSYS=GRAPH; graph dump",
)
