# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have: each flag is declared once, in `FLAGS`, with one meaning."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nccltune.cli.verb import AdvancedOption

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _NamedPath(click.Path):
    """A path that is not empty: `Path("")` would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath(path_type=Path)
FILE: dict[str, Any] = {"type": PATH, "metavar": "FILE"}
"""Attributes of an option that names a file."""
_NUMBER: dict[str, Any] = {"type": click.IntRange(1), "metavar": "N"}


class Percent(click.ParamType[float]):
    """A share written as `3%`, `3` or `0.03`; one from 0.1 to 1 needs the `%` sign."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the value as a fraction."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a percentage; write 3% or 0.03", param, ctx)
        if 0.1 <= number < 1 and not text.endswith("%"):
            self.fail(f"{text} may be a percentage or a fraction; write {text}%", param, ctx)
        fraction = number / 100 if text.endswith("%") or number >= 1 else number
        if not 0 <= fraction <= 1:
            self.fail(f"{value!r} is not between 0% and 100%", param, ctx)
        return fraction


_PERCENT: dict[str, Any] = {"type": Percent(), "show_default": True}

FLAGS: dict[str, dict[str, Any]] = {
    "--anew": {"help": "Measure everything again", "is_flag": True},
    "--any-scale": {
        "help": "Make a rule for any scale where it holds at every scale measured",
        "is_flag": True,
    },
    "--assume-noise": {
        "name": "assumed_noise",
        "help": "Noise of a timing, and of a process, where there are too few to measure it",
        "default": "5%",
        **_PERCENT,
    },
    "--budget": {
        "name": "budget_s",
        "help": "Seconds to measure at most",
        "type": click.FloatRange(0, min_open=True),
        "metavar": "SECONDS",
    },
    "--channel-tolerance": {
        "help": "Time that fewer channels may cost",
        "default": "2%",
        **_PERCENT,
    },
    "--channels": {
        "help": "Channels (SMs) that a rule may take: at most those of NCCL's default at that "
        "size, or any number",
        "type": click.Choice(["default", "any"]),
        "default": "default",
        "show_default": True,
    },
    "--check": {"help": "Exit with 1", "is_flag": True},
    "--choice": {
        "help": "The choice that the tables were made with",
        "more": ": tree/ll128, ring/simple/8, default or tuned.  [default: by the NCCL log, the "
        "command line in the output, or the file's name]",
    },
    "--collective": {"help": "The collective", "metavar": "NAME"},
    "--topology": {"help": "The platform's topology", **FILE},
    "--collectives": {
        "help": "Collectives, separated by commas",
        "more": ", or `all` of those that NCCL tunes.",
        "default": "allreduce,allgather,reducescatter",
        "show_default": True,
        "metavar": "A,B",
    },
    "--emulate-nodes": {"help": "Make this many nodes of this machine's GPUs", **_NUMBER},
    "--env": {"help": "A variable of every process", "multiple": True, "metavar": "NAME=VALUE"},
    "--extend": {
        "help": "Let the first and last rule reach beyond what was measured",
        "is_flag": True,
    },
    "--format": {
        "name": "form",
        "help": "Where the lines will stand",
        "type": click.Choice(["shell", "nccl.conf", "sbatch", "mpirun", "kubernetes", "docker"]),
        "default": "shell",
        "show_default": True,
    },
    "--gain-threshold": {"name": "threshold", "help": "The gain that matters", **_PERCENT},
    "--gpu": {
        "help": "GPU model, where the log does not show it",
        "more": ": H100.",
        "metavar": "NAME",
    },
    "--gpus": {"help": "GPUs per node", "more": "  [default: all; in pods 8]", **_NUMBER},
    "--launcher": {
        "help": "The launcher of the processes",
        "more": ": openmpi, hydra, slurm or kubernetes; openmpi:5 insists on a version.",
        "metavar": "NAME",
    },
    "--library": {"help": "The libnccltune-sendrecv.so", **FILE},
    "--metric": {
        "help": "Regular expression: its first group is the speed of a job",
        "more": ", in a line that it prints; a group named `time` is a time.  [default: steps/s, "
        "tokens/s, iteration time and others, else the wall time]",
        "metavar": "REGEX",
    },
    "--min-gain": {"help": "The least gain that is worth a change", "default": "3%", **_PERCENT},
    "--mps": {
        "help": "Start an MPS daemon for ranks that share a GPU, and end it",
        "is_flag": True,
    },
    "--nccl": {
        "help": "The libnccl.so.2",
        "more": " to measure  [default: PyTorch's, else the system's]",
        "type": _NamedPath(path_type=Path, exists=True, dir_okay=False),
    },
    "--nccl-version": {"help": "The version of NCCL", "metavar": "X.Y.Z"},
    "--nics": {"help": "NICs of a node and their rate in Gbit/s: 8x400", "metavar": "NxGBIT"},
    "--nodes": {
        "help": "Number of nodes",
        "more": ", with --launcher  [default: as many as hosts, or Slurm gave; else 1]",
        **_NUMBER,
    },
    "--output": {"help": "Where to write: ", "type": PATH, "metavar": "STUDY"},
    "--penalty": {
        "help": "Log latency that one more rule must save; higher gives fewer rules",
        "type": click.FloatRange(0),
        "default": 0.05,
        "show_default": True,
    },
    "--pipe-ops": {
        "help": "Operations in a group of calls",
        "type": click.IntRange(1, 1024),
        "metavar": "N",
    },
    "--plugin": {"help": "Where the plugin will be on the nodes", **FILE},
    "--ranks": {"help": "Number of ranks", **_NUMBER},
    "--ranks-per-gpu": {"help": "Let this many ranks share each GPU, each as a node", **_NUMBER},
    "--registered": {"help": "With registered buffers", "is_flag": True},
    "--graphs": {"help": "In CUDA graphs", "is_flag": True},
    "--replay": {
        "help": "Draw timings from a recorded study",
        "more": "; no GPU.",
        "metavar": "STUDY",
    },
    "--rounds": {"help": "Rounds to measure", **_NUMBER},
    "--seed": {
        "help": "Seed of the random order",
        "type": click.IntRange(0),
        "default": 1,
        "show_default": True,
    },
    "--set": {
        "name": "settings",
        "help": "A key of a job file",
        "more": ": hosts=a,b, processes=per-node; for Kubernetes image=... and others.",
        "multiple": True,
        "metavar": "KEY=VALUE",
    },
    "--sizes": {"help": "Range of sizes", "show_default": True, "metavar": "A-B"},
    "--workload": {
        "help": "Recording of a job, a file or a folder (see `nccltune workload show`)",
        "more": ": sizes count by its time there, and each rule gets its worth to the job.",
        "multiple": True,
        "type": _NamedPath(),
        "metavar": "PATH",
    },
    "--weights": {
        "help": "CSV file `bytes,weight`: how much each size counts",
        "more": "  [default: all the same]",
        "type": _NamedPath(),
        "metavar": "FILE",
    },
}
"""The attributes of each flag.

`name` is that of the parameter, `help` the text in every verb, `more` its end (by default `.`),
which a verb can replace.
"""
_ADVANCED = (
    "--assume-noise",
    "--channel-tolerance",
    "--gain-threshold",
    "--mps",
    "--nccl",
    "--penalty",
    "--ranks-per-gpu",
    "--seed",
)
"""These are advanced options in every verb."""


