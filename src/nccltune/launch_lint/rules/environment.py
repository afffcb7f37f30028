# SPDX-License-Identifier: Apache-2.0
"""Find variables that only one node sees, or that have two values."""

import re
from collections.abc import Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch_lint.command import CommandVariable, View
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    LaunchFinding,
    Replace,
    SetLead,
    error,
    note,
    warning,
)
from nccltune.launch_lint.nested import SHELLS, script_at
from nccltune.launch_lint.options import OPENMPI_5
from nccltune.launch_lint.rules.variables import edits_of
from nccltune.launch_lint.words import is_open
from nccltune.model.names import listed
from nccltune.model.nccl_variables import table

_FOR_PROCESSES = (
    *("NCCL_", "UCX_", "CUDA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "FI_", "NCCLTUNE_"),
    *("OFI_NCCL_", "RCCL_", "HSA_", "HIP_", "ROCR_"),
)
_OF_BUILD = re.compile(r"^(?:NCCL|CUDA|UCX|FI|RCCL|ROCR)_.*(?:HOME|ROOT|DIR|VERSION|_TESTS?|PATH)$")
"""Names of what a build or a script reads, such as CUDA_HOME."""
_WITH_LIST = (Launcher.OPENMPI, Launcher.HYDRA, Launcher.PALS, Launcher.DEEPSPEED)
_DEEPSPEED = ("NCCL_", "UCX_", "CUDA_")
"""Beginnings of the variables that deepspeed passes on (or sets itself)."""


def not_exported(view: View) -> Iterator[LaunchFinding]:
    """Find `VAR=x mpirun`: the launcher does not pass VAR to other nodes.

    Open MPI passes only its own variables and the variables that -x names, except in a job of
    Slurm, where srun starts its daemons and passes all. hydra and PALS
    pass all variables, and have options that limit them. deepspeed passes those of NCCL and UCX to
    other hosts, but neither LD_PRELOAD nor LD_LIBRARY_PATH.
    """
    launcher = view.flavor.launcher
    if launcher not in _WITH_LIST:
        return  # The others run on each node, or pass the whole environment.
    elsewhere = view.prediction.unknown and (
        view.command.last("hostfile") or view.command.last("host")
    )
    is_one = len(view.prediction.hosts) < 2 and not elsewhere
    if is_one or _is_script(view) or _passes_unknown(view) or _by_srun(view):
        return
    passed = {variable.name for variable in view.variables if variable.option is not None}
    if launcher in (Launcher.HYDRA, Launcher.PALS):
        if not view.command.last("env_none") and not view.command.last("env_list"):
            return
        listed = view.command.last("env_list")
        passed |= set(listed.value.split(",")) if listed is not None else set()
    for name, variable in for_processes(view).items():
        if name in passed or (launcher is Launcher.DEEPSPEED and name.startswith(_DEEPSPEED)):
            continue
        edits, fix = _export(view, variable)
        if name in view.site.by_node:
            edits, fix = (), "write the value of each node into its /etc/nccl.conf"
        yield (note if name.startswith("UCX_") else warning)(
            "env-not-exported",
            f"{name} is set for {view.command.launcher.text} only: processes on other nodes do not"
            " get it",
            fix,
            edits,
        )


def for_processes(view: View) -> dict[str, CommandVariable]:
    """Return the variables that are set for the launcher alone and that its processes read."""
    alone: dict[str, CommandVariable] = {}
    for variable in view.variables:
        is_read = variable.name in table() or _OF_BUILD.search(variable.name) is None
        if variable.option is None and variable.name.startswith(_FOR_PROCESSES) and is_read:
            alone[variable.name] = variable
    return alone


def _by_srun(view: View) -> bool:
    """Return whether Open MPI starts its daemons with srun, which passes the whole environment.

    An option of mpirun for `plm`, else a variable, names another way: `rsh`, `^slurm`.
    """
    export, words = view.site.asked("export"), " ".join(w.text for w in view.command.words)
    is_all = export is None or "ALL" in export.value.split(",")
    is_of_slurm = view.flavor.launcher is Launcher.OPENMPI and bool(view.site.inherited)
    names = ("OMPI_MCA_plm", *["PRTE_MCA_plm"] * (view.flavor == OPENMPI_5))
    ways = [v.value for v in view.variables if v.option is None and v.name in names and v.value]
    ways += re.findall(r"mca plm (\S+)", words)
    way = ways[-1] if ways else "slurm"
    is_slurm = is_open(way) or ("slurm" in re.split(r"[\^,]", way)) is not way.startswith("^")
    return is_of_slurm and is_all and is_slurm and "--launch-agent" not in words


def unexported(view: View) -> Iterator[LaunchFinding]:
    """Find a variable of NCCL that the script sets for itself: `NCCL_ALGO=Ring`, without export."""
    scope = view.site.scope
    # What Slurm has exported stays so.
    of_slurm = bool(view.site.inherited) or view.flavor.launcher is Launcher.SLURM
    read = {*table(), *["CUDA_VISIBLE_DEVICES"] * (not of_slurm)}
    known = {variable.name for variable in view.variables if variable.value is not None}
    words = " ".join(word.raw for word in view.command.words)
    bare = [
        name
        for name in (scope.values if scope is not None else ())
        if name in read and name not in known and not re.search(rf"\$\{{?{name}\b", words)
    ]
    if bare:
        blame = note if bare == ["CUDA_VISIBLE_DEVICES"] else warning
        why = f": {view.command.launcher.text or 'the program'} does not get"
        yield blame("not-exported", *_without_export(bare, why))


def _without_export(names: list[str], why: str, then: str = ",") -> tuple[str, str]:
    """Return what is said of variables that a script sets for itself, and the fix."""
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    said = f"{', '.join(names)} {are} set without export{why} {them}{then} unless the"
    return f"{said} environment has {them} already", f"write export {' '.join(names)}"


def lost_over_ssh(view: View) -> Iterator[LaunchFinding]:
    """Find `export NCCL_ALGO=Ring; ssh HOST torchrun`: ssh passes no variable of its caller."""
    known = {variable.name for variable in view.variables}
    names = [name for name in dict(view.site.not_passed) if name in table() and name not in known]
    if names and not view.site.unseen:
        started = view.command.launcher.text or "the program"
        yield warning(
            "env-not-exported",
            f"{', '.join(names)}: set here, and ssh passes no such variable on to"
            f" {started} on the other node, unless SendEnv and AcceptEnv of the two nodes name it",
            f"set it within the command of ssh: {names[0]}=VALUE {started}",
        )


def lost_in_shell(view: View) -> Iterator[LaunchFinding]:
    """Find `srun bash -c '$CMD'`, where the script sets CMD without export."""
    words, scope = view.command.program, view.site.scope
    texts = [word.text for word in words]
    at = next((n for n, w in enumerate(texts) if w.rpartition("/")[2] in SHELLS), len(texts))
    place = script_at(texts, at + 1)
    if place is None or scope is None or not words[place].raw.startswith("'"):
        return
    script = words[place].text
    if RUNS_MORE.search(script):
        return
    own = set(_SET_IN_SHELL.findall(script)) | {one.name for one in view.variables}
    own |= {name for part in _READ_BY_SHELL.findall(script) for name in part.split()}
    lost = [
        name
        for name in dict.fromkeys(_READ_IN_SHELL.findall(script))
        if name in scope.values and name not in own and not _OF_ENVIRONMENT.match(name)
    ]
    if lost and view.command.launcher.text:
        why = f", and in '...' only the shell that {view.command.launcher.text} starts reads"
        yield warning("not-exported", *_without_export(lost, why, ": empty there,"))


_READ_IN_SHELL = re.compile(r"(?<!\\)\$\{?([A-Za-z_]\w*)\}?(?![:\w-])")
_SET_IN_SHELL = re.compile(r"\b([A-Za-z_]\w*)(?:\+?=| in )")
_READ_BY_SHELL = re.compile(r"\b(?:read|mapfile|readarray|getopts|printf -v)\b([^;&|<>\n)]*)")
RUNS_MORE = re.compile(
    r"(?:^|[;&|\n({!]|\b(?:then|do|if|else|command|builtin)\s)[ \t]*(?:source|\.|eval)\s"
)
"""A file or a text that the inner shell runs, which may set any variable."""
_OF_ENVIRONMENT = re.compile(
    r"(?:SLURM|PBS|LSB|OMPI|HYDRA|I_MPI|PMIX?|FLUX)_|(?:PATH|HOME|USER|SHELL|TMPDIR|PWD|HOSTNAME"
    r"|LD_LIBRARY_PATH|RANDOM)$"
)


def _is_script(view: View) -> bool:
    """Return whether the program is a shell's script or a tool, which may need no variable."""
    words = view.command.program
    name = words[0].text.rpartition("/")[2] if words else ""
    return view.program is None and (name in SHELLS or name in TOOLS)


TOOLS = listed("true hostname date uname echo nvidia-smi ls sleep whoami uptime mkdir cp")


def _passes_unknown(view: View) -> bool:
    """Return whether a variable such as `$FLAGS` or `-x $NAMES` may pass on any variable."""
    return bool(view.command.all("unknown_options")) or any(
        option.value.startswith(("$", "`")) for option in view.command.all("env")
    )


def _export(view: View, variable: CommandVariable) -> tuple[tuple[Edit, ...], str]:
    name, value, launcher = variable.name, variable.value or "", view.flavor.launcher
    if launcher is Launcher.DEEPSPEED:
        return (), f"write {name}={value} into ~/.deepspeed_env"
    words = {
        Launcher.OPENMPI: ("-x", name),
        Launcher.HYDRA: ("-genv", name, value),
        Launcher.PALS: ("--env", f"{name}={value}"),
    }.get(launcher)
    assert words is not None
    return (AppendOption(words),), f"add {' '.join(words)}"


def conflicting_values(view: View) -> Iterator[LaunchFinding]:
    """Find a variable with two values in one command: which one wins depends on the launcher.

    An option sets it for all processes, whatever the script or the container has set. Before the
    launcher, the last value is the one that counts.
    """
    given = list(view.variables)[len(view.site.exported) :]
    last = {(one.name, one.option is not None): one for one in given}
    for before in given:
        variable = last[before.name, before.option is not None]
        if before.value is None or variable.value in (None, before.value):
            continue
        said = f"{variable.name} is set to {before.value} and to {variable.value}"
        known = table().get(variable.name)
        both = f"{before.value},{variable.value}"
        is_list = known is not None and known.kind == "words" and not {"^", "$"} & set(both)
        fix = f"keep one: {variable.name}={variable.value} is the later"
        if before.option is None:
            said, fix = f"{said}: the later counts", f"leave out {before.name}={before.value}"
        edits = _without(before, variable)
        if is_list:
            # Each of them names what is wanted.
            fix = f"write one: {variable.name}={both}"
            is_one = before.option is not None and before.option is variable.option
            edits = () if is_one else (*edits_of(variable, variable.name, both), *edits)
        yield (error if before.option is not None else warning)("env-twice", said, fix, edits)


def _without(before: CommandVariable, variable: CommandVariable) -> tuple[Edit, ...]:
    """Return the edits that remove the earlier of two values of a variable."""
    option, name = before.option, before.name
    if option is None:
        return (SetLead(name, old=before.value),)
    if option is not variable.option:
        return (Replace(option, ()),)
    # Both are in one list, `--export=A=1,A=2`.
    part = re.compile(rf"(?<!\w){name}={re.escape(before.value or '')}[,;]")
    return (Replace(option, tuple(part.sub("", word.text, count=1) for word in option.words)),)
