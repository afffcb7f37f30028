# SPDX-License-Identifier: Apache-2.0
"""Copy the topology file that NCCL writes at its start into the study."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from nccltune.formats.importing.hardware import kept
from nccltune.measure.bench.process import Launch
from nccltune.study.files import Study

DUMP = "NCCL_TOPO_DUMP_FILE"


@contextmanager
def topology_dump(launch: Launch) -> Iterator[Path | None]:
    """Yield the path to which NCCL writes the topology of a node.

    The path is the one that the user has set (`NCCL_TOPO_DUMP_FILE`). Otherwise it is a temporary
    file that is deleted at the end. Yield None in a replay, with emulated nodes, and in pods.
    """
    with_launcher = launch.with_launcher
    far = with_launcher is not None and with_launcher.pods is not None
    if launch.replay is not None or launch.emulate_nodes or far:
        yield None
        return
    if named := os.environ.get(DUMP):
        yield Path(named)
        return
    with TemporaryDirectory(prefix="nccltune-") as folder:
        yield Path(folder) / "topology.xml"


def dump_settings(file: Path | None) -> Mapping[str, str]:
    """Return the settings that make NCCL write its topology to `file`."""
    return {DUMP: str(file)} if file is not None else {}


def keep_topology(study: Study, launch: Launch, file: Path | None) -> None:
    """Copy the topology into the study if the study has none.

    `file` is the file that NCCL wrote. In a replay the topology of the replayed study is copied
    instead. If `file` is None or does not exist, nothing is copied: process 0 may run on another
    node. Raises StudyError for a failed write.
    """
    if launch.replay is not None:
        file = Study(launch.replay).topology_path
    if study.topology_path is not None or file is None or not file.is_file():
        return
    name, content = kept(file.read_bytes())
    study.write_text(study.path / name, content.decode("utf-8", errors="replace"))
