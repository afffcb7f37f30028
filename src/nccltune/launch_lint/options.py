# SPDX-License-Identifier: Apache-2.0
"""Options of the launchers, from `options.csv`.

A row is an option with all its names, without leading dashes. Names of torchrun have `-` instead of
`_`. `words` is the number of words after the option, or `?` for a value that may follow `=` or the
letter. Options of different launchers with equal effect have the same `meaning`. Options without a
meaning, of which several share a row, are valid, but no rule uses them.

Sources: the help texts and sources of Open MPI 4.1.4 and 5.0.11, MPICH's hydra 4.0.2, Slurm 20.11
to 26.05 (srun, sbatch), pyxis of 2026, Shifter, torchrun of PyTorch 2.9, flux-core of 2026, jsrun
of IBM's Job Step Manager 10.4, aprun of Cray ALPS, mpiexec of Cray PALS, DeepSpeed 0.17, Accelerate
1.10 and horovodrun of Horovod 0.28. `azureml` stands for the distribution of a job of Azure ML.
Each option of hydra was tried with Intel MPI 2021.18. vLLM (0.11) and SGLang (0.5) have those
options alone that set processes and nodes.
"""

import csv
from importlib.resources import files
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.model.names import listed


class Spec(NamedTuple):
    """Number of words that follow an option, and the option's meaning, which rules look up.

    `is_optional`: the value may be left out. If it is given, it is part of the word.
    """

    words: int
    meaning: str
    is_optional: bool = False


def _tables() -> dict[str, dict[str, Spec]]:
    text = files("nccltune.launch_lint").joinpath("options.csv").read_text(encoding="utf-8")
    found: dict[str, dict[str, Spec]] = {}
    for row in csv.DictReader(text.splitlines()):
        is_optional = row["words"] == "?"
        spec = Spec(0 if is_optional else int(row["words"]), row["meaning"], is_optional)
        found.setdefault(row["launcher"], {}).update(dict.fromkeys(row["names"].split(), spec))
    return found


_ROWS = _tables()
_OPENMPI, _HYDRA = _ROWS["openmpi"], _ROWS["hydra"]

OPENMPI_4 = Flavor(Launcher.OPENMPI, (4, 1))
OPENMPI_5 = Flavor(Launcher.OPENMPI, (5, 0))
HYDRA = Flavor(Launcher.HYDRA)
INTEL = Flavor(Launcher.HYDRA, (2021,))
SLURM = Flavor(Launcher.SLURM)
TORCHRUN = Flavor(Launcher.TORCHRUN)
DEEPSPEED = Flavor(Launcher.DEEPSPEED)
ACCELERATE = Flavor(Launcher.ACCELERATE)
FLUX = Flavor(Launcher.FLUX)
JSRUN = Flavor(Launcher.JSRUN)
APRUN = Flavor(Launcher.APRUN)
PALS = Flavor(Launcher.PALS)
HOROVOD = Flavor(Launcher.HOROVOD)
AZUREML = Flavor(Launcher.AZUREML)
VLLM = Flavor(Launcher.VLLM)
SGLANG = Flavor(Launcher.SGLANG)
LOCAL = Flavor(Launcher.LOCAL)

COMMON: dict[Flavor, dict[str, Spec]] = {
    OPENMPI_4: _OPENMPI | _ROWS["openmpi4"],
    OPENMPI_5: _OPENMPI | _ROWS["openmpi5"],
    HYDRA: _HYDRA | _ROWS["mpich"],
    INTEL: _HYDRA | _ROWS["intel"],
    SLURM: _ROWS["slurm"] | _ROWS["pyxis"],
    TORCHRUN: _ROWS["torchrun"],
    LOCAL: {},
}
"""Options of the launchers that people mix up."""

SERVERS = (VLLM, SGLANG)
"""Servers of models that start a process for each GPU of a node."""
TRAINERS = (TORCHRUN, DEEPSPEED, ACCELERATE, *SERVERS)
"""What starts the processes of PyTorch on each node, often below another launcher."""
ON_JOB = (FLUX, JSRUN, APRUN, PALS, AZUREML)
"""Launchers that get their nodes from a job of the site's scheduler."""
ELSEWHERE = listed("""
srun ibrun lrun ccc_mprun ssh rsh pdsh pssh parallel-ssh clush dsh dask-ssh parallel xargs mpirun
mpirun_rsh mpirun.openmpi mpirun.mpich mpiexec mpiexec.hydra mpiexec.openmpi mpiexec.mpich orterun
prterun prte prun pbsdsh pbs_tmrsh blaunch qrsh jsrun aprun horovodrun flux
""")
"""Programs that may start another one on other nodes."""

_OTHERS = (DEEPSPEED, ACCELERATE, HOROVOD, *SERVERS, *ON_JOB)
TABLES = COMMON | {one: _ROWS[one.launcher.value] for one in _OTHERS}
"""Options of each launcher."""

LAUNCHER_TABLES = tuple(TABLES[one] for one in (OPENMPI_4, HYDRA, SLURM, OPENMPI_5, INTEL))
"""Options of the launchers that start nccl-tests: all except torchrun."""

_WORDS = {
    "total": {Launcher.OPENMPI: "-n", Launcher.HYDRA: "-n", Launcher.SLURM: "-n"},
    "per_node": {
        Launcher.OPENMPI: "-N",
        Launcher.HYDRA: "-ppn",
        Launcher.SLURM: "--ntasks-per-node",
        Launcher.TORCHRUN: "--nproc-per-node",
    },
    "nodes": {Launcher.SLURM: "-N", Launcher.TORCHRUN: "--nnodes"},
    "host": {Launcher.OPENMPI: "--host", Launcher.HYDRA: "-hosts", Launcher.SLURM: "-w"},
    "hostfile": {Launcher.OPENMPI: "--hostfile", Launcher.HYDRA: "-f"},
}


def translated(name: str, values: tuple[str, ...], flavor: Flavor) -> tuple[str, ...]:
    """Return the words of the option of `flavor` with the same meaning, or no words.

    `name` and `values` are an option of any launcher.
    """
    launcher = flavor.launcher
    value = values[0] if values else ""
    meaning = next((table[name].meaning for table in COMMON.values() if name in table), "")
    variable, sign, content = value.partition("=")
    if name == "map-by":
        parts = value.split(":")
        if launcher is Launcher.SLURM and parts[0] == "ppr" and len(parts) > 1:
            return (f"--ntasks-per-node={parts[1]}",)
        return ()
    if meaning in ("env", "env_list") and name in ("x", "genv", "env") and values:
        if len(values) == 2:
            sign, content = "=", values[1]
        if launcher is Launcher.OPENMPI:
            return ("-x", f"{variable}{sign}{content}")
        if launcher is Launcher.HYDRA:
            return ("-genv", variable, content) if sign else ()
        if launcher is Launcher.SLURM and sign and "," not in content:
            return (f"--export=ALL,{variable}={content}",)
        return ()
    if not values:
        if name in ("l", "label", "prepend-rank") and launcher is Launcher.OPENMPI:
            return ("--tag-output",)
        return ()
    word = _WORDS.get(meaning, {}).get(launcher)
    return (word, value) if word else ()
