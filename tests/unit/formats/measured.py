# SPDX-License-Identifier: Apache-2.0
"""Runs of nccl-tests with noise, as files, and their import."""

import os
import random
from collections import defaultdict
from pathlib import Path

from nccltune.formats.importing.importer import Imported, import_files
from nccltune.formats.importing.inputs import find_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.model.sample import Sample
from nccltune.study.files import Study
from tests.unit.formats.maker import Made, Point


def measured(seed: int, *, rows: int = 12, cycles: int = 1, **changes: object) -> Made:
    """Return a separate run: noisy times, its own process ids."""
    noise = random.Random(seed)
    points = tuple(
        Point(
            1 << (10 + row),
            round((20 + (1 << row) / 100) * noise.lognormvariate(0, 0.01), 2),
            round((21 + (1 << row) / 100) * noise.lognormvariate(0, 0.01), 2),
        )
        for _ in range(cycles)
        for row in range(rows)
    )
    return Made(points, **{"pid": 1000 + 10 * seed, **changes})  # type: ignore[arg-type]


def log_lines(made: Made, *messages: str, stamp: str = "") -> str:
    """Return lines of NCCL's log of a run."""
    host = f"{stamp}{made.hosts[0]}:{made.pid}:{made.pid + 1} [0] NCCL INFO "
    return "".join(f"{host}{message}\n" for message in messages)


def with_log(made: Made, *messages: str) -> str:
    """Return the output of a run with a log of its start and of `messages`."""
    nodes = len(set(made.hosts))
    start = f"ncclCommInitRank comm 0x1 rank 0 nRanks {made.ranks} nNodes {nodes} localRanks 1"
    lines = made.lines()
    at = len(list(made.head()))
    head, rest = "\n".join(lines[:at]), "\n".join(lines[at:])
    return f"{head}\n{log_lines(made, start, *messages)}{rest}\n"


def put(path: Path, text: str | Made, modified: float | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else text.text())
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


def take(study: Path, *inputs: Path, **options: object) -> Imported:
    return import_files(
        study,
        find_inputs(inputs, leave_out=study),
        ReadOptions(study=study.name),
        at="2026-11-23",
        **options,  # type: ignore[arg-type]
    )


def processes(study: Path) -> dict[str, list[Sample]]:
    """Return the samples of a study by process, in the order of the file."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in Study(study).samples():
        assert sample.source.process is not None
        found[sample.source.process].append(sample)
    return dict(found)
