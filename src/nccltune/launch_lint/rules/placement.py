# SPDX-License-Identifier: Apache-2.0
"""Find too few or too many processes, wrong nodes, missing GPUs or cores."""

from collections.abc import Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch_lint.command import Host, View
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    LaunchFinding,
    Replace,
    SetArgument,
    error,
    note,
    warning,
)
from nccltune.launch_lint.hosts import split_list
from nccltune.launch_lint.options import ON_JOB, TRAINERS
from nccltune.launch_lint.placed import PlacementOptions, placement_options
from nccltune.launch_lint.rules.shape import with_gpus
from nccltune.launch_lint.words import whole_number
from nccltune.model.finding import Severity
from nccltune.model.scale import count

_OF_MPI = (Launcher.OPENMPI, Launcher.HYDRA)


def total_below_per_node(view: View) -> Iterator[LaunchFinding]:
    """Find `-N 8 -n 2` on two nodes: both processes start on the first node."""
    ask = _ask(view)
    if ask.total is None or ask.per_node is None or not 0 < ask.total < ask.per_node:
        return
    nodes = len(view.prediction.hosts)
    if nodes < 2 or view.flavor.launcher not in _OF_MPI:
        return
    total = view.command.last("total")
    cap = view.command.last("per_node") or view.command.last("map_by")
    if total is None or cap is None:
        return
    right = ask.per_node * nodes
    yield error(
        "total-below-per-node",
        f"{total.text} is the total number of processes; {cap.text} only caps a node",
        f"for {count(nodes, 'node')} x {ask.per_node}: {cap.text} -n {right}",
        (Replace(total, ("-n", str(right))),),
    )


