# SPDX-License-Identifier: Apache-2.0
"""Predict the processes of launchers of PyTorch: torchrun, deepspeed, accelerate."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from textwrap import dedent

import yaml

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.placement import NodePlacement, Placement
from nccltune.launch_lint.around import OF_DEEPSPEED
from nccltune.launch_lint.boxes import boxes
from nccltune.launch_lint.command import Host, LaunchCommand, LaunchContext, Prediction
from nccltune.launch_lint.hosts import MAX_NODES, MAX_PROCESSES, hostfile, text_of
from nccltune.launch_lint.options import DEEPSPEED, ELSEWHERE, SERVERS, VLLM
from nccltune.launch_lint.words import is_open, quoted, whole_number
from nccltune.model.scale import count

_NODE = re.compile(r"([^:@\s]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")
_NO_FILE = ("", "/dev/null")


def predict_training(command: LaunchCommand, flavor: Flavor, site: LaunchContext) -> Prediction:
    """Return the prediction for a command of torchrun, deepspeed or accelerate."""
    if flavor in SERVERS:
        return on_first(predict_server(command, flavor, site), command, site)
    each = command.last("total") or command.last("per_node")
    if command.hidden is not None and (each is None or command.last("nodes") is None):
        return Prediction(None, (), unknown=command.hidden)
    refused = [option.words[0].text for option in command.options if option.meaning is None]
    if refused and flavor.launcher is not Launcher.TORCHRUN:
        return Prediction(None, (), fails=f"{refused[0]} is refused")
    known = {Launcher.TORCHRUN: _torchrun, Launcher.DEEPSPEED: _deepspeed}
    return on_first(known.get(flavor.launcher, _accelerate)(command, site), command, site)


def on_first(found: Prediction, command: LaunchCommand, site: LaunchContext) -> Prediction:
    """Return the prediction for the first node alone, if a batch script runs the line there.

    The line itself may reach other nodes: `ssh HOST`, a variable, --deepspeed_hostfile.
    """
    before = [word.text for word in (*command.lead, *map(quoted, site.around))]
    reaches = any("$" in w.partition("=")[0] or PurePath(w).name in ELSEWHERE for w in before)
    placement = found.placement
    if not site.on_first or (site.nodes or 1) < 2 or reaches:
        return found
    is_server = bool(command.all("tensor")) and site.spreads
    if command.last("hostfile") is not None or is_server:
        return found  # Other lines may start it on the other nodes.
    if placement is None:
        nodes = command.last("nodes")
        number = whole_number(nodes.value) or 1 if nodes is not None else 1
        # deepspeed may have a hostfile that no option names, and does not wait for nodes.
        waits = command.hidden is None and PurePath(command.launcher.text).name != "deepspeed"
        return found._replace(awaited=number) if waits and number > 1 else found
    if len(placement.nodes) < 2:
        # Several chunks of PBS with fewer GPUs than the processes use may be one node.
        is_chunk = site.on_first == "PBS" and placement.most > (site.gpus or 0)
        return found if site.spreads or is_chunk else found._replace(awaited=1)
    alone = placement._replace(nodes=placement.nodes[:1])
    return found._replace(placement=alone, hosts=found.hosts[:1], awaited=len(placement.nodes))


def visible(command: LaunchCommand, site: LaunchContext) -> str | None:
    """Return the value of CUDA_VISIBLE_DEVICES for a command, or None if it is not set."""
    return _variable("CUDA_VISIBLE_DEVICES", command, site)


def _variable(wanted: str, command: LaunchCommand, site: LaunchContext) -> str | None:
    """Return the value of a variable for a command, or None if it is not set."""
    values = [value for name, value in site.exported if name == wanted]
    for word in command.lead:
        name, sign, value = word.text.partition("=")
        if sign and name == wanted:
            values.append(value)
    return values[-1] if values else None


def all_gpus(command: LaunchCommand, site: LaunchContext) -> tuple[int | None, str | None]:
    """Return the GPUs that a process sees on a node, None if unknown, and an assumption or None."""
    shown = visible(command, site)
    if shown is None:
        around = boxes((*site.around, *(word.text for word in command.lead)))
        if (given := next((box.gpus for box in around if box.gpus is not None), None)) is not None:
            return given, None
        have = site.gpus_per_node
        return have, f"a node has {count(have, 'GPU')}: {site.gpus_source}"
    if is_open(shown):
        return None, None
    return len([part for part in shown.split(",") if part.strip()]), None


def _even(nodes: int, each: int, assumed: str | None = None) -> Prediction:
    """Return the prediction of `each` processes on each of `nodes` nodes."""
    for number, what in ((nodes, "nodes"), (each, "processes per node")):
        if not 0 < number <= MAX_PROCESSES:
            return Prediction(None, (), unknown=f"the number of {what} is {number}")
    hosts = (Host(None, each),) * min(nodes, MAX_NODES)
    return Prediction(
        Placement(tuple(NodePlacement(None, each) for _ in hosts), 1), hosts, assumed=assumed
    )


def _unknown(what: str, value: str) -> Prediction:
    return Prediction(None, (), unknown=f"the number of {what} is {value!r}")


def node_range(value: str) -> tuple[str, str]:
    """Return the least and the largest number of nodes of `--nnodes=1:4`; "" for no least one."""
    # The colon of `${NODES:-2}` separates no numbers.
    least, _, most = ("", "", value) if value.startswith("${") else value.rpartition(":")
    return least, most


def _torchrun(command: LaunchCommand, site: LaunchContext) -> Prediction:
    """Return the prediction for torchrun, whose default is 1 node and 1 process on it.

    For an option that is not given, it takes the variable `PET_` with the option's name.
    """
    option, variable = command.last("nodes"), _variable("PET_NNODES", command, site)
    least, nodes = node_range(option.value if option is not None else variable or "1")
    option, variable = command.last("per_node"), _variable("PET_NPROC_PER_NODE", command, site)
    each = option.value if option is not None else variable or "1"
    assumed = None
    if each in ("gpu", "auto"):
        gpus, assumed = all_gpus(command, site)
        each = str(gpus) if gpus is not None else f"that of {visible(command, site)}"
    for value, what in ((nodes, "nodes"), (each, "processes per node")):
        if not 0 < (whole_number(value) or 0) <= MAX_PROCESSES:
            return _unknown(what, value)
    if least not in ("", nodes):
        why = f"{least} to {nodes} nodes (an elastic job), {each} on each"
        return Prediction(None, (), unknown=why, assumed=assumed)
    return _even(int(nodes), int(each), assumed)


def _deepspeed(command: LaunchCommand, site: LaunchContext) -> Prediction:
    """Return the prediction for deepspeed: all GPUs of the hosts in its hostfile, or of this one.

    --num_nodes and --num_gpus take the first of these, --include those that it names.
    """
    nodes, each = command.last("nodes"), command.last("per_node")
    for option, what in ((nodes, "nodes"), (each, "GPUs of a node")):
        if option is not None and whole_number(option.value) is None:
            return _unknown(what, option.value)
    file, assumed = command.last("hostfile"), None
    pool: tuple[Host, ...] | None = None
    if file is not None and file.value not in _NO_FILE:
        pool = hostfile(file.value, DEEPSPEED, site)
        if pool is None and (nodes is None or each is None):
            why = f"the hosts are in {file.value}, which is not here"
            return Prediction(None, (), unknown=why)
        if pool is None:
            assumed = f"{file.value} is not here: it has the hosts of --num_nodes"
            pool = (Host(None, None),) * min(whole_number(nodes.value if nodes else "") or 0, 1024)
    elif OF_DEEPSPEED in dict(site.files):
        pool = hostfile(OF_DEEPSPEED, DEEPSPEED, site)
    elif nodes is not None and (whole_number(nodes.value) or 0) > 1:
        why = f"{' '.join(w.text for w in nodes.words)} without --hostfile: deepspeed knows no"
        return Prediction(None, (), unknown=f"{why} other host, unless /job/hostfile names them")
    elif (site.several or command.all("starter")) and not command.all("include"):
        why = "without --hostfile this node alone, unless /job/hostfile names others"
        return Prediction(None, (), unknown=why)
    include = command.last("include")
    if include is not None and include.value:
        return _included(include.value, pool or (), site)
    if pool is None:
        gpus, assumed = all_gpus(command, site)
        number = whole_number(each.value) if each is not None else gpus
        if number is None:
            shown = visible(command, site)
            return Prediction(None, (), unknown=f"CUDA_VISIBLE_DEVICES is {shown!r}")
        return _even(1, number, assumed if each is None else None)
    if (exclude := command.last("exclude_gpus")) is not None and exclude.value:
        return Prediction(None, pool, unknown="--exclude is given, which this does not read")
    kept = pool[: whole_number(nodes.value)] if nodes is not None else pool
    numbers = [
        (whole_number(each.value) if each is not None else host.slots) or site.gpus_per_node
        for host in kept
    ]
    placed = tuple(NodePlacement(host.name, n) for host, n in zip(kept, numbers, strict=True))
    return Prediction(Placement(placed, 1), kept, assumed=assumed)


def _included(text: str, pool: tuple[Host, ...], site: LaunchContext) -> Prediction:
    slots = {host.name: host.slots for host in pool}
    is_known = bool(pool) and None not in slots
    placed: list[NodePlacement] = []
    for part in text.split("@"):
        match = _NODE.fullmatch(part)
        if match is None or is_open(part):
            return Prediction(None, (), unknown=f"--include names {text!r}")
        devices = match[2].split(",") if match[2] else []
        have = slots.get(match[1])
        is_beyond = have is not None and any(int(n) >= have for n in devices)
        if is_known and (match[1] not in slots or is_beyond):
            shown = f"has the slots 0 to {have - 1} alone" if have else "is no host"
            why = f"--include {text}, and {match[1]} {shown} in the host file"
            return Prediction(None, (), fails=why)
        number = len(set(devices)) or have
        placed.append(NodePlacement(match[1], number or site.gpus_per_node))
    hosts = tuple(Host(node.host, node.processes) for node in placed)
    return Prediction(Placement(tuple(placed), 1), hosts)


def _accelerate(command: LaunchCommand, site: LaunchContext) -> Prediction:
    """Return the prediction for accelerate, whose number of processes is that of all machines.

    An option overrides the configuration file. Without both, it uses all GPUs of one machine.
    """
    given = configured(command, site)
    if given.get("compute") == SAGEMAKER:
        return Prediction(None, (), unknown="accelerate starts a job of Amazon SageMaker")
    numbers: dict[str, int | None] = {}
    file = command.last("configuration")
    for meaning, what in (("nodes", "machines"), ("total", "processes")):
        value = given.get(meaning)
        if value is not None and whole_number(value) is None:
            return _unknown(what, value)
        if value is None and file is not None and "" not in given:
            why = f"the number of {what} is in {file.value}, which is not here"
            return Prediction(None, (), unknown=why)
        numbers[meaning] = whole_number(value) if value is not None else None
    assumed = None
    if command.last("cpu") is not None and "mpirun" not in command.text:
        return _even(1, 1, "with --cpu accelerate starts the script once, by itself")
    if file is None and None in numbers.values():
        assumed = "accelerate has no default configuration of its own"
    nodes, total = numbers["nodes"] or 1, numbers["total"]
    if total is None:
        total, more = all_gpus(command, site)
        if total is None:
            shown = visible(command, site)
            return Prediction(None, (), unknown=f"CUDA_VISIBLE_DEVICES is {shown!r}")
        assumed = "; ".join(filter(None, (assumed, more)))
    if total < nodes:
        return Prediction(None, (), fails=f"{count(total, 'process')} for {nodes} machines")
    return _even(nodes, total // nodes, assumed)


def predict_server(command: LaunchCommand, flavor: Flavor, site: LaunchContext) -> Prediction:
    """Return the prediction for vLLM or SGLang: the product of the sizes of its parallelisms.

    Sources: vLLM 0.11 (vllm/config/parallel.py), SGLang 0.5 (server_args.py).
    """
    if command.hidden is not None:
        return Prediction(None, (), unknown=command.hidden)
    meanings = ("tensor", "pipeline", "data", "data_local", "nodes")
    given = {name: o.value for name in meanings if (o := command.last(name)) is not None}
    sizes: dict[str, int] = {}
    for name, value in given.items():
        number = whole_number(value)
        if number is None or number > MAX_PROCESSES:
            what = "nodes" if name == "nodes" else f"{name.partition('_')[0]} parallel ranks"
            return _unknown(what, value)
        sizes[name] = number
    # With DP attention, SGLang's data parallel ranks are its tensor parallel ranks.
    data = 1 if command.last("dp_attention") is not None else sizes.get("data", 1)
    total = sizes.get("tensor", 1) * sizes.get("pipeline", 1) * data
    if any(option.value == "ray" for option in command.all("executor")):
        why = "Ray places them on the nodes of its cluster"
        return Prediction(None, (), unknown=why, processes=total)
    nodes = sizes.get("nodes", 1)
    if command.last("data_rank") is not None:
        why = f"each of {data} data parallel ranks is started by a command of its own"
        return Prediction(None, (), unknown=why, processes=total)
    if (local := sizes.get("data_local")) is not None and nodes == 1:
        if not local or data % local:
            why = f"{local} of {data} data parallel ranks are on this node"
            return Prediction(None, (), unknown=why, processes=total)
        nodes = data // local
    if not nodes or not total or total % nodes:
        whose = f"{count(total, 'rank')} cannot be divided among {count(nodes, 'node')}"
        return Prediction(None, (), fails=whose)
    is_vllm = flavor == VLLM
    if is_vllm and nodes == 1 and total > site.gpus_per_node:
        why = f"a node has {count(site.gpus_per_node, 'GPU')} ({site.gpus_source}), and neither"
        why += " --nnodes nor --distributed-executor-backend ray is given"
        return Prediction(None, (), unknown=why, processes=total)
    return _even(nodes, total // nodes)


def configured(command: LaunchCommand, site: LaunchContext) -> dict[str, str]:
    """Return the values of accelerate's options and configuration file, by their meaning.

    A file that was read adds the key "".
    """
    found: dict[str, str] = {}
    file = command.last("configuration")
    text = text_of(file.value, site) if file is not None else None
    if text is not None:
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            data = None
        if isinstance(data, dict):
            found[""] = str(Path(file.value if file is not None else ""))
            if data.get("compute_environment") == SAGEMAKER:
                return found | {"compute": SAGEMAKER}
            for key, meaning in _KEYS.items():
                if data.get(key) is not None:
                    found[meaning] = str(data[key])
    for meaning in _KEYS.values():
        if (option := command.last(meaning)) is not None:
            found[meaning] = option.value
    return found


SAGEMAKER = "AMAZON_SAGEMAKER"


def configuration_commands(files: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Yield commands for configurations that accelerate alone has; of several, with options."""
    for name, rows in files:
        found = dict(_ROW.findall(rows)) if len(files) > 1 and SAGEMAKER not in rows else {}
        options = [f"--{key}={found[key]}" for key in _KEYS if key in found and key != "gpu_ids"]
        if _OWN.search(rows):
            yield ["accelerate", "launch", "--config_file", name, *options, "SCRIPT"]


