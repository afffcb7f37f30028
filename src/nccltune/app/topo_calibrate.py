# SPDX-License-Identifier: Apache-2.0
"""Topo calibrate: compute the efficiencies of a platform's links from measurements.

An efficiency is the share of a link's bandwidth in NCCL's model that transfers reach.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.app.analyze import CALIBRATION
from nccltune.app.sweep import SweepProgress, sweep
from nccltune.examples import recording
from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.choices import SweepScope
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.study.files import Study, write_whole
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.calibration import Calibration, defaults
from nccltune.topology.flows.derive import Derived, Observation, derive, observations
from nccltune.topology.nccl_model.settings import known_version

SCOPE = SweepScope(
    collectives=[Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER],
    low=256 << 20,
    high=1 << 30,
    rounds=4,
)
"""A sweep of a few large sizes, at which the links limit the bandwidth."""


class Calibrated(NamedTuple):
    """The efficiencies, and the file with them (None: nothing was written)."""

    derived: Derived
    written: Path | None


def measure_calibration(
    path: Path,
    launch: Launch,
    progress: SweepProgress,
    *,
    topology: Path | None = None,
    command: str,
) -> Calibrated:
    """Measure into the study at `path`, and write the efficiencies into the same study."""
    sweep(path, launch, SCOPE, progress, command=command)
    return calibrate([path], topology, path)


def calibrate(
    paths: Sequence[Path], topology: Path | None = None, output: Path | None = None
) -> Calibrated:
    """Return the link efficiencies that the samples of studies of one platform show.

    Pass studies of one node first: each uses the efficiencies of those before it. Raises InputError
    if the samples show none, StudyError, and UnwritableError for `output`.
    """
    result: Derived | None = None
    for path in paths:
        study = Study.open(recording(str(path)))
        found = _usable(study, observations(study.samples()))
        hardware = load_topology(topology or study.path)
        base = result.calibration if result else defaults()
        platform = study.platform()
        one = derive(
            hardware,
            found,
            base,
            name=study.name + (f", a replay of {platform.replay}" if platform.replay else ""),
            settings=platform.settings,
            nccl_version=known_version(platform.nccl_version),
        )
        if result is not None:
            one.used.update(
                {key: value for key, value in result.used.items() if key not in one.used}
            )
            one.left.extend(result.left)
        result = one
    assert result is not None
    if not result.used:
        why = f": {result.left[0][1]}" if result.left else ""
        raise InputError(
            f"nothing in it shows what a link reaches{why}",
            where=", ".join(map(str, paths)),
            hint="sizes of 256 MiB and more, protocol Simple, nodes that are real: nccltune "
            "topo calibrate -o STUDY measures them",
        )
    written = _save(result.calibration, output) if output is not None else None
    return Calibrated(result, written)


def _usable(study: Study, found: list[Observation]) -> list[Observation]:
    """Return the observations without emulated nodes. Raises InputError if none is left."""
    if study.platform().emulated_nodes and all(one.nodes > 1 for one in found):
        raise InputError(
            "its nodes are one machine's GPUs, so no NIC was in the way",
            where=str(study.path),
            hint="a study of one node, or of real nodes",
        )
    return [one for one in found if one.nodes == 1 or not study.platform().emulated_nodes]


def _save(calibration: Calibration, output: Path) -> Path:
    """Write the efficiencies that are not built in, so that newer defaults count; return the
    path."""
    path = output / CALIBRATION if output.is_dir() else output
    own = {
        name: figure
        for name, figure in calibration.values.items()
        if figure != defaults().values[name]
    }
    kept = msgspec.structs.replace(calibration, values=own)
    write_whole(path, msgspec.json.format(msgspec.json.encode(kept)).decode() + "\n")
    return path