def fails(view: View) -> Iterator[LaunchFinding]:
    """Find a placement that the launcher refuses."""
    why = view.prediction.fails
    if why is None or any(option.meaning is None for option in view.command.options):
        return
    if split_list(view.command) is not None:
        return  # Blanks cut the list of hosts.
    if view.flavor in (*ON_JOB, *TRAINERS):
        yield error("launch-refused", f"nothing starts: {why}")
        return
    ask, hosts = _ask(view), view.prediction.hosts
    bare = [option for option in view.command.all("host") if ":" not in option.value]
    edits: tuple[Edit, ...] = ()
    fix = "ask for fewer processes or name more nodes"
    if bare and view.flavor.launcher is Launcher.OPENMPI:
        each = ask.per_node or -(-(ask.total or 1) // len(hosts))
        why += "; a host without ':' and a number takes one process"
        total, gpus = view.command.last("total"), view.site.gpus
        most = max(1, gpus // (view.gpus_per_process or 1)) if gpus and view.program else each
        is_over = total is not None and ask.per_node is None and each > most
        named = ",".join(f"{host.name}:{most if is_over else each}" for host in hosts)
        fix = f"write --host {named}"
        edits = (Replace(bare[0], ("--host", named)), *[Replace(option, ()) for option in bare[1:]])
        if is_over and total is not None:
            fitting = str(most * len(hosts))
            why += f", and these hosts have {(gpus or 0) * len(hosts)} GPUs"
            fix += f" and {_n(view)} {fitting}"
            edits = (*edits, Replace(total, (_n(view), fitting)))
    elif hosts and ask.total is not None and (total := view.command.last("total")) is not None:
        room = min(_slots(host, view) for host in hosts)
        each = min(ask.per_node or room, room)
        per_node = view.command.last("per_node")
        if each != ask.per_node and per_node is not None:
            edits = (Replace(per_node, (per_node.words[0].text, str(each))),)
        right = each * len(hosts)
        fix = f"for {count(len(hosts), 'node')} x {each}: {_n(view)} {right}"
        edits = (*edits, Replace(total, (_n(view), str(right))))
        wanted, rest = divmod(ask.total, len(hosts))
        is_fit = not rest and wanted <= view.site.gpus_per_node
        if is_fit and view.command.all("host"):
            # Either number may be the right one.
            fix, edits = f"{fix}; for {wanted} on each node: {hosts[0].name}:{wanted}", ()
        elif is_fit and view.site.workers and view.site.gpus:
            fix, edits = f"write slotsPerWorker: {wanted}", ()
    yield error("too-few-slots", f"nothing starts: {why}", fix, edits)


def slots_of_cores(view: View) -> Iterator[LaunchFinding]:
    """Find `-N 8` with a host file without slots=, outside of a job: a core is a slot there."""
    file, placement = view.command.last("hostfile"), view.prediction.placement
    ask, site = _ask(view), view.site
    if view.flavor.launcher is not Launcher.OPENMPI or file is None or placement is None:
        return
    is_open = any(host.slots is None and host.name for host in view.prediction.hosts)
    is_known = ask.per_node is None or ask.oversubscribe or site.in_job or site.ran
    if is_open and placement.most > 1 and not is_known:
        said = f"{file.value} has hosts without slots=, which take as many as they have cores:"
        said += f" where these are fewer than {placement.most}, nothing starts"
        yield note("slots-of-cores", said, f"write slots={ask.per_node} behind each host")


def uncounted(view: View) -> Iterator[LaunchFinding]:
    """Find `mpirun all_reduce_perf -g 8`: without hosts, a process for each core, all on 8 GPUs."""
    ask, site, each = _ask(view), view.site, view.gpus_per_process or 1
    is_said = ask.total or ask.per_node or ask.per_part or ask.unknown or site.slots or site.ran
    is_placed = any(view.command.all(name) for name in ("host", "hostfile")) or site.workers
    if each < 2 or is_said or is_placed or site.inherited or site.on_first or site.hosts:
        return
    if view.flavor.launcher is Launcher.OPENMPI:
        yield warning(
            "no-number",
            "without -n and hosts, as many processes start as this machine has cores, and each"
            f" uses {each} GPUs",
            "add -n 1, or the hosts and -N 1",
        )


def wraps(view: View) -> Iterator[LaunchFinding]:
    """Find a total (-n) that is more than -ppn, or the slots, allow on all hosts together.

    hydra then starts more processes on a node than -ppn or its slots.
    """
    ask, placement = _ask(view), view.prediction.placement
    total = view.command.last("total")
    if view.flavor.launcher is not Launcher.HYDRA or placement is None or total is None:
        return
    if view.program is None and ask.per_node is None and view.prediction.hosts[0].name is None:
        return  # The slots are the GPUs of a node, which other programs do not need.
    blocks = sum(ask.per_node or host.slots or 1 for host in view.prediction.hosts)
    if ask.total is None or ask.total <= blocks:
        return
    if ask.per_node is None and all((host.slots or 1) == 1 for host in view.prediction.hosts):
        return
    most = placement.most
    yield error(
        "hydra-wraps",
        f"{total.text} is more than the hosts' {blocks}: hydra begins again with the first host,"
        f" up to {most} processes on a node, without a warning",
        f"write -n {blocks}",
        (Replace(total, ("-n", str(blocks))),),
    )


def per_node_forgotten(view: View) -> Iterator[LaunchFinding]:
    """Find -n above --ntasks-per-node times the nodes: srun then ignores --ntasks-per-node."""
    ask, total = _ask(view), view.command.last("total")
    if view.flavor.launcher is not Launcher.SLURM or total is None:
        return
    nodes = len(view.prediction.hosts)
    if ask.total is None or ask.per_node is None or ask.total <= ask.per_node * nodes:
        return
    right = ask.per_node * nodes
    yield error(
        "srun-per-node-forgotten",
        f"{total.text} is more than {ask.per_node} on each of {count(nodes, 'node')}: srun warns,"
        " forgets --ntasks-per-node and starts all of them",
        f"for {count(nodes, 'node')} x {ask.per_node}: -n {right}",
        (Replace(total, ("-n", str(right))),),
    )


def per_node_unsaid(view: View) -> Iterator[LaunchFinding]:
    """Find `srun -N 2 -n 16`: on clusters that allocate cores, srun fills the first node first."""
    ask, nodes = _ask(view), len(view.prediction.hosts)
    if view.flavor.launcher is not Launcher.SLURM or ask.total is None or ask.per_node is not None:
        return
    if nodes < 2 or ask.total <= nodes or ask.total % nodes:
        return
    each = ask.total // nodes
    yield note(
        "srun-per-node-unsaid",
        f"whether each of {count(nodes, 'node')} gets {each} depends on the site (where cores are"
        f" counted, the first node is filled); set --ntasks-per-node={each}",
    )


_ONE_EACH = ("for one on each node: add -N 1", (AppendOption(("-N", "1")),))


def _is_one_each(view: View) -> bool:
    """Return whether there are as many processes as hosts, all of which Open MPI fills in turn."""
    ask, hosts = _ask(view), view.prediction.hosts
    is_total = ask.total == len(hosts) > 1 and ask.per_node is None
    return view.flavor.launcher is Launcher.OPENMPI and is_total


_MOST_GPUS = 16
"""GPUs of the largest nodes that are common."""


def too_many_gpus(view: View) -> Iterator[LaunchFinding]:
    """Find more GPUs than a node has: the program fails with `invalid device ordinal`."""
    placement, program = view.prediction.placement, view.program
    have = view.site.gpus_per_node
    if placement is None or program is None or program.gpus is None:
        return
    if placement.most_gpus <= have:
        return
    most, launcher, total = placement.most, view.flavor.launcher, view.command.last("total")
    if view.site.gpus is None and program.gpus == 1 and (most <= _MOST_GPUS or view.site.ran):
        yield note(
            "too-many-gpus",
            f"{count(most, 'process')} on a node need {most} GPUs; --gpus {most} if it has them",
        )
        return
    fit = have // most if have % most == 0 else 0
    edits: tuple[Edit, ...] = ()
    fix = "start fewer processes on a node"
    if _is_one_each(view) and program.gpus <= have:
        fix, edits = _ONE_EACH
    elif fit:
        fix, edits = with_gpus(program, fit)
        fix += ", or start one process on each node"
    elif program.gpus > have:
        fix, edits = with_gpus(program, have)
        fix += " and start one process on each node" if most > 1 else ""
    elif launcher is Launcher.SLURM or (total is not None and launcher in _OF_MPI):
        each = max(1, have // program.gpus)
        right = each * len(view.prediction.hosts)
        is_slurm, own = launcher is Launcher.SLURM, view.command.last("per_node")
        word = "-N" if launcher is Launcher.OPENMPI else "-ppn"
        words = (f"--ntasks-per-node={each}",) if is_slurm else (word, str(each))
        fix = f"write {words[0]}" if is_slurm else f"write -n {right} and {each} on each node"
        edits = (Replace(own, words) if own is not None else AppendOption(words),)
        edits = (*edits, *([Replace(total, ("-n", str(right)))] if total is not None else []))
    if "limit" in view.site.gpus_source and placement.most_gpus <= _MOST_GPUS:
        fix += f", or raise the limit to {placement.most_gpus} GPUs"
    yield error(
        "too-many-gpus",
        f"{count(most, 'process')} on a node with {count(program.gpus, 'GPU')} each need"
        f" {placement.most_gpus}; the node has {have} ({view.site.gpus_source})",
        fix,
        edits,
    )


def given_gpus(view: View) -> Iterator[LaunchFinding]:
    """Find `flux run -g 1 ... all_reduce_perf -g 8`: the launcher gives a process fewer GPUs.

    Also find that it gives a process more. Processes of one of jsrun's resource sets share its.
    """
    program, given = view.program, view.prediction.gpus
    if program is None or program.gpus is None or given is None or program.gpus == given:
        return
    each = view.command.last("per_set")
    many = whole_number(each.value) or 1 if each is not None else 1
    who = f"{many} processes of a resource set" if many > 1 else "each process"
    has = f"{view.command.launcher.text} has {count(given * many, 'GPU')} for {who}"
    if program.gpus < given:
        said = f"{has}, {'of which it uses' if many == 1 else 'which use'} {program.gpus * many}"
        yield note("idle-gpus", said, with_gpus(program, given)[0])
        return
    yield error(
        "task-gpus",
        f"{has}, which {'is' if many == 1 else 'are'} to use {program.gpus * many}: invalid device"
        " ordinal",
        *with_gpus(program, max(1, given)),
    )


def _n(view: View) -> str:
    """Return the launcher's option for the number of processes."""
    return "-np" if view.flavor.launcher is Launcher.HOROVOD else "-n"


def idle_nodes(view: View) -> Iterator[LaunchFinding]:
    """Find nodes that the command names but that get no process."""
    placement, hosts = view.prediction.placement, view.prediction.hosts
    if placement is None or not placement.nodes or len(placement.nodes) >= len(hosts):
        return
    # How many slots a node of a site has is unknown, and what a program needs too.
    is_open = view.program is None and hosts[0].slots is None
    if _is_assumed(view) or (is_open and view.site.slots is None and view.site.gpus is None):
        return
    if any(finding.severity is Severity.ERROR for finding in total_below_per_node(view)):
        return
    idle = len(hosts) - len(placement.nodes)
    total = view.command.last("total")
    edits: tuple[Edit, ...] = ()
    fix = "name only the nodes that are to work"
    if _is_one_each(view):
        fix, edits = _ONE_EACH
    elif total is not None and _ask(view).total:
        each = _ask(view).per_node or _slots(hosts[0], view)
        fix = f"for {count(len(hosts), 'node')}: {_n(view)} {each * len(hosts)}"
        edits = (Replace(total, (_n(view), str(each * len(hosts)))),)
    yield warning(
        "idle-nodes",
        f"{count(idle, 'node')} of {len(hosts)} get{'s' if idle == 1 else ''} no process",
        fix,
        edits,
    )


def uneven_nodes(view: View) -> Iterator[LaunchFinding]:
    """Find nodes with different numbers of processes: NCCL is as slow as the smallest node."""
    placement = view.prediction.placement
    if placement is None or len({node.processes for node in placement.nodes}) < 2:
        return
    if _is_assumed(view):
        return
    ask, hosts = _ask(view), view.prediction.hosts
    total = view.command.last("total")
    edits: tuple[Edit, ...] = ()
    fix = "give every node as many"
    each = ask.per_node or max(n.processes for n in placement.nodes)
    # More than the slots of a host do not start.
    if total is not None and all(host.slots is None or host.slots >= each for host in hosts):
        right = each * len(hosts)
        fix, edits = f"write {_n(view)} {right}", (Replace(total, (_n(view), str(right))),)
    yield warning(
        "uneven-nodes",
        "nodes get different numbers of processes: "
        + ", ".join(str(node.processes) for node in placement.nodes[:8]),
        fix,
        edits,
    )


def one_rank(view: View) -> Iterator[LaunchFinding]:
    """Find a single rank, which communicates with no peer."""
    placement = view.prediction.placement
    if placement is None or view.program is None or view.program.gpus is None:
        return
    if placement.ranks != 1:
        return
    gpus, fix = view.site.gpus, "start more processes"
    if gpus != 1:
        fix = f"write -g {gpus or 'N'} for the GPUs of this node, or {fix}"
    edits = (SetArgument("g", str(gpus)),) if gpus is not None and gpus > 1 else ()
    said = "only 1 rank: nothing is sent, busbw is 0"
    if view.flavor.launcher is Launcher.SLURM and not view.site.inherited and _is_bare(view):
        # A job that srun is started in, which the text does not show, may have several tasks.
        yield note("one-rank", f"outside a job {said}", "for several, set -N and --ntasks-per-node")
        return
    yield warning("one-rank", said, fix, edits)


def total_unsaid(view: View) -> Iterator[LaunchFinding]:
    """Find a missing -n: Open MPI and hydra then fill every slot."""
    ask, placement = _ask(view), view.prediction.placement
    if ask.unknown or placement is None or (ask.total or ask.per_part) is not None:
        return
    if view.flavor.launcher not in (Launcher.OPENMPI, Launcher.HYDRA):
        return
    what = "-n is not given: as many processes as slots are started"
    if ask.per_node is not None:
        what = f"-n is not given: {ask.per_node} on every node that the launcher is given"
    yield note("total-unsaid", what)


def slurm_nodes(view: View) -> Iterator[LaunchFinding]:
    """Find `srun -N 8 -n 2`: -N is the number of nodes. `--nodes` says so itself."""
    nodes, total = view.command.last("nodes"), view.command.last("total")
    if view.flavor.launcher is not Launcher.SLURM or nodes is None or total is None:
        return
    if nodes.name != "N" or view.command.last("host"):
        return
    number, tasks = whole_number(nodes.value), whole_number(total.value)
    if number is None or tasks is None or not 0 < tasks < number:
        return
    if tasks == 1 and view.program is None and view.prediction.inner is None:
        said = f"{nodes.text} with 1 task: srun uses 1 node, and warns of it"
        yield note("srun-N-is-nodes", said, "for one task write -N 1")
        return
    yield error(
        "srun-N-is-nodes",
        f"srun's {nodes.text} means nodes (processes per node are --ntasks-per-node): with"
        f" {count(tasks, 'task')} it uses {count(tasks, 'node')}, 1 process each",
        f"for {count(tasks, 'node')} x {number}: -N {tasks} --ntasks-per-node={number}",
        (Replace(nodes, ("-N", str(tasks))), Replace(total, (f"--ntasks-per-node={number}",))),
    )


def as_many_as_gpus(view: View) -> Iterator[LaunchFinding]:
    """Find `-np 8 ... -g 8` without hosts: they start on this node, where they need 64 GPUs."""
    ask, program, site = _ask(view), view.program, view.site
    if program is None or any(map(view.command.all, ("host", "hostfile"))):
        return
    total, each = ask.total or 0, program.gpus or 0
    if view.flavor.launcher not in _OF_MPI or min(total, each) < 2 or site.hosts or site.nodes:
        return
    gpus = total * each
    if ask.per_node is not None or gpus <= site.gpus_per_node or any(too_many_gpus(view)):
        return
    words = f"{count(total, 'process')} with {each} GPUs each are {gpus} ranks"
    if site.in_job:
        if total == each:
            yield note("as-many-as-gpus", f"{words}; for one GPU each, write -g 1")
        return
    yield note(
        "as-many-as-gpus",
        f"{words}: without hosts, and outside of a scheduler's job, all start on this node, which"
        f" then needs {gpus} GPUs",
        "for one GPU each write -g 1; for several nodes name the hosts",
    )


_TO_CORE = 2


def bound(view: View) -> Iterator[LaunchFinding]:
    """Find processes with several GPUs that the launcher binds to one core."""
    program, launcher = view.program, view.flavor.launcher
    if program is None or program.gpus is None or program.gpus < 2:
        return
    if any(too_many_gpus(view)):
        return
    given = view.command.last("bind_to")
    if launcher is Launcher.OPENMPI:
        if any(map(view.command.all, ("bind_none", "cpus", "rankfile"))):
            return
        if given is not None and not given.value.startswith(("core", "hwthread")):
            return
        mapping = view.command.last("map_by")
        if mapping is not None and ":pe=" in mapping.value.lower():
            return
        why = f"{given.text} binds" if given is not None else "Open MPI binds by default"
        none = ("--bind-to", "none")
        edit = Replace(given, none) if given is not None else AppendOption(none)
        placement = view.prediction.placement
        processes = placement.processes if placement is not None else view.prediction.processes
        # With more than 2 processes the default binds each to a package or a NUMA node. These are
        # enough cores, so the finding is only a note.
        is_wide = given is None and processes is not None and processes > _TO_CORE
        yield LaunchFinding(
            Severity.NOTE if is_wide else Severity.WARNING,
            "default-binding",
            f"{why} each process to cores (with up to {_TO_CORE} processes, to one core), which"
            f" then drives {program.gpus} GPUs",
            "add --bind-to none",
            (edit,),
        )
    elif launcher is Launcher.SLURM and given is None and view.command.last("cpus") is None:
        if view.command.last("exclusive") or any(
            o.meaning in ("cpus", "exclusive") for o in view.site.inherited
        ):
            return
        yield note(
            "srun-cpus",
            f"without -c srun gives a task 1 CPU, which then drives {program.gpus} GPUs, unless the"
            " whole node is allocated",
            "add -c CORES --cpu-bind=none",
        )


def intel_pinning(view: View) -> Iterator[LaunchFinding]:
    """Find Intel MPI without I_MPI_PIN.

    Then Intel MPI gives each process a share of the cores. It accepts -bind-to without effect.
    """
    if not view.flavor.is_intel or any(v.name == "I_MPI_PIN" for v in view.variables):
        return
    words = ("-genv", "I_MPI_PIN", "off")
    given = view.command.last("bind_to")
    if given is not None:
        yield warning(
            "intel-bind-to",
            f"Intel MPI takes {given.text} and does nothing for it: each process keeps its share"
            " of the node's cores",
            f"write {' '.join(words)}",
            (Replace(given, words),),
        )
        return
    placement = view.prediction.placement
    if placement is not None and any(node.processes > 1 for node in placement.nodes):
        yield note(
            "intel-pinning",
            "Intel MPI gives each process its share of the node's cores, wherever its GPU is;"
            f" {' '.join(words)} leaves it all",
        )


def _is_assumed(view: View) -> bool:
    """Return whether the number of nodes, or their slots, are assumed and not known."""
    return view.prediction.assumed != ("; ".join(view.site.assumed) or None)


def _is_bare(view: View) -> bool:
    """Return whether a command of srun asks for nothing, as in a job that has it all."""
    asks = ("total", "per_node", "nodes", "host", "gpus", "gpus_per_node", "gres")
    return not any(map(view.command.last, asks))


def _ask(view: View) -> PlacementOptions:
    return placement_options(view.command, view.flavor, view.site)


def _slots(host: Host, view: View) -> int:
    return view.site.gpus_per_node if host.slots is None else host.slots
