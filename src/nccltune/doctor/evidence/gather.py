# SPDX-License-Identifier: Apache-2.0
"""Read a running node without root rights: files and tools in parallel, each with a time limit."""

import datetime
import os
import pwd
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import nccltune
from nccltune.doctor.evidence import redacting
from nccltune.doctor.evidence.catalogue import (
    COMMANDS,
    ETHTOOL,
    LOGIND,
    PACKAGES,
    PCI_CLASSES,
    PROFILES,
    QUICK_S,
    SERVICES,
    TEXTS,
    VALUES,
    ToolCommand,
    Values,
)
from nccltune.doctor.evidence.files import Unread, below, matching, read_file, read_values
from nccltune.doctor.evidence.item_names import INDEX
from nccltune.doctor.evidence.parsers.pci_config import parse_pci_config, render_pci_config
from nccltune.doctor.evidence.plugins import libraries_text, plugins_text
from nccltune.doctor.evidence.raw import Cache, NodeEvidence, Raw
from nccltune.doctor.evidence.tools import Output, run_all
from nccltune.formats.tuner_config.nccl_conf import conf_files
from nccltune.model.errors import InputError

Runner = Callable[[list[ToolCommand]], Mapping[str, Output]]
_TICK_S = 0.05


class _Job(NamedTuple):
    """A read operation that runs in its own thread.

    `source` is the file or folder that messages name. `real` is the path if the job reads one file,
    else "".
    """

    name: str
    source: str
    work: Callable[[], tuple[bytes, list[str]]]
    real: str = ""


def gather(
    root: Path = Path("/"),
    *,
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    thorough: bool = False,
    cache: Cache | None = None,
    stop: threading.Event | None = None,
) -> NodeEvidence:
    """Read everything of a running node that needs no root rights.

    `thorough` also runs the slow tools. Their output is for people; rules do not need it.

    If `root` is not `/`, tools run only through a given `runner`. `problems` of the result lists
    what could not be read, and what was not yet read when `stop` was set.
    """
    environment = dict(os.environ if environment is None else environment)
    if runner is None and root == Path("/"):
        runner = partial(run_all, stop=stop)
    evidence = NodeEvidence(_host(root), live=True, cache=cache)
    outputs: dict[str, Output] = {}
    tools = threading.Thread(
        target=lambda: outputs.update(_tools(root, runner, thorough)), name="tools", daemon=True
    )
    if runner is not None:
        tools.start()
    _read_jobs(_jobs(root, environment), evidence, stop or threading.Event())
    if runner is not None:
        # This join ends, because run_all limits the time of each tool.
        tools.join()
        for name, output in sorted(outputs.items()):
            _put_output(evidence, name, output)
    return evidence


def _host(root: Path) -> str:
    if root == Path("/"):
        return os.uname().nodename
    try:
        return read_file(below(root, "/proc/sys/kernel/hostname")).decode().strip() or "node"
    except (Unread, UnicodeDecodeError):
        return "node"


def _jobs(root: Path, environment: Mapping[str, str]) -> list[_Job]:
    jobs = [_values_job(root, item) for item in VALUES]
    jobs += [_text_job(root, text.name, text.path) for text in TEXTS]
    home = _home(root)
    named = environment.get("NCCL_CONF_FILE")
    for path in conf_files(named, home)[:-1]:
        jobs.append(_text_job(root, "named-nccl-conf" if named else "user-nccl-conf", path))
    jobs.append(
        _Job(
            "env",
            "environment",
            lambda: (redacting.plain_environment(environment.items()).encode(), []),
        )
    )
    jobs.append(_Job("logind", "/etc/systemd/logind.conf", lambda: _listed(root, LOGIND, home, "")))
    jobs.append(_Job("profiles", "start-up files", lambda: _listed(root, PROFILES, home, "=")))
    jobs.append(_Job("libraries", "library path", lambda: (libraries_text(root, environment), [])))
    jobs.append(_Job("pci-config", "/sys/bus/pci/devices/*/config", lambda: _configs(root)))
    jobs.append(_Job("plugins", "library path", lambda: plugins_text(root, environment)))
    return jobs


