# SPDX-License-Identifier: Apache-2.0
"""Compare what a text gives the nodes of one job, and a script the ranks of a node."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nccltune.launch_lint.check import LaunchCheck
from nccltune.launch_lint.command import LaunchCommand
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.options import TRAINERS
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.scale import count

_ADDRESS = re.compile(r"\d+(?:\.\d+){3}")
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared, not bound
_RANK = r"(?:\w{0,40}LOCAL_RANK(?:ID)?|SLURM_LOCALID|MPI_LOCALRANKID|\w{0,40}local_?rank)\b"
"""The place of a rank among those of its node, as launchers and scripts name it."""
_FROM_RANK = re.compile(
    r"^[ \t]*(?:(?:let|export)[ \t]+)?"
    rf"(\w+)=(?:[^\s;&|#]*?|[^\s;&|#(]*\$\(\([^()\n]*?){_RANK}",
    re.M,
)
_HCA = re.compile(r"^[^#\n]*\bNCCL_IB_HCA=(\"[^\"\n]{1,300}\"|[^\s;&|'\"]{1,300})", re.M)
_COMMENT = re.compile(r"(?<!\S)#.*")
_NODE_FILE = re.compile(r"(?i)--config_file \S*(?:node|machine|rank|worker|master|head).* SCRIPT$")


def judge_peers(checks: Sequence[LaunchCheck]) -> Iterator[LaunchFinding]:
    """Yield what keeps commands for all nodes of a job from being one job.

    Commands are of one job if a text has as many of them as the job has nodes, and they start the
    same program with the same number of nodes, each with a rank.
    """
    groups: dict[tuple[object, ...], list[LaunchCommand]] = {}
    for checked in checks:
        command, (flavor, *_) = checked.command, checked.flavors
        nodes, rank = command.last("nodes"), command.last("node_rank")
        number = whole_number(nodes.value) if nodes is not None else None
        if flavor not in TRAINERS or not number or number < 2 or rank is None:
            continue
        if whole_number(rank.value) is not None:
            # Of a server, the model is an option or the first word.
            model = command.last("model")
            own = model.value if model is not None else command.options[0].words[0].text
            program = tuple(word.text for word in command.program) or (own,)
            groups.setdefault((flavor, number, program), []).append(command)
    for (_, awaited, _), commands in groups.items():
        ranks = [command.last("node_rank") for command in commands]
        if len(commands) != awaited:
            continue
        values = [whole_number(rank.value) for rank in ranks if rank is not None]
        first = ranks[0]
        # What differs in more may be another attempt.
        alike = len({_without_address(command) for command in commands}) == 1
        if len(set(values)) == 1 and alike and first is not None:
            what = "configurations" if _NODE_FILE.search(commands[0].text) else "commands"
            masters = dict.fromkeys(host for host, _ in map(_end, commands) if host)
            yield error(
                "peers-rank",
                f"the {what} for {count(len(commands), 'node')} all have {first.text}"
                + f", and meet at {' and '.join(masters)}" * (len(masters) > 1),
                f"number the nodes: 0 to {len(commands) - 1}",
            )
        elif len(set(values)) == len(commands):
            yield from _meeting(commands)


def _headed(text: str) -> Iterator[LaunchFinding]:
    """Yield one command, with the rank of one node, below `# node 1` and below `# node 2`."""
    _, *parts = _HEADING.split(text.replace("\\\n", " "))
    found = dict(zip(parts[::2], (_RANKED.findall(body)[:1] for body in parts[1::2]), strict=True))
    lines = {" ".join(line.split()): rank for ((line, rank),) in filter(None, found.values())}
    for line, rank in lines.items():
        is_same = all(found.values()) and len(lines) == 1 and "c10d" not in line
        if is_same and _NODES.findall(line) == [str(len(found))]:
            said = f"the commands for {count(len(found), 'node')} all have {rank}"
            yield error("peers-rank", said, f"number the nodes: 0 to {len(found) - 1}")


_HEADING = re.compile(
    r"^[ \t>#*]*((?:(?:on|for) )?(?:node|machine|server|host)[ -]?\d{1,3}\b)[^\n=]{0,20}\n",
    re.M | re.I,
)
_RANKED = re.compile(r"^([^#\n]*(--(?:node|machine)[-_]rank[= ]\d+)(?!\S).*)", re.M)
_NODES = re.compile(r"--(?:nnodes|num_machines)[= ](\d+)(?!\S)")


def judge_cluster(text: str) -> Iterator[LaunchFinding]:
    """Yield nodes with the rank, or with vLLM's `run_cluster.sh` the address, of another."""
    yield from _headed(text)
    for match in _CLUSTER.finditer(text.replace("\\\n", " ")):
        if match[2] == match[1] and not is_open(match[1]):
            yield error(
                "peers-host-ip",
                f"the worker has VLLM_HOST_IP={match[2]}, the address of the head",
                "give each node its own address",
            )


