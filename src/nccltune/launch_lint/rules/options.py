# SPDX-License-Identifier: Apache-2.0
"""Find options that the launcher does not know, or that have no effect on NCCL."""

import contextlib
import re
from collections.abc import Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch.program import Program, is_nccl_test, nearest_nccl_test
from nccltune.launch_lint.boxes import env_files
from nccltune.launch_lint.command import ELIDED, UNKNOWN_OPTIONS, Option, View
from nccltune.launch_lint.finding import (
    Edit,
    LaunchFinding,
    Replace,
    ReplaceArgument,
    SetLead,
    error,
    note,
    warning,
)
from nccltune.launch_lint.hosts import split_list, text_of
from nccltune.launch_lint.nested import SHELLS, script_at
from nccltune.launch_lint.options import (
    COMMON,
    OPENMPI_4,
    OPENMPI_5,
    SERVERS,
    TABLES,
    TRAINERS,
    translated,
)
from nccltune.launch_lint.read import WRAPPERS, is_command, is_launcher, nearest_option, script_of
from nccltune.launch_lint.rules.shape import of_program
from nccltune.launch_lint.words import Line, is_open, split
from nccltune.model.errors import InputError
from nccltune.model.names import listed

_OF_TRANSPORT = ("UCX_", "OMPI_MCA_btl", "OMPI_MCA_pml")
_OF_PROGRAMS = ("app", "appfile", "f", "configfile")
"""Options that name a file with the programs to start."""
_CONTROL = ("btl", "pml", "mtl", "osc", "coll")


def unknown(view: View) -> Iterator[LaunchFinding]:
    """Find `-x` with hydra, `-ppn` with Open MPI: the launcher refuses the line."""
    if any(is_nccl_test(value) for o in view.command.options for value in o.values):
        return  # An option took the program as its value, so words after it are no options.
    for option in view.command.options:
        if option.meaning is not None:
            continue
        word = option.words[0].text
        others = [f.words for f, table in COMMON.items() if option.name in table]
        whose = f"; it is an option of {' and '.join(others)}" if others else ""
        words = translated(option.name, option.values, view.flavor)
        near = nearest_option(option.name, view.flavor) if not words else None
        if near is not None:
            hyphens = "--" if option.words[0].text.startswith("--") else "-"
            words = (f"{hyphens}{near}", *option.values)
        fix = f"write {' '.join(words)}" if words else "leave it out"
        edits: tuple[Edit, ...] = (Replace(option, words),)
        variable = "=".join(option.values)
        if not words and option.name in ("x", "genv", "env") and "=" in variable:
            # A launcher without such an option hands on what is set for it.
            fix = f"write {variable} before {view.command.launcher.text}"
            edits = (*edits, SetLead(variable.partition("=")[0], variable, add=True))
        yield error(
            "option-unknown", f"{_name(view)} has no {word}{whose}: nothing starts", fix, edits
        )


def _name(view: View) -> str:
    flavor = view.flavor
    return "Intel MPI" if flavor.is_intel else flavor._replace(version=()).words


def only_one_version(view: View) -> Iterator[LaunchFinding]:
    """Find options that only one version of Open MPI knows: version 4 refuses `--output tag`."""
    if view.flavor.launcher is not Launcher.OPENMPI:
        return
    other = OPENMPI_4 if view.flavor == OPENMPI_5 else OPENMPI_5
    for option in view.command.options:
        is_read = option.meaning not in (None, UNKNOWN_OPTIONS, ELIDED)
        if is_read and option.name not in TABLES[other]:
            yield note(
                "option-of-one-version",
                f"{option.words[0].text} is for {view.flavor.words}; {other.words} refuses it",
            )