def option(
    flag: str, *names: str, more: str | None = None, advanced: bool = False, **attributes: Any
) -> Decorator:
    """Return a decorator that adds `flag` of `FLAGS`, changed by names and `attributes`."""
    merged = {**FLAGS[flag], **attributes}
    usual, name = merged.pop("more", "."), merged.pop("name", None)
    merged["help"] += usual if more is None else more
    if advanced or flag in _ADVANCED:
        merged["cls"] = AdvancedOption
    if name and not names:
        names = (name,)
    return click.option(*names, flag, **merged)


def options(*added: str | Decorator) -> Decorator:
    """Return a decorator that adds flags of `FLAGS` and other options, in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(added):
            command = option(one)(command) if isinstance(one, str) else one(command)
        return command

    return add


def binds(**places: str) -> Decorator:
    """Return a decorator that gives options to the verb as structs.

    `places` maps an argument to its class, `MODULE:CLASS`. Other options set the field of their
    name.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_structs(**values: Any) -> Any:
            from nccltune.cli.requests import bound

            return command(**bound(command, places, values))

        setattr(with_structs, "places", places)  # noqa: B010 - a function has no such attribute
        return with_structs

    return add


LAUNCH = "nccltune.app.bench_launch:LaunchRequest"
"""The class of the options `PLATFORM`, for `binds`."""

