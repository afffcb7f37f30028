# SPDX-License-Identifier: Apache-2.0
"""Find the commands in task files of SkyPilot and dstack, in jobs of Azure ML and Vertex AI."""

import contextlib
import re
import shlex
from typing import Any

from nccltune.formats.text.yaml_documents import load_documents
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.pods import at, mapping
from nccltune.launch_lint.words import whole_number
from nccltune.model.errors import InputError

_TASK = re.compile(r"^(?:run|commands?):|\bworkerPoolSpecs\b", re.M)


def task_of(text: str, site: LaunchContext) -> tuple[str, LaunchContext] | None:
    """Return the script of a task file, with the nodes and variables that it runs with, or None.

    Sources: the environment variables in the documentation of SkyPilot and of dstack, and Azure
    ML's reference of the YAML of a command job.
    """
    task: dict[Any, Any] = {}
    if _TASK.search(text):
        with contextlib.suppress(InputError):
            task = mapping(next(iter(load_documents(text, "")), None))
    run, commands = task.get("run"), task.get("commands")
    if isinstance(pools := at(mapping(task.get("jobSpec", task)), "workerPoolSpecs"), list):
        return _of_vertex([mapping(pool) for pool in pools], site)
    if isinstance(task.get("command"), str) and {"compute", "environment", "$schema"} & set(task):
        return _of_azure(task, site)
    if isinstance(run, str):
        gpus = _gpus(at(task, "resources", "accelerators"))
        number = whole_number(str(task.get("num_nodes", 1)))
        counts = {"SKYPILOT_NUM_NODES": number, "SKYPILOT_NUM_GPUS_PER_NODE": gpus}
        hosts, setup, script = "SKYPILOT_NODE_IPS", task.get("setup"), run
        who = "SkyPilot runs"
        site = _with(site, mapping(task.get("envs")))
    elif isinstance(commands, list) and "type" in task:
        gpus = _gpus(at(task, "resources", "gpu"))
        number = whole_number(str(task.get("nodes", 1)))
        total = gpus * number if gpus and number else None
        counts = {"DSTACK_NODES_NUM": number, "DSTACK_GPUS_PER_NODE": gpus}
        counts["DSTACK_GPUS_NUM"] = total
        hosts, setup, script = "DSTACK_NODES_IPS", None, "\n".join(map(str, commands))
        who = "dstack runs"
        listed = task.get("env")
        pairs = [str(one).partition("=")[::2] for one in listed] if isinstance(listed, list) else []
        site = _with(site, dict(pairs) or mapping(listed))
        if number and gpus:
            name = "$DSTACK_MPI_HOSTFILE"
            file = "".join(f"node{n} slots={gpus}\n" for n in range(min(number, _MOST)))
            site = _with(site, {name[1:]: name})._replace(files=(*site.files, (name, file)))
    else:
        return None
    names = {hosts: "\n".join(f"node{n}" for n in range(min(number or 0, _MOST)))}
    site = _with(site, {name: value for name, value in {**counts, **names}.items() if value})
    script = f"{setup}\n{script}" if isinstance(setup, str) else script
    site = site._replace(nodes=number or site.nodes, gpus=gpus or site.gpus)
    return script, site._replace(on_each="" if BY_RANK.search(script) else who)


_MOST = 1024
BY_RANK = re.compile(r"\bif\b|\bcase\b|RANK|INDEX|ssh|NODE_?ID")
"""What shows that a script does not do the same on each node."""


def _of_azure(task: dict[Any, Any], site: LaunchContext) -> tuple[str, LaunchContext]:
    """Return the command of a job of Azure ML, behind a launcher that stands for its distribution.

    Azure ML starts the command `process_count_per_instance` times on each instance, and sets the
    variables of the ranks for it.
    """
    command = str(task["command"]).strip()
    given = {str(name): str(value) for name, value in mapping(task.get("inputs")).items()}
    command = _INPUT.sub(lambda match: given.get(match[1], f"${match[1]}"), command)
    kind = str(at(task, "distribution", "type") or "").lower()
    each, number = (
        whole_number(str(value or 1))
        for value in (
            at(task, "distribution", "process_count_per_instance"),
            at(task, "resources", "instance_count"),
        )
    )
    site = _with(site, mapping(task.get("environment_variables")))
    site = site._replace(nodes=number or site.nodes)
    if kind in ("pytorch", "mpi") and each and number:
        *setup, last = re.split(r"\s*(?:&&|;|\n)\s*", command)
        command = "\n".join([*setup, f"azureml -n {each * number} --ppn {each} {last}"])
    return command, site


def _of_vertex(
    pools: list[dict[Any, Any]], site: LaunchContext
) -> tuple[str, LaunchContext] | None:
    """Return what a job of Vertex AI runs on each replica of its pools, if they run alike."""
    parts = ([at(p, "containerSpec", key) for key in ("command", "args")] for p in pools)
    lines = {
        shlex.join(str(word) for part in both if isinstance(part, list) for word in part)
        for both in parts
    }
    nodes = sum(whole_number(str(pool.get("replicaCount", 1))) or 0 for pool in pools)
    gpus = {whole_number(str(at(p, "machineSpec", "acceleratorCount") or 0)) for p in pools}
    each = gpus.pop() if len(gpus) == 1 else None
    site = site._replace(nodes=nodes or site.nodes, gpus=each or site.gpus)
    line = lines.pop() if len(lines) == 1 else ""
    on_each = "" if BY_RANK.search(line) else "Vertex AI runs"
    return (line, site._replace(on_each=on_each)) if line else None


_INPUT = re.compile(r"\$\{\{\s*(?:inputs|outputs)\.(\w+)\s*\}\}")


def _with(site: LaunchContext, values: dict[Any, Any]) -> LaunchContext:
    given = [(str(name), str(value)) for name, value in values.items() if value is not None]
    return site._replace(exported=(*site.exported, *given))


def _gpus(asked: Any) -> int | None:
    """Return the GPUs of a node in `8`, `H100:8`, `nvidia:4:16GB` or `{H100: 8}`, if it is one."""
    if isinstance(asked, list) and len(asked) == 1:
        return _gpus(asked[0])
    if isinstance(asked, dict):
        return _gpus(asked.get("count", next(iter(asked.values()), None)))
    parts = str(asked or "").split(":")
    numbers = [number for part in parts if (number := whole_number(part)) is not None]
    is_range = isinstance(asked, list) or any(re.fullmatch(r"\d*\.\.\d*", part) for part in parts)
    return None if is_range or not asked else (numbers or [1])[-1]
