# SPDX-License-Identifier: Apache-2.0
"""Find GPUs of a Slurm job that are not used, and an environment that is not exported."""

import re
from collections.abc import Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch_lint.command import UNLISTED, Option, View
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    LaunchFinding,
    Replace,
    SetLead,
    error,
    note,
    warning,
)
from nccltune.launch_lint.nested import SHELLS
from nccltune.launch_lint.options import COMMON, SLURM
from nccltune.launch_lint.read import nearest_option, script_of
from nccltune.launch_lint.rules.environment import RUNS_MORE, TOOLS, for_processes
from nccltune.launch_lint.rules.shape import BEHIND, with_gpus
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.scale import count


def _option(view: View, meaning: str) -> Option | None:
    """Return the option of the command, else the option of the allocation (`#SBATCH`), or None."""
    return view.command.last(meaning) or view.site.asked(meaning)


def allocation(view: View) -> Iterator[LaunchFinding]:
    """Find options of another launcher, such as `#SBATCH -ppn 8`: sbatch refuses the script."""
    for option in view.site.inherited:
        others = [flavor.words for flavor, table in COMMON.items() if option.name in table]
        if option.meaning is None and others:
            yield error(
                "option-unknown",
                f"Slurm has no {option.words[0].text}, an option of {' and '.join(others)}: sbatch"
                " refuses the script",
            )


def unlisted(view: View) -> Iterator[LaunchFinding]:
    """Find long options that no table has, which a SPANK plugin may add to srun and sbatch."""
    for option in (*view.site.inherited, *view.command.options):
        if option.meaning != UNLISTED:
            continue
        near = nearest_option(option.name, SLURM)
        if near is not None and option.name.removeprefix("no-") == near.removeprefix("no-"):
            near = None
        yield note(
            "option-unlisted",
            f"{option.words[0].text.partition('=')[0]} is unknown to this table; a SPANK plugin may"
            " add it to Slurm" + (f". The nearest known name is --{near}" if near else ""),
        )


def batch_in_container(view: View) -> Iterator[LaunchFinding]:
    """Find `#SBATCH --container-image` and srun: the batch script itself runs in the container."""
    asked = next((o for o in view.site.inherited if o.name == "container-image"), None)
    if view.flavor == SLURM and view.site.on_first == "Slurm" and asked is not None:
        yield note(
            "batch-container",
            f"{asked.text} of sbatch: the script itself runs in the container, where srun needs"
            " Slurm's programs, its configuration and munge",
            "where it has none, give the options of the container to srun alone",
        )


def image_path(view: View) -> Iterator[LaunchFinding]:
    """Find `--container-image=a.sqsh`: pyxis reads a path only behind a leading `.` or `/`."""
    for option in (*view.site.inherited, *view.command.options):
        file = re.fullmatch(r"\w[\w./+-]*\.(?:sqsh|sqfs|squashfs)", option.value)
        if option.name == "container-image" and file is not None:
            right = f"--container-image=./{option.value}"
            yield warning(
                "image-path",
                f"pyxis takes {option.value} for an image of a registry: a path has / or ./ first",
                f"for a file of the working directory write {right}",
                (Replace(option, (right,)),) if option in view.command.options else (),
            )


