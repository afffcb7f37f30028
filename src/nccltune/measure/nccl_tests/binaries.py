# SPDX-License-Identifier: Apache-2.0
"""Which nccl-tests binary times which collective, and how it is called."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.under import Under, program_under
from nccltune.model.choice import DEFAULT, Algorithm, AnyChoice, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import PlatformError

_STEM = {
    Collective.ALLREDUCE: "all_reduce",
    Collective.ALLGATHER: "all_gather",
    Collective.REDUCESCATTER: "reduce_scatter",
    Collective.BROADCAST: "broadcast",
    Collective.REDUCE: "reduce",
}
_FORCING = ("NCCL_ALGO", "NCCL_PROTO")
_NOT_OURS = (*_FORCING, "NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE")
"""What would make the default something else than NCCL's own choice."""
_EVERYWHERE = (Algorithm.RING,)
_SIMPLE_ONLY = {
    Collective.ALLREDUCE: (
        Algorithm.COLLNET_DIRECT,
        Algorithm.COLLNET_CHAIN,
        Algorithm.NVLS,
        Algorithm.NVLS_TREE,
    ),
    Collective.ALLGATHER: (Algorithm.COLLNET_DIRECT, Algorithm.NVLS, Algorithm.PAT),
    Collective.REDUCESCATTER: (Algorithm.COLLNET_DIRECT, Algorithm.NVLS, Algorithm.PAT),
}
FACTOR = 2
"""From one size to the next (nccl-tests takes whole factors only)."""


class Site(NamedTuple):
    """The binaries' folder and how they are started: `under` a launcher as it says, or behind
    `prefix`, the words of one that starts a process for each GPU; without both a single process
    drives `gpus` GPUs."""

    folder: Path
    gpus: int
    prefix: tuple[str, ...] = ()
    under: Under | None = None

    def binary(self, collective: Collective) -> Path:
        """The binary of a collective, also under a name with a suffix (`all_reduce_perf_mpi`).
        Raises PlatformError where there is none."""
        stem = f"{_STEM[collective]}_perf"
        exact = self.folder / stem
        found = [exact] if exact.is_file() else sorted(self.folder.glob(f"{stem}*"))
        runnable = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
        if not runnable:
            raise PlatformError(
                f"holds no {stem} that can be run",
                where=str(self.folder),
                hint="name the folder of nccl-tests' binaries, usually .../nccl-tests/build",
            )
        return runnable[0].absolute()

    def command(
        self,
        collective: Collective,
        low: int,
        high: int,
        *options: str,
        variables: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The command for sizes from `low` to `high` by FACTOR; `variables` are those that it is
        started with. Raises InputError for a launcher whose nodes are not known."""
        words = [str(self.binary(collective)), "-b", str(low), "-e", str(high), "-f", str(FACTOR)]
        if self.under is not None:
            return list(program_under([*words, *options], self.under, variables or {}).words)
        return [*self.prefix, *words, "-g", str(self.gpus), *options]


def environment(base: Mapping[str, str], choice: AnyChoice) -> dict[str, str]:
    """The variables that make NCCL run `choice`, and nothing else of ours."""
    plain = {name: value for name, value in base.items() if name not in _NOT_OURS}
    if choice == DEFAULT or not isinstance(choice, Choice):
        return plain
    # Plain words are understood by every NCCL; `allreduce:tree` only since 2.24 (`parseList`).
    return plain | {
        "NCCL_ALGO": choice.algorithm.value.replace("_", ""),
        "NCCL_PROTO": choice.protocol.value,
    }


def possible(collective: Collective) -> Sequence[Choice]:
    """Everything that NCCL has for a collective (`graph/tuning.cc`, 2.23 to 2.30), where it does
    not say itself what it can choose here. It refuses what it cannot run; but LL128 it runs where
    it is asked to, also where it would not dare by itself."""
    several = [*_EVERYWHERE, *([Algorithm.TREE] if collective is Collective.ALLREDUCE else [])]
    found = [Choice(algorithm, protocol) for algorithm in several for protocol in Protocol]
    found += [Choice(algorithm, Protocol.SIMPLE) for algorithm in _SIMPLE_ONLY.get(collective, ())]
    return found
