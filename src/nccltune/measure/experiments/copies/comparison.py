# SPDX-License-Identifier: Apache-2.0
"""The base class of both comparisons of NCCL with copy engines.

A comparison runs on one node. Differences below the noise floor do not count.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Callable

from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.process_record import ProcessRecord
from nccltune.measure.engine.settings import Settings
from nccltune.measure.engine.settings_experiment import SettingsExperiment
from nccltune.measure.engine.settings_processes import BenchProcess, Starter
from nccltune.measure.engine.status import StatusCallback, ignore_status
from nccltune.measure.experiments.copies.settings import label
from nccltune.model.errors import PlatformError


class CopyComparison(SettingsExperiment):
    """One comparison on one node.

    Differences of less than `noise_floor` (0.02 is 2 %) do not count. The other arguments are those
    of `SettingsExperiment`. Raises PlatformError for several nodes, and the errors of
    `SettingsExperiment`.
    """

    retry = True

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        *,
        noise_floor: float,
        seed: int,
        budget_s: float | None,
        on_status: StatusCallback = ignore_status,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._floor = math.log1p(noise_floor)
        super().__init__(
            start, first, files, seed=seed, budget_s=budget_s, on_status=on_status, now=now
        )

    @abstractmethod
    def _check_scope(self) -> None:
        """Raise InputError for options that cannot lead to a decision."""

    def _check(self, hello: Hello) -> None:
        self._check_scope()
        if hello.nodes > 1:
            raise PlatformError(
                f"copy engines reach the GPUs of one node; this bench is on {hello.nodes}",
                hint="measure on one node: a threshold holds for all that are alike",
            )

    def _label(self, settings: Settings) -> str:
        return label(settings)
