# SPDX-License-Identifier: Apache-2.0
"""Launchers and their versions."""

import enum
import re
from typing import NamedTuple

_FIRST_YEAR = 2000


class Launcher(enum.Enum):
    """The program that starts the processes of a job."""

    LOCAL = "local"
    OPENMPI = "openmpi"
    HYDRA = "hydra"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    TORCHRUN = "torchrun"
    DEEPSPEED = "deepspeed"
    ACCELERATE = "accelerate"
    FLUX = "flux"
    JSRUN = "jsrun"
    APRUN = "aprun"
    PALS = "pals"
    HOROVOD = "horovodrun"
    AZUREML = "azureml"
    VLLM = "vllm"
    SGLANG = "sglang"


STARTED = (Launcher.LOCAL, Launcher.OPENMPI, Launcher.HYDRA, Launcher.SLURM, Launcher.KUBERNETES)
"""The launchers that nccltune can start a job with."""
_NAMES = {
    Launcher.OPENMPI: "Open MPI",
    Launcher.SLURM: "Slurm",
    Launcher.FLUX: "Flux",
    Launcher.PALS: "Cray PALS",
    Launcher.AZUREML: "Azure ML",
    Launcher.VLLM: "vLLM",
    Launcher.SGLANG: "SGLang",
}


class Flavor(NamedTuple):
    """A launcher and its version. The version is empty if it is unknown."""

    launcher: Launcher
    version: tuple[int, ...] = ()

    @property
    def is_intel(self) -> bool:
        """Return whether it is Intel MPI's hydra: its versions are years, MPICH's 4 and 5."""
        return self.launcher is Launcher.HYDRA and self.version[:1] >= (_FIRST_YEAR,)

    @property
    def words(self) -> str:
        """Return the name and version: `Open MPI 5.0.11`, `hydra`, `Intel MPI 2021.18.1`."""
        name = _NAMES.get(self.launcher, self.launcher.value)
        if self.is_intel:
            name = "Intel MPI"
        return f"{name} {'.'.join(map(str, self.version))}" if self.version else name


_VERSION_LINES = (
    (Launcher.OPENMPI, re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+(?:\.\d+)*)")),
    (Launcher.OPENMPI, re.compile(r"mpirun \(PRRTE\) .*Open MPI v?(\d+(?:\.\d+)*)", re.S)),
    (Launcher.HYDRA, re.compile(r"HYDRA build details:.*?Version:\s+(\d+(?:\.\d+)*)", re.S)),
    (Launcher.HYDRA, re.compile(r"Intel\(R\) MPI Library .*?Version (\d+(?:\.\d+)*)", re.S)),
    (Launcher.SLURM, re.compile(r"^slurm(?:-wlm)? (\d+(?:\.\d+)*)", re.M)),
)


def flavor_of(version_text: str) -> Flavor | None:
    """Return the launcher and version in the output of `--version`; None for an unknown program."""
    for launcher, pattern in _VERSION_LINES:
        if match := pattern.search(version_text):
            return Flavor(launcher, tuple(int(part) for part in match[1].split(".")))
    return None
