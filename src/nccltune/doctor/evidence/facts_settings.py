# SPDX-License-Identifier: Apache-2.0
"""Facts of settings from all sources, of plugins, NCCL libraries and installed software."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from nccltune.doctor.evidence.parsers.job_settings import (
    BEFORE_COMMAND,
    parse_job_settings,
    parse_posted_settings,
)
from nccltune.doctor.evidence.parsers.limits import parse_inspect
from nccltune.doctor.evidence.parsers.listed import parse_listed
from nccltune.doctor.evidence.parsers.nccl_lines import parse_nccl_lines
from nccltune.doctor.evidence.parsers.symbols import parse_plugins
from nccltune.doctor.evidence.parsers.text import SettingLine, lines_of
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.evidence.redacting import kept_name, kept_value
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.log import LOG_NET_DEVICES
from nccltune.doctor.facts.network import HCAS, NICS, RdmaPortState
from nccltune.doctor.facts.node import NODE_SOFTWARE
from nccltune.doctor.facts.settings import (
    DEVICE_LISTS,
    NAMED_SETTINGS,
    NCCL_LIBRARIES,
    NCCL_VERSION,
    PLUGINS,
    SETTINGS,
    DeviceList,
    NcclLibrary,
    SettingRecord,
)
from nccltune.formats.tuner_config.nccl_conf import conf_lines
from nccltune.model.nccl_variables import is_foreign, nearest_variable
from nccltune.topology.hardware.subset import chosen_nic_indexes

_CONFS = (
    ("named-nccl-conf", "named_conf"),
    ("user-nccl-conf", "user_conf"),
    ("etc-nccl-conf", "system_conf"),
)
"""NCCL's configuration files, highest priority first.

The first file that sets a name wins (misc/param.cc, NCCL 2.30). If NCCL_CONF_FILE names a file,
NCCL does not read ~/.nccl.conf.
"""
_LIBNCCL = re.compile(r"/libnccl\.so\.2[.\d]*$")
_FULL = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)$")
_EXPORTED = re.compile(r"^(?:\$ +)?(?:(?:declare -x|export) )?")
_PACKAGE = re.compile(r"^(?P<name>[a-z][\w.+-]{1,60})[ :]+(?P<version>[\w.+~:-]{1,60})\s*$")
_SOFTWARE = {
    "libfabric1": "libfabric",
    "libfabric": "libfabric",
    "libfabric-aws": "libfabric",
    "rdma-core": "rdma-core",
    "libibverbs1": "rdma-core",
    "google-fast-socket": "fastsocket",
    "aws-ofi-nccl": "aws-ofi-nccl",
    "libnccl-ofi": "aws-ofi-nccl",
}


def add_settings(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `settings`, `device_lists`, `plugins`, `nccl.*` and `node.software`. Call this after NICs
    are known."""
    found = [*_environment(evidence), *_confs(evidence)]
    known = evidence.get("env") is not None or bool(found)
    logged = list(_logged(evidence))
    posted = list(_posted(evidence, {(one.name, one.value) for one in logged}))
    in_force: set[str | None] = set()
    for one in found:
        one.in_force = one.name not in in_force
        in_force.add(one.name)
    others = [*_profiles(evidence), *_jobs(evidence), *logged]
    if known or others:
        source = "environment, nccl.conf, start-up and job files"
        facts.add(SETTINGS, [*found, *others], source)
        # A job file that is beside this node need not be for it.
        listed = [one for one in others if not evidence.live or one.kind != "job_file"]
        _device_lists(facts, [*found, *listed, *posted])
    elif posted:
        _device_lists(facts, posted)
    if known or others or posted:
        facts.add(NAMED_SETTINGS, [*found, *others, *posted], "settings and commands in the text")
    _plugins(evidence, facts)
    _libraries(evidence, facts)
    _software(evidence, facts)


def _setting(name: str, value: str, kind: str, where: str) -> SettingRecord:
    # A setting in NCCL's log was in force. For the environment and nccl.conf, `add_settings` sets
    # `in_force` later. For start-up and job files `in_force` stays false. A library that printed a
    # setting knows it, also if NCCL does not: other vendors' libraries have variables of their own.
    value, in_force = kept_value(name, value), kind == "log"
    return SettingRecord(
        name=name,
        value=value,
        kind=kind,
        where=where,
        in_force=in_force,
        meant=None if in_force else _meant(name),
    )


_INTERFACES = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "GLOO_SOCKET_IFNAME")