def _values_job(root: Path, item: Values) -> _Job:
    def work() -> tuple[bytes, list[str]]:
        text, problems = read_values(root, item)
        return text.encode(), problems

    first = (*item.patterns, *item.links)[0]
    return _Job(item.name, first.partition("*")[0].rstrip("/") or first, work)


def _text_job(root: Path, name: str, path: str) -> _Job:
    def work() -> tuple[bytes, list[str]]:
        data = read_file(below(root, path))
        return plain(name, data), []

    return _Job(name, path, work, path)


def plain(name: str, data: bytes) -> bytes:
    """Return the data of the item `name` without secrets, so that it can be stored or displayed."""
    text = data.decode(errors="replace")
    if name == "cmdline":
        text = redacting.plain_cmdline(text)
    elif name in ("etc-nccl-conf", "user-nccl-conf", "named-nccl-conf"):
        text = redacting.plain_conf(text)
    elif name == "cpuinfo":
        text = _first_cpu(text)
    elif name == "mounts":
        text = redacting.plain_mounts(text)
    elif name == "ldconfig":
        text = redacting.plain_libraries(text)
    elif name == "dmesg":
        text = redacting.plain_log(text)
    elif name.startswith(("nvidia-smi", "nvlink", "ibv_devinfo", "lspci", "addresses", "ethtool")):
        text = redacting.plain_text(text)
    return text.encode()


def _configs(root: Path) -> tuple[bytes, list[str]]:
    """Return ACS and read request sizes from PCI configuration space, in lspci's format."""
    out = []
    for path in matching(root, "/sys/bus/pci/devices/*/config"):
        folder = path.removesuffix("/config")
        try:
            kind, vendor, device = (
                read_file(below(root, f"{folder}/{name}"), 64).decode().strip()
                for name in ("class", "vendor", "device")
            )
            if kind.startswith(PCI_CLASSES):
                config = parse_pci_config(read_file(below(root, path), 8192))
                ids = kind[2:6], vendor[2:], device[2:]
                out.append(render_pci_config(folder.rpartition("/")[2], *ids, config))
        except (Unread, UnicodeDecodeError):
            continue
    return "\n".join(out).encode(), []


def _first_cpu(text: str) -> str:
    """Return /proc/cpuinfo of the first processor, and the `physical id` lines of all."""
    first = text.partition("\n\n")[0]
    packages = sorted({line for line in text.split("\n") if line.startswith("physical id")})
    return "\n".join([first, *packages]) + "\n"


def _home(root: Path) -> str:
    """Return the home folder from the password file, or "" if the user is not in that file.

    NCCL up to 2.29 reads the password file, since 2.30 $HOME (misc/param.cc). If `root` is not
    `/`, the home folder is that of the user root.
    """
    if root != Path("/"):
        return "/root"
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _listed(
    root: Path, patterns: tuple[str, ...], home: str, wanted: str
) -> tuple[bytes, list[str]]:
    """Return lines of files as `grep -n` prints them (`PATH:NUMBER:LINE`), and problems.

    If `wanted` is "=", only lines are returned that set a variable with a prefix of SETTINGS, and
    secrets are removed. If `wanted` is "", all lines are returned except comments and empty lines.
    """
    out, problems = [], []
    for pattern in patterns:
        for path in matching(root, pattern.replace("~", home, 1)):
            try:
                text = read_file(below(root, path), 1 << 20).decode(errors="replace")
            except Unread as error:
                problems.append(f"{path}: {error}")
                continue
            for number, line in enumerate(text.split("\n"), 1):
                shown = _setting_line(line) if wanted else line.strip()
                if shown and not shown.startswith("#"):
                    out.append(f"{path}:{number}:{shown}")
    return "".join(f"{line}\n" for line in out).encode(), problems


def _setting_line(line: str) -> str:
    """Return `NAME=value` if a shell line sets a variable with a prefix of SETTINGS, else ""."""
    words = line.strip().removeprefix("export ").lstrip()
    name, sign, value = words.partition("=")
    if not sign or not redacting.kept_name(name):
        return ""
    return f"{name}={redacting.kept_value(name, value.strip())}"


