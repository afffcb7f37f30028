# SPDX-License-Identifier: Apache-2.0
"""Env: the settings that deploy rules, plugins, the recorder and the send/recv library."""

import contextlib
import json
import os
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from nccltune.app.tune import too_old, verify_command
from nccltune.formats.tuner_config.csv_rules import RuleFile, config_hash, read_rules
from nccltune.formats.tuner_config.joined import NamedRules, joined_rules
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.measure.experiments.copies.settings import (
    CONNECTIONS,
    ENOUGH_CONNECTIONS,
    MEANING,
    ON,
    TOO_FEW_CONNECTIONS,
)
from nccltune.model.errors import InputError, StudyError
from nccltune.model.names import nearest
from nccltune.model.nccl_releases import NcclRelease, nccl_release
from nccltune.model.rule import RuleState
from nccltune.model.scale import count
from nccltune.native import net_path, recorder_path, sendrecv_path, tuner_path
from nccltune.native.locate import LONGEST_PATH, NET_NAME
from nccltune.prove.job import job_of
from nccltune.study import names
from nccltune.study.files import Study, write_whole
from nccltune.tune.lint import scales_of
from nccltune.tune.result import Tuning

LineFormat = Literal["shell", "nccl.conf", "sbatch", "mpirun", "kubernetes", "docker"]
FORMATS: tuple[LineFormat, ...] = get_args(LineFormat)
WITHOUT_COMMENTS = ("mpirun", "docker")
"""Formats that put all settings on one line, which has no place for comments."""
POD_PLUGIN = Path("/nccltune/libnccl-tuner-nccltune.so")
POD_CONFIG = Path("/etc/nccltune/tuner.conf")
"""Where a pod has the plugin and the rules, as the guide mounts them."""
_KEPT = (names.P2P_CONF, names.AB_CONF)
"""Files of a study with settings that experiments recommend, in the order of output."""
_DRIVER = Path("/proc/driver/nvidia")


class Deployment(NamedTuple):
    """Settings to deploy; without any, the last warning has the reason.

    `rules` is the number of rules that the settings load; None if they are not for rules.
    """

    settings: dict[str, str]
    meanings: dict[str, str]
    warnings: list[str]
    rules: int | None = None