_OWN = re.compile(r"^(?:compute_environment|distributed_type|main_process_\w+|rdzv_backend):", re.M)
_ROW = re.compile(r"^(\w+):[ \t]+[\"']?([\w.:-]+)[\"']?[ \t]*$", re.M)


def configurations_in(text: str, name: str = "") -> list[tuple[str, str]]:
    """Return the configurations of accelerate in a text, each with the name of a file.

    It is the last one that the text has before it; `name` that of a text that is one as a whole.
    One alone is that of every command.

    >>> configurations_in("a.yaml:\\n  num_machines: 2\\n  num_processes: 4\\n  debug: no\\n")
    [('a.yaml', 'num_machines: 2\\nnum_processes: 4\\ndebug: no\\n')]
    """
    blocks = [m for m in _BLOCK.finditer(f"{text}\n") if _is_configuration(m[0])]
    found: list[tuple[str, str]] = []
    end = 0
    for number, block in enumerate(blocks, 1):
        named = _YAML.findall(text, end, block.start())
        # Rows may be items of a list, as `accelerate env` prints them.
        rows = re.sub(r"^- ", "", dedent(block[0]), flags=re.M)
        own = name * (len(blocks) == 1) or f"number {number}"
        found.append((named[-1] if named else own, rows))
        end = block.end()
    if len(found) == 1:
        found += [(other, found[0][1]) for other in set(_CONFIG_FILE.findall(text))]
    return found


