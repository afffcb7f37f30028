# SPDX-License-Identifier: Apache-2.0
"""What the verbs that run the bench share: which bench to run, on what, and how it is stopped."""

import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.output import hanging, stderr

if TYPE_CHECKING:
    from nccltune.measure.bench import Bench, Launch
    from nccltune.measure.under import Under
    from nccltune.model.platform import Platform

LAUNCH = (
    *("emulate_nodes", "gpus", "processes", "nccl", "replay"),
    *("launcher", "nodes", "hosts", "image", "settings"),
)
"""The names of the launch options."""


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what the bench runs on."""
    return launch_options_with("nccltune")(command)


def launch_options_with(
    what: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same for a verb whose image in a cluster needs `what`."""
    return partial(_launch_options, what)


def _launch_options(what: str, command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option(
                "--emulate-nodes",
                type=click.IntRange(1),
                help="Make so many nodes of this machine's GPUs.",
            ),
            click.option(
                "--gpus",
                type=click.IntRange(1),
                help="How many GPUs, of each node with --launcher  [default: all; in pods 8]",
            ),
            click.option(
                "--processes",
                type=click.Choice(["per-gpu", "one"]),
                default="per-gpu",
                show_default=True,
                help="A process for each GPU, or one for all.",
            ),
            click.option(
                "--nccl",
                type=click.Path(path_type=Path, exists=True, dir_okay=False),
                help="The libnccl.so.2 to measure  [default: PyTorch's, else the system's]",
            ),
            click.option(
                "--replay", metavar="STUDY", help="Draw timings from a recorded study; no GPU."
            ),
            click.option(
                "--launcher",
                metavar="openmpi|hydra|slurm|kubernetes",
                help="Start the processes with this, on one node or many; openmpi:5 to insist.",
            ),
            click.option(
                "--nodes",
                type=click.IntRange(1),
                help="With --launcher: how many nodes  [default: as many as --hosts, or Slurm "
                "gave; else 1]",
            ),
            click.option("--hosts", metavar="A,B", help="With --launcher: which nodes."),
            click.option("--image", help=f"With --launcher kubernetes: an image with {what}."),
            click.option(
                "--set",
                "settings",
                multiple=True,
                metavar="KEY=VALUE",
                help="With --launcher kubernetes: a key of a job file, kubernetes.namespace=bench.",
            ),
        )
    ):
        command = option(command)
    return command


def launch_from(arguments: dict[str, Any]) -> "Launch":
    """What to launch by a verb's options, which are taken out of `arguments`.

    Raises InputError for options that contradict each other, StudyError for a recording that is
    none.
    """
    from nccltune.measure.bench import Launch
    from nccltune.model.errors import InputError

    emulate_nodes, gpus, processes, nccl, replay, launcher, nodes, hosts, image, settings = (
        arguments.pop(name) for name in LAUNCH
    )
    for name, value in (("--nodes", nodes), ("--hosts", hosts)):
        if value is not None and launcher in (None, "local"):
            raise InputError("is for --launcher", where=name)
    check_pods(launcher, image, settings)
    under = None
    if launcher not in (None, "local"):
        if emulate_nodes:
            raise InputError("makes nodes of one machine's GPUs", where="--emulate-nodes")
        if replay is not None and not gpus:
            raise InputError("needs --gpus under a launcher: its processes", where="--replay")
        under = _under(launcher, nodes, hosts, gpus, image, settings, per_node=processes == "one")
    elif gpus == 1:
        raise InputError("one GPU alone has nothing to measure", where="--gpus")
    elif replay is not None and (nccl or gpus or emulate_nodes or processes != "per-gpu"):
        raise InputError(
            "takes NCCL, GPUs and nodes from the recording",
            where="--replay",
            hint="leave out --nccl, --gpus, --emulate-nodes and --processes",
        )
    return Launch(
        replay=recording(replay) if replay else None,
        nccl=nccl.absolute() if nccl else None,
        gpus=gpus,
        emulate_nodes=emulate_nodes,
        one_process=processes == "one",
        under=under,
    )


def program_under_from(arguments: dict[str, Any]) -> "Under | None":
    """What starts a PROGRAM of the user's, by the launch options of a verb; None where it is
    started as it is. `arguments` are left as they are.

    Raises InputError for what does not go together, PlatformError for a launcher that is not here.
    """
    from nccltune.model.errors import InputError

    launcher, nodes, hosts, gpus, image, settings = (
        arguments[name] for name in ("launcher", "nodes", "hosts", "gpus", "image", "settings")
    )
    check_pods(launcher, image, settings)
    if launcher is not None:
        per_node = arguments["processes"] == "one"
        return _under(launcher, nodes, hosts, gpus, image, settings, per_node=per_node)
    for option, value in (("--nodes", nodes), ("--hosts", hosts), ("--gpus", gpus)):
        if value is not None:
            raise InputError(
                "is for --launcher",
                where=option,
                hint="without one the PROGRAM is started as it is, with its own options",
            )
    return None


def _under(
    launcher: str,
    nodes: int | None,
    hosts: str | None,
    gpus: int | None,
    image: str | None,
    settings: tuple[str, ...],
    *,
    per_node: bool,
) -> "Under":
    """Any launcher, pods included."""
    from nccltune.model.errors import InputError

    if launcher != "kubernetes":
        return under_from(launcher, nodes, hosts, gpus, per_node=per_node)
    if hosts:
        raise InputError("Kubernetes finds the nodes itself", where="--hosts")
    return _pods(nodes, gpus, image, settings, per_node=per_node)


