# SPDX-License-Identifier: Apache-2.0
"""Check values of the launchers' options, and launchers inside launchers."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.program import is_named_number, is_nccl_test
from nccltune.launch_lint.boxes import DOCKERS
from nccltune.launch_lint.command import LaunchCommand, Option, View
from nccltune.launch_lint.finding import (
    AppendOption,
    LaunchFinding,
    Replace,
    error,
    note,
    warning,
)
from nccltune.launch_lint.hosts import host_list_fault, is_node_count, slots_fault, text_of
from nccltune.launch_lint.options import AZUREML, TABLES, TORCHRUN
from nccltune.launch_lint.read import ELLIPSES, joined, launcher_at
from nccltune.launch_lint.rules.shape import named_number
from nccltune.launch_lint.words import is_open, nearest
from nccltune.model.names import listed

_BIND = listed("""
none hwthread hwthr core l1cache l2cache l3cache socket package numa board cpu-list
""")
_HYDRA_BIND = (*_BIND, *listed("rr user machine pcidev gpu ib en hca l1 l2 l3 l1dcache l1icache"))
_MAP = listed("""
slot hwthread hwthr core l1cache l2cache l3cache socket package numa board node seq dist ppr
rankfile pe-list
""")
_RESOURCES = listed("""
node socket package numa board l3cache l2cache l1cache core hwthread slot
""")
_MPI = listed("""
none openmpi pmi2 pmix cray_shasta list
""")
_OTHER_MPI = re.compile(r"(?i)intel|i_?mpi|mpich|mvapich|cray")
_MPI_TYPE = re.compile(r"none|(ps)?pmi(x(_v\d+)?|[12])|openmpi|cray_shasta|list|hydra|lam|mpich\w*")


def without_value(view: View) -> Iterator[LaunchFinding]:
    """Find `-np -H a,b` and `--hostfile all_reduce_perf`.

    An option without its value takes the next word as its value.
    """
    for option in view.command.options:
        taken = swallowed_at(option, view)
        if taken is None:
            continue
        word = " ".join((option.words[0].text, *option.values[:taken]))
        yield error(
            "option-without-value",
            f"{word} needs a value: it takes {option.values[taken]!r} for one",
            f"give {word} a value, or leave it out",
            (Replace(option, option.values[taken:]),),
        )


def swallowed_at(option: Option, view: View) -> int | None:
    """Return the index of a value that is another option or the program, or None."""
    for place, value in enumerate(option.values):
        name = value.lstrip("-")
        if is_nccl_test(value) or (value.startswith("-") and name in TABLES[view.flavor]):
            return place
    return None


_NUMBER = re.compile("0*[1-9][0-9]{0,17}")
_OF_TYPE = re.compile(r"[A-Za-z_][\w.-]*(?::[0-9]{1,9})?|[0-9]{1,9}", re.ASCII)
_COUNTED = {
    "total": "processes",
    "per_node": "processes",
    "nodes": "nodes",
    "ntasks_per_gpu": "processes",
    "per_socket": "processes",
    "cpus": "cores",
    "gpus_per_node": "GPUs",
    "gpus_per_task": "GPUs",
    "gpus": "GPUs",
}
"""What the number of an option counts, by the option's meaning."""


def numbers(view: View) -> Iterator[LaunchFinding]:
    """Find `-np 8x`, `-N abc` and `-w a[5-1]`: options that count and whose value is no number."""
    inherited = view.site.inherited if view.flavor.launcher is Launcher.SLURM else ()
    for option in (*inherited, *view.command.options):
        value, counted = option.value, _COUNTED.get(option.meaning or "")
        if is_open(value) or value in ELLIPSES or swallowed_at(option, view) is not None:
            continue
        word = option.words[0].text.partition("=")[0]
        if option.meaning == "host":
            is_slurm = view.flavor.launcher is Launcher.SLURM
            why = host_list_fault(value) if is_slurm else slots_fault(value)
            if why is not None:
                yield error("host-list", f"{word} {value}: {why}")
        elif counted is not None and is_named_number(value):
            yield named_number(word, value)
        elif counted is not None and not _counts(option.meaning, value, view.flavor):
            message = f"{word} takes a number of {counted}, not {value!r}"
            yield error("option-value", message, "write a whole number")


def _counts(meaning: str | None, value: str, flavor: Flavor) -> bool:
    if flavor.launcher is Launcher.TORCHRUN:
        # The rules of torchrun check its number of processes, which may be a word.
        numbers = value.split(":", 1) if meaning == "nodes" else [value]
        return meaning == "per_node" or all(_NUMBER.fullmatch(number) for number in numbers)
    if meaning == "nodes":
        return is_node_count(value)
    if meaning in ("gpus_per_node", "gpus_per_task", "gpus"):
        return all(_OF_TYPE.fullmatch(part) for part in value.split(","))
    return _NUMBER.fullmatch(value) is not None


