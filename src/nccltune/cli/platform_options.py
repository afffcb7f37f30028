# SPDX-License-Identifier: Apache-2.0
"""What is measured on: GPUs, nodes, a launcher, a recording."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import Decorator, apply, option
from nccltune.cli.output import hanging, stderr, talk

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccltune.app.bench_launch import LaunchRequest, Site
    from nccltune.measure.bench.process import Launch
    from nccltune.model.platform import Platform

_NAMES = ("emulate_nodes", "gpus", "nodes", "nccl", "replay", "launcher", "settings")


def platform_options(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options for the platform that the bench runs on."""
    return apply(
        command,
        emulate_option(),
        gpus_option(),
        nodes_option(),
        launcher_option(),
        set_option(),
        replay_option(),
        nccl_option(),
    )


def emulate_option(*, advanced: bool = False) -> Decorator:
    """Return `--emulate-nodes`."""
    return option("--emulate-nodes", type=click.IntRange(1), metavar="N", advanced=advanced)


def gpus_option(more: str = "  [default: all; in pods 8]") -> Decorator:
    """Return `--gpus`."""
    return option("--gpus", type=click.IntRange(1), metavar="N", more=more)


def nodes_option(
    more: str = ", with --launcher  [default: as many as hosts, or Slurm gave; else 1]",
) -> Decorator:
    """Return `--nodes`."""
    return option("--nodes", type=click.IntRange(1), metavar="N", more=more)


def launcher_option(
    more: str = ": openmpi, hydra, slurm or kubernetes; openmpi:5 insists on a version.",
) -> Decorator:
    """Return `--launcher`."""
    return option("--launcher", metavar="NAME", more=more)


def set_option(
    more: str = ": hosts=a,b, processes=per-node; for Kubernetes image=... and others.",
) -> Decorator:
    """Return `--set`."""
    return option("--set", "settings", multiple=True, metavar="KEY=VALUE", more=more)


def replay_option() -> Decorator:
    """Return `--replay`."""
    return option("--replay", metavar="STUDY", more="; no GPU.")


def nccl_option() -> Decorator:
    """Return `--nccl`."""
    return option(
        "--nccl",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        more="  [default: PyTorch's, else the system's]",
        advanced=True,
    )


def request_from(options: dict[str, Any]) -> "LaunchRequest":
    """Return the launch request from a verb's options, which are removed from `options`."""
    from nccltune.app.bench_launch import LaunchRequest

    return LaunchRequest(**{name: options.pop(name) for name in _NAMES if name in options})


def launch_from(options: dict[str, Any]) -> "Launch":
    """Return the launch from a verb's options, which are removed from `options`.

    Raises InputError for options that contradict each other, and StudyError for an invalid
    recording.
    """
    from nccltune.app.bench_launch import launch_of

    return launch_of(request_from(options), site())


def site() -> "Site":
    """Return the callbacks of this verb that a launch needs."""
    from nccltune.app.bench_launch import Site

    def note(line: str) -> None:
        talk().print(line, soft_wrap=True)

    return Site(note, click.get_current_context().call_on_close)


def show_start(platform: "Platform", came_from: str | None) -> None:
    """Print the platform, and the environment settings that change the measurement."""
    note = talk()
    where = f" ({came_from})" if came_from and not platform.replay else ""
    hanging(note, "platform   ", 11, f"{platform.title}{where}")
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if name in platform.settings and not platform.replay:
            words = (
                f"{name}={platform.settings[name]} is set: NCCL offers nothing else, so nothing "
                "else is measured"
            )
            hanging(stderr(), ("warning    ", "yellow"), 11, words)
    if platform.replay:
        words = (
            f"of {platform.replay}: timings are drawn from a recording, nothing is measured here"
        )
        hanging(note, "replay     ", 11, words)