def check_pods(launcher: str | None, image: str | None, settings: tuple[str, ...]) -> None:
    """Raises InputError for options of Kubernetes that another launcher would not see."""
    from nccltune.model.errors import InputError

    for name, value in (("--image", image), ("--set", settings)):
        if value and launcher != "kubernetes":
            raise InputError("is for --launcher kubernetes", where=name)


def under_from(
    launcher: str, nodes: int | None, hosts: str | None, gpus: int | None, *, per_node: bool
) -> "Under":
    """A launcher that is here and what it is to start, by the options of a verb.

    Raises InputError for what cannot be, PlatformError for a launcher that is not here.
    """
    from nccltune.cli.launch_options import flavor_from, nodes_given
    from nccltune.launch.find import find_wanted, slurm_mpi
    from nccltune.launch.flavor import Launcher
    from nccltune.measure.bench import NO_GPU_HINT
    from nccltune.measure.gpus import visible_gpus
    from nccltune.measure.under import Under
    from nccltune.model.errors import InputError

    wanted = flavor_from(launcher)
    if wanted.launcher is Launcher.KUBERNETES:
        raise InputError(
            "starts our bench, and no COMMAND or nccl-tests of yours",
            where="--launcher kubernetes",
            hint="nccltune launch and nccltune try do: "
            "--launcher kubernetes --image ... -- all_reduce_perf ...",
        )
    named = tuple(host.strip() for host in hosts.split(",")) if hosts else ()
    found = find_wanted(wanted)
    return Under(
        found,
        nodes or len(named) or nodes_given(wanted.launcher) or 1,
        gpus or visible_gpus(NO_GPU_HINT),
        named,
        # Without a launcher there is one process.
        per_node or wanted.launcher is Launcher.LOCAL,
        slurm_mpi() if wanted.launcher is Launcher.SLURM else None,
    )


def _pods(
    nodes: int | None,
    gpus: int | None,
    image: str | None,
    settings: tuple[str, ...],
    *,
    per_node: bool,
) -> "Under":
    """Pods that are held while the verb runs, and deleted when it ends."""
    from nccltune.cli.launch_options import put_settings
    from nccltune.launch.find import find
    from nccltune.launch.flavor import Launcher
    from nccltune.launch.job import BENCH, checked
    from nccltune.measure.pods import Pods
    from nccltune.measure.under import Under

    where = "--launcher kubernetes"
    raw: dict[str, Any] = {"program": [BENCH], "name": "nccltune", "nodes": nodes or 1}
    raw["processes"] = "per-node" if per_node else "per-gpu"
    if gpus is not None:
        raw["gpus_per_node"] = gpus
    raw["kubernetes"] = {} if image is None else {"image": image}
    put_settings(raw, settings, where)
    job = checked(raw, where)
    talk = stderr()

    def told(line: str) -> None:
        talk.print(f"kubernetes {line}", markup=False, soft_wrap=True)

    pods = Pods(job, told)
    click.get_current_context().call_on_close(pods.close)
    found = find(Launcher.KUBERNETES)
    return Under(found, job.nodes, job.gpus_per_node, per_node=per_node, pods=pods)


def recording(text: str) -> Path:
    """Return a study by its path, or one of the installed recordings by its name.

    Raises StudyError with the nearest recording where there is neither.
    """
    from nccltune.examples import examples
    from nccltune.model.errors import StudyError
    from nccltune.model.names import nearest
    from nccltune.model.study import Study

    path = Path(text)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists and path.name in examples():
        path = examples()[path.name]
    elif not exists and len(path.parts) == 1 and examples():
        raise StudyError(
            f"no study and no recording is called {text!r}", hint=nearest(text, examples())
        )
    return Study.open(path).path.absolute()


def platform_of_bench(path: Path, launch: "Launch", bench: "Bench") -> "Platform":
    """What a running bench measures on; `path` is the study that it measures for."""
    from datetime import UTC, datetime

    from nccltune.measure.identity import platform_of
    from nccltune.model.study import Study

    return platform_of(
        bench.hello,
        path.resolve().name,
        environment=os.environ,
        today=datetime.now(UTC).date().isoformat(),
        emulated_nodes=launch.emulate_nodes,
        recording=Study.open(launch.replay).platform() if launch.replay else None,
    )


def command_line(context: click.Context) -> str:
    """The command that resumes: this one."""
    words = ["nccltune", context.info_name or ""]
    named = [item for item in context.command.params if isinstance(item, click.Option)]
    for parameter in [*named, *(item for item in context.command.params if item not in named)]:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not click.core.ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if not isinstance(parameter, click.Option):
            words += map(str, value if parameter.nargs == -1 else [value])
            continue
        option = max(parameter.opts, key=len)
        for one in value if parameter.multiple else [value]:
            words += [option] if parameter.is_flag else [option, str(one)]
    return shlex.join(words)


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a measurement as Ctrl-C does."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def show_start(platform: "Platform", came_from: str | None) -> None:
    """Talk: what is measured on, and what in the environment bends it."""
    note = stderr()
    where = f" ({came_from})" if came_from and not platform.replay else ""
    hanging(note, "platform   ", 11, f"{platform.title}{where}")
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if name in platform.settings and not platform.replay:
            words = (
                f"{name}={platform.settings[name]} is set: NCCL offers nothing else, so nothing "
                "else is measured"
            )
            hanging(note, ("warning    ", "yellow"), 11, words)
    if platform.replay:
        words = (
            f"of {platform.replay}: timings are drawn from a recording, nothing is measured here"
        )
        hanging(note, "replay     ", 11, words)
