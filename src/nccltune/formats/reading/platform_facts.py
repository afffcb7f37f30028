# SPDX-License-Identifier: Apache-2.0
"""The platform facts that a run shows, and whether two runs are of one platform.

If both runs show a fact and it differs, the runs are of two platforms. A fact that only one run
shows is no difference. If such a fact matters, `formats.importing.suspect` reports a doubt.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from nccltune.model.platform import Platform

IRRELEVANT_SETTINGS = (
    "NCCL_ALGO",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_DEBUG",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_HOME",
    "NCCL_HOSTID",
    "NCCL_INCLUDE_DIR",
    "NCCL_INSPECTOR",
    "NCCL_LIB_DIR",
    "NCCL_PROFILE",
    "NCCL_PROTO",
    "NCCL_RAS_",
    "NCCL_ROOT",
    "NCCL_RUN_",
    "NCCL_TESTS_",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_TUNER_",
    "NCCL_VERSION",
)
"""Prefixes of settings that do not make a platform different.

These are settings of logs and dumps, settings that a sweep changes between runs (`NCCL_ALGO`,
`NCCL_PROTO`, the tuner), addresses, and variables that NCCL does not read. An example of the last
is NCCL_VERSION, which CUDA's images set to the version that they contain.
"""
NO_RECORDING = "no recording"
"""The fact `replay` of a platform that was measured."""
# Names that are created for each start of a container or pod do not identify a machine: Docker's
# ids, pods of a Deployment or Job, workers of the MPI Operator and of a JobSet.
_MADE_NAME = re.compile(
    r"(?=[0-9a-f]*\d)[0-9a-f]{12}"
    r"|.+-(?=[a-z0-9]*\d)(?=[a-z0-9]*[a-z])[bcdfghjklmnpqrstvwxz2456789]{5}"
    r"|.+-worker-\d+(?:-\d+)?"
    r"|.+-launcher"
)


class PlatformFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The platform facts of one run. None or an empty value: the run does not show the fact.

    - `machine`: the GPU or the kind of machine that a heading above the table names.
    - `library`: NCCL or RCCL.
    - `nccl`: the NCCL version that ran.
    - `driver`: the CUDA version of the driver.
    - `nics`: one text for each list of NICs that a host logged.
    - `hosts`: hashes of all host names.
    - `first_host`: the hash of rank 0's host name. nccltune's bench hashes in another way; its
      hashes start with `bench` and a blank.
    - `ranks_per_host`: the number of ranks on each host.
    - `gpus`: the PCI bus numbers of the GPUs.
    - `gpus_per_process`: the number of GPUs of one process.
    - `emulated`: the nodes are parts of one host.
    - `settings_by`: the source of `settings`: `log`, `environment`, `command` or `heading`. A log
      names only the settings that NCCL read, and a command line only those that it sets.
    - `commanded`: the settings that the command line sets; None without a command line.
    - `conditions`: in which way the run measured something else than plain calls of NCCL.
    - `tuner`: the tuner plugin that decided. Unlike other facts, an empty value of `conditions` or
      `tuner` states that there is nothing of this kind.
    - `registration`: how buffers are registered: 1 plainly, 2 as symmetric memory.
    """

    gpu: str | None = None
    machine: str | None = None
    library: str | None = None
    nccl: str | None = None
    driver: str | None = None
    network: str | None = None
    nics: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    first_host: str | None = None
    ranks_per_host: str | None = None
    gpus: str | None = None
    gpus_per_process: int | None = None
    emulated: bool | None = None
    replay: str | None = None
    settings: dict[str, str] = {}
    settings_by: str | None = None
    commanded: tuple[str, ...] | None = None
    conditions: tuple[str, ...] | None = None
    tuner: str | None = None
    registration: int | None = None


SHARED_GPUS = "ranks that share a GPU"
"""One of `PlatformFacts.conditions`."""


class Subject(NamedTuple):
    """The facts of a run with its scale and collective. `free` means that no choice was forced."""

    facts: PlatformFacts
    nodes: int | None = None
    ranks: int | None = None
    collective: str | None = None
    free: bool = False


class Difference(NamedTuple):
    """A fact that differs between two runs, with both values as texts."""

    fact: str
    first: str
    second: str