@of_program
def total_and_iterations(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-n` after the binary, where -n is the number of iterations, not of processes."""
    is_short = any(word.text.startswith("-n") for word in view.command.program)
    if program.value("n") is None or not is_short or view.flavor.launcher is Launcher.LOCAL:
        return
    yield note(
        "n-after-program",
        f"-n {program.value('n')} after the binary is nccl-tests' iterations, not processes",
    )


def no_effect(view: View) -> Iterator[LaunchFinding]:
    """Find settings of MPI's transports: MPI carries nccl-tests' control messages only.

    Also find MCA parameters that Open MPI 5 removed.
    """
    names = list(dict.fromkeys(option.value for option in view.command.all("mca")))
    gone = [name for name in names if view.flavor == OPENMPI_5 and name.startswith("btl_openib")]
    if gone:
        yield note(
            "mca-removed",
            f"{', '.join(gone)}: Open MPI 5.0 removed openib and ignores this in silence",
            "leave it out",
        )
    given = {o.values[0]: o for o in view.command.all("mca") if len(o.values) > 1}
    option = given.get("btl_tcp_if_exclude")
    is_tcp = "pml" not in given or given["pml"].values[1] not in ("ucx", "cm")
    if option is not None and is_tcp and len(view.prediction.hosts) != 1:
        listed_names = option.values[1]
        if not is_open(listed_names) and not re.search(r"(?:^|,)(?:lo|127\.)", listed_names):
            words = (option.words[0].text, option.value, f"lo,{listed_names}")
            yield warning(
                "mca-loopback",
                f"{option.value}={listed_names} takes the place of the default, which excludes the"
                " loopback: MPI over TCP may hang between nodes",
                f"write {' '.join(words)}",
                (Replace(option, words),),
            )
            gone.append(option.value)
    plain = [one for one in names if one.partition("_")[0] in _CONTROL and one not in gone]
    if plain and view.program is not None:
        yield note(
            "mca-no-effect",
            f"{', '.join(plain)}: no effect on NCCL, as MPI only carries the test's control"
            " messages",
            "leave it out, unless MPI itself does not start without it",
        )
    named = dict.fromkeys(v.name for v in view.variables if v.name.startswith(_OF_TRANSPORT))
    if named:
        devices = "; NCCL_IB_HCA names the devices of NCCL" * ("UCX_NET_DEVICES" in named)
        yield note(
            "ucx-no-effect",
            f"{', '.join(named)}: for MPI's transport, without effect on NCCL, unless NCCL uses the"
            f" UCX plugin{devices}",
        )


def wrong_meaning(view: View) -> Iterator[LaunchFinding]:
    """Find options that have another meaning for this launcher than the user intends."""
    launcher = view.flavor.launcher
    for option in view.command.options:
        if launcher is Launcher.HYDRA and option.name == "N":
            yield error(
                "hydra-N",
                "hydra has no -N: MPICH's reads it as -n, the total; Intel MPI's refuses it",
                f"write -ppn {option.value}",
                (Replace(option, ("-ppn", option.value)),),
            )
        if launcher is Launcher.SLURM and option.meaning == "exclude" and "=" in option.value:
            yield error(
                "srun-x",
                f"srun -x excludes hosts: {option.value} is no host. srun hands on the whole"
                " environment by itself",
                f"write --export=ALL,{option.value}",
                (Replace(option, (f"--export=ALL,{option.value}",)),),
            )
        word = option.words[0].text
        is_long = len(option.name) > 1 and option.name in TABLES[view.flavor]
        if launcher is Launcher.SLURM and is_long and not word.startswith("--"):
            yield error(
                "srun-one-dash",
                f"srun reads {word} as {word[:2]} {word[2:]}: a long option has two hyphens",
                f"write -{option.text}",
                (Replace(option, (f"-{word}", *option.values[: len(option.words) - 1])),),
            )


def swallowed(view: View) -> Iterator[LaunchFinding]:
    """Find `-x NAME VALUE` and `-H a:8, b:8`: the last word would be started as the program."""
    words = view.command.program
    last = view.command.options[-1] if view.command.options else None
    if not words or last is None:
        return
    yield from _split_list(last, view)
    if view.program is None or view.program.at == 0:
        return
    if last.name == "h" and view.flavor.launcher in (Launcher.OPENMPI, Launcher.HYDRA):
        right = ("-H" if view.flavor.launcher is Launcher.OPENMPI else "-hosts", words[0].text)
        edits = (Replace(last, right), ReplaceArgument(0, 1))
        yield error("asks-help", "-h only prints the help", f"write {' '.join(right)}", edits)
        return
    if last.meaning != "env" or "=" in last.value or view.flavor.launcher is Launcher.HYDRA:
        return
    before = [word.text for word in words[: view.program.at]]
    # `-x NAME = VALUE` and `-x NAME =VALUE` are handled too.
    length = 2 if before[0] == "=" and len(before) > 1 else 1
    value = before[length - 1].removeprefix("=")
    yield error(
        "value-as-program",
        f"{last.words[0].text} takes one word: {before[0]!r} would be started as the program",
        f"write -x {last.value}={value}",
        (Replace(last, ("-x", f"{last.value}={value}")), ReplaceArgument(0, length)),
    )


def assigned(view: View) -> Iterator[LaunchFinding]:
    """Find `srun NAME=VALUE PROGRAM`: launchers start the first word, and no shell reads it."""
    first = view.command.program[0].text if view.command.program else ""
    is_left_out = view.flavor.launcher is Launcher.LOCAL or view.command.all(ELIDED)
    if is_left_out or re.match(r"[A-Z][A-Z0-9_]*=", first) is None:
        return
    yield error(
        "value-as-program",
        f"{first} would be started as the program",
        f"write env {first}",
        (ReplaceArgument(0, 1, ("env", first)),),
    )


def _split_list(option: Option, view: View) -> Iterator[LaunchFinding]:
    """Find `-H a:8, b:8` and `-x NCCL_IB_HCA=a, b`: a list must be one word."""
    if (found := split_list(view.command)) is None:
        return
    rest, whole = found
    words = (option.words[0].text, whole)
    yield error(
        "hosts-split" if option.meaning == "host" else "value-as-program",
        f"{words[0]} takes one word: {rest[0]!r} would be started as the program",
        f"write {' '.join(words)}",
        (Replace(option, words), ReplaceArgument(0, len(rest))),
    )


def no_program(view: View) -> Iterator[LaunchFinding]:
    """Find a command without a program, or with a program that is not of nccl-tests."""
    if any(is_nccl_test(value) for o in view.command.options for value in o.values):
        return
    command = view.command
    if view.flavor in SERVERS or split_list(command) is not None:
        return  # It is the program itself, or a list that blanks cut.
    before = (*command.lead, *command.launchers, *(w for o in command.options for w in o.words))
    if not command.program and command.lead and not is_command(before):
        return  # Prose that names a launcher.
    if not command.program:
        if any(o.meaning == "rankfile" and o.name in _OF_PROGRAMS for o in command.options):
            return
        texts = (o.words[0].text for o in command.all("cpus") if re.search(r"\s", o.value))
        text = next(texts, "")
        what = f", and {text} is its number of CPUs" if text else ""
        fix = "name it; where it is on the next line, end this line with a backslash"
        yield error(
            "no-program",
            f"the command names no program to start{what}",
            f"write bash {text} before the script" if text else fix,
        )
    elif view.program is None and view.flavor not in TRAINERS and view.prediction.inner is None:
        words = [word.text for word in view.command.program]
        if any(nearest_nccl_test(word) or is_launcher(word) for word in words):
            return
        word = words[0]
        if word.rpartition("/")[2] in _UTILITIES:
            return
        what = f"{word} is no binary of nccl-tests"
        if is_open(word):
            what = f"{word} is not known here"
        elif (script := _script_of(view)) is not None:
            what = f"{script} was not followed"
        elif (name := word.rpartition("/")[2]) in {*SHELLS, *WRAPPERS, "python", "python3"}:
            what = f"what {name} runs is not known"
        yield note("program-unknown", f"{what}: its GPUs and sizes are not checked")


_UTILITIES = frozenset(
    listed("cat cp echo hostname ibv_devinfo ls mkdir nvidia-smi rm rocm-smi sleep true uname")
)
"""Programs that use no GPU for a job."""


def _script_of(view: View) -> str | None:
    """Return the script that the program is, or that `bash -c TEXT` runs last."""
    words = view.command.program
    texts = [word.text for word in words]
    shell = next((n for n, text in enumerate(texts) if text.rpartition("/")[2] in SHELLS), None)
    at = script_at(texts, shell + 1) if shell is not None else None
    with contextlib.suppress(InputError):
        lines = split(words[at].text) if at is not None else [Line(words, "")]
        return next(filter(None, (script_of(line.words) for line in reversed(lines))), None)
    return None


def hidden(view: View) -> Iterator[LaunchFinding]:
    """Find `$OPTIONS` of the launcher and `$ARGS` of the program whose words are not shown."""
    inner = view.prediction.inner
    commands = [view.command] if inner is None else [view.command, inner.command]
    names = [option.name for command in commands for option in command.all(UNKNOWN_OPTIONS)]
    held = view.program.hidden if view.program is not None else ()
    names += [word for word in held if word[0] in "$`@"]
    words = (*view.site.around, *(word.text for word in view.command.words))
    names += [name for name in env_files(words) if text_of(name, view.site) is None]
    if names and view.prediction.unknown not in {one.hidden for one in commands} - {None}:
        said = f"what {', '.join(names)} holds is not known here, and was not checked"
        yield note("options-hidden", said)
