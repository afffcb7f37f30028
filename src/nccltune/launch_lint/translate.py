# SPDX-License-Identifier: Apache-2.0
"""Translate an option of one launcher into that of another."""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch_lint.options import COMMON

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
