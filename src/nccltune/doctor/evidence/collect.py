# SPDX-License-Identifier: Apache-2.0
"""Facts of a node: of the running one, and of items that were read anywhere."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from nccltune.doctor.evidence.facts_cloud import add_cloud
from nccltune.doctor.evidence.facts_failures import add_failures
from nccltune.doctor.evidence.facts_gpu import add_gpus, add_nic_paths
from nccltune.doctor.evidence.facts_log import add_logs
from nccltune.doctor.evidence.facts_net import add_net
from nccltune.doctor.evidence.facts_node import add_node
from nccltune.doctor.evidence.facts_pci import add_pci
from nccltune.doctor.evidence.facts_settings import add_settings
from nccltune.doctor.evidence.facts_tests import add_measured
from nccltune.doctor.evidence.facts_topo import add_topology
from nccltune.doctor.evidence.folder import put_file, read_folder
from nccltune.doctor.evidence.gather import Runner, gather
from nccltune.doctor.evidence.raw import Evidence
from nccltune.doctor.facts import Facts
from nccltune.formats.lines import visible
from nccltune.model.errors import InputError

# In this order: names of devices come from GPUs and NICs, paths need both, topology needs settings.
_MAKERS: tuple[Callable[[Evidence, Facts], None], ...] = (
    add_node,
    add_gpus,
    add_net,
    add_pci,
    add_nic_paths,
    add_logs,
    add_settings,
    add_topology,
    add_cloud,
    add_measured,
    add_failures,
)


def facts_of(evidence: Evidence) -> Facts:
    """The facts that a node's items tell; `unread` has what they do not, and why."""
    facts = Facts(evidence.host)
    for maker in _MAKERS:
        maker(evidence, facts)
    facts.unread += dict.fromkeys(evidence.problems)
    facts.unused += evidence.unused()
    return facts


def folder_facts(path: Path) -> Iterator[Facts]:
    """The facts of the nodes of a folder, one after the other. Raises InputError as `read_folder`
    does."""
    return (facts_of(evidence) for evidence in read_folder(path))


def collect(
    root: Path = Path("/"),
    *,
    files: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    stop: threading.Event | None = None,
) -> Facts:
    """The facts of this node, read without root rights.

    `files` are more things to look at, told by their names and content as in a collected folder:
    job files, an NCCL log, outputs of nccl-tests, topology and graph files. With another `root`
    than `/` files below it are read in place of the node's, and tools only run by `runner`. Once
    `stop` is set, nothing more is read and no tool is left running.
    Raises InputError where one of `files` cannot be read, or no kind of them is recognised.
    """
    evidence = gather(root, environment=environment, runner=runner, stop=stop)
    for path in files:
        if not path.is_file():
            raise InputError("no such file", where=str(path), hint="check the name")
        put_file(evidence, path, visible(str(path), 400), asked=True)
    if files and len(evidence.refused) == len(files):
        raise InputError(
            evidence.refused[0].why,
            where=evidence.refused[0].file,
            hint="the doctor reads NCCL logs, outputs of nccl-tests and launchers, topology and "
            "graph files, job files, and the outputs that docs/reference/collecting.md lists",
        )
    return facts_of(evidence)