_PLAIN = {
    "gpu": "GPU",
    "nccl": "NCCL",
    "driver": "CUDA driver version",
    "network": "network",
    "replay": "replay of",
    "registration": "registration of buffers (-R)",
}
_TITLED = {"machine": "machine in the heading", "library": "library"}
_AT_ONE_SCALE = {
    "ranks_per_host": "ranks of each host",
    "gpus": "GPUs by PCI bus",
    "gpus_per_process": "GPUs of a process",
}
FACT_WORDS = {**_PLAIN, "hosts": "hosts", "nics": "NICs", "settings": "NCCL settings"}
"""The facts whose absence may cause a doubt, with their names in messages."""


def machine_name(host: str) -> str | None:
    """Return the short name of a machine; None if it was created for one start of a container."""
    short = host.partition(".")[0]
    return None if not short or _MADE_NAME.fullmatch(short) else short


def relevant_settings(settings: dict[str, str], *, restricted: bool = False) -> dict[str, str]:
    """Return the settings that belong to the platform.

    `restricted` means that `NCCL_ALGO` or `NCCL_PROTO` limit the default instead of forcing a
    choice. A profiler plugin belongs to it: its cost is part of the times.
    """
    return {
        name: value
        for name, value in sorted(settings.items())
        if not name.startswith(IRRELEVANT_SETTINGS)
        or (restricted and name in ("NCCL_ALGO", "NCCL_PROTO"))
        or (name == "NCCL_PROFILER_PLUGIN" and value.lower() not in ("", "none"))
    }


def facts_of_platform(platform: Platform, *, measured: bool) -> PlatformFacts:
    """Return the facts in platform.json.

    `measured` means that a bench wrote the file; a bench sees the whole environment. Otherwise the
    file was made from imported files.
    """
    emulated = True if platform.emulated_nodes else False if measured else None
    settings = relevant_settings(platform.settings)
    return PlatformFacts(
        gpu=platform.gpu,
        nccl=platform.nccl_version,
        network=platform.network,
        emulated=emulated,
        replay=platform.replay or (NO_RECORDING if measured else None),
        settings=settings,
        settings_by="environment" if measured else "log" if settings else None,
        conditions=() if measured else None,
        tuner="" if measured else None,
    )


def differences(one: Subject, other: Subject) -> list[Difference]:
    """Return the facts that both runs show and that differ.

    GPU, versions and network come first.
    """
    a, b = one.facts, other.facts
    found = _different(a, b, _PLAIN | _TITLED)
    same_scale = None not in (one.nodes, one.ranks) and (one.nodes, one.ranks) == (
        other.nodes,
        other.ranks,
    )
    if same_scale:
        found += _different(a, b, _AT_ONE_SCALE)
        if a.emulated is not None and b.emulated is not None and a.emulated != b.emulated:
            found.append(Difference("emulated nodes", _yes(a.emulated), _yes(b.emulated)))
    if _other_hosts(a, b, same_scale):
        found.append(Difference("hosts", _host_words(a), _host_words(b)))
    if a.nics and b.nics and not set(a.nics) & set(b.nics):
        found.append(Difference("NICs", "; ".join(a.nics), "; ".join(b.nics)))
    found += _settings(one, other, same_scale)
    if None not in (a.conditions, b.conditions) and a.conditions != b.conditions:
        words = ["; ".join(facts.conditions or ()) or "plain calls" for facts in (a, b)]
        found.append(Difference("measured", *words))
    tuners = [a.tuner, b.tuner]
    if one.free and other.free and None not in tuners and a.tuner != b.tuner:
        found.append(Difference("tuner plugin", a.tuner or "none", b.tuner or "none"))
    return found


def _different(a: PlatformFacts, b: PlatformFacts, facts: dict[str, str]) -> list[Difference]:
    """Return the differences in the named facts that both runs show.

    `facts` has the field of each fact to compare, and its name in messages.
    """
    return [
        Difference(words, str(first), str(second))
        for name, words in facts.items()
        if (first := getattr(a, name)) is not None
        and (second := getattr(b, name)) is not None
        and first != second
    ]