def rules_deployment(
    config: Path, *, plugin: Path | None = None, config_path: Path | None = None
) -> Deployment:
    """Return the settings that make stock NCCL load the rules of a study or a configuration.

    Settings that experiments of the study recommend come first, also without rules. `plugin` and
    `config_path` are paths on the nodes; None is the path on this machine. Raises InputError
    without a readable configuration, StudyError, and PlatformError if the plugin is not installed.
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
        hint = f"make it: nccltune tune {config}" if config.is_dir() else "make it: nccltune tune"
        if has_threshold(config):
            hint = f"it has a threshold for copy engines: nccltune sendrecv env {config}"
        raise InputError("no such configuration", where=str(path), hint=hint)
    read = read_rules(path)
    if read.problems:
        bad = count(len(read.problems), "bad line")
        command = f"nccltune lint {shlex.quote(str(path))}"
        warnings.insert(0, f"{path} has {bad} for the plugin to leave out: {command}")
    if not read.rules:
        return Deployment(settings, {}, [*warnings, _without_rules(path, config)], 0)
    settings |= deployment(path, plugin=plugin, config_path=config_path)
    settings["NCCLTUNE_CONFIG_HASH"] = config_hash(path.read_bytes())
    job = job_of(path)
    warnings += [job.sentence] if job is not None and job.harms else []
    return Deployment(settings, {}, [*warnings, *doubts(read, config)], len(read.rules))


def joined_deployment(
    configs: Sequence[Path],
    output: Path,
    *,
    plugin: Path | None = None,
    config_path: Path | None = None,
    dry_run: bool = False,
) -> Deployment:
    """Write the rules of several studies into one file, and return its settings.

    Raises InputError if the rules do not fit, or the studies recommend different values.
    """
    target = config_path or output.resolve()
    each = [rules_deployment(one, plugin=plugin, config_path=target) for one in configs]
    settings: dict[str, str] = {}
    for config, deployed in zip(configs, each, strict=True):
        for name, value in deployed.settings.items():
            if name != "NCCLTUNE_CONFIG_HASH" and settings.setdefault(name, value) != value:
                raise InputError(
                    f"{name} is {value} here and {settings[name]} in another study",
                    where=str(config),
                    hint="a setting is for all scales of a job; deploy these studies separately",
                )
    warnings = list(dict.fromkeys(words for deployed in each for words in deployed.warnings))
    rules = sum(deployed.rules or 0 for deployed in each)
    if rules:
        paths = [config / names.TUNER_CONF if config.is_dir() else config for config in configs]
        text = joined_rules(
            [
                NamedRules(str(path), path.read_text(encoding="utf-8"))
                for path, deployed in zip(paths, each, strict=True)
                if deployed.rules
            ]
        )
        settings["NCCLTUNE_CONFIG_HASH"] = config_hash(text.encode())
        if not dry_run:
            write_whole(output, text)
    return Deployment(settings, {}, warnings, rules)


def _without_rules(path: Path, config: Path) -> str:
    what = f"{path} has no rule, so there is nothing to deploy: NCCL keeps its default"
    study = Study(config)
    if not config.is_dir() or not study.tuning_path.is_file():
        return f"{what}; find rules: nccltune tune STUDY"
    tuning = study.read_json(study.tuning_path, Tuning)
    name = shlex.quote(str(config))
    left = [item for group in tuning.groups for item in group.left_alone]
    if tuning.wrong:
        return f"{what}; {'; '.join(tuning.wrong)}"
    if any(item.compared for item in left):
        return f"{what}; the reason at each size: nccltune tune {name}"
    return (
        f"{what}; nothing was compared with the default: measure other choices, nccltune sweep -o "
        "STUDY, or import runs with NCCL_ALGO and NCCL_PROTO set"
    )


def doubts(read: RuleFile, config: Path) -> list[str]:
    """Return warnings about rules that are only candidates, or were measured elsewhere."""
    study = Study(config)
    found = []
    with contextlib.suppress(StudyError):
        found += study.read_json(study.tuning_path, Tuning).wrong
    if update := too_old(read.header.get("nccl")):
        return [*found, update]
    unmarked = sum(item.state is None for item in read.rules)
    if unmarked and (unmarked < len(read.rules) or not read.header):
        found.append(
            f"nothing states where {unmarked} of {count(len(read.rules), 'rule')} are from (written"
            f" by hand?): they may be slower than NCCL's default; measure first: {_prove(config)}"
        )
    candidates = sum(item.state is RuleState.CANDIDATE for item in read.rules)
    if candidates:
        verb = "is a candidate" if candidates == 1 else "are candidates"
        found.append(
            f"{candidates} of {count(len(read.rules), 'rule')} {verb}, not proven: prove them "
            f"first: {_prove(config)}"
        )
    wide = sum(item.state is not None and item.rule.nodes is None for item in read.rules)
    if wide:
        verb, be = ("applies", "is") if wide == 1 else ("apply", "are")
        found.append(
            f"{wide} of {count(len(read.rules), 'rule')} {verb} at every scale, but {be} only "
            "predicted at scales that were not measured: what is faster at one can be slower at "
            f"the next; prove them there first: {_prove(config)}"
        )
    found += filter(None, [scales_of(item.rule for item in read.rules)])
    stand_in = read.header.get("measured")
    if config.is_dir() and study.platform_path.exists():
        stand_in = study.platform().stand_in
    if stand_in:
        found.append(
            f"the rules were measured {stand_in}: real nodes may need others; measure there before "
            "you deploy them"
        )
    wanted, here = read.header.get("gpu"), local_gpu()
    if wanted and here and wanted != here:
        found.append(f"the rules are of another machine: of {wanted}, and this one has {here}")
    return found


def _prove(config: Path) -> str:
    study = Study(config)
    if config.is_dir() and study.tuning_path.is_file():
        return verify_command(study, study.read_json(study.tuning_path, Tuning))
    return f"nccltune verify {shlex.quote(str(config)) if config.is_dir() else 'STUDY'}"


def local_gpu() -> str | None:
    """Return the model of this machine's first GPU as its driver names it; None if unknown."""
    for path in sorted(_DRIVER.glob("gpus/*/information")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in path.read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition(":")
                if key.strip() == "Model" and value.strip():
                    return value.strip()
    return None


def has_threshold(study: Path) -> bool:
    """Return whether the study has settings for send/recv on copy engines (sendrecv.conf)."""
    return (study / names.SENDRECV_CONF).is_file()


def deployment(
    config: Path, *, plugin: Path | None = None, config_path: Path | None = None
) -> dict[str, str]:
    """Return the settings that make stock NCCL load the rules in `config`."""
    return {
        "NCCL_TUNER_PLUGIN": str(plugin or tuner_path()),
        "NCCL_TUNER_CONFIG_FILE": str(config_path or config.resolve()),
    }


def conflicts(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable of `environment` that conflicts with deployed rules."""
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
    """Return the settings as text. Raises InputError if nccl.conf cannot express a value."""
    pairs = deployed.settings.items()
    if form == "mpirun":
        return " ".join(f"-x {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    if form == "docker":
        return " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in pairs)
    found = ["env:"] if form == "kubernetes" else []
    for name, value in pairs:
        if name in deployed.meanings:
            words, *commands = deployed.meanings[name].split("\n")
            found += textwrap.wrap(words, 96, initial_indent="# ", subsequent_indent="# ")
            found += [f"# {command}" for command in commands]
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


PLUGIN, FOLDER, NEXT = "NCCL_PROFILER_PLUGIN", "NCCLTUNE_RECORD", "NCCLTUNE_RECORD_NEXT"
EVERY, TIMES = "NCCLTUNE_RECORD_EVERY", "NCCLTUNE_RECORD_TIMES"


def record_deployment(folder: Path, *, recorder: Path | None = None) -> Deployment:
    """Return the settings that record the calls of each process into a file in `folder`.

    A profiler plugin that this environment names gets all events, too. `recorder` is the path of
    the recorder on the nodes; None is its path on this machine. Raises InputError for a folder that
    is a file and a path that NCCL does not take, PlatformError if the recorder is not installed.
    """
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise InputError("is no folder", where=str(folder), hint="name a folder for the recorder")
    warnings = []
    if not folder.parent.is_dir():
        warnings.append(
            f"{folder.parent} is no folder on this machine, and the recorder makes only the last "
            f"one of its path. On the nodes: mkdir -p {shlex.quote(str(folder))}"
        )
    path = recorder or recorder_path()
    if len(str(path).encode()) > LONGEST_PATH:
        raise InputError(
            f"NCCL takes {LONGEST_PATH} bytes of a path at most", where=str(path), hint="move it"
        )
    settings = {PLUGIN: str(path), FOLDER: str(folder)}
    meanings = {
        PLUGIN: f"The recorder counts calls, and takes no times unless {TIMES} is set. It is for"
        " NCCL 2.27.5 and newer; older releases do not load it.",
        FOLDER: "A folder that all ranks can write. Each process writes a file at its end, and at "
        f"calls after:\ntouch {shlex.quote(settings[FOLDER] + '/.write')}",
    }
    if other := _other_profiler(os.environ, path):
        settings[NEXT] = other
        meanings[NEXT] = f"Was {PLUGIN}, and gets all events, too: the recorder takes no times."
    for name, what in ((EVERY, "seconds between files"), (TIMES, "one kernel in so many is timed")):
        if os.environ.get(name):
            settings[name] = os.environ[name]
            meanings[name] = f"As in this shell: {what} (0: off)."
    return Deployment(settings, meanings, warnings)


def _other_profiler(environment: Mapping[str, str], recorder: Path) -> str | None:
    """Return the profiler plugin that an environment has beside the recorder."""
    named = environment.get(PLUGIN, "")
    if named.lower() == "none" or named in ("nccltune", str(recorder), recorder.name):
        named = ""
    return named or environment.get(NEXT) or None


_USE_IT = (
    "No other network: a plugin that cannot be loaded is an error. Without this line NCCL would "
    "take its own sockets instead and log that at NCCL_DEBUG=INFO only."
)
_KEEP_IT = (
    "The plugin stays loaded: NCCL 2.28.3 to 2.29.7 forget its name when the last communicator "
    "ends, and the next one would not get it."
)


def net_deployment(*, plugin: Path | None = None, nccl: str | None = None) -> Deployment:
    """Return the settings that make NCCL load and use the network plugin.

    `plugin` is its path, `nccl` the NCCL version on the nodes; None assumes ours and one that takes
    a path. Raises InputError for those that do not work, PlatformError without a plugin.
    """
    release = None if nccl is None else _net_release(nccl)
    path = plugin or net_path()
    settings, meanings, notes = {}, {}, []
    if release is not None and not release.opens_paths:
        settings["NCCL_NET_PLUGIN"] = NET_NAME
        meanings["NCCL_NET_PLUGIN"] = (
            f"NCCL {nccl} takes no path here: it looks for libnccl-net-{NET_NAME}.so where the "
            "dynamic loader looks."
        )
        notes.append(
            f"{path.parent} has to be in LD_LIBRARY_PATH when the processes start, or in the "
            "configuration of ldconfig"
        )
    else:
        settings["NCCL_NET_PLUGIN"] = _net_path(path)
        meanings["NCCL_NET_PLUGIN"] = (
            "Loaded in place of NCCL's own TCP transport."
            if release
            else "Loaded in place of NCCL's own TCP transport. NCCL up to 2.20 and 2.27.3 take no "
            "path: nccltune net env --nccl-version VERSION prints what they take."
        )
    settings["NCCL_NET"] = NET_NAME
    meanings["NCCL_NET"] = _USE_IT
    if release is None or release.forgets_plugin:
        settings["NCCL_NET_PLUGIN_REF_COUNT"] = "1"
        meanings["NCCL_NET_PLUGIN_REF_COUNT"] = _KEEP_IT
    warnings = notes + net_conflicts(os.environ, settings)
    return Deployment(settings, meanings, warnings)


def net_conflicts(environment: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Return warnings for variables that `settings` replace or that do not affect the plugin."""
    found = [
        f"{name}={environment[name]} is set and will be replaced"
        for name in settings
        if environment.get(name) and environment[name] != settings[name]
    ]
    found += [
        f"{name} is set: it is for NCCL's own sockets; the plugin has {ours}"
        for name, ours in (
            ("NCCL_SOCKET_NTHREADS", "NCCLTUNE_NET_THREADS"),
            ("NCCL_NSOCKS_PERTHREAD", "NCCLTUNE_NET_FLOWS"),
        )
        if environment.get(name)
    ]
    return found


def _net_release(text: str) -> NcclRelease:
    if re.fullmatch(r"v?\d+\.\d+(\.\d+)?([-+].*)?", text) is None:
        raise InputError(f"{text!r} is not a version", where="‹nccl_version›", hint="as in 2.28.9")
    found = nccl_release(text)
    if found is None:
        raise InputError(
            f"NCCL {text} cannot load the network plugin", hint="NCCL 2.13 and newer can"
        )
    return found


def _net_path(path: Path) -> str:
    text = str(path)
    if "," in text:
        raise InputError(
            "NCCL would read the comma as the end of the path", where=text, hint="move the plugin"
        )
    if len(text.encode()) > LONGEST_PATH:
        raise InputError(
            f"NCCL takes {LONGEST_PATH} bytes of a path at most", where=text, hint="move the plugin"
        )
    return text


_PRELOAD = "LD_PRELOAD"
_AS_NCCL = Path("nccltune-sendrecv")
"""The folder next to the library that has the library under the name libnccl.so.2."""


def sendrecv_deployment(*, library: Path | None = None, study: Path | None = None) -> Deployment:
    """Return the settings that load the library before NCCL and turn it on.

    What comparisons in `study` recommend is added, and may turn it off. `library` is its path on
    the nodes; None is ours. Raises InputError for a path that LD_PRELOAD cannot express and for a
    study without such settings, PlatformError without the library.
    """
    if study is not None and not has_threshold(study):
        raise InputError(
            "holds no threshold of copy engines",
            where=str(study),
            hint=f"find it: nccltune sendrecv sweep -o {study}",
        )
    path = library or sendrecv_path()
    if any(sign in str(path) for sign in ": "):
        raise InputError(
            "the dynamic loader would read a colon or a blank as the end of the path",
            where=str(path),
            hint="move the library",
        )
    connections = os.environ.get(CONNECTIONS) or ENOUGH_CONNECTIONS
    settings = {_PRELOAD: str(path), ON: "1", CONNECTIONS: connections}
    meanings = {
        _PRELOAD: "Loaded before NCCL, in programs that are linked with it, themselves or by a "
        "module (PyTorch, nccl-tests). For those that open libnccl.so.2 by name (vLLM, CuPy, JAX) "
        f"put {path.parent / _AS_NCCL} first in LD_LIBRARY_PATH instead.",
        ON: "On every rank. verify compares contents, dry-run decides and counts only, 0 is off.",
        CONNECTIONS: "Must be set before the program starts. 1 for programs that require it "
        "(Megatron-LM); 1 or 16 under NVIDIA's MPS, where all processes share them.",
    }
    notes = []
    if study is not None:
        found = _threshold_settings(study / names.SENDRECV_CONF)
        settings |= found
        meanings |= {
            name: f"{MEANING[name][0].upper()}{MEANING[name][1:]}, by {study}." for name in found
        }
        if found.get(ON) == "0":
            notes.append(
                f"{study} has found that copy engines do not pay there: {ON}=0 leaves everything "
                "to NCCL, as without these lines"
            )
    return Deployment(settings, meanings, notes + sendrecv_conflicts(os.environ, settings))


def _threshold_settings(conf: Path) -> dict[str, str]:
    found = read_conf(conf)
    for name in found:
        if name not in MEANING:
            raise InputError(
                f"{name} is not a setting of the library before NCCL",
                where=str(conf),
                hint=nearest(name, list(MEANING)),
            )
    return found


def sendrecv_conflicts(environment: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Return warnings for variables that `settings` replace, or that change how it waits."""
    found = []
    loaded = environment.get(_PRELOAD)
    if loaded and loaded != settings[_PRELOAD]:
        found.append(
            f"{_PRELOAD}={loaded} is set and will be replaced: to have both, name both, "
            f"{settings[_PRELOAD]}:{loaded}"
        )
    connections = environment.get(CONNECTIONS)
    if connections in TOO_FEW_CONNECTIONS:
        found.append(
            f"{CONNECTIONS}={connections} is set: NCCL then carries everything; "
            "unset it, or use 1, or at least 16"
        )
    if connections == "1":
        found.append(
            f"{CONNECTIONS}=1 is set: streams then wait by kernels, and a threshold "
            "measured with 32 connections is too low; use at least NCCLTUNE_SENDRECV_FROM=8M"
        )
    return found
