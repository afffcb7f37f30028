# SPDX-License-Identifier: Apache-2.0
"""Check torchrun: processes and GPUs, and how nodes find each other."""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from nccltune.launch.flavor import Flavor
from nccltune.launch.program import is_named_number, is_nccl_test
from nccltune.launch_lint.command import LaunchCommand, View
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    LaunchFinding,
    Replace,
    ReplaceArgument,
    error,
    note,
    warning,
)
from nccltune.launch_lint.nested import HOST_NAME, REMOTE
from nccltune.launch_lint.options import TORCHRUN, TRAINERS
from nccltune.launch_lint.read import module_meant
from nccltune.launch_lint.rules.shape import Rule
from nccltune.launch_lint.training import all_gpus, configured, node_range, visible
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.scale import count

_BACKENDS = ("static", "c10d", "etcd", "etcd-v2", "zeus")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound
_PORT = 29500


def of_trainer(
    rule: Callable[[View, LaunchCommand], Iterator[LaunchFinding]], flavors: Sequence[Flavor]
) -> Rule:
    """Return a rule that checks a launcher of PyTorch, alone or as the program of another launcher.

    Findings for one that another launcher starts have no edits: `fix.py` can change only the
    options of the outer launcher.
    """

    @functools.wraps(rule)
    def checked(view: View) -> Iterator[LaunchFinding]:
        inner = view.prediction.inner
        if view.flavor in flavors:
            yield from rule(view, view.command)
        elif inner is not None and inner.flavor in flavors:
            for finding in rule(view, inner.command):
                yield finding._replace(edits=())

    return checked


def of_torchrun(rule: Callable[[View, LaunchCommand], Iterator[LaunchFinding]]) -> Rule:
    """Return a rule that checks torchrun, as `of_trainer` does."""
    return of_trainer(rule, (TORCHRUN,))


of_any = functools.partial(of_trainer, flavors=TRAINERS)


def _is_set(view: View, *names: str) -> bool:
    """Return whether one of the variables is set. torchrun reads such variables like options."""
    return any(variable.name in names for variable in view.variables)