def _is_configuration(block: str) -> bool:
    """Return whether rows are accelerate's: other programs have a num_processes of their own."""
    levels: dict[str, set[str]] = {}
    for row in _KEY.finditer(block):
        levels.setdefault(row["indent"], set()).add(row["key"])
    return any(keys >= _NUMBERS or (keys & _NUMBERS and keys & _MARKS) for keys in levels.values())


_BLOCK = re.compile(r"(?:^[ \t]*(?:- +)?(?:#.*|[A-Za-z_0-9]+:(?:[ \t].*)?)\n)+", re.M)
_NUMBERS = frozenset({"num_machines", "num_processes"})
_MARKS = frozenset({"compute_environment", "distributed_type", "main_process_ip", "rdzv_backend"})
_KEY = re.compile(r"^(?P<indent>[ \t]*(?:- +)?)(?P<key>[a-z_0-9]{1,40}):", re.M)
_YAML = re.compile(r"(?<![\w-])[\w-]{1,100}\.ya?ml\b")
_CONFIG_FILE = re.compile(r"--config[_-]file[= ][\"']?(?:[^\s\"']*/)?([\w.-]+)")


_KEYS = {
    "num_machines": "nodes",
    "num_processes": "total",
    "machine_rank": "node_rank",
    "main_process_ip": "master_addr",
    "main_process_port": "master_port",
    "gpu_ids": "gpu_ids",
}
"""Keys of a configuration file of accelerate, and the meaning of their options."""