def _device_lists(facts: Facts, settings: list[SettingRecord]) -> None:
    ports = [one for one in facts.value(HCAS) or [] if one.state in (None, "ACTIVE")]
    nics = [one.name or "" for one in facts.value(NICS) or []]
    found = []
    # Without the loopback the listing of interfaces is not whole.
    for one in settings:
        if not one.value or "$" in one.value:
            continue
        if one.name == "NCCL_IB_HCA" and ports:
            found.append(_device_list(one, [(port.name or "", port.port or 1) for port in ports]))
            found[-1].leaves_out = _left_out(ports, found[-1].takes or [])
        elif one.name in _INTERFACES and "lo" in nics:
            found.append(_device_list(one, [(name, -1) for name in nics]))
        elif one.kind == "log" and one.name in ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"):
            # The log shows what NCCL took, not what else is there.
            values = {other.value for other in settings if other.name == one.name}
            shown = _logged_devices(facts, has_ports=one.name == "NCCL_IB_HCA")
            taken = _device_list(one, shown)
            if taken.beyond and len(values) == 1:
                taken.unmatched = []
                found.append(taken)
    if found:
        facts.add(DEVICE_LISTS, found, "settings beside the devices shown")


def _logged_devices(facts: Facts, *, has_ports: bool) -> list[tuple[str, int]]:
    named = [one.partition(":") for one in facts.value(LOG_NET_DEVICES) or []]
    return [(name, int(port or -1)) for name, sign, port in named if bool(sign) is has_ports]


def _device_list(setting: SettingRecord, devices: list[tuple[str, int]]) -> DeviceList:
    # Gloo takes whole names, and knows no signs.
    value = ("=" if setting.name == "GLOO_SOCKET_IFNAME" else "") + (setting.value or "")
    taken = [devices[number][0] for number in chosen_nic_indexes(devices, value)]
    sign = "^"[: value.startswith("^")] + "="[: value.startswith(("=", "^="))]
    names = [part.partition(":")[0] for part in value.removeprefix(sign).split(",") if part]
    known = [name for name, _ in devices]
    exact = [name for name in names if name in known]
    is_named = str.__eq__ if "=" in sign else str.startswith
    return DeviceList(
        name=setting.name,
        value=setting.value,
        where=setting.where,
        in_force=setting.in_force,
        takes=list(dict.fromkeys(taken)),
        unmatched=[name for name in names if not any(is_named(one, name) for one in known)],
        beyond=[
            name
            for name in dict.fromkeys(taken)
            if not sign and name not in names and any(name.startswith(one) for one in exact)
        ],
    )


def _left_out(ports: list[RdmaPortState], taken: list[str]) -> list[str]:
    kinds = {(one.link_layer, one.rate_gbit_per_s) for one in ports if one.name in taken}
    return [
        one.name or ""
        for one in ports
        if one.state == "ACTIVE"
        and one.link_layer
        and one.rate_gbit_per_s
        and one.name not in taken
        and (one.link_layer, one.rate_gbit_per_s) in kinds
    ]


@lru_cache(maxsize=1024)
def _meant(name: str) -> str | None:
    is_read = name.startswith(("NCCL_", "GLOO_")) and not is_foreign(name)
    return nearest_variable(name) if is_read else None


def _environment(evidence: NodeEvidence) -> Iterator[SettingRecord]:
    inspected = evidence.parsed("docker-inspect", parse_inspect)
    for name, value in inspected[0].environment if inspected is not None else ():
        if kept_name(name):
            yield _setting(name, value, "environment", "docker inspect")
    raw = evidence.get("env")
    if raw is None:
        return
    text = evidence.parse(raw, str)
    for number, line in lines_of(text):
        # Accept the format of `env` and of a shell's `export -p`, and a command with settings.
        shown = line.strip()
        if BEFORE_COMMAND.match(shown) is not None:
            for one in _job(shown):
                yield _setting(one.name, one.value, "post", raw.place(number))
            continue
        plain = _EXPORTED.sub("", shown)
        name, sign, value = plain.partition("=")
        value = value if plain == shown else value.strip("'\"")
        if sign and kept_name(name):
            yield _setting(name, value, "environment", "environment")


def _confs(evidence: NodeEvidence) -> Iterator[SettingRecord]:
    for name, kind in _CONFS:
        raw = evidence.get(name)
        if raw is None:
            continue
        first: dict[str, SettingRecord] = {}
        # The first line of a file wins: NCCL never changes a variable that is already set.
        for number, key, value in conf_lines(evidence.parse(raw, str)):
            if kept_name(key.strip()):
                place = f"{raw.real or raw.source}:{number}"
                first.setdefault(key, _setting(key, value, kind, place))
        yield from first.values()


def _profiles(evidence: NodeEvidence) -> Iterator[SettingRecord]:
    listed = evidence.parsed("profiles", parse_listed)
    for line in listed[0] if listed is not None else ():
        name, sign, value = line.text.strip().removeprefix("export ").strip().partition("=")
        if sign and kept_name(name):
            plain = value.strip().strip("'\"")
            yield _setting(name, plain, "profile", f"{line.path}:{line.number}")