def judge_copies(text: str) -> Iterator[LaunchFinding]:
    """Yield variables whose values differ among Ray's nodes, which vLLM makes those of one node."""
    lines = _COMMENT.sub("", text.replace("\\\n", " ")).splitlines()
    nodes = [dict(_COPIED.findall(line)) for line in lines if _RAY_NODE.search(line)]
    old = _VLLM_IMAGE.search(text)
    if not any(map(_ON_VLLM.search, lines)) or (old is not None and int(old[1]) < _COPIES):
        return
    values = {name: {one[name] for one in nodes if name in one} for one in nodes for name in one}
    if differ := [name for name, own in values.items() if len(own) > 1]:
        yield warning(
            "ray-copied",
            f"{', '.join(differ)} differ{'s' * (len(differ) == 1)} among the nodes, and vLLM since"
            " February 2026 (vllm#34383) gives Ray's workers the values of the node that runs"
            " `vllm serve`",
            f"there, write {json.dumps(differ)} to ~/.config/vllm/ray_non_carry_over_env_vars.json",
        )


_RAY_NODE = re.compile(r"\bray +start\b|\brun_cluster\.sh\s")
_COPIED = re.compile(r"\b((?:NCCL|UCX)_\w+)=[\"']?([^\s\"';]+)")
_ON_VLLM = re.compile(r"(?:^|[\s;&|])(?:vllm +serve|python3? +-m +vllm\.entrypoints)\b", re.M)
_VLLM_IMAGE = re.compile(r"\bvllm-openai:v0\.(\d{1,3})\b")
_COPIES = 16
"""The release 0.16, of February 2026. Older ones copy no variables of NCCL."""


def judge_ray(text: str) -> Iterator[LaunchFinding]:
    """Yield NCCL's variables that a script sets behind `ray start`."""
    if (own := _RAY_ADDRESS.search(text)) is not None:
        said = f"--node-ip-address={own[1]}{own[2]}: ray start takes an address without a port"
        yield error("ray-address", f"{said} there", f"write --node-ip-address={own[1]}")
    plain = _COMMENT.sub("", text.replace("\\\n", " "))
    # What is in quotes runs elsewhere, or not at all.
    shown = _QUOTED.sub(lambda match: " " * len(match[0]), plain)
    starts, jobs = [*_RAY_START.finditer(shown)], [*_ON_RAY.finditer(shown)]
    unless = "a runtime_env or the program passes {0} on"
    # Another executor of vLLM starts its processes itself.
    if not jobs and "executor-backend" in shown and (jobs := [*_ON_VLLM.finditer(shown)]):
        unless = "vLLM is of February 2026 or newer (vllm#34383), which passes on NCCL_* and UCX_*"
    begin, end = starts[-1].end() if starts else 0, jobs[-1].end() if jobs else 0
    if not begin or "ray stop" in shown[begin:end]:
        return
    # One that is named again may be passed on, as in --runtime-env-json.
    words = Counter(re.findall(r"\w+", plain))
    given = Counter(_OF_RAY.findall(plain, begin, end))
    late = [name for name, times in given.items() if words[name] == times]
    if late:
        are, them = ("is", "it") if len(late) == 1 else ("are", "them")
        yield note(
            "ray-env",
            f"{', '.join(late)} {are} set behind `ray start`, whose environment Ray's workers have:"
            f" they do not get {them}, unless {unless.format(them)}",
            f"set {them} before `ray start`, on each node",
        )