def missing_facts(subject: Subject) -> set[str]:
    """Return the names of the facts in `FACT_WORDS` that a run does not show, except `replay`."""
    facts = subject.facts
    missing = {name for name in _PLAIN if getattr(facts, name) is None} - {"replay"}
    if not facts.hosts and facts.first_host is None:
        missing.add("hosts")
    if not facts.nics:
        missing.add("nics")
    if facts.settings_by is None:
        missing.add("settings")
    return missing


def _other_hosts(a: PlatformFacts, b: PlatformFacts, same_scale: bool) -> bool:
    """Return whether the hosts show two different sets of machines.

    At different scales, the hosts of one run may be a part of those of the other run. If a run
    shows only its first host, hosts are compared only at the same scale. Hashes of nccltune's bench
    are compared only with each other.
    """
    first, second = set(a.hosts), set(b.hosts)
    if first and second:
        return first != second if same_scale else not (first <= second or second <= first)
    for whole, part in ((first, b.first_host), (second, a.first_host)):
        if whole and part is not None and " " not in part and same_scale:
            return part not in whole
    if first or second or a.first_host is None or b.first_host is None:
        return False
    if (" " in a.first_host) != (" " in b.first_host):
        return False
    return same_scale and a.first_host != b.first_host


def _host_words(facts: PlatformFacts) -> str:
    hashes = facts.hosts or ((facts.first_host or "").rpartition(" ")[2],)
    shown = ", ".join(item[:6] for item in hashes[:4]) + (", ..." if len(hashes) > 4 else "")
    noun = "host" if len(hashes) == 1 else "hosts"
    return f"{len(hashes)} {noun} (hash {shown})"


def _settings(one: Subject, other: Subject, same_scale: bool) -> list[Difference]:
    a, b = one.facts, other.facts
    if a.settings_by is None or b.settings_by is None:
        return []
    names = sorted(a.settings.keys() | b.settings.keys())
    found = []
    alike = same_scale and one.collective == other.collective
    for name in names:
        if name in ("NCCL_ALGO", "NCCL_PROTO") and not (one.free and other.free):
            continue
        first, second = a.settings.get(name), b.settings.get(name)
        if first is not None and second is not None:
            differ = first != second
        else:
            silent = b if second is None else a
            loud = a if second is None else b
            differ = _shows_absence(silent, loud, name, same_scale=same_scale, alike=alike)
        if differ:
            found.append(Difference(name, first or "not set", second or "not set"))
    return found


def _shows_absence(
    silent: PlatformFacts, loud: PlatformFacts, name: str, *, same_scale: bool, alike: bool
) -> bool:
    """Return whether the run `silent` was made without the setting `name` of the run `loud`.

    NCCL's log of `silent` may lack a setting that NCCL does not read at that scale or for that
    collective. So two logs are compared only if scale and collective are the same. A command line
    does not show what the environment sets; so only settings of two command lines are compared.
    """
    by_command = name in (loud.commanded or ())
    if silent.settings_by == "environment":
        return True
    if silent.commanded is not None and by_command and same_scale:
        return True
    return silent.settings_by == "log" and alike and (loud.settings_by == "log" or by_command)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


class PlatformGroups:
    """Runs grouped by platform. The facts of the runs in one group do not differ.

    `members[group]` has the different subjects of a group, each with the names of its files.
    """

    def __init__(self) -> None:
        self.members: list[dict[bytes, tuple[Subject, list[str]]]] = []

    def put(self, index: int, name: str, subject: Subject) -> int:
        """Add the facts of a file to the group `index`, which may be a new one; return `index`."""
        while len(self.members) <= index:
            self.members.append({})
        # Most runs show the same facts. They share one entry and are compared once.
        key = msgspec.json.encode((subject[1:], subject.facts))
        _, names = self.members[index].setdefault(key, (subject, []))
        names.append(name)
        return index

    def fitting(self, subject: Subject) -> list[int]:
        """Return the groups that a run may belong to."""
        return [
            index
            for index, members in enumerate(self.members)
            if not any(differences(member, subject) for member, _ in members.values())
        ]


def joined(texts: Sequence[str], most: int = 3) -> str:
    """Return the first `most` different names as a list, and the number of further names."""
    unique = list(dict.fromkeys(texts))
    more = len(unique) - most
    return ", ".join(unique[:most]) + (f" and {more} more" if more > 0 else "")


def common(values: Iterable[str]) -> str | None:
    """Return the value if all values are equal. Return None if they differ or there are none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
