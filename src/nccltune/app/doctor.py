# SPDX-License-Identifier: Apache-2.0
"""Doctor: check this node, or the collected files of many, against the rule base."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from nccltune.app.study import saving
from nccltune.doctor.evidence.collect import collect
from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.evidence.folder import STANDARD_INPUT
from nccltune.doctor.evidence.many_nodes import read_nodes
from nccltune.doctor.examine import examine
from nccltune.doctor.facts import Facts
from nccltune.doctor.platform import fill_platform
from nccltune.doctor.result import Examination
from nccltune.doctor.rulebase import rule_base
from nccltune.model.errors import InputError, UnwritableError
from nccltune.report.examination import render
from nccltune.study.files import Study, write_whole


class CheckedNodes(NamedTuple):
    """An examination and the facts by node; `files_alone`: files of another host, not this node."""

    examination: Examination
    nodes: Mapping[str, Facts]
    files_alone: bool = False


def examine_paths(paths: Sequence[Path]) -> CheckedNodes:
    """Examine this node and the files `paths`, or a folder of collected nodes.

    `-` is standard input. Files of another host are examined alone. Raises InputError for a folder
    with other paths, and for one without nodes.
    """
    paths = [STANDARD_INPUT if path == Path("-") else path for path in paths]
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        other = read_elsewhere(paths)
        if other is not None:
            source = f"files alone ({', '.join(path.name for path in paths)})"
            return CheckedNodes(examine(other, rule_base(), source), other, files_alone=True)
        facts = collect(files=paths)
        nodes: Mapping[str, Facts] = {facts.node: facts}
        source = f"this node ({facts.node})"
    elif len(paths) > 1:
        raise InputError(
            "one folder, or files to look at besides this node",
            where=str(folders[0]),
            hint="put what belongs to a node into its folder",
        )
    else:
        nodes, source = read_nodes(folders[0]), str(folders[0])
    return CheckedNodes(examine(nodes, rule_base(), source), nodes)


def keep(checked: CheckedNodes, path: Path) -> list[UnwritableError]:
    """Write STUDY/doctor.json and facts to platform.json; return errors of writing.

    Raises StudyError if the study cannot be read or created.
    """
    unsaved: list[UnwritableError] = []
    with saving(unsaved):
        study = Study.create(path)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        platform = fill_platform(study.platform(), checked.nodes, now)
        study.write_json(study.platform_path, platform)
        study.write_json(study.doctor_path, checked.examination)
    return unsaved


def write_page(examined: Examination, path: Path) -> None:
    """Write an examination as one HTML page, atomically. Raises UnwritableError."""
    write_whole(path, render(examined))