def _jobs(evidence: NodeEvidence) -> Iterator[SettingRecord]:
    for raw in evidence.all("job"):
        for one in evidence.parse(raw, _job):
            yield _setting(one.name, one.value, "job_file", raw.place(one.line))


def _posted(
    evidence: NodeEvidence, logged: set[tuple[str | None, str | None]]
) -> Iterator[SettingRecord]:
    """Yield the settings of commands in texts, each name and value once."""
    seen = set(logged)
    jobs = {raw.source for raw in evidence.all("job")}
    for raw in evidence.posts():
        for one in evidence.parse(raw, _post) if raw.source not in jobs else ():
            setting = _setting(one.name, one.value, "post", raw.place(one.line))
            if (setting.name, setting.value) not in seen:
                seen.add((setting.name, setting.value))
                yield setting


# Results are kept by parser, so parsers are functions with names.
def _job(text: str) -> list[SettingLine]:
    return parse_job_settings(text, kept_name)


def _post(text: str) -> list[SettingLine]:
    return parse_posted_settings(text, kept_name)


def _logged(evidence: NodeEvidence) -> Iterator[SettingRecord]:
    for raw in evidence.all("log"):
        for one in evidence.parse(raw, parse_nccl_lines).settings:
            yield _setting(one.name, one.value, "log", raw.place(one.line))


def _plugins(evidence: NodeEvidence, facts: Facts) -> None:
    found = evidence.parsed("plugins", parse_plugins)
    if found is None:
        return
    facts.add(PLUGINS, found[0].records, evidence.where(found[1], "the ELF files' symbols"))


def _libraries(evidence: NodeEvidence, facts: Facts) -> None:
    versions: dict[str, str | None] = {}
    source = "library path"
    libraries = evidence.tree("libraries")
    if libraries is not None:
        tree, raw = libraries
        source = evidence.where(raw, source)
        for path, target in tree.links.items():
            if "libnccl.so" not in path:
                continue
            said = re.search(r"NCCL version (\d+\.\d+\.\d+)", tree.get(path) or "")
            full = _FULL.search(target.text)
            versions[path] = said[1] if said else full[1] if full else None
    cached = evidence.text("ldconfig")
    if cached is not None:
        for _, line in lines_of(cached[0]):
            path = line.rpartition(" => ")[2].strip()
            if _LIBNCCL.search(path):
                full = _FULL.search(path)
                versions.setdefault(path, full[1] if full else None)
    if libraries is None and cached is None:
        return
    facts.add(
        NCCL_LIBRARIES,
        [NcclLibrary(path=path, version=version) for path, version in versions.items()],
        source,
    )
    # A log names the version that the job used. If `add_logs` added that version before, keep it.
    first = next((version for version in versions.values() if version), None)
    if first is not None and "nccl.version" not in facts:
        facts.add(NCCL_VERSION, first, next(path for path, v in versions.items() if v == first))


def _software(evidence: NodeEvidence, facts: Facts) -> None:
    found: dict[str, str] = {}
    for name in ("packages", "efa-packages"):
        text = evidence.text(name)
        for _, line in lines_of(text[0]) if text is not None else ():
            match = _PACKAGE.match(line.strip())
            if match is not None and match["name"] in _SOFTWARE:
                found.setdefault(_SOFTWARE[match["name"]], match["version"])
            elif "EFA installer version" in line:
                found["efa-installer"] = line.rpartition(":")[2].strip()[:40]
    ofed = evidence.text("ofed")
    if ofed is not None and ofed[0].strip():
        found["ofed"] = ofed[0].strip().rstrip(":")[:60]
    cuda = evidence.text("cuda-version")
    if cuda is not None:
        found["cuda"] = _cuda(cuda[0])
    libraries = evidence.tree("libraries")
    for target in libraries[0].links.values() if libraries is not None else ():
        match = re.search(r"lib(fabric|ibverbs)\.so\.(\d+(?:\.\d+)*)$", target.text)
        if match is not None:
            name = "libfabric" if match[1] == "fabric" else "rdma-core"
            found.setdefault(name, "")
    for plugin in facts.value(PLUGINS) or []:
        folder = (plugin.path or "").lower()
        if "ofi" in folder:
            found.setdefault("aws-ofi-nccl", "")
        elif "fastsocket" in folder or "fast-socket" in folder or "fast_socket" in folder:
            found.setdefault("fastsocket", "")
    if any(evidence.get(name) for name in ("packages", "libraries", "ofed", "cuda-version")):
        facts.add(NODE_SOFTWARE, dict(sorted(found.items())), "packages and library names")


def _cuda(text: str) -> str:
    try:
        version = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version[:40] if isinstance(version, str) else ""