def export(view: View) -> Iterator[LaunchFinding]:
    """Find `--export=NCCL_DEBUG=INFO` without ALL: no other variable is exported."""
    option, names = _option(view, "export"), {variable.name for variable in view.variables}
    if view.flavor.launcher is not Launcher.SLURM or option is None or not option.value:
        return
    own = option in view.command.options
    if not own and "SLURM_EXPORT_ENV" in names:
        return  # srun reads it, and sbatch has set it to its own --export.
    parts = option.value.split(",")
    cut = [at for at, part in enumerate(parts) if not _assigns(part) and not _is_name(part)]
    if cut and is_open(option.value):
        return  # `$LIST` may have ALL, and `$(...)` a comma.
    if cut and any(_assigns(part) for part in parts[: cut[0]]):
        yield from _cut_by_comma(option, parts, own=own)
        return
    if "ALL" in parts:
        return
    rest = [part for part in parts if part not in ("NONE", "NIL")]
    right = ",".join(["ALL", *rest])
    # Those of an image come from it, whatever --export says.
    is_image = any(
        o.name == "container-image" for o in (*view.site.inherited, *view.command.options)
    )
    # What the processes set themselves is not lost.
    kept = "\n".join([option.value, *(word.text for word in view.command.program)])
    lost = [] if RUNS_MORE.search(kept) else [n for n in for_processes(view) if n not in kept]
    paths = () if is_image or "PATH" in option.value else ("PATH", "LD_LIBRARY_PATH")
    such = ", ".join(dict.fromkeys([*paths, *(lost or ["NCCL's"])]))
    yield (note if is_image and not lost else warning)(
        "export-drops",
        f"{option.text}: processes get no other variable of this environment, such as {such}",
        f"write --export={right if len(right) < 80 else 'ALL,...'}",
        (Replace(option, (f"--export={right}",)),)
        if own
        else (AppendOption((f"--export={right}",)),),
    )


def idle_nodes(view: View) -> Iterator[LaunchFinding]:
    """Find `#SBATCH --nodes=10 --ntasks=1` and `srun python t.py`, which leaves 9 nodes idle.

    Another line, or one that runs at the same time, may start processes on the other nodes.
    """
    nodes, total = _option(view, "nodes"), view.site.asked("total")
    own = view.command.last("total")
    if view.flavor.launcher is not Launcher.SLURM or nodes is None or total is None or own:
        return
    have, started = whole_number(nodes.value), whole_number(total.value)
    is_job = view.program is not None or script_of(view.command.program) is not None
    waits = view.prediction.inner is not None and view.prediction.inner.nodes != 1
    is_alone = view.site.spreads < 2 and BEHIND.search(view.command.tail) is None
    if have and started and started < have and is_job and is_alone and not waits:
        yield warning(
            "idle-nodes",
            f"{total.text} is the number of all processes: {count(have - started, 'node')} of"
            f" {have} ({nodes.text}) get{'s' * (have - started == 1)} none",
            f"write --ntasks-per-node=1 for one on each, or ask for {count(started, 'node')}",
        )
    if have and started and have <= started and is_job and is_alone:
        yield from _below_per_node(total, view.site.asked("per_node"), have)


def _below_per_node(total: Option, each: Option | None, nodes: int) -> Iterator[LaunchFinding]:
    full = nodes * (whole_number(each.value) or 0 if each is not None else 0)
    if (started := whole_number(total.value)) and started < full and each is not None:
        yield warning(
            "total-below-per-node",
            f"{total.text} is the number of all processes, and {each.text} is only the most on a"
            f" node: {started} start, not {full}",
            f"leave out {total.text}",
        )


def tasks_of_script(view: View) -> Iterator[LaunchFinding]:
    """Find `srun -n 1 --ntasks-per-node=8 python t.py`, and more tasks than GPUs of the job."""
    is_script = view.program is None and script_of(view.command.program) is not None
    if view.flavor.launcher is not Launcher.SLURM or not is_script:
        return
    total, nodes = view.command.last("total"), view.command.last("nodes")
    have = 1 if nodes is None else whole_number(nodes.value)
    if total is not None and have:
        yield from _below_per_node(total, view.command.last("per_node"), have)
    placement, gpus = view.prediction.placement, view.site.gpus
    if placement is None or view.prediction.inner is not None or not gpus or _seen(view):
        return
    if placement.most > gpus:
        said = f"{placement.most} tasks on a node share {count(gpus, 'GPU')}"
        fix = f"ask for {placement.most} GPUs per node, if each task is to have its own"
        yield note("shared-gpus", f"{said} ({view.site.gpus_source})", fix)


