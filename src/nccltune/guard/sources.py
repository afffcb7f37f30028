# SPDX-License-Identifier: Apache-2.0
"""Whose value of each setting NCCL takes: the sources in NCCL's own order of precedence.

The order (`misc/param.cc`, `plugin/env.cc`, `init.cc` of NCCL 2.21 to 2.30; seen in the logs of the
libraries 2.26.5, 2.28.9 and 2.32.3):

1. An env plugin, since 2.28.7. NCCL then takes what the plugin returns, and nothing else.
2. The environment of the process. An empty value counts too, and hides the files.
3. The file that NCCL_CONF_FILE names (since 2.23), else `~/.nccl.conf`.
4. `/etc/nccl.conf`. In each file the first line of a name wins.
5. What the program gives a communicator, if nothing above is set; its traffic class is an
   exception and wins over NCCL_IB_TC.

`ncclParamGetParameter` (since 2.30.7) is of no help here: a program asks it about itself, and in
2.32.3 it knows ten names, none of them about communication.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from nccltune.doctor.evidence.files import Unread, read_file
from nccltune.formats.tuner_config.nccl_conf import MAX_BYTES, conf_files, conf_lines
from nccltune.model.nccl_variables import is_same
from nccltune.native.processes import absolute, inside

ENVIRONMENT, COMMUNICATOR = "environment", "communicator"
ENV_PLUGIN, UNKNOWN = "env plugin", "a source not seen"
OURS = ("NCCL_", "NCCLTUNE_")
COMMUNICATOR_FIELDS = {
    "Blocking": "NCCL_COMM_BLOCKING",
    "CGA cluster size": "NCCL_CGA_CLUSTER_SIZE",
    "Min CTAs": "NCCL_MIN_CTAS",
    "Max CTAs": "NCCL_MAX_CTAS",
    "Net name": "NCCL_NET",
    "Split share": "NCCL_COMM_SPLIT_SHARE_RESOURCES",
    "Traffic class": "NCCL_IB_TC",
    "Collnet enable": "NCCL_COLLNET_ENABLE",
    "CTA policy flags": "NCCL_CTA_POLICY",
    "shrinkShare": "NCCL_COMM_SHRINK_SHARE_RESOURCES",
    "nvlsCTAs": "NCCL_NVLS_NCHANNELS",
    "nChannelsPerNetPeer": "NCCL_NCHANNELS_PER_NET_PEER",
    "nvlinkCentricSched": "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
    "graphUsageMode": "NCCL_GRAPH_MIXING_SUPPORT",
    "numRmaCtx": "NCCL_NUM_RMA_CTX",
    "maxP2pPeers": "NCCL_MAX_P2P_PEERS",
    "graphStreamOrdering": "NCCL_GRAPH_STREAM_ORDERING",
}
"""Properties of a communicator as NCCL's log calls them (`init.cc`), and the variable of each."""
_NOT_READ = ("NCCL_VERSION", "NCCL_TESTS_")
"""No NCCL reads these: images with CUDA have the first, nccl-tests read the others."""
_NO_PLUGIN = frozenset({"NCCL_CONF_FILE", "NCCL_ENV_PLUGIN", "NCCL_TUNER_CONFIG_FILE"})
"""Variables that NCCL reads before it has an env plugin, or that only tuner plugins read."""
_PROGRAM_WINS = frozenset({"NCCL_IB_TC"})
_OTHER_NUMBERS = frozenset({"NCCL_GRAPH_MIXING_SUPPORT", "NCCL_CTA_POLICY"})
"""Variables whose values are not those of the property: 1 is the property's 2."""


class SettingClaim(msgspec.Struct, frozen=True):
    """A source that sets a value: `environment`, a file with its line, a plugin, a program."""

    source: str
    value: str


class ConfigurationFile(msgspec.Struct, frozen=True):
    """A file that NCCL reads settings from. `changed_at` is its last change, in seconds."""

    path: str
    lines: list[tuple[int, str, str]]
    changed_at: float = 0.0
    problem: str | None = None