_RAY_ADDRESS = re.compile(r"--node-ip-address[ =][\"']?([\w-]+(?:\.[\w-]+)+)(:\d+)")
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
_STARTED = r"(?:^|[;&|({]|\b(?:then|do|else)\b)[ \t$>]*(?:\w+=\S* +)*(?:srun\b[^\n;&|]{0,200} )?"
_RAY_START = re.compile(rf"{_STARTED}ray +start\b", re.M)
_ON_RAY = re.compile(
    rf"{_STARTED}(?:ray +job +submit|python3? +-m +(?:verl\.|openrlhf\.cli\.\w+_ray))\b", re.M
)
"""What starts on Ray for sure."""
_OF_RAY = re.compile(
    r"^[ \t$]*(?:export[ \t]+)?((?:NCCL|UCX|FI)_\w+|(?:GLOO|TP)_SOCKET_IFNAME)=", re.M
)
_CLUSTER = re.compile(
    r"run_cluster\.sh\s+\S+\s+(\S+)\s+--worker\b[^\n]{0,2000}?\bVLLM_HOST_IP=(\S+)"
)


def _meeting(commands: Sequence[LaunchCommand]) -> Iterator[LaunchFinding]:
    """Yield what differs in the addresses and ports at which nodes wait, and in their sizes."""
    ends = [_end(command) for command in commands]
    hosts = {_comparable(host) for host, _ in ends if host and host not in _LOCAL}
    ports = {port for _, port in ends if port}
    numbered = all(_ADDRESS.fullmatch(host) for host in hosts)
    named = not any(_ADDRESS.fullmatch(host) for host in hosts)
    if (len(hosts) > 1 and (numbered or named)) or len(ports) > 1:
        shown = " and ".join(dict.fromkeys(f"{host}:{port}".strip(":") for host, port in ends))
        yield error(
            "peers-address",
            f"the nodes wait for each other at {shown}",
            "give all of them the address of node 0, with one port",
        )
    for meaning in ("tensor", "pipeline"):
        sizes = [o.value if (o := one.last(meaning)) is not None else "1" for one in commands]
        if len(set(sizes)) > 1 and not any(map(is_open, sizes)):
            shown = " and ".join(dict.fromkeys(sizes))
            yield error("peers-sizes", f"the nodes have {meaning} parallel sizes of {shown}")


def _without_address(command: LaunchCommand) -> tuple[str, ...]:
    """Return the options of a command, of addresses only what they mean."""
    ends = ["master_addr", "rdzv_endpoint"]
    ends += ["master_port", "configuration"] if _NODE_FILE.search(command.text) else []
    return tuple(o.meaning if o.meaning in ends else o.text for o in command.options)


def _end(command: LaunchCommand) -> tuple[str, str]:
    """Return the host and the port at which a command's nodes meet, "" for one that is unknown."""
    option = command.last("rdzv_endpoint") or command.last("master_addr")
    port = command.last("master_port")
    given = option.value if option is not None else ""
    host, _, own = given.rpartition(":") if ":" in given else (given, "", "")
    own = own or (port.value if port is not None else "")
    return "" if is_open(host) else host, own if own.isdigit() else ""


def _comparable(host: str) -> str:
    return host if _ADDRESS.fullmatch(host) else host.partition(".")[0]


def nics_by_rank(text: str) -> Iterator[LaunchFinding]:
    """Find `NCCL_IB_HCA=mlx5_$SLURM_LOCALID`, and branches over such a rank that set it."""
    if "NCCL_IB_HCA=" not in text:
        return
    plain = _COMMENT.sub("", text)
    names = "|".join((_RANK, *(rf"{name}\b" for name in _FROM_RANK.findall(plain))))
    values = dict.fromkeys(value.strip('"') for value in _HCA.findall(plain))
    own = [v for v in values if re.search(rf"\$[^$]*?(?<!\w)(?:{names})(?!:\+)", v)]
    # Ranks differ where a case, or the conditions of several branches, read the rank.
    branch = re.compile(
        rf"^[ \t]*(?:case|if)\b[^\n]*\$\{{?(?:{names})(?s:.{{0,3000}}?)\b(?:esac|fi)\b", re.M
    )
    within = (_HCA.findall(found[0]) for found in branch.finditer(plain))
    fixed = next(
        (branches for given in within if len(branches := _without_variables(given)) > 1), []
    )
    if own or fixed:
        said = " or ".join(own or fixed)
        yield warning(
            "hca-by-rank",
            f"NCCL_IB_HCA is {said}, by the rank on its node: NCCL builds its rings and trees of"
            " the NICs that all ranks of a node see, and chooses for each GPU the nearest itself",
            "set NCCL_IB_HCA to all NICs that the job may use, alike on every rank, or leave it"
            " out",
        )


def _without_variables(values: list[str]) -> list[str]:
    return [value for value in dict.fromkeys(v.strip('"') for v in values) if "$" not in value]
