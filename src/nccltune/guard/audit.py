# SPDX-License-Identifier: Apache-2.0
"""Audit one process: what it has loaded, which source sets each setting, which rules it has.

Everything is read from `/proc` and from files; the process is not stopped, asked or slowed.
"""

import pwd
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from nccltune.doctor.evidence.redacting import kept_value
from nccltune.guard.jobs import JobLog, LoggedProcess, job_of, job_scale
from nccltune.guard.loaded_rules import (
    LoadedConfiguration,
    RuleHits,
    loaded_configuration,
    logged_configuration,
    rule_hits,
)
from nccltune.guard.mapped import NCCL, SENDRECV, LibraryReader, MappedLibrary
from nccltune.guard.sources import (
    COMMUNICATOR,
    ENV_PLUGIN,
    ENVIRONMENT,
    UNKNOWN,
    AuditedSetting,
    ConfigurationFile,
    SettingClaim,
    configuration_files,
    winners,
)
from nccltune.measure.experiments.ab.settings import UNTESTED
from nccltune.model.nccl_releases import nccl_release
from nccltune.model.nccl_variables import default_words, is_default, release_of, table, unread_words
from nccltune.model.scale import Scale, count
from nccltune.native.processes import (
    absolute,
    command_of,
    inside,
    mapped_files,
    own_number,
    start_environment,
    started_at,
    status_fields,
)

_PLUGINS = ("TUNER", "NET", "PROFILER", "ENV")
_NAMED_FILE_SINCE = (2, 23)
_OF_RULES = ("NCCL_TUNER_", "NCCLTUNE_", "NCCL_NET_PLUGIN", "NCCL_ENV_PLUGIN")
"""Settings that load something. `nccltune verify` compares with and without them, not `ab`."""
_FIXED = (COMMUNICATOR, UNKNOWN, ENV_PLUGIN, "/etc/nccl.conf:")
"""Sources that the environment of a command does not change."""


class AuditedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process with NCCL, or one that was asked for, or one that a log names.

    `is_here` is whether it was read, `has_environment` whether its environment could be, and
    `is_logged` whether a log has it. `own_pid` is its number in its own container, as NCCL logs it.
    `libraries` is what it has mapped. `has_no_rules`: its communicators are in the log, and our
    tuner plugin is not. `own_tuner` is why NCCL decides by itself. `lacks` are settings that others
    log, and its whole log does not. `notes` are on what could not be read, and what to look at.
    """

    host: str
    pid: int
    job: str
    is_here: bool = True
    has_environment: bool = True
    is_logged: bool = False
    own_pid: int = 0
    user: str = ""
    command: str = ""
    has_no_rules: bool = False
    own_tuner: str | None = None
    version: str | None
    libraries: list[MappedLibrary] = []
    settings: list[AuditedSetting]
    lacks: list[str] = []
    configuration: LoadedConfiguration | None = None
    notes: list[str] = []

    @property
    def asked_tuner(self) -> str | None:
        """Return the tuner plugin that NCCL_TUNER_PLUGIN asks for."""
        value = next((x.value for x in self.settings if x.name == "NCCL_TUNER_PLUGIN"), None)
        return value if (value or "none").lower() != "none" else None

    def of_kind(self, kind: str) -> list[MappedLibrary]:
        """Return the libraries of a kind: `nccl`, `tuner`, `net`, `profiler`, `env`, `sendrecv`."""
        return [library for library in self.libraries if kind in library.kinds]


def audit_process(
    folder: Path, reader: LibraryReader, log: JobLog | None = None, host: str = ""
) -> AuditedProcess:
    """Return the audit of `/proc/PID`; with `log`, also what it logged on this `host`.

    Raises OSError where this user may not look, or if the process has ended.
    """
    started_with, status = start_environment(folder), status_fields(folder)
    environment = started_with or {}
    user = status.get("Uid", "?").split()[0]
    own = own_number(folder)
    logged = log.processes.get((host, own)) if log is not None else None
    files = mapped_files(folder)
    libraries = reader.read(folder, files, [])
    version = _version(libraries, log if logged else None)
    confs = []
    if started_with is not None:
        # Without the environment nobody can tell which file is read, and what it overrides.
        confs = configuration_files(folder, *_user_file(folder, environment, version, user))
    seen = _seen(environment, confs)
    # A plugin need not have `nccl` in its name. A value may list several.
    named = [name for kind in _PLUGINS for name in seen.get(f"NCCL_{kind}_PLUGIN", "").split(",")]
    libraries = reader.read(folder, files, [*filter(None, named)])
    plugin = next((one.path for one in libraries if "env" in one.kinds), None)
    found = winners(
        environment,
        confs,
        plugin=plugin,
        logged=logged.settings if logged else None,
        communicator=logged.communicator if logged else None,
    )
    started = _started(folder)
    job = job_of(environment, user, status.get("PPid", "?"))
    process = AuditedProcess(
        host=host,
        pid=int(folder.name),
        job=f"log {log.path}" if log and logged else job,
        has_environment=started_with is not None,
        is_logged=logged is not None,
        own_pid=own,
        user=user,
        command=command_of(folder),
        has_no_rules=logged is not None and logged.has_no_rules,
        own_tuner=logged.own_tuner if logged else None,
        version=version,
        libraries=libraries,
        settings=[audited(one, version) for one in found],
        lacks=sorted(logged.lacks) if logged else [],
        configuration=_configuration(folder, found, environment, started, logged, log),
    )
    notes = _notes(process, confs, started)
    if started_with is None:
        notes.insert(0, "its program overwrote its environment (setproctitle): only NCCL's log "
                     "shows its settings (--log)")  # fmt: skip
    return msgspec.structs.replace(process, notes=notes)


def _configuration(
    folder: Path,
    settings: list[AuditedSetting],
    environment: Mapping[str, str],
    started: float | None,
    logged: LoggedProcess | None,
    log: JobLog | None,
) -> LoadedConfiguration | None:
    values = {one.name: one.value for one in settings}
    path = values.get("NCCLTUNE_CONFIG") or values.get("NCCL_TUNER_CONFIG_FILE")
    hits = _hits(folder)
    if hits:
        path = hits[0].path
    elif logged is not None and logged.loaded:
        path = logged.loaded[0].path
    if not path:
        return None
    return loaded_configuration(
        folder,
        absolute(folder, path),
        expected=values.get("NCCLTUNE_CONFIG_HASH") or None,
        started=started,
        scale=job_scale(environment),
        logged=logged,
        run=log.run if log and logged else None,
        hits=hits,
    )


def _hits(folder: Path) -> list[RuleHits]:
    try:
        return rule_hits(folder)
    except OSError:
        return []


def logged_process(logged: LoggedProcess, log: JobLog) -> AuditedProcess:
    """Return what a log states of a process that was not read."""
    found = winners({}, [], logged=logged.settings, communicator=logged.communicator)
    configuration = logged_configuration(logged, log.run)
    fits = [f"{one.applying} of {count(one.rules, 'rule')} fit {Scale(one.nodes, one.ranks)}"
            for one in dict.fromkeys(logged.loaded)]  # fmt: skip
    return AuditedProcess(
        host=logged.host,
        pid=logged.pid,
        job=f"log {log.path}",
        is_here=False,
        has_environment=False,
        is_logged=True,
        has_no_rules=logged.has_no_rules,
        own_tuner=logged.own_tuner,
        version=log.version,
        settings=[audited(one, log.version) for one in found],
        lacks=sorted(logged.lacks),
        configuration=configuration,
        notes=fits[:4] if configuration is not None and not configuration.rules else [],
    )


def audited(found: AuditedSetting, version: str | None) -> AuditedSetting:
    """Return a setting for people: without secrets, with facts of NCCL `version` and a trial."""
    name, value = found.name, found.value
    shown = None if value is None else kept_value(name, value)
    losers = [SettingClaim(one.source, kept_value(name, one.value)) for one in found.overrides]
    since = version and (unread_words(name, version) or _default_since(name, value, version))
    return msgspec.structs.replace(
        found,
        value=shown,
        overrides=losers,
        since=since or None,
        trial=_trial(found) if shown == value and version and name in table() else None,
    )


def _default_since(name: str, value: str | None, version: str) -> str | None:
    words = default_words(name, version)
    if words is None or value is None:
        return None
    return f"{words}: it changes nothing" if is_default(name, value, version) else words


def _trial(found: AuditedSetting) -> str | None:
    """Return the command that tests the program without a setting, so with NCCL's default."""
    name, value = found.name, found.value
    if not value or name in UNTESTED or name.startswith(_OF_RULES) or not value.isprintable():
        return None
    losers = [one.source for one in found.overrides] + found.repeats
    if any(source.startswith(_FIXED) for source in (found.wins, *losers)):
        return None
    # The user's file is left out, or it would set the value that is unset here.
    hides = "" if found.wins == ENVIRONMENT and not losers else "NCCL_CONF_FILE=/dev/null "
    return f"{hides}{name}={shlex.quote(value)} nccltune ab --unset {name} -- PROGRAM"


