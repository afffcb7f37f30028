# SPDX-License-Identifier: Apache-2.0
"""Find the commands that the services of a Compose file start."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

from nccltune.formats.text.yaml_documents import load_documents
from nccltune.launch_lint.boxes import SERVICE, entrypoint_of, variables_in
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.finding import LaunchFinding
from nccltune.launch_lint.hosts import text_of
from nccltune.launch_lint.pasted import blocks_of
from nccltune.launch_lint.pods import at, mapping
from nccltune.launch_lint.read import no_launcher
from nccltune.launch_lint.source import FoundCommand, from_words
from nccltune.launch_lint.stated import StatedSetting, judge_box
from nccltune.launch_lint.words import Line, quoted, whole_number
from nccltune.model.errors import InputError
from nccltune.model.names import listed

_SERVICES = re.compile(r"^services:[ \t\r]*$", re.M)
_REPLACED = re.compile(r"\$(?:(\$)|\{\w+:?-([^{}]*)\})")
"""`$$`, which is `$`, and `${NAME:-DEFAULT}`, which Compose replaces."""


Services = list[tuple[str, dict[Any, Any]]]
"""The services of Compose files, each with its name."""


def services_in(text: str) -> tuple[Services, str]:
    """Return the services of the Compose files in a text, and the rest of the text."""
    found: Services = []
    rest = text
    for block in blocks_of(text) if _SERVICES.search(text) else ():
        with contextlib.suppress(InputError):
            # A job of Azure ML also has services, such as a notebook, beside its command.
            read = [mapping(one) for one in load_documents(block, "")]
            services = [mapping(one.get("services")) for one in read if "command" not in one]
            pairs = [pair for each in services for pair in each.items()]
            found += [(str(name), each) for name, each in pairs if isinstance(each, dict)]
            rest = rest.replace(block, "") if any(services) else rest
    return (found, rest) if found else ([], text)


def from_services(services: Services, site: LaunchContext) -> list[FoundCommand]:
    """Return the commands that services start, as containers of `docker run`.

    Raises InputError if there are services, and none starts a launcher.

    >>> command = ["torchrun", "--nproc-per-node=2", "t.py"]
    >>> (found,) = from_services([("a", {"image": "i", "command": command})], LaunchContext())
    >>> found.line.words[0].text, found.site.around[0]
    ('torchrun', 'docker')
    """
    found: list[FoundCommand] = []
    lines = []
    for name, service in services:
        exported = (*site.exported, *_variables(service, site))
        around = tuple(_docker(service, dict(exported)))
        swarm = _in_swarm(service)
        inner = site._replace(around=around, exported=exported, service=name, in_swarm=swarm)
        words = _started(service)
        found += from_words(words, inner, strict=False)
        lines += [Line(tuple(quoted(part) for word in words for part in word.split()), "")]
    if services and not found:
        raise no_launcher(lines)
    return found


def judge_services(services: Services, site: LaunchContext) -> Iterator[LaunchFinding]:
    """Yield what services lack for NCCL that split a model over GPUs, whatever they start."""
    for name, service in services:
        words = _started(service)
        variables = dict(_variables(service, site))
        around = tuple(_docker(service, variables))
        split = _PARALLEL.search(" ".join(words)) is not None
        swarm = _in_swarm(service)
        for finding in judge_box(variables, around, is_split=split, in_swarm=swarm):
            yield finding._replace(message=f"service {name}: {finding.message}")


_PARALLEL = re.compile(r"(?:^|\s)--?(?:tensor[-_]parallel[-_]size|tp(?:[-_]size)?)[= ]([2-9]|\d\d)")


def unseen_files(services: Services, site: LaunchContext) -> list[str]:
    """Return the files of variables (`env_file`) that are not here."""
    named = [name for _, service in services for name in _env_files(service)]
    return [name for name in named if text_of(name, site) is None]


def settings_of(services: Services, site: LaunchContext) -> list[StatedSetting]:
    """Return the variables of the services, as their programs get them."""
    return [StatedSetting(*pair) for _, service in services for pair in _variables(service, site)]


def _started(service: dict[Any, Any]) -> list[str]:
    """Return the words that a service starts: its own entrypoint or the image's, and command."""
    own, command = _words(service.get("entrypoint")), _words(service.get("command"))
    return [*(own or (entrypoint_of(str(service.get("image"))) if command else ())), *command]


def _words(value: Any) -> list[str]:
    """Return the words of `command`, which is a list, or a line that is split as a shell does."""
    words = [str(word) for word in value] if isinstance(value, list) else []
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            words = shlex.split(value)
    return [_REPLACED.sub(lambda match: match[1] or match[2], word) for word in words]


def _env_files(service: dict[Any, Any]) -> list[str]:
    files = service.get("env_file") or []
    files = files if isinstance(files, list) else [files]
    return [str(at(one, "path") if isinstance(one, dict) else one) for one in files]


def _variables(service: dict[Any, Any], site: LaunchContext) -> Iterator[tuple[str, str]]:
    for name in _env_files(service):
        for key, value in variables_in(text_of(name, site) or ""):
            yield key, value.strip("\"'")
    given = service.get("environment")
    for one in given if isinstance(given, list) else []:
        key, sign, value = str(one).partition("=")
        if sign:
            yield key, value
    for key, value in mapping(given).items():
        if value is not None:
            yield str(key), str(value)


def _docker(service: dict[Any, Any], variables: dict[str, str]) -> Iterator[str]:
    """Yield the words of the equal `docker run`, without its other variables and command."""
    yield from SERVICE
    asked = _gpus(service)
    shown = variables.get("NVIDIA_VISIBLE_DEVICES")
    if asked:
        number = _asked(asked)
        yield "--gpus" if number is None else f"--gpus={number}"
    elif shown is not None:
        yield f"--env=NVIDIA_VISIBLE_DEVICES={shown}"
    elif service.get("runtime") or service.get("privileged"):
        yield "--gpus"
    if service.get("privileged"):
        yield "--privileged"
    ignored = _NOT_IN_SWARM if _in_swarm(service) else ()
    for key in listed("network_mode shm_size ipc devices volumes tmpfs user extends"):
        if (value := service.get(key)) and key not in ignored:
            yield f"--{key.removesuffix('_mode').replace('_', '-')}={value}"
    yield str(service.get("image"))


def _gpus(service: dict[Any, Any]) -> Any:
    """Return what a service asks for in GPUs."""
    return service.get("gpus") or at(service, "deploy", "resources", "reservations", "devices")


def _in_swarm(service: dict[Any, Any]) -> bool:
    """Return whether `deploy` has what only `docker stack deploy` obeys, and no GPUs."""
    deploy = mapping(service.get("deploy"))
    reserved = at(deploy, "resources", "reservations", "generic_resources")
    swarm = reserved or deploy.get("placement") or deploy.get("endpoint_mode")
    return bool(swarm) and not _gpus(service)


_NOT_IN_SWARM = ("ipc", "shm_size")
"""Keys of a service that `docker stack deploy` ignores."""


def _asked(devices: Any) -> int | None:
    """Return the number of GPUs in `gpus` or `devices` of a service; None for all of them."""
    if not isinstance(devices, list):
        return whole_number(_REPLACED.sub(lambda match: match[1] or match[2], str(devices)))
    named = [at(one, "device_ids") for one in devices]
    counts = [
        len(ids) if isinstance(ids, list) else _asked(at(one, "count"))
        for ids, one in zip(named, devices, strict=True)
    ]
    return None if None in counts else sum(number or 0 for number in counts)
