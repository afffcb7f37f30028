# SPDX-License-Identifier: Apache-2.0
"""Find settings in job files: shell and batch scripts, mpirun and srun lines, Kubernetes manifests.

Each setting is returned with its line number, whether or not a launcher passes it to the program.
The package `launch_lint` checks what launchers pass.
"""

import re
from collections.abc import Callable

from nccltune.doctor.evidence.parsers.text import SettingLine, lines_of

_ASSIGNED = re.compile(
    r"(?:^|[\s,;'\"=(])(?P<name>[A-Z][A-Z0-9_]{2,80})="
    r"(?P<value>\"(?:[^\"\\]|\\.){0,2000}\"|'[^']{0,2000}'|(?:[^\s'\",;)]|,(?![A-Z][A-Z0-9_]*=))*)"
)
# Options of hydra: -genv NAME VALUE and -env NAME VALUE.
_TWO_WORDS = re.compile(r"-g?env\s+(?P<name>[A-Z][A-Z0-9_]{2,80})\s+(?P<value>[^\s=]+)")
_YAML_NAME = re.compile(r"^\s*(?:-\s+)?name:\s*['\"]?(?P<name>[A-Z][A-Z0-9_]{2,80})['\"]?\s*$")
_YAML_VALUE = re.compile(r"^\s*(?:-\s+)?value:(?P<value>.*)$")
_YAML_ENTRY = re.compile(
    r"^\s*(?:-\s+)?['\"]?(?P<name>[A-Z][A-Z0-9_]{2,80})['\"]?:\s(?P<value>.*\S)"
)


def parse_job_settings(text: str, kept: Callable[[str], bool]) -> list[SettingLine]:
    """Return the settings of a job file whose names `kept` accepts.

    Comments are ignored, except `#SBATCH` lines.
    """
    found: list[SettingLine] = []
    named: tuple[str, int] | None = None
    for number, line in lines_of(text):
        shown = line.strip()
        if shown.startswith("#") and not shown.startswith("#SBATCH"):
            continue
        value = _YAML_VALUE.match(line)
        if value is not None and named is not None:
            found.append(SettingLine(named[0], _bare(value["value"]), named[1]))
            named = None
            continue
        match = _YAML_NAME.match(line)
        named = (match["name"], number) if match and kept(match["name"]) else None
        if match is not None:
            continue
        entry = _YAML_ENTRY.match(line)
        matches = [entry] if entry is not None else []
        matches += [*_ASSIGNED.finditer(line), *_TWO_WORDS.finditer(line)]
        # Slurm's `--export` list is separated by commas. Elsewhere commas belong to values.
        listed = "--export" in line
        found += [
            SettingLine(
                one["name"],
                _bare(one["value"].partition(",")[0] if listed else one["value"]),
                number,
            )
            for one in matches
            if kept(one["name"])
        ]
    return found


_COMMAND = (
    r"(?:python[\d.]*|torchrun|mpirun|mpiexec\S*|srun|prterun|deepspeed|accelerate|vllm|ray|bash|sh"
    r"|docker|podman|kubectl|sudo|env|nohup|time|CUDA_VISIBLE_DEVICES=\S*|\S*/\S+|\S+\.(?:py|sh)|\\)"
)
_NAMED = r"[A-Z][A-Z0-9_]{2,80}"
BEFORE_COMMAND = re.compile(
    rf"(?:\$ +)?(?:{_NAMED}=(?:\"[^\"]*\"|'[^']*'|[^\s'\"]*) +)+(?:{_COMMAND}(?:\s|$)|{_NAMED}=)"
)
"""Settings of a command before it, or of one line."""
# Lines of a post that give a program a setting: an export, a command with assignments before it or
# with options, an entry of a manifest, a dictionary of Python.
_POSTED = re.compile(
    rf"^[ \t]*(?:(?:\[[^\]\n]{{1,60}}\]|[\w.@:~/-]{{1,60}})[$#>] *|\$ *|[>|] ?|[-*] +"
    r"|(?i:launch\w*|command\w*|cmd|env\w*|run|script|master|worker|head|node)(?: \w{1,9})?: +)*(?:"
    rf"(?:export|declare -x|setenv|ENV|ARG) +{_NAMED}[= ]"
    rf"|(?:{_NAMED}=\S* +)+{_COMMAND}(?:\s|$)"
    rf"|{_NAMED}(?:=|: )\S*;?$|['\"]{_NAMED}['\"] ?: ['\"][^'\"]*['\"],?\s*$"
    rf"|[^\n]{{0,2000}}(?: |^)(?:-x|-e|--env|-genv?|--genv)[ =]{_NAMED}[= ]"
    r"|os\.environ\b|[^\n]{0,2000} --export=)"
)
_ENVIRON = re.compile(
    r"os\.environ(?:\.setdefault\(|\[)['\"](?P<name>[A-Z][A-Z0-9_]{2,80})['\"](?:\] *= *|, *)"
    r"['\"](?P<value>[^'\"\n]{0,200})['\"]"
)
_ENTRY = re.compile(
    r"['\"](?P<name>[A-Z][A-Z0-9_]{2,80})['\"] ?: ['\"](?P<value>[^'\"]*)['\"],?\s*$"
)
_EXPORTED = re.compile(r"\b(?:setenv|ENV) +(?P<name>[A-Z][A-Z0-9_]{2,80}) +(?P<value>\S+)")
_LOGGED = ("NCCL INFO", "NCCL WARN")


def parse_posted_settings(text: str, kept: Callable[[str], bool]) -> list[SettingLine]:
    """Return the settings that commands in a post give to programs; none from sentences that
    mention one, nor from NCCL's log."""
    found: list[SettingLine] = []
    for number, line in lines_of(text):
        if not any(sign in line for sign in ("=", "setenv ", "ENV ", ": ")):
            continue
        if any(word in line for word in _LOGGED) or not _POSTED.match(line):
            continue
        match = _ENVIRON.search(line) or _EXPORTED.search(line) or _ENTRY.search(line)
        if match is not None and kept(match["name"]):
            found.append(SettingLine(match["name"], match["value"], number))
            continue
        found += [
            one._replace(line=number) for one in parse_job_settings(line.lstrip("#>$ \t"), kept)
        ]
    return found


def _bare(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