def _version(libraries: list[MappedLibrary], log: JobLog | None) -> str | None:
    versions = {one.version for one in libraries if NCCL in one.kinds and one.version}
    if len(versions) == 1:
        return versions.pop()
    return log.version if log is not None else None


def _user_file(
    folder: Path, environment: Mapping[str, str], version: str | None, user: str
) -> tuple[str | None, str | None]:
    """Return NCCL_CONF_FILE and the home folder, as NCCL `version` takes them."""
    named = environment.get("NCCL_CONF_FILE")
    if version is not None and release_of(version) < _NAMED_FILE_SINCE:
        named = None
    release = nccl_release(version) if version is not None else None
    if release is not None and not release.home_variable:
        return named, _password_home(folder, user)
    return named, environment.get("HOME")


def _password_home(folder: Path, user: str) -> str | None:
    """Return the home folder of the user of a process, as `getpwuid` finds it there."""
    try:
        mounts = folder / "ns" / "mnt"
        if mounts.is_symlink() and mounts.readlink() == Path("/proc/self/ns/mnt").readlink():
            return pwd.getpwuid(int(user)).pw_dir
        own = str(_user_inside(folder, int(user)))
        for line in inside(folder, "/etc/passwd").read_text("utf-8", "replace").splitlines():
            cells = line.split(":")
            if len(cells) == 7 and cells[2] == own:
                return cells[5]
    except (OSError, KeyError, ValueError):
        pass
    return None


def _user_inside(folder: Path, user: int) -> int:
    for line in (folder / "uid_map").read_text().splitlines():
        first, outside, many = map(int, line.split())
        if outside <= user < outside + many:
            return first + user - outside
    return user


def _seen(environment: Mapping[str, str], files: list[ConfigurationFile]) -> dict[str, str]:
    found = dict(environment)
    for file in files:
        for _, name, value in file.lines:
            found.setdefault(name, value)
    return found


def _started(folder: Path) -> float | None:
    try:
        return started_at(folder)
    except (OSError, ValueError, IndexError):
        return None


def _notes(
    process: AuditedProcess, files: list[ConfigurationFile], started: float | None
) -> list[str]:
    found = [f"{one.path}: {one.problem}" for one in process.libraries if one.problem]
    found += [f"{one.path}: {one.problem}" for one in files if one.problem]
    found += [
        f"{one.path} has changed since the process started, and may have been read before"
        for one in files
        if started is not None and one.changed_at > started + 1
    ]
    for plugin in process.of_kind("env") if not process.is_logged else ():
        found.append(f"NCCL asks {plugin.path} for each setting; only its log shows the answers")
    if process.version is None:
        found.append("the version of NCCL is not known: the files are those of the newest release")
    if process.asked_tuner and not process.own_tuner and not process.of_kind("tuner"):
        found.append(
            f"NCCL_TUNER_PLUGIN={process.asked_tuner} is not loaded: NCCL loads it with the first "
            "communicator, and logs with NCCL_DEBUG=INFO why it cannot"
        )
    if process.of_kind(SENDRECV):
        found.append(
            "the send/recv library counts its messages: NCCLTUNE_SENDRECV_STATS (at exit), "
            "NCCLTUNE_SENDRECV_METRICS (for a scraper)"
        )
    if any(one.is_ours for one in process.of_kind("net")):
        found.append("the network plugin's traffic now: nccltune net stats")
    return found
