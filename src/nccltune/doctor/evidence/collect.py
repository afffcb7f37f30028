# SPDX-License-Identifier: Apache-2.0
"""Make facts of the running node, or of items that were read elsewhere."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nccltune.doctor.evidence.facts_cloud import add_cloud
from nccltune.doctor.evidence.facts_failures import add_failures
from nccltune.doctor.evidence.facts_gpu import add_gpus, add_nic_paths
from nccltune.doctor.evidence.facts_log import add_logs
from nccltune.doctor.evidence.facts_net import add_net
from nccltune.doctor.evidence.facts_node import add_node
from nccltune.doctor.evidence.facts_pci import add_pci
from nccltune.doctor.evidence.facts_settings import add_settings
from nccltune.doctor.evidence.facts_topo import add_topology
from nccltune.doctor.evidence.folder import STANDARD_INPUT, put_file
from nccltune.doctor.evidence.gather import Runner, gather
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.formats.text.lines import visible
from nccltune.model.errors import InputError

# The order matters: some functions read facts that an earlier function added.
_MAKERS: tuple[Callable[[NodeEvidence, Facts], None], ...] = (
    add_node,
    add_gpus,
    add_net,
    add_pci,
    add_nic_paths,
    add_logs,
    add_settings,
    add_topology,
    add_cloud,
    add_failures,
)


def facts_of(evidence: NodeEvidence) -> Facts:
    """Return the facts of a node, made from its items.

    `unread` of the result lists the inputs that could not be read, each with the reason. `unused`
    lists the user's files from which no fact was made.
    """
    facts = Facts(evidence.host)
    for maker in _MAKERS:
        maker(evidence, facts)
    facts.unread += dict.fromkeys(evidence.problems)
    facts.unused += evidence.unused()
    return facts


def collect(
    root: Path = Path("/"),
    *,
    files: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    stop: threading.Event | None = None,
) -> Facts:
    """Return the facts of this node. No root rights are needed.

    `files` are further files: job files, an NCCL log, outputs of nccl-tests, topology and graph
    files. Their kind is recognised by name and content, as in a collected folder.

    If `root` is not `/`, files below it are read instead of the node's own files, and tools run
    only through `runner`. After `stop` is set, nothing more is read and no tool is left running.

    Raises InputError if one of `files` does not exist, cannot be read or is not text, or if none of
    `files` can be used (its kind is unknown, or its content is not valid).
    """
    evidence = gather(root, environment=environment, runner=runner, stop=stop)
    for path in files:
        if path != STANDARD_INPUT and not path.is_file():
            raise InputError("no such file", where=str(path), hint="check the name")
        put_file(evidence, path, visible(str(path), 400), asked=True)
    if files and len(evidence.refused) == len(files):
        raise InputError(
            evidence.refused[0].why,
            where=evidence.refused[0].file,
            hint="the doctor reads NCCL logs, outputs of nccl-tests and launchers, topology and "
            "graph files, job files, and the outputs that docs/reference/collecting.md lists; for "
            "tables and figures: nccltune analyze FILE, for commands: nccltune lint FILE",
        )
    return facts_of(evidence)