def _assigns(part: str) -> bool:
    return re.match(r"[A-Za-z_]\w*=", part, re.ASCII) is not None


def _is_name(part: str) -> bool:
    return re.fullmatch(r"[A-Z_][A-Z0-9_]*", part) is not None


def _cut_by_comma(option: Option, parts: list[str], *, own: bool) -> Iterator[LaunchFinding]:
    """Find `--export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1`: the comma ends the value."""
    whole: list[str] = []
    for part in parts:
        if not _assigns(part) and not _is_name(part) and whole and _assigns(whole[-1]):
            whole[-1] += f",{part}"
        else:
            whole.append(part)
    assigned = [part for part in whole if _assigns(part) and "," in part]
    kept = ",".join(part for part in whole if part not in assigned)
    edits: list[Edit] = [Replace(option, (f"--export={kept or 'ALL'}",))]
    edits += [SetLead(part.partition("=")[0], part, add=True) for part in assigned]
    yield error(
        "export-comma",
        f"--export={option.value}: srun ends a value at ',', so that"
        f" {assigned[0].partition(',')[0]} is all of it",
        f"write {' '.join(assigned)} before srun",
        tuple(edits) if own else (),
    )


def tasks_unsaid(view: View) -> Iterator[LaunchFinding]:
    """Find `srun -N 2 --gpus-per-node=8 ... -g 1`: 1 task on each node uses 1 of 8 GPUs."""
    program, placement = view.program, view.prediction.placement
    if view.flavor.launcher is not Launcher.SLURM or program is None or placement is None:
        return
    if program.gpus is None or not placement.nodes:
        return
    have = view.site.gpus_per_node
    used = placement.most * program.gpus
    asked = any(_option(view, meaning) for meaning in ("gpus_per_node", "gres", "gpus"))
    number = _option(view, "total") or _option(view, "per_node") or _option(view, "ntasks_per_gpu")
    if used >= have or (number is not None and not asked):
        return
    if have % program.gpus or len(placement.nodes) * used == 1:
        return
    each = have // program.gpus
    nodes = len(placement.nodes)
    total, per_node = view.command.last("total"), view.command.last("per_node")
    words = (f"--ntasks-per-node={each}",)
    edits: list[Edit] = [Replace(per_node, words) if per_node is not None else AppendOption(words)]
    if total is not None:
        edits.append(Replace(total, ("-n", str(each * nodes))))
    lead = "" if number else "without -n and --ntasks-per-node srun starts 1 task on each node: "
    yield warning(
        "idle-gpus",
        f"{lead}{count(placement.ranks, 'rank')} use {used} of {have} GPUs on"
        f" each of {count(nodes, 'node')}",
        f"add --ntasks-per-node={each}, or write -g {have} for one task on each node",
        tuple(edits),
    )


