# SPDX-License-Identifier: Apache-2.0
"""Env: the settings that deploy the rules of a study."""

import json
import os
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from nccltune.app.sendrecv_conf import CONF
from nccltune.formats.tuner_config.csv_rules import read_rules
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.model.errors import InputError
from nccltune.model.scale import count
from nccltune.native import tuner_path
from nccltune.study import names
from nccltune.study.files import Study

LineFormat = Literal["shell", "nccl.conf", "sbatch", "mpirun", "kubernetes", "docker"]
FORMATS: tuple[LineFormat, ...] = get_args(LineFormat)
WITHOUT_COMMENTS = ("mpirun", "docker")
"""Formats that put all settings on one line, which has no place for comments."""
_KEPT = (names.P2P_CONF, names.AB_CONF)
"""Files of a study with settings that experiments recommend, in the order of output."""


class Deployment(NamedTuple):
    """Settings to deploy.

    `meanings` explains settings, by name. `warnings` are sentences on variables of this shell that
    conflict with the settings, on doubts, and on further steps. `rules` is the number of rules that
    the settings load; None if the settings are not for rules.
    """

    settings: dict[str, str]
    meanings: dict[str, str]
    warnings: list[str]
    rules: int | None = None


def rules_deployment(
    config: Path, *, plugin: Path | None = None, config_path: Path | None = None
) -> Deployment:
    """Return the settings that make stock NCCL load the rules of a study or a configuration.

    Settings that experiments of the study recommend come first. They are also returned if the study
    has no rules. `plugin` and `config_path` are the paths of the plugin and of the configuration on
    the nodes; None is the path on this machine. Raises InputError if there is nothing to deploy or
    a file cannot be read, StudyError if platform.json is damaged, and PlatformError if the plugin
    is not installed.
    """
    path = config / names.TUNER_CONF if config.is_dir() else config
    settings: dict[str, str] = {}
    for name in _KEPT:
        kept = config / name
        settings |= read_conf(kept) if kept.is_file() else {}
    warnings = conflicts(os.environ)
    if has_threshold(config):
        warnings.append(
            "the study also has a threshold for copy engines: "
            f"nccltune sendrecv env {shlex.quote(str(config))}"
        )
    if not path.is_file():
        if settings:
            return Deployment(settings, {}, warnings, 0)
        hint = f"make it: nccltune tune {config}"
        if has_threshold(config):
            hint = f"it has a threshold for copy engines: nccltune sendrecv env {config}"
        raise InputError("no such configuration", where=str(path), hint=hint)
    if config.is_dir() and (shared := _shared_gpus(Study(config))):
        warnings.append(shared)
    read = read_rules(path)
    settings |= deployment(path, plugin=plugin, config_path=config_path)
    if read.problems:
        bad = count(len(read.problems), "bad line")
        command = f"nccltune lint {shlex.quote(str(path))}"
        warnings.insert(0, f"{path} has {bad} for the plugin to leave out: {command}")
    return Deployment(settings, {}, warnings, len(read.rules))


def _shared_gpus(study: Study) -> str | None:
    """Return a warning if the rules were measured with several ranks on each GPU, else None."""
    if not study.platform_path.exists():
        return None
    platform = study.platform()
    if platform.ranks_per_gpu == 1:
        return None
    return (
        f"the rules were measured with {platform.ranks_per_gpu} ranks on each GPU: real nodes may "
        "need others; measure there before you deploy them"
    )


def has_threshold(study: Path) -> bool:
    """Return whether the study has settings for send/recv on copy engines (sendrecv.conf)."""
    return (study / CONF).is_file()


def deployment(
    config: Path, *, plugin: Path | None = None, config_path: Path | None = None
) -> dict[str, str]:
    """Return the settings that make stock NCCL load the rules in `config`.

    `plugin` and `config_path` are the paths of the plugin and of the configuration on the nodes;
    None is the path on this machine. Raises PlatformError if the plugin is not installed.
    """
    return {
        "NCCL_TUNER_PLUGIN": str(plugin or tuner_path()),
        "NCCL_TUNER_CONFIG_FILE": str(config_path or config.resolve()),
    }


def conflicts(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable of `environment` that conflicts with deployed rules.

    The variable limits the rules, replaces their configuration, or will itself be replaced.
    """
    found = []
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if environment.get(name):
            found.append(
                f"{name}={environment[name]} is set: NCCL filters by it first, and rules for "
                "anything else are passed over"
            )
    if environment.get("NCCL_TUNER_PLUGIN"):
        found.append(
            f"NCCL_TUNER_PLUGIN={environment['NCCL_TUNER_PLUGIN']} is set and will be replaced"
        )
    if environment.get("NCCLTUNE_CONFIG"):
        found.append(
            f"NCCLTUNE_CONFIG={environment['NCCLTUNE_CONFIG']} is set: our plugin reads it rather "
            "than NCCL_TUNER_CONFIG_FILE"
        )
    return found


def lines(deployed: Deployment, form: LineFormat) -> str:
    """Return the settings as text in the format `form`.

    If the format has comments, each setting with a known meaning has it in a comment above. Raises
    InputError if nccl.conf cannot express a value.
    """
    pairs = deployed.settings.items()
    if form == "mpirun":
        return " ".join(f"-x {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    if form == "docker":
        return " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    found = ["env:"] if form == "kubernetes" else []
    for name, value in pairs:
        if name in deployed.meanings:
            found += textwrap.wrap(
                deployed.meanings[name], 96, initial_indent="# ", subsequent_indent="# "
            )
        if form == "kubernetes":
            found += [f"- name: {name}", f"  value: {json.dumps(value)}"]
        elif form == "nccl.conf":
            if "\n" in value:
                raise InputError(f"{name}: nccl.conf cannot hold a path with a line break")
            # NCCL uses all text after `=` as the value, including quotes. So do not quote it.
            found.append(f"{name}={value}")
        else:
            found.append(f"export {name}={shlex.quote(value)}")
    return "\n".join(found)