def bindings(view: View) -> Iterator[LaunchFinding]:
    """Find `--bind-to all`, `--map-by node:8`: values that the launcher refuses."""
    launcher = view.flavor.launcher
    if launcher not in (Launcher.OPENMPI, Launcher.HYDRA):
        return
    for option in view.command.all("bind_to"):
        known = _BIND if launcher is Launcher.OPENMPI else _HYDRA_BIND
        head = option.value.partition(":")[0].lower()
        if head and head not in known and not is_open(head):
            yield _value(option, known, head, "none")
    if launcher is Launcher.OPENMPI:
        for option in view.command.all("map_by"):
            yield from _mapping(option)


def _mapping(option: Option) -> Iterator[LaunchFinding]:
    value = option.value.lower()
    head, _, rest = value.partition(":")
    if not value or is_open(value):
        return
    if head == "":
        return  # `:OVERSUBSCRIBE` modifies the default mapping.
    if head != "ppr":
        if head not in _MAP:
            swapped = re.fullmatch(r"([0-9]+):(\w+)", value)
            if swapped is not None and swapped[2] in _RESOURCES:
                yield _wrong(option, f"ppr:{value}")
            else:
                yield _value(option, _MAP, head, None)
        elif re.fullmatch(r"[0-9]+", rest) and head in _RESOURCES:
            yield _wrong(option, f"ppr:{rest}:{head}")
        return
    match = re.fullmatch(r"([0-9]+):([\w]+)(:.*)?", rest)
    if match is not None and match[2] in _RESOURCES:
        return
    swapped = re.fullmatch(r"([a-z]\w*):([0-9]+)", rest)
    if swapped is not None and swapped[1] in _RESOURCES:
        yield _wrong(option, f"ppr:{swapped[2]}:{swapped[1]}")
    elif re.fullmatch(r"[0-9]+", rest):
        yield _wrong(option, f"ppr:{rest}:node")
    elif match is not None and (near := nearest(match[2], _RESOURCES)) is not None:
        yield _wrong(option, f"ppr:{match[1]}:{near}")
    else:
        yield _wrong(option, None)


def _wrong(option: Option, right: str | None) -> LaunchFinding:
    word = option.words[0].text
    return error(
        "option-value",
        f"{word} {option.value}: the form is ppr:NUMBER:RESOURCE, such as ppr:8:node; resources are"
        f" {', '.join(_RESOURCES)}",
        f"write {word} {right}" if right is not None else "write it in this form",
        (Replace(option, (word, right)),) if right is not None else (),
    )


def _value(option: Option, known: Sequence[str], given: str, default: str | None) -> LaunchFinding:
    word = option.words[0].text.partition("=")[0]
    right = nearest(given, known) or default
    rest = option.value.partition(":")[1:]
    new = f"{right}{''.join(rest)}" if right is not None else None
    return error(
        "option-value",
        f"{word} {option.value}: {given!r} is none of {', '.join(known)}",
        f"write {word} {new}" if new is not None else f"leave out {word}",
        (Replace(option, (word, new) if new is not None else ()),),
    )


def mca(view: View) -> Iterator[LaunchFinding]:
    """Find `--mca btl=^openib`: the option takes two words."""
    for option in view.command.all("mca"):
        word, (key, sign, value) = option.words[0].text, option.value.partition("=")
        if sign:
            # The second word is another option or the program.
            rest = option.values[1:]
            yield error(
                "mca-form",
                f"{word} {option.value}: it takes two words, a name and a value",
                f"write {word} {key} {value}",
                (Replace(option, (word, key, value, *rest)),),
            )


def as_root(view: View) -> Iterator[LaunchFinding]:
    """Find `sudo mpirun`, and mpirun in a container: Open MPI refuses to run as root."""
    command = view.command
    if view.flavor.launcher is not Launcher.OPENMPI or command.last("root"):
        return
    lead = [word.text for word in command.lead]
    if any(v.name == "OMPI_ALLOW_RUN_AS_ROOT" for v in view.variables):
        return
    names = [PurePosixPath(word).name for word in lead]
    is_container = any(name in DOCKERS for name in names) and "run" in names
    user = any(word in ("-u", "--user", "-U") or word.startswith("--user=") for word in lead)
    if ("sudo" in names or is_container) and not user:
        who = "a container's user is root" if is_container else "sudo makes it root"
        yield error(
            "root-refused",
            f"{who}: Open MPI does not start for root",
            "add --allow-run-as-root",
            (AppendOption(("--allow-run-as-root",)),),
        )


