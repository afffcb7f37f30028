# SPDX-License-Identifier: Apache-2.0
"""What the links of a study's topology allow, for `analyze` and `report`."""

from typing import TYPE_CHECKING

from nccltune.cli.output import stderr

if TYPE_CHECKING:
    from nccltune.analyze.expected import Expectation
    from nccltune.analyze.timings import Sorted
    from nccltune.model.study import Study

CALIBRATION = "calibration.json"


def expectations_of(study: "Study", found: "Sorted") -> "list[Expectation]":
    """By collective and scale, for studies that hold a topology; none for others. Efficiencies are
    those of STUDY/calibration.json, if somebody put one there.

    A topology that cannot be read or answered by is said on stderr: curves can be analysed all the
    same.
    """
    path, platform = study.topology_path, study.platform()
    if path is None or platform.emulated_nodes:
        return []
    from nccltune.model.errors import InputError
    from nccltune.topology.calibration import read_calibration
    from nccltune.topology.load import load_topology
    from nccltune.topology.measured import expectations

    asked = [(item.condition.collective, item.condition.scale) for item in found.timings]
    figures = study.path / CALIBRATION
    try:
        calibration = read_calibration(figures) if figures.is_file() else None
        told = expectations(load_topology(path), platform, asked, calibration)
    except InputError as error:
        _warn(str(error))
        return []
    for sentence in told.silent:
        _warn(f"{path}: {sentence}")
    return told.expectations


def _warn(sentence: str) -> None:
    stderr().print(f"warning    {sentence}", style="yellow", markup=False, soft_wrap=True)