def _read_jobs(jobs: list[_Job], evidence: NodeEvidence, stop: threading.Event) -> None:
    """Run the jobs in threads, and add the results that are ready in time.

    A file on a dead file server, or a device that does not answer, must not delay the other jobs.
    """
    results: dict[str, tuple[bytes, list[str]] | Unread] = {}

    def work(job: _Job) -> None:
        try:
            results[job.name] = job.work()
        except Unread as error:
            results[job.name] = error

    threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    until = time.monotonic() + QUICK_S
    for job, thread in zip(jobs, threads, strict=True):
        while thread.is_alive() and time.monotonic() < until and not stop.is_set():
            thread.join(_TICK_S)
        result = results.get(job.name)
        if result is None:
            late = "no time was left" if stop.is_set() else f"did not answer within {QUICK_S:g} s"
            evidence.problems.append(f"{job.source}: {late}")
        elif isinstance(result, Unread):
            if str(result):
                evidence.problems.append(f"{job.source}: {result}")
        else:
            data, problems = result
            evidence.problems.extend(problems)
            evidence.put(Raw(job.name, job.source, data, bool(job.real), job.real))


def _tools(root: Path, runner: Runner | None, thorough: bool) -> Mapping[str, Output]:
    assert runner is not None
    return runner([one for one in commands_for(root) if thorough or not one.slow])


def commands_for(root: Path) -> list[ToolCommand]:
    """Return the tools to run on a node.

    These are COMMANDS, `ethtool` for each interface, one command for all services and one for
    packages.
    """
    commands = list(COMMANDS)
    for name in _interfaces(root):
        commands += [
            ToolCommand(f"ethtool{option} {name}", ("ethtool", option, name)) for option in ETHTOOL
        ]
    # `systemctl show` succeeds for every state of a service. The exit code of `is-active` depends
    # on the state.
    commands.append(
        ToolCommand(
            "services",
            ("systemctl", "show", "-p", "Id,LoadState,ActiveState", *SERVICES),
        )
    )
    commands.append(
        ToolCommand(
            "packages",
            ("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES),
            fine=(0, 1),
        )
    )
    return commands


def _interfaces(root: Path) -> list[str]:
    """Return at most 64 network interfaces that have a device (virtual ones have none)."""
    try:
        folder = below(root, "/sys/class/net")
        return sorted(path.name for path in folder.iterdir() if (path / "device").exists())[:64]
    except OSError:
        return []


def _put_output(evidence: NodeEvidence, name: str, output: Output) -> None:
    if output.problem is not None:
        evidence.problems.append(output.problem)
    if output.problem is not None and not output.data:
        return
    head, _, interface = name.partition(" ")
    if head in ("ethtool-i", "ethtool-S"):
        # All ethtool outputs form one item. A line with the interface's name precedes each output.
        before = evidence.get("ethtool")
        data = (before.data if before else b"") + f"== {interface}\n".encode()
        whole = Raw("ethtool", "ethtool", data + plain("ethtool", output.data), is_file=False)
        evidence.replace(whole)
        return
    words = next((c.words for c in COMMANDS if c.name == name), (name,))
    evidence.put(Raw(name, " ".join(words), plain(name, output.data), is_file=False))


def collect_to(folder: Path, *, host: str | None = None) -> Path:
    """Read this node and write its files into `folder`/HOST. No root rights are needed.

    Returns the node's folder. Raises InputError if that folder cannot be written.
    """
    evidence = gather(thorough=True)
    return write_evidence(evidence, folder, host=host)


def write_evidence(evidence: NodeEvidence, folder: Path, *, host: str | None = None) -> Path:
    """Write the items of a node into `folder`/HOST, and return that folder.

    Existing files with the same names are overwritten. Raises InputError if the folder cannot be
    written.
    """
    name = re.sub(r"[^\w.-]", "_", host or evidence.host).lstrip(".") or "node"
    target = folder / name
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    index = [f"by\tnccltune {nccltune.__version__}", f"at\t{now}"]
    try:
        target.mkdir(parents=True, exist_ok=True)
        for item in sorted(evidence.names):
            raws = evidence.all(item)
            for number, raw in enumerate(raws, 1):
                end = f".{number}.txt" if len(raws) > 1 else ".txt"
                (target / f"{item}{end}").write_bytes(raw.data)
                index.append(f"read\t{item}\t{raw.source}")
        index += [f"not read\t{problem}" for problem in evidence.problems]
        text = "".join(f"{line}\n" for line in index)
        (target / f"{INDEX}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(target)) from error
    return target