STUDY = click.argument("study", type=PATH)
"""The argument that names a study folder."""


def output_option(name: str, more: str, **attributes: Any) -> Decorator:
    """Return `-o/--output` as the parameter `name`. `more` describes the file or study to write."""
    return option("--output", "-o", name, more=more, **attributes)


PLATFORM = options(
    "--emulate-nodes",
    "--ranks-per-gpu",
    "--mps",
    "--gpus",
    "--nodes",
    "--launcher",
    "--set",
    "--replay",
    "--nccl",
)
"""Options that select the platform on which the bench runs."""

SCOPE = options(
    "--collectives",
    option("--sizes", default="1K-64M"),
    option("--gain-threshold", more=": stop when less is still to be found.", default="1%"),
    "--seed",
)
"""Options that select what a sweep measures, and when the sweep ends."""

WORKLOAD_SWEEP = (
    ": only what it sends is measured, more where it spends its time; --collectives and --sizes "
    "limit it."
)
"""The end of the help text of `--workload` where a sweep is made."""

CALLS = options(
    option("--registered", more=", beside plain calls.", advanced=True),
    option(
        "--pipe-ops",
        "group_calls",
        more=" (ncclGroupStart, ncclGroupEnd), measured beside plain calls.",
        advanced=True,
    ),
)
"""Options that select how calls are made. NCCL's tuner decides by it."""

JOB = options(
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="JOB.toml|-- PROGRAM ..."),
    option(
        "--launcher",
        more=": local, openmpi, hydra, slurm or kubernetes; openmpi:5 for a version.  [default: "
        "what is found]",
    ),
    option("--nodes", more="  [default: as many as hosts, or Slurm gave to this shell; else 1]"),
    option("--gpus", more="  [default: 8]"),
    option(
        "--set",
        more=": processes=per-node, hosts=a,b, interface=eth0, hcas=mlx5_0, nvls=false, "
        "partition=x, slurm.time=00:10:00, image=x, ...",
    ),
    option(
        "--env", "variables", metavar="NAME[=VALUE]", more="; without a value the one it has here."
    ),
)
"""Options that describe a job: job file or program, launcher, keys of a job file, and variables."""


def scale_options(more: str) -> Decorator:
    """Return `--nodes` and `--ranks` of a communicator; `more` ends both help texts."""
    return options(option("--nodes", more=more), option("--ranks", more=more))


def stated_options() -> Decorator:
    """Return the options of what a file of measurements may not state."""
    more = ", where a file does not show it."
    return options(scale_options(more), option("--collective", more=more))


def tune_options(*, advanced: bool = False) -> Decorator:
    """Return the options of the rule search; those about statistics may be advanced."""
    return options(
        option("--weights", advanced=advanced),
        option("--min-gain", more=": a rule must beat the default by this.", advanced=advanced),
        option("--channels", advanced=advanced),
        option("--extend", advanced=advanced),
        option("--any-scale", advanced=advanced),
        "--penalty",
        "--assume-noise",
        "--channel-tolerance",
    )