def task_gpus(view: View) -> Iterator[LaunchFinding]:
    """Find `--gpus-per-task=1 ... -g 8`: each task sees only its own GPUs."""
    program, placement = view.program, view.prediction.placement
    if view.flavor.launcher is not Launcher.SLURM or placement is None or not placement.nodes:
        return
    bound = _gpu_bind(view)
    flags = _option(view, "gres_flags")
    is_shared = flags is not None and "allow-task-sharing" in flags.value
    if is_shared or (bound is not None and bound[0].startswith("none")):
        return
    seen = _seen(view)
    if program is None:
        yield from _bound_tasks(view, seen)
    if seen is None or program is None or program.gpus is None:
        return
    number, option = seen
    processes = placement.most
    if program.gpus < number and option.meaning in ("gpus_per_task", "tres_per_task"):
        said = f"{option.text} asks for {number} GPUs for each task, of which it uses"
        yield note("idle-gpus", f"{said} {program.gpus}", with_gpus(program, number)[0])
    if program.gpus > number:
        own = option in view.command.options
        if (
            option.meaning == "gpus_per_task"
            and own
            and processes * program.gpus <= max(view.site.gpus_per_node, program.gpus)
        ):
            right = f"{option.words[0].text.partition('=')[0]}={program.gpus}"
            edits: tuple[Edit, ...] = (Replace(option, (right,)),)
            fix = f"write {right}, or -g {number}"
        else:
            fix, edits = with_gpus(program, number)
        yield error(
            "task-gpus",
            f"{option.text} shows {count(number, 'GPU')} to each task, which is to use"
            f" {program.gpus}: invalid device ordinal",
            fix,
            edits,
        )
    elif processes > 1 and processes * program.gpus > number:
        all_gpus = f"--gpus-per-node={processes * number} --gpu-bind=none"
        names = {variable.name for variable in view.variables}
        is_own = option in view.command.options and option.meaning in ("gpus_per_task", "gpu_bind")
        is_sure = program.at == 0 and not view.site.ran and "NCCL_TESTS_DEVICE" not in names
        yield (warning if is_sure else note)(
            "task-gpus-bound",
            f"with {option.text} Slurm 21.08 and newer show each process its own"
            f" {count(number, 'GPU')} only: nccl-tests counts GPUs over all processes of a node"
            " (invalid device ordinal), and NCCL may not import the memory of a GPU that the"
            " process does not see",
            f"give every process all GPUs of the node: {all_gpus} in place of {option.text}",
            (Replace(option, tuple(all_gpus.split())),) if is_own else (),
        )


def _bound_tasks(view: View, seen: tuple[int, Option] | None) -> Iterator[LaunchFinding]:
    """Find `--accel-bind=g` and `--gpus-per-task=1` of a program whose GPUs are not known."""
    near, bound = _option(view, "accel_bind"), _gpu_bind(view)
    option = seen[1] if seen is not None else None
    shown = f"its own {count(seen[0], 'GPU')}" if seen is not None else "GPUs near its CPUs"
    if option is None and near is not None and "g" in near.value:
        option = near
    elif option is None and bound is not None and "closest" in bound[0]:
        option = bound[1]
    placement, words = view.prediction.placement, view.command.program
    name = words[0].text.rpartition("/")[2] if words else ""
    several = placement is not None and placement.most > 1 and view.prediction.inner is None
    if option is not None and several and name and name not in (*SHELLS, *TOOLS):
        yield note(
            "task-gpus-bound",
            f"with {option.text} Slurm shows each process {shown} only: one that takes its rank on"
            " the node as its device fails (invalid device ordinal), and NCCL may not import the"
            " memory of a GPU that the process does not see",
            "ask for GPUs by node, with --gpu-bind=none, and let the program choose its own",
        )


def _seen(view: View) -> tuple[int, Option] | None:
    per_task = _option(view, "gpus_per_task")
    if per_task is not None and (match := re.fullmatch(r"(?:\w+:)?([0-9]{1,9})", per_task.value)):
        return int(match[1]), per_task
    bound = _gpu_bind(view)
    if bound is not None and (
        match := re.fullmatch(r"(?:verbose,)?(?:single|per_task):([0-9]{1,9})", bound[0])
    ):
        # With `single:N`, N tasks share one GPU.
        return (1 if "single" in bound[0] else int(match[1])), bound[1]
    tres = _option(view, "tres_per_task")
    if tres is not None and (
        match := re.search(r"(?:^|,)gres[/:]gpu(?::[\w.-]+)?[:=]([0-9]{1,9})(?:,|$)", tres.value)
    ):
        return int(match[1]), tres
    return None


def _gpu_bind(view: View) -> tuple[str, Option] | None:
    """Return how --gpu-bind, or --tres-bind=gres/gpu: of Slurm 23.11, binds GPUs to tasks."""
    if (option := _option(view, "gpu_bind")) is not None:
        return option.value, option
    tres = _option(view, "tres_bind")
    match = re.search(r"gres/gpu:([\w:,]+)", tres.value) if tres is not None else None
    return (match[1], tres) if match is not None and tres is not None else None
