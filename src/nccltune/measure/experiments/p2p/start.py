# SPDX-License-Identifier: Apache-2.0
"""Start a bench on this machine with settings of NCCL, and read NCCL's log of its start."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.settings import Effective, Settings, log_settings, read_effective
from nccltune.measure.engine.settings_processes import BenchProcess, Starter


class _OnGpus:
    """A `BenchProcess` on the GPUs of this machine. `folder` has NCCL's log of its start."""

    recorded_s = None
    carried = None

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench = bench
        self._folder = folder

    @property
    def hello(self) -> Hello:
        return self._bench.hello

    def effective(self) -> Effective | None:
        return read_effective(self._folder)

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        return self._bench.measure(request)


def on_gpus(launch: Launch, *, program: list[str] | None = None) -> Starter:
    """Return a starter of `nccltune-bench` with the options in `launch`.

    `program` replaces the bench. The starter raises the errors of `Bench`.
    """

    @contextlib.contextmanager
    def start(settings: Settings, process: int) -> Iterator[BenchProcess]:  # noqa: ARG001
        with tempfile.TemporaryDirectory(prefix="nccltune-") as name:
            folder = Path(name)
            variables = {**log_settings(folder), **settings.environment}
            with Bench(launch, program=program, settings=variables) as bench:
                yield _OnGpus(bench, folder)

    return start