class AuditedSetting(msgspec.Struct, frozen=True):
    """A setting, the source that wins, and the sources that lose.

    `value` is None if an env plugin has it and no log shows it. `overrides` are losers with another
    value, `repeats` the sources of the same one. `since` is since when NCCL has another default, or
    why it does not read the setting. `trial` is the command that compares the setting with NCCL's
    default. `known_by` is the evidence: `NCCL's log` or `/proc`.
    """

    name: str
    value: str | None
    wins: str
    overrides: list[SettingClaim]
    repeats: list[str]
    known_by: str
    since: str | None = None
    trial: str | None = None


def configuration_files(
    folder: Path, named: str | None, home: str | None
) -> list[ConfigurationFile]:
    """Return the files that a process `/proc/PID` reads, those whose settings win first."""
    found = []
    for given in conf_files(named, home):
        path = absolute(folder, given)
        place = inside(folder, path)
        try:
            text = read_file(place, MAX_BYTES).decode(errors="replace")
            status = place.stat()
        except Unread as error:
            # NCCL, too, takes no notice of a file that does not exist.
            if str(error) or given == named:
                found.append(ConfigurationFile(path, [], problem=str(error) or "no such file"))
            continue
        except OSError as error:
            found.append(ConfigurationFile(path, [], problem=error.strerror))
            continue
        lines = [
            (number, name, value.removesuffix("\r")) for number, name, value in conf_lines(text)
        ]
        changed = max(status.st_mtime, status.st_ctime)
        found.append(ConfigurationFile(path, lines, changed))
    return found


def winners(
    environment: Mapping[str, str],
    files: Sequence[ConfigurationFile],
    *,
    plugin: str | None = None,
    logged: Mapping[str, str] | None = None,
    communicator: Mapping[str, str] | None = None,
) -> list[AuditedSetting]:
    """Return who sets each setting of a process, by name.

    `plugin` is its env plugin. `logged` and `communicator` are what NCCL's log states.
    """
    claims: dict[str, list[SettingClaim]] = {}
    for name, value in environment.items():
        if name.startswith(OURS) and not name.startswith(_NOT_READ):
            claims.setdefault(name, []).append(SettingClaim(ENVIRONMENT, value))
    for file in files:
        for number, name, value in file.lines:
            if name.startswith(OURS) and not name.startswith(_NOT_READ):
                claims.setdefault(name, []).append(SettingClaim(f"{file.path}:{number}", value))
    asked = {
        COMMUNICATOR_FIELDS[label]: value
        for label, value in (communicator or {}).items()
        if label in COMMUNICATOR_FIELDS
    }
    names = sorted({*claims, *(logged or {}), *asked})
    return [
        _winner(name, claims.get(name, []), plugin, (logged or {}).get(name), asked.get(name))
        for name in names
    ]


def _winner(
    name: str,
    claims: Sequence[SettingClaim],
    plugin: str | None,
    logged: str | None,
    asked: str | None,
) -> AuditedSetting:
    known_by = "/proc" if logged is None and asked is None else "NCCL's log"
    by_program = [] if asked is None else [SettingClaim(COMMUNICATOR, asked)]
    if by_program and (name in _PROGRAM_WINS or not (claims or logged)):
        unseen = [] if claims or logged is None else [SettingClaim(UNKNOWN, logged)]
        return _won(name, [*by_program, *claims, *unseen], known_by)
    claims = [*claims, *(by_program if name not in _OTHER_NUMBERS else [])]
    # With an env plugin, and where NCCL's log has another value, the sources seen do not decide.
    is_confirmed = logged is not None and claims[:1] and is_same(claims[0].value, logged)
    if not is_confirmed and plugin and name.startswith("NCCL_") and name not in _NO_PLUGIN:
        won = _won(name, [SettingClaim(f"{ENV_PLUGIN} {plugin}", logged or ""), *claims], known_by)
        if logged is not None:
            return won
        return msgspec.structs.replace(won, value=None, overrides=list(claims), repeats=[])
    if logged is not None and not is_confirmed:
        claims = [SettingClaim(UNKNOWN, logged), *claims]
    return _won(name, claims, known_by)


def _won(name: str, claims: Sequence[SettingClaim], known_by: str) -> AuditedSetting:
    first, losers = claims[0], claims[1:]
    overrides = [claim for claim in losers if not is_same(claim.value, first.value)]
    repeats = [claim.source for claim in losers if claim not in overrides]
    return AuditedSetting(name, first.value, first.source, overrides, repeats, known_by)
