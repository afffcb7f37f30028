# SPDX-License-Identifier: Apache-2.0
"""Decide whether files that a user names are of this node, or of another one."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nccltune.doctor.evidence.catalogue import COMMANDS, TEXTS, VALUES
from nccltune.doctor.evidence.collect import facts_of
from nccltune.doctor.evidence.folder import put_file
from nccltune.doctor.evidence.kinds import OUTPUT
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.formats.text.lines import visible

_PRINTED = ("log", "test", "diagnostics", OUTPUT)
_COMPANIONS = frozenset(
    {
        *("topology", "graph"),
        *("given-topology", "virtual-topology", "given-graph", "vm-host-lspci", "gcloud"),
        *("aws-topology", "aws-instance-type", "cloud-metadata", ""),
    }
)
"""Items that people give besides this node."""
_NEED_ROOT = frozenset({"dmesg", "lspci", "pci-config"})
_READ_HERE = (
    frozenset(values.name for values in VALUES)
    | frozenset(text.name for text in TEXTS)
    | frozenset(command.name for command in COMMANDS)
    | {"env"}
) - _NEED_ROOT
"""Items that this node shows without root rights. A file with one of them is another node's."""
_HOST = re.compile(
    rb"(?:^|[\s\]>)])(?!\d\d:\d\d:\d\d )"
    rb"(?P<log>[\w.-]{1,255}):\d{1,10}:\d{1,10} [^\n]{0,80}?NCCL (?:INFO|WARN)"
    rb"|^#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(?P<test>[\w.-]{1,255}) device",
    re.M,
)
_PLACE = re.compile(
    rb'<pci (?=[^>]{0,200}\bbusid="(?P<place>[0-9a-fA-F:.]{1,20})")'
    rb'(?:(?=[^>]{0,200}\bclass="(?P<gpu>0x(?:03|12)))|)'
)
_DEVICES = Path("/sys/bus/pci/devices")
_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def read_elsewhere(paths: Sequence[Path]) -> dict[str, Facts] | None:
    """Return the facts of files that are not of this node, by node; None where they may be.

    Files are of another node if they name hosts and not this one, or have what this node shows
    itself, or hold a node's outputs or a script and this node has no driver of GPUs, or a topology
    whose GPUs this node does not have. Outputs of several machines in one file are a node each.

    Raises InputError if a file cannot be read or is not text.
    """
    evidence = NodeEvidence("", live=False)
    others: dict[str, NodeEvidence] = {}
    for path in paths:
        put_file(evidence, path, visible(str(path), 400), asked=True, others=others)
    matrices = {raw.source for raw in evidence.all("topo")}
    if len(matrices) == len(paths) > 1 and len({path.name for path in paths}) == len(paths):
        # A machine has one matrix. Each file is another machine's.
        evidence, others = NodeEvidence("", live=False), {}
        for path in paths:
            name = visible(path.name, 100)
            others[name] = NodeEvidence(name, live=False)
            put_file(others[name], path, visible(str(path), 400), asked=True)
    machines = {name: facts_of(one) for name, one in others.items()}
    has_driver = any(Path(path).exists() for path in _DRIVERS)
    # Without a GPU a script is for other nodes, and is none itself.
    names = set(evidence.names) - _COMPANIONS - ({"job"} if has_driver or machines else set())
    is_other = _has_other_gpus(evidence)
    if not names and not is_other:
        return machines or None
    hosts = named_hosts(evidence)
    here = os.uname().nodename.partition(".")[0]
    if hosts:
        if here in {host.partition(".")[0] for host in hosts}:
            return None
    elif not machines and not is_other and not names & _READ_HERE and has_driver:
        return None
    evidence.host = visible(hosts[0]) if len(hosts) == 1 else visible(paths[0].name, 100)
    if machines.pop(evidence.host, None) is not None:
        own = others[evidence.host]  # It wrote the log, too.
        for raw in (raw for name in own.names for raw in own.all(name)):
            evidence.put(raw)
    return {evidence.host: facts_of(evidence), **machines}


def _has_other_gpus(evidence: NodeEvidence) -> bool:
    """Return whether a topology has GPUs, and none of them is at its place here; or whether one
    without GPUs, as cloud providers ship them, has another device that is not at its place."""
    matches = [match for raw in evidence.all("topology") for match in _PLACE.finditer(raw.data)]
    gpus = [match for match in matches if match["gpu"] is not None]
    here = [(_DEVICES / one["place"].decode().lower()).exists() for one in gpus or matches]
    return bool(here) and not (any(here) if gpus else all(here))


def named_hosts(evidence: NodeEvidence) -> list[str]:
    """Return the hosts that logs and outputs name, in order."""
    found: dict[str, None] = {}
    for item in _PRINTED:
        for raw in evidence.all(item):
            for match in _HOST.finditer(raw.data):
                found.setdefault((match["log"] or match["test"]).decode())
    return list(found)