def nested(view: View) -> Iterator[LaunchFinding]:
    """Find `srun --ntasks-per-node=8 mpirun ...`: each task starts a whole job."""
    if view.flavor.launcher is Launcher.LOCAL:
        return
    words = joined(view.command.program)
    at = launcher_at(words)
    texts = [word.text for word in words]
    if at is None or "--cpu" in texts[at:] or any(text.endswith(".py") for text in texts[:at]):
        return  # A path among the arguments of a script may end like a launcher's name.
    inner = PurePosixPath(words[at].text).name
    is_azure = view.flavor == AZUREML
    outer = view.flavor.words if is_azure else view.command.launcher.text
    placement = view.prediction.placement
    most = placement.most if placement else 1
    if view.prediction.inner is not None:
        started = view.prediction.inner
        inner = started.name
        each_is_one = placement is not None and started.nodes == placement.processes
        if most > 1 and not each_is_one:
            yield error(
                "nested-launcher",
                f"{outer} starts {most} x {inner} on a node, and each starts all of its processes",
                "write process_count_per_instance: 1, or start the program itself"
                if is_azure
                else "start one process on each node",
            )
        elif most > 1 and started.flavor == TORCHRUN and not _own_gpus(view, started.command):
            yield warning(
                "shared-gpus",
                f"{outer} starts {most} x torchrun on a node, and each counts LOCAL_RANK from 0:"
                " their processes take the same GPUs",
                f"start one on each node, with --nproc-per-node={most * (started.each or 1)}",
            )
        return
    # Without a number, srun starts one process, unless a job around it asks for more.
    is_counted = view.site.inherited or any(map(view.command.last, ("total", "nodes", "per_node")))
    is_one = view.flavor.launcher is Launcher.SLURM and not is_counted
    if view.prediction.is_inner or is_one or (placement and placement.processes == 1):
        return
    yield error(
        "nested-launcher",
        f"{outer} starts {inner} once for each process, and each of them starts a job of its own",
        f"leave out {outer} or {inner}",
    )


def _own_gpus(view: View, inner: LaunchCommand) -> bool:
    """Return whether each process on a node may see other GPUs, or none at all."""
    asked = ("gpus_per_task", "ntasks_per_gpu", "gpu_bind")
    is_bound = any(view.command.last(name) or view.site.asked(name) for name in asked)
    words = (*view.command.program, *inner.lead)
    return is_bound or any("VISIBLE_DEVICES" in word.text for word in words)


def host_lines(view: View) -> Iterator[LaunchFinding]:
    """Find `node1 slot=8` in a host file, which Open MPI 4.1.4 refuses: the word is `slots`."""
    option = view.command.last("hostfile")
    if view.flavor.launcher is not Launcher.OPENMPI or option is None:
        return
    bad = re.search(r"^[^#\n]*\s(slot=\S*)", text_of(option.value, view.site) or "", re.M)
    if bad is not None:
        yield error(
            "hostfile-line",
            f"{option.value}: {bad[1]} is a parse error, for which Open MPI 4.1 refuses the file",
            f"write {bad[1].replace('slot', 'slots')} there",
        )


def mpi_type(view: View) -> Iterator[LaunchFinding]:
    """Find `srun --mpi=pmx` and `--mpi=none`. With none, the processes do not find each other."""
    option = view.command.last("mpi")
    if view.flavor.launcher is not Launcher.SLURM or option is None or is_open(option.value):
        return
    value, placement = option.value, view.prediction.placement
    several = view.program is not None and placement is not None and placement.processes > 1
    alone = "the processes do not find each other: each is rank 0 of its own test"
    used = " ".join([*view.site.modules, *(variable.name for variable in view.variables)])
    if value == "none" and several:
        edit = Replace(option, ("--mpi=pmix",))
        yield error("mpi-type", f"--mpi=none: with it {alone}", "write --mpi=pmix", (edit,))
    elif value in ("pmi1", "pmi2") and several and _OTHER_MPI.search(used) is None:
        said = f"with an Open MPI that takes PMIx alone, as 5.0 and newer do, {alone}"
        fix = "write --mpi=pmix, if the test is built with Open MPI"
        yield note("mpi-type-old", f"--mpi={value}: {said}", fix)
    elif not _MPI_TYPE.fullmatch(value):
        right = nearest(value, _MPI) or "pmix"
        yield error(
            "mpi-type",
            f"--mpi={value} is none of srun's: {', '.join(_MPI[:-1])} (srun --mpi=list)",
            f"write --mpi={right}",
            (Replace(option, (f"--mpi={right}",)),),
        )
