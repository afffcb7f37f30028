# SPDX-License-Identifier: Apache-2.0
"""The ranks and nodes that a command line starts nccl-tests on."""

import re

LAUNCHER = re.compile(
    r"\b(?:mpirun|mpiexec|mpiexec\.hydra|orterun|prterun|srun|flux|jsrun|aprun|torchrun)\b"
)
_PROCESSES = re.compile(r"\s(?:-np|--np|-n|--ntasks|--n)[\s=]\s{0,8}(?P<count>\d{1,7})(?=\s|$)")
# What may stand before a program that no launcher starts: prompts, assignments, `time`.
_ALONE = re.compile(r"(?:[$#>+%:]+|\S+=\S*|\S*[$#%>\])]|\[?\S+@\S*|sudo|time|env|nohup|CMD|RUN)$")
_HOSTS = re.compile(r"\s--?(?:H|host|hosts)[\s=]\s{0,8}(?P<hosts>[\w.:-]+(?:,[\w.:-]+)*)(?=\s|$)")
_PER_NODE = re.compile(
    r"\s(?:--?(?:npernode|ppn|perhost)[\s=]\s{0,8}|--ntasks-per-node[\s=]\s{0,8}|ppr:)(?P<count>\d{1,4})(?=\s|:node|$)"
)
# Of Open MPI; srun and flux have another meaning of -N.
_MPIRUN_PER_NODE = re.compile(r"\s-N\s{1,8}(?P<count>\d{1,4})(?=\s|$)")
_SRUN_NODES = re.compile(r"\s(?:-N\s{0,4}|--nodes[\s=]\s{0,4})(?P<count>\d{1,5})(?=\s|$)")


def ranks_of(launcher: str, options: str) -> int | None:
    """Return the number of ranks that a command starts.

    None if a launcher starts the program and its command line has no number of processes. A single
    rank needs a command that is whole: `${MPIRUN} ./all_reduce_perf` and a path alone are not.
    """
    processes: int | None = 1
    alone = False
    if (match := LAUNCHER.search(launcher)) is not None:
        said = _PROCESSES.search(launcher, match.end())
        processes = (
            int(said["count"]) if said is not None else _by_srun_nodes(launcher[match.start() :])
        )
    else:
        before = re.sub(r"\S*[/\s]$", "", launcher)
        alone = options.lstrip().startswith("-") and all(map(_ALONE.match, before.split()))
        processes = None if _PROCESSES.search(f"{before} ") else 1
    if processes is None:
        return None
    for option in ("t", "g"):
        each = re.search(rf"\s-{option}\s{{0,4}}(\d{{1,5}}|[\"']?[$<{{]\S*)(?=\s|$)", options)
        if each is not None and not each[1].isdecimal():
            return None  # `-g $GPUS`
        processes *= int(each[1]) if each is not None else 1
    return processes if processes > 1 or alone or match is not None else None


def _by_srun_nodes(launcher: str) -> int | None:
    """Return the ranks of `srun --nodes N --ntasks-per-node M`; None for any other command."""
    nodes, each = _SRUN_NODES.search(launcher), _PER_NODE.search(launcher)
    if nodes is None or each is None or not launcher.startswith("srun"):
        return None
    return int(nodes["count"]) * int(each["count"]) or None


def nodes_of(launcher: str) -> int | None:
    """Return the number of nodes that a command starts processes on; None if it is not clear.

    Hosts count if the processes fill them: with fewer processes, a launcher leaves hosts out.
    """
    match = LAUNCHER.search(launcher)
    if match is None:
        return None if _PROCESSES.search(launcher) else 1
    options = launcher[match.end() :]
    said, each = _PROCESSES.search(options), _PER_NODE.search(options)
    if each is None and match[0] in ("mpirun", "orterun", "prterun"):
        each = _MPIRUN_PER_NODE.search(options)
    processes = int(said["count"]) if said is not None else None
    if match[0] == "srun":
        nodes = _SRUN_NODES.search(options)
        return int(nodes["count"]) or None if nodes is not None else None
    if (listed := _HOSTS.search(options)) is not None:
        slots: dict[str, int] = {}
        for item in listed["hosts"].split(","):
            host, _, number = item.partition(":")
            if number and not number.isdecimal():
                return None
            slots[host] = slots.get(host, 0) + (int(number) if number else 1)
        if len(slots) == 1 and ":" not in listed["hosts"] and (processes or 1) > 1:
            return None  # a placeholder, or a list that is cut
        if processes is None or processes >= sum(slots.values()):
            return len(slots)
        return len(slots) if each and processes == int(each["count"]) * len(slots) else None
    if processes is not None and each is not None and processes % max(1, int(each["count"])) == 0:
        return processes // max(1, int(each["count"])) or None
    return None
