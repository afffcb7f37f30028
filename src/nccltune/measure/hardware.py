# SPDX-License-Identifier: Apache-2.0
"""The hardware below what is measured: NCCL writes it while it starts, and the study keeps it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from nccltune.formats.hardware import kept
from nccltune.measure.bench import Launch
from nccltune.model.study import Study

DUMP = "NCCL_TOPO_DUMP_FILE"


@contextmanager
def written_by_nccl(launch: Launch) -> Iterator[Path | None]:
    """The file that NCCL writes a node's topology to: the one that somebody has named already, or
    one that is deleted at the end. None in a replay, and where nodes are not whole or far away."""
    under = launch.under
    far = under is not None and under.pods is not None
    if launch.replay is not None or launch.emulate_nodes or far:
        yield None
        return
    if named := os.environ.get(DUMP):
        yield Path(named)
        return
    with TemporaryDirectory(prefix="nccltune-") as folder:
        yield Path(folder) / "topology.xml"


def settings_for(file: Path | None) -> Mapping[str, str]:
    """What NCCL must be told so that it writes there."""
    return {DUMP: str(file)} if file is not None else {}


def keep_hardware(study: Study, launch: Launch, file: Path | None) -> None:
    """Keep what NCCL wrote, or the hardware of the replayed study, where the study has none. That
    nothing was written is no error: process 0 may be on another node."""
    if launch.replay is not None:
        file = Study(launch.replay).topology_path
    if study.topology_path is not None or file is None or not file.is_file():
        return
    name, content = kept(file.read_bytes())
    study.write_text(study.path / name, content.decode("utf-8", errors="replace"))