@of_torchrun
def processes(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `--nproc-per-node=16` on 8 GPUs, or no `--nproc-per-node`, which means 1 process."""
    option = command.last("per_node")
    have = view.site.gpus_per_node
    if option is None:
        given = whole_number(dict(view.site.exported).get("PET_NPROC_PER_NODE", "")) or 0
        if view.site.gpus is not None and given > have:
            said = f"PET_NPROC_PER_NODE={given}, and the node has {have} GPUs"
            fix = f"give the job {have} processes per node"
            yield error("too-many-gpus", f"{said} ({view.site.gpus_source})", fix)
        have = all_gpus(command, view.site)[0] or have
        if have > 1 and not _behind(command) and not _is_set(view, "PET_NPROC_PER_NODE"):
            if view.site.gpus is None and all_gpus(command, view.site)[1]:
                said = "without --nproc-per-node torchrun starts 1 process on a node, for one GPU"
                yield note("torchrun-one-process", said, "add --nproc-per-node=gpu for all")
                return
            yield warning(
                "torchrun-one-process",
                f"without --nproc-per-node torchrun starts 1 process, which uses 1 of {have} GPUs",
                f"add --nproc-per-node={have}",
                (AppendOption((f"--nproc-per-node={have}",)),),
            )
        return
    value = option.value
    if is_open(value) or is_named_number(value) or value in ("gpu", "auto", "cpu", "xpu"):
        return
    number = whole_number(value)
    if not number:
        right = f"--nproc-per-node={have}"
        yield error(
            "torchrun-processes",
            f"--nproc-per-node takes a number, gpu or auto, not {value!r}",
            f"write {right}",
            (Replace(option, (right,)),),
        )
    elif number == 1 and (shown := visible(command, view.site)) and "," in shown:
        seen = all_gpus(command, view.site)[0]
        said = f"{option.text}: 1 process, which uses 1 of the GPUs in CUDA_VISIBLE_DEVICES={shown}"
        yield note("torchrun-one-process", said, f"write --nproc-per-node={seen} for all")
    elif number > have and view.site.gpus is None:
        yield beyond_assumed(number)
    elif number > have:
        right = f"--nproc-per-node={have}"
        yield error(
            "too-many-gpus",
            f"{count(number, 'process')} on a node with 1 GPU each need {value}; the node has"
            f" {have} ({view.site.gpus_source})",
            f"write {right}",
            (Replace(option, (right,)),),
        )


def beyond_assumed(number: int) -> LaunchFinding:
    """Return the note on more processes than the GPUs that a node is assumed to have."""
    said = f"{number} processes on a node need {number} GPUs; --gpus {number} if it has them"
    return note("too-many-gpus", said)


def beyond_nodes(kind: str, text: str, nodes: int, what: str = "node") -> LaunchFinding:
    """Return the finding on a rank, the option `text`, that none of `nodes` nodes has."""
    said = f"{text}: of {nodes} {what}s the ranks are 0 to {nodes - 1}"
    return error(kind, said, f"number the {what}s from 0")


def is_own(view: View, host: str, rank: str | None) -> bool:
    """Return whether an address is that of the node itself, where it has to be that of node 0."""
    # What another node runs has the name of this one, unless a shell there reads the line.
    inner, lead = view.prediction.inner, view.command.lead
    is_far = any(PurePosixPath(word.text).name in REMOTE for word in lead)
    is_far = is_far or (inner is not None and not inner.on_node)
    is_other = bool(whole_number(rank or "")) and not is_far
    return host in LOCAL_HOSTS or (is_other and HOST_NAME.fullmatch(host) is not None)


_LOGIN = re.compile(r"(?:\w+://)?(?:[^@/\s]*@)?([^@/\s:]+(?::\d+)?)/?")


def not_a_host(option: str, value: str, *, is_bare: bool) -> list[LaunchFinding]:
    """Return the finding on an address such as `user@host` or `tcp://host`, if it is one.

    `is_bare`: a port belongs to an option of its own.
    """
    if whole_number(value):
        said = f"{option} {value}: a number is not the name of a host"
        return [error("trainer-host", said, "name the host of rank 0")]
    match = None if is_open(value) else _LOGIN.fullmatch(value)
    right = value if match is None else match[1].partition(":")[0] if is_bare else match[1]
    if right == value:
        return []
    is_port = right == value.partition(":")[0]
    why = "a port has an option of its own" if is_port else "this is not the name of a host"
    return [error("trainer-host", f"{option} {value}: {why}", f"write {option} {right}")]


def _where_several(number: str) -> Callable[..., LaunchFinding]:
    """Return what makes a note of a fault that there is if the unknown `number` is above 1."""
    return lambda kind, said, *_: note(kind, f"where {number} is above 1: {said}")


@of_torchrun
def rendezvous(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find nodes that wait for each other at different addresses, or that have no valid rank."""
    nodes = command.last("nodes")
    least, number = node_range(nodes.value if nodes is not None else "1")
    number_of_nodes = whole_number(number)
    # Of an elastic job, `--nnodes=1:4`, one node may be enough.
    several = least != "1" and (is_open(number) or (number_of_nodes or 0) > 1)
    backend = command.last("rdzv_backend")
    standalone = command.last("standalone")
    if backend is not None and not is_open(backend.value) and backend.value not in _BACKENDS:
        yield error(
            "torchrun-backend",
            f"--rdzv-backend={backend.value}: torchrun has {', '.join(_BACKENDS[:-1])}; nccl and"
            " gloo are for init_process_group",
            "write --rdzv-backend=c10d",
            (Replace(backend, ("--rdzv-backend=c10d",)),),
        )
        return
    endpoint, master = command.last("rdzv_endpoint"), command.last("master_addr")
    rank = command.last("node_rank")
    given = whole_number(rank.value) if rank is not None else None
    if given and number_of_nodes and given >= number_of_nodes and least in ("", number):
        one = "with --nnodes=1 the only node has rank 0, and this one waits for it"
        right, said = "--node-rank=0", f"--node-rank={given}"
        edits: tuple[Edit, ...] = (Replace(rank, (right,)),) if rank else ()
        yield (
            beyond_nodes("torchrun-node-rank", said, number_of_nodes)
            if number_of_nodes > 1
            else error("torchrun-node-rank", f"{said}: {one}", f"write {right}", edits)
        )
        return
    if not several:
        return
    blame = error if number_of_nodes else _where_several(number)
    if standalone is not None:
        yield blame(
            "torchrun-standalone",
            f"--standalone is for one node: with --nnodes={number} each waits for the others",
            "leave out --standalone, and name a node that all reach: --rdzv-backend=c10d"
            " --rdzv-endpoint=HOST:29500",
        )
        return
    is_static = backend is None or backend.value == "static"
    # Other backends number the nodes themselves, and meet at the endpoint alone.
    other = "" if is_static or backend is None or is_open(backend.value) else backend.value
    address = endpoint or (None if other else master)
    if address is None:
        if _is_set(view, "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR"):
            return
        yield blame(
            "torchrun-endpoint",
            f"--nnodes={number} without --rdzv-endpoint"
            + (f", and {other} reads no other address" if other else " or --master-addr")
            + ": each node waits at its own 127.0.0.1",
            f"add --rdzv-backend=c10d --rdzv-endpoint=HOST:{_PORT}, with one host for all nodes",
        )
        return
    option = address.words[0].text.partition("=")[0]
    yield from not_a_host(option, address.value, is_bare=endpoint is None)
    host = address.value
    host = host.rpartition(":")[0] if endpoint is not None and host.count(":") == 1 else host
    if host in LOCAL_HOSTS and rank is not None and rank.value == "0":
        yield note(
            "torchrun-endpoint",
            f"{address.text} is right on node 0 only: the other nodes need an address of it",
        )
        return
    if is_own(view, host, rank.value if rank is not None else None):
        yield blame(
            "torchrun-endpoint",
            f"{address.text}: each node waits at its own address",
            "name one host that all nodes reach",
        )
        return
    unused = [o.text for o in (master, rank) if o is not None and other]
    if unused:
        said = f"{' and '.join(unused)}: without effect, as {other} numbers the nodes itself, and"
        yield note("torchrun-unused", f"{said} rank 0 may be on any of them")
    if is_static and command.last("node_rank") is None:
        if _is_set(view, "PET_NODE_RANK"):
            return
        edits = ()
        if endpoint is not None:
            words = ("--rdzv-backend=c10d",)
            edits = (Replace(backend, words) if backend is not None else AppendOption(words),)
        yield blame(
            "torchrun-node-rank",
            "without --rdzv-backend=c10d torchrun does not number the nodes: each is node 0",
            "add --rdzv-backend=c10d"
            if endpoint is not None
            else "add --node-rank=N, another on each node",
            edits,
        )


@of_torchrun
def own_name(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `--rdzv-endpoint=$(hostname)` of a line that each node may run itself."""
    address, nodes = command.last("rdzv_endpoint"), command.last("nodes")
    is_typed = not view.command.lead and not view.site.in_job and view.prediction.inner is None
    if address is None or nodes is None or not is_typed or node_range(nodes.value)[1] == "1":
        return
    if command.last("node_rank") is None and HOST_NAME.match(address.value) is not None:
        said = f"{address.text}: a node that runs this line itself waits at its own name"
        yield note("torchrun-endpoint", said, "write the name of one node, on all nodes")


@of_torchrun
def fixed_rank(_: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `torchrun --nproc-per-node=2 t.py --local_rank 0`."""
    each, words = command.last("per_node"), " ".join(word.text for word in command.program[1:])
    match = re.search(r"(?:^| )(--local[-_]rank[= ]\d+)(?= |$)", words)
    if match is not None and each is not None and each.value != "1":
        said = f"every process of the node gets {match[1]}, and takes the same GPU"
        yield warning("shared-gpus", said, "leave it out: torchrun sets LOCAL_RANK")


@of_any
def ports(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `--master-port=99999`: the last port is 65535."""
    given = [configured(command, view.site).get("master_port", "")]
    given += [v.value or "" for v in view.variables if v.name == "MASTER_PORT"]
    ends = [command.last(meaning) for meaning in ("rdzv_endpoint", "master_addr")]
    given += [end.value.rpartition(":")[2] for end in ends if end and end.value.count(":") == 1]
    given += [option.value for option in command.options if _PORT_NAME.search(option.name)]
    wrong = [one for one in given if one[:1] == "-" or (whole_number(one) or 0) > _LAST]
    if (port := next(iter(wrong), None)) is not None:
        said = f"{port} is no port, of which {_LAST} is the last"
        yield error("trainer-port", said, "choose one from 1024 on")


_LAST = 65535
_PORT_NAME = re.compile(r"(?:^|[-_])port$")


@of_any
def module(_: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `python -m torch.distribute.launch`: no such module starts processes."""
    name = command.launcher.raw.split()[-1]
    if (right := module_meant(name)) != name:
        said = f"there is no module {name} that python -m starts"
        yield error("module-unknown", said, f"write -m {right}")


@of_any
def script(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find a program that is no Python script, and options of torchrun after the script."""
    words = command.program
    if not words or command.last("module") is not None:
        return
    inner = view.prediction.inner
    name = inner.name if inner is not None else view.flavor.launcher.value
    first = words[0].text
    if is_nccl_test(first):
        yield error(
            "torchrun-binary",
            f"{name} starts Python scripts, and nccl-tests finds its other processes by MPI alone",
            "start it with mpirun or srun",
        )
        return
    no_python = command.last("no_python") is not None
    if PurePosixPath(first).name.startswith("python") and not no_python:
        yield error(
            "torchrun-python",
            f"{name} starts Python itself: it would run {first!r} as a script",
            f"leave out {first}",
            (ReplaceArgument(0, 1),),
        )
    behind = _behind(command) if name == TORCHRUN.launcher.value else []
    if behind and command.last("per_node") is None:
        yield error(
            "option-behind-program",
            f"{behind[0]} stands behind the script, which gets it; torchrun does not",
            f"write it before {first}",
            _moved(command, first),
        )


_ONLY_TORCHRUN = frozenset(["nproc-per-node", "nnodes", "rdzv-endpoint", "rdzv-backend"])


def _behind(command: LaunchCommand) -> list[str]:
    """Return the options of torchrun that stand after the script."""
    return [
        word.text
        for word in command.program[1:]
        if word.text.lstrip("-").partition("=")[0].replace("_", "-") in _ONLY_TORCHRUN
        and word.text.startswith("--")
    ]


def _moved(command: LaunchCommand, first: str) -> tuple[Edit, ...]:
    """Return the edits that move torchrun's options from after the script to before it."""
    edits: list[Edit] = []
    words = command.program
    for at, word in enumerate(words):
        name, sign, _ = word.text.lstrip("-").partition("=")
        if at == 0 or word.text == first or name.replace("_", "-") not in _ONLY_TORCHRUN:
            continue
        length = 1 if sign or at + 1 >= len(words) else 2
        edits.append(ReplaceArgument(at, length))
        edits.append(AppendOption(tuple(w.text for w in words[at : at + length])))
    return tuple(edits)
