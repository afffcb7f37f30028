# SPDX-License-Identifier: Apache-2.0
"""Write commands that only run torchrun, of LLaMA-Factory and Colossal-AI, as what they run.

Sources: LLaMA-Factory 0.9 (src/llamafactory/cli.py), Colossal-AI 0.4 (cli/launcher/run.py).
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.finding import LaunchFinding, error, warning
from nccltune.launch_lint.hosts import hostfile
from nccltune.launch_lint.options import DEEPSPEED
from nccltune.launch_lint.read import joined
from nccltune.launch_lint.words import Line, quoted, whole_number
from nccltune.model.errors import InputError

_COLOSSAL = {"H": "host", "nproc-per-node": "nproc_per_node", "num-nodes": "num_nodes"}
_SELF = "127.0.0.1"
_TRAINS = ("llamafactory-cli train", "lmf train")


class FrontEnd(NamedTuple):
    """A line as what it runs, with the context of that, and what is wrong with the line itself."""

    line: Line
    site: LaunchContext
    findings: tuple[LaunchFinding, ...] = ()


def as_torchrun(line: Line, site: LaunchContext) -> FrontEnd:
    """Return the torchrun that a line runs, and a sentence on it in `site`; else both unchanged.

    Raises InputError if Ray starts the processes.

    >>> line = Line(tuple(map(quoted, "NNODES=2 llamafactory-cli train a.yaml".split())), "")
    >>> " ".join(word.text for word in as_torchrun(line, LaunchContext()).line.words[1:6])
    'torchrun --nnodes=2 --node_rank=0 --nproc_per_node=gpu --master_addr=127.0.0.1'
    """
    words = joined(line.words)
    names = [PurePosixPath(word.text).name for word in words]
    at = next((n for n, name in enumerate(names) if name in (*_TRAINS, "colossalai run")), None)
    if at is None:
        return FrontEnd(line, site)
    program = [word.text for word in words[at + 1 :]]
    findings: tuple[LaunchFinding, ...] = ()
    said = f"{names[at]} runs torchrun"
    if names[at] in _TRAINS:
        pairs = [w.text.partition("=") for w in words[:at]]
        given = dict((*site.exported, *((name, value) for name, sign, value in pairs if sign)))
        options, findings = _llamafactory(given), tuple(_judged(given, site))
        program = ["llamafactory/launcher.py", *program]
    else:
        options, program, is_far = _colossal(program, site)
        site = site._replace(on_first="" if is_far else site.on_first)
        said = f"{names[at]} runs on each host torchrun"
    site = site._replace(assumed=(*site.assumed, " ".join((said, *options))))
    run = map(quoted, ("torchrun", *options, *program))
    return FrontEnd(Line((*words[:at], *run), line.tail), site, findings)


def _llamafactory(given: Mapping[str, str]) -> list[str]:
    """Return torchrun's options from the variables, with RANK as releases before 0.9.1 read it."""
    if given.get("USE_RAY", "0") not in ("0", "false"):
        raise InputError("USE_RAY: Ray starts the processes, which this text does not show")
    least, most = given.get("MIN_NNODES"), given.get("MAX_NNODES")
    address, port = given.get("MASTER_ADDR", "127.0.0.1"), given.get("MASTER_PORT")
    each = f"--nproc_per_node={given.get('NPROC_PER_NODE', 'gpu')}"
    if "RDZV_ID" in given:
        nodes = f"{least}:{most}" if least and most else given.get("NNODES", "1")
        end = f"--rdzv_endpoint={address}" + f":{port}" * bool(port)
        return [f"--nnodes={nodes}", each, "--rdzv_backend=c10d", end]
    rank = given.get("NODE_RANK", given.get("RANK", "0"))
    options = [f"--nnodes={given.get('NNODES', '1')}", f"--node_rank={rank}", each]
    return [*options, f"--master_addr={address}", *[f"--master_port={port}"] * bool(port)]


def _judged(given: Mapping[str, str], site: LaunchContext) -> Iterator[LaunchFinding]:
    """Find variables of LLaMA-Factory that keep several nodes from being one job."""
    if given.get("NNODES", "1") == "1":
        return
    if "MASTER_PORT" not in given:
        said = "without MASTER_PORT each node chooses a free port of its own: they do not meet"
        yield error("frontend-port", said, "set MASTER_PORT=29500, alike on every node")
    if "RANK" in given and not given.keys() & {"NODE_RANK", "RDZV_ID"}:
        said = "LLaMA-Factory reads NODE_RANK since 0.9.1, and RANK only before"
        fix = f"write NODE_RANK={given['RANK']}"
        yield warning("frontend-rank", f"{said}: each node is node 0", fix)
    if site.gpus == 1 and given.get("FORCE_TORCHRUN", "0").lower() not in ("1", "true", "y"):
        said = f"on a node with 1 GPU ({site.gpus_source}) it runs torchrun only if it has to"
        yield error("frontend-alone", said, "set FORCE_TORCHRUN=1")


def _colossal(words: list[str], site: LaunchContext) -> tuple[list[str], list[str], bool]:
    """Return torchrun's options, the program, and whether hosts are named."""
    given: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, sign, value = words[at].lstrip("-").partition("=")
        given[_COLOSSAL.get(name, name)] = value if sign else "".join(words[at + 1 : at + 2])
        at += 1 if sign else 2
    first, number, limit = _SELF, "1", whole_number(given.get("num_nodes", ""))
    if (file := given.get("hostfile")) is not None:
        pool = hostfile(file, DEEPSPEED, site)
        chosen = given.get("include", "").split(",") if given.get("include") else pool
        first = f"$(head -n 1 {file})"
        left = len(given["exclude"].split(",")) if given.get("exclude") else 0
        least = min(len(chosen) - left, limit or len(chosen)) if chosen is not None else limit
        number = str(least) if least else f"$(wc -l < {file})"
    elif (hosts := given.get("host")) is not None:
        number = hosts if hosts.startswith("$") else str(len(hosts.strip(",").split(",")))
        first = hosts.partition(",")[0]
    options = [f"--nnodes={number}", *(["--node_rank=N"] if number != "1" else [])]
    if "nproc_per_node" in given:
        options.append(f"--nproc_per_node={given['nproc_per_node']}")
    # Of several hosts, the first one is the default.
    options.append(f"--master_addr={given.get('master_addr', first if number != '1' else _SELF)}")
    if "master_port" in given:
        options.append(f"--master_port={given['master_port']}")
    return options, words[at:], number != "1"
