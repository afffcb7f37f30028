# SPDX-License-Identifier: Apache-2.0
"""The nccl-tests binary of each collective, and the command and environment that run it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.bench.with_launcher import WithLauncher, program_with_launcher
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
"""Variables that change NCCL's choice, removed so that the default is its own."""
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
"""Ratio of each size to the size before. nccl-tests accepts only whole numbers."""


class NcclTestsSite(NamedTuple):
    """The folder of the nccl-tests binaries, and how they are started.

    Without `with_launcher` or the command `prefix`, a binary is one process of `gpus` GPUs.
    """

    folder: Path
    gpus: int
    prefix: tuple[str, ...] = ()
    with_launcher: WithLauncher | None = None

    def binary(self, collective: Collective) -> Path:
        """Return the binary of a collective, maybe with a suffix (`_mpi`). Raises PlatformError."""
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
        """Return the command for sizes from `low` to `high` bytes, each FACTOR times the last.

        Raises PlatformError without the binary, InputError for unknown nodes.
        """
        words = [str(self.binary(collective)), "-b", str(low), "-e", str(high), "-f", str(FACTOR)]
        if self.with_launcher is not None:
            return list(
                program_with_launcher([*words, *options], self.with_launcher, variables or {}).words
            )
        return [*self.prefix, *words, "-g", str(self.gpus), *options]


def environment(base: Mapping[str, str], choice: AnyChoice) -> dict[str, str]:
    """Return a copy of the environment `base` in which NCCL runs `choice`.

    Other variables that change NCCL's choice are removed. For the default, no variable is added.

    >>> from nccltune.model.choice import parse_choice
    >>> environment({}, parse_choice("ring/ll"))
    {'NCCL_ALGO': 'ring', 'NCCL_PROTO': 'll'}
    """
    plain = {name: value for name, value in base.items() if name not in _NOT_OURS}
    if choice == DEFAULT or not isinstance(choice, Choice):
        return plain
    # Every NCCL accepts plain names. The form `allreduce:tree` needs NCCL 2.24 (`parseList`).
    return plain | {
        "NCCL_ALGO": choice.algorithm.value.replace("_", ""),
        "NCCL_PROTO": choice.protocol.value,
    }


def possible(collective: Collective) -> Sequence[Choice]:
    """Return all choices that NCCL has for a collective (`graph/tuning.cc`, 2.23 to 2.30).

    NCCL refuses those it cannot run, but runs a forced LL128 where it would never choose it.
    """
    several = [*_EVERYWHERE, *([Algorithm.TREE] if collective is Collective.ALLREDUCE else [])]
    found = [Choice(algorithm, protocol) for algorithm in several for protocol in Protocol]
    found += [Choice(algorithm, Protocol.SIMPLE) for algorithm in _SIMPLE_ONLY.get(collective, ())]
    return found
