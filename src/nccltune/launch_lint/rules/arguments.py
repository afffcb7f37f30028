# SPDX-License-Identifier: Apache-2.0
"""Find arguments that nccl-tests refuses, ignores or misreads."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from nccltune.launch.flavor import Launcher
from nccltune.launch.program import (
    LETTERS,
    LONG_NAMES,
    RCCL_LETTERS,
    Program,
    bare_collective,
    is_named_number,
    nearest_nccl_test,
    strtol,
)
from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    LaunchFinding,
    ReplaceArgument,
    SetArgument,
    SetLead,
    error,
    note,
    warning,
)
from nccltune.launch_lint.options import translated
from nccltune.launch_lint.read import WRAPPERS
from nccltune.launch_lint.rules.shape import named_number, of_program
from nccltune.launch_lint.words import is_open, nearest
from nccltune.model.names import listed

_USAGE = "nccl-tests prints its usage, measures nothing and exits with 0"
_WHOLE = "tginmwNpcGCaRzyTxDVSMuIKf"
"""Options whose value is a whole number."""
_TYPES = listed("""
int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 all
""")
_TYPE_MEANT = {
    **dict.fromkeys(("bf16", "bfloat", "brain", "b16"), "bfloat16"),
    **dict.fromkeys(("fp16", "float16", "f16", "__half"), "half"),
    **dict.fromkeys(("fp32", "float32", "f32", "single"), "float"),
    **dict.fromkeys(("fp64", "float64", "f64"), "double"),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8e4m3", "e4m3", "float8_e4m3", "f8_e4m3"), "f8e4m3"),
    **dict.fromkeys(("fp8_e5m2", "fp8e5m2", "e5m2", "float8_e5m2", "f8_e5m2"), "f8e5m2"),
    **dict.fromkeys(("int", "i32"), "int32"),
    **dict.fromkeys(("char", "byte", "i8"), "int8"),
    **dict.fromkeys(("long", "i64"), "int64"),
}
_OPERATIONS = listed("""
sum prod max min avg mulsum all
""")
_OPERATION_MEANT = {
    **dict.fromkeys(("add", "plus"), "sum"),
    **dict.fromkeys(("average", "mean"), "avg"),
    **dict.fromkeys(("product", "mul", "multiply"), "prod"),
    "maximum": "max",
    "minimum": "min",
}
_RANGES = {
    flag: (int(low), int(high) if high else None)
    for flag, low, high in (
        row.split(":")
        for row in listed("""
t:1: g:1: n:1: m:1: w:0: N:0: p:0:1 z:0:3 y:0:1 a:0:3 R:0:2 x:0:2 C:0:1 S:0:1 M:0:1 I:0:1
V:1:128 G:0: D:0: c:0: T:0:
""")
    )
}
"""Lowest and highest value of each option (nccl-tests 2.19.6). None means no upper limit."""
_UNITS = re.compile(r"[kKmMgG]i?[bB]?")
_PYTHON = re.compile(r"(?:.*/)?(?:i?python[\d.]*|[^/]*\.py)")
_NUMERIC = "tgbeifnmwNpIKcrzyTGCaRxDVSMu"
"""Options whose value is a number or a size."""


def wrong_binary(view: View) -> Iterator[LaunchFinding]:
    """Find `allreduce_perf`: the binaries' names have a `_` between words.

    Also find the name of a collective in place of the binary: `all_reduce -b 8 -e 8G`.
    """
    if view.program is not None:
        return
    # The words behind a script in Python are its own.
    own = list(
        itertools.takewhile(lambda word: not _PYTHON.fullmatch(word.text), view.command.program)
    )
    for at, word in enumerate(own):
        right = nearest_nccl_test(word.text) if not _is_script(word.text) else None
        if right is not None:
            yield error(
                "binary-unknown",
                f"{word.raw} is no binary of nccl-tests",
                f"write {right}",
                (ReplaceArgument(at, 1, (right,)),),
            )
            return
    bare = bare_collective([word.text for word in own])
    if bare is not None and (bare[0] == 0 or PurePosixPath(own[0].text).name in WRAPPERS):
        place, right = bare
        yield error(
            "binary-unknown",
            f"{view.command.program[place].raw} is no binary of nccl-tests",
            f"write {right}",
            (ReplaceArgument(place, 1, (right,)),),
        )


def _is_script(word: str) -> bool:
    return "\n" in word or " -" in word


@of_program
def one_hyphen(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-minbytes 8`, which nccl-tests reads as -m with the value `inbytes`."""
    for argument in program.arguments:
        word = view.command.program[argument.at].text
        name = word.removeprefix("-").partition("=")[0]
        if not word.startswith("--") and len(name) > 1 and name in LONG_NAMES:
            yield error(
                "argument-unknown",
                f"{word} is read as -{argument.flag} {argument.value}: long names have two hyphens",
                f"write -{word}",
                (ReplaceArgument(argument.at, 1, (f"-{word}",)),),
            )


@of_program
def unknown(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find unknown options: nccl-tests then prints its usage and exits with status 0."""
    words = view.command.program
    if program.is_rccl:
        own = [f"-{a.flag}" for a in program.arguments if a.flag in RCCL_LETTERS]
        if own and "rccl" not in program.binary:
            yield note(
                "rccl-tests",
                f"{', '.join(dict.fromkeys(own))}: rccl-tests has this, nccl-tests does not",
            )
        return
    for at, word in program.unknown:
        known = len(word) > 1 and word[1] != "-" and word[1] in LETTERS
        if (known or word.startswith("--")) and at == len(words) - 1 and _is_option(word):
            yield error(
                "argument-without-value",
                f"{word} needs a value: {_USAGE}",
                "give it one, or leave it out",
                (ReplaceArgument(at, 1),),
            )
            continue
        name, sign, value = word.lstrip("-").partition("=")
        close = _near_long(word, name)
        if close is not None:
            yield error(
                "argument-unknown",
                f"{word} is no option of nccl-tests: {_USAGE}",
                f"write --{close}",
                (ReplaceArgument(at, 1, (f"--{close}{sign}{value}",)),),
            )
            continue
        count = 1
        if at + 1 < len(words) and not words[at + 1].text.startswith("-") and "=" not in word:
            count = 2
        yield error(
            "argument-unknown",
            f"{word} is no option of nccl-tests: {_USAGE}",
            "leave it out",
            (ReplaceArgument(at, count),),
        )


def _is_option(word: str) -> bool:
    name = word.removeprefix("--")
    return not word.startswith("--") or any(long.startswith(name) for long in LONG_NAMES)


def _near_long(word: str, name: str) -> str | None:
    """Return the long option that a misspelt long option means, or None."""
    if not word.startswith("--"):
        return None
    return nearest(name.replace("-", "_"), sorted(LONG_NAMES), 0.8)


@of_program
def without_value(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-b -e 8G`: -b takes any next word as its value."""
    for argument in program.arguments:
        if argument.flag not in _NUMERIC or argument.length != 2:
            continue
        if _is_flag(argument.value):
            flag = view.command.program[argument.at].text
            yield error(
                "argument-without-value",
                f"{flag} needs a value: it takes {argument.value!r} for one",
                f"give {flag} a value, or leave it out",
                (ReplaceArgument(argument.at, 1),),
            )


@of_program
def ignored(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find words that belong to no option: nccl-tests ignores such words."""
    words = view.command.program
    for at, word in program.ignored:
        others = (other + 1 for other, _ in program.unknown)
        if word in program.hidden or is_open(word) or at in others:
            continue
        before = next((a for a in program.arguments if a.at + a.length == at), None)
        if before is not None and _is_flag(before.value):
            continue  # `without_value` reports the option before this word.
        if before is not None and before.flag in "bei" and _UNITS.fullmatch(word):
            size = before.value + word[0]
            yield error(
                "argument-ignored",
                f"-{before.flag} {before.value} {word}: a size is one word; this one is"
                f" {before.value} bytes",
                f"write -{before.flag} {size}",
                (ReplaceArgument(before.at, at + 1 - before.at, (f"-{before.flag}", size)),),
            )
            continue
        if _SETS.match(word) is not None:
            options = translated("x", (word,), view.flavor)
            is_local = view.flavor.launcher is Launcher.LOCAL
            variable = word.partition("=")[0]
            edits: tuple[Edit, ...] = (AppendOption(options),) if options else ()
            edits = (SetLead(variable, word, add=True),) if is_local else edits
            yield warning(
                "argument-ignored",
                f"{words[at].raw} behind the program sets nothing: nccl-tests ignores it",
                f"write {' '.join(options) or word} before the program",
                (ReplaceArgument(at, 1), *edits) if edits else (),
            )
            continue
        yield warning(
            "argument-ignored",
            f"{words[at].raw} belongs to no option: nccl-tests ignores it",
            "leave it out",
            (ReplaceArgument(at, 1),),
        )


_SETS = re.compile(r"(?:NCCL|UCX|CUDA|FI|RCCL|HSA)_\w+=")


@of_program
def not_whole(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find numbers with other characters: nccl-tests reads only the leading digits."""
    for flag in _WHOLE:
        value = program.value(flag)
        is_rccl = program.is_rccl and flag in "xyu"
        if value is None or is_open(value) or flag == "i" or _is_flag(value) or is_rccl:
            continue
        if is_named_number(value):
            yield named_number(f"-{flag}", value)
        elif flag == "f" and re.fullmatch(r"\d*\.\d+", value):
            yield error(
                "factor-not-whole",
                f"-f {value} is read as {program.number('f', 1)}: the factor is a whole number",
                "write -f 2; finer curves need several runs",
                (SetArgument("f", "2"),),
            )
        elif not re.fullmatch(r"[+-]?([0-9]+|0[xX][0-9a-fA-F]+)", value):
            yield error(
                "argument-not-a-number",
                f"-{flag} {value} is read as {program.number(flag, 0)}",
                "write a whole number, or leave it out",
                (SetArgument(flag, "2" if flag == "f" else None),),
            )


def _is_flag(value: str) -> bool:
    return re.fullmatch(r"-{1,2}[A-Za-z_]+", value) is not None


@of_program
def out_of_range(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find numbers out of range (`-n 0`, `-R 3`): nccl-tests accepts or silently replaces them.

    Also find `-w 0` and `-N 0`, which are in range but seldom intended.
    """
    for flag, (low, high) in _RANGES.items():
        value = program.value(flag)
        if value is None or not re.fullmatch(r"[+-]?[0-9]+", value):
            continue
        number = strtol(value)
        if number < low or (high is not None and number > high):
            takes = f"{low} to {high}" if high is not None else f"{low} or more"
            right = str(_gpus(view)) if flag == "g" else None
            yield error(
                "argument-range",
                f"-{flag} {value}: nccl-tests takes {takes}",
                f"write -{flag} {right}" if right is not None else f"leave out -{flag}",
                (SetArgument(flag, right),),
            )
    if program.value("w") == "0":
        yield warning(
            "no-warm-up",
            "-w 0 has no warm-up: connections are made within the first timing",
            "leave it out",
            (SetArgument("w", None),),
        )
    if program.value("N") == "0":
        yield warning(
            "endless", "-N 0 repeats the test without end", "write -N 1", (SetArgument("N", "1"),)
        )


def _gpus(view: View) -> int:
    """Return the number of GPUs per process that makes a node's processes use all its GPUs."""
    placement = view.prediction.placement
    most = placement.most if placement else 1
    return max(1, view.site.gpus_per_node // max(1, most))


def _word(flag: str, given: str, known: Sequence[str], meant: dict[str, str]) -> str | None:
    plain = given.lower().removeprefix("nccl").strip("'\"")
    return meant.get(plain) or nearest(plain, known, 0.7 if flag == "d" else 0.6)


@of_program
def names(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-d bf16`, `-o average`: unknown names, for which nccl-tests measures float and sum."""
    for flag, what, known, meant, default in (
        ("d", "type", _TYPES, _TYPE_MEANT, "float"),
        ("o", "operation", _OPERATIONS, _OPERATION_MEANT, "sum"),
    ):
        value = program.value(flag)
        if value is None or is_open(value) or value in known or program.is_rccl:
            continue
        right = _word(flag, value, known, meant)
        yield error(
            "argument-name",
            f"-{flag} {value} is no {what} of nccl-tests, which measures {default} in its place;"
            f" it has {', '.join(known)}",
            f"write -{flag} {right}" if right is not None else f"leave out -{flag}",
            (SetArgument(flag, right),),
        )


@of_program
def root(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-r 16` with 16 ranks, which are 0 to 15."""
    placement = view.prediction.placement
    value = program.value("r")
    if value is None or placement is None or not re.fullmatch(r"-?[0-9]+", value):
        return
    if -1 <= strtol(value) < max(placement.ranks, 1):
        return
    yield error(
        "root",
        f"-r {value}: the ranks are 0 to {placement.ranks - 1} (-1: each, one after the other)",
        "leave it out",
        (SetArgument("r", None),),
    )


@of_program
def steps(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-f 1`, which does not multiply sizes, and an -i that a larger -f makes ineffective."""
    factor, step = program.value("f"), program.value("i")
    if factor is None or not re.fullmatch(r"[+-]?[0-9]+", factor):
        return
    if strtol(factor) > 1 and step is not None:
        yield warning(
            "step-ignored",
            f"-i {step} is not used: with -f {factor} sizes are multiplied",
            "leave out -i or -f",
            (SetArgument("i", None),),
        )
    elif strtol(factor) <= 1 and step is None and not _single(program):
        yield warning(
            "factor-one",
            f"-f {factor} does not multiply: sizes go in steps of 1 MiB",
            "write -f 2",
            (SetArgument("f", "2"),),
        )


def _single(program: Program) -> bool:
    sizes = program.sizes
    return sizes is not None and sizes.first == sizes.last


@of_program
def device_implementation(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find -D without -R 2: -D needs symmetric memory."""
    if program.number("D", 0) <= 0 or program.number("R", 0) == 2:
        return
    yield error(
        "device-needs-symmetric",
        f"-D {program.value('D')} needs symmetric memory: nccl-tests refuses it without -R 2",
        "add -R 2",
        (SetArgument("R", "2"),),
    )


_ZERO_CTA = ("alltoall", "all_gather", "scatter", "gather")


@of_program
def zero_cta(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find NCCL_CTA_POLICY=ZERO or -x 2 where it has no effect.

    NCCL uses copy engines in place of CTAs only for symmetric memory, which -R 2 registers, and
    only for some collectives (NCCL's documentation, "Zero-CTA Optimization").
    """
    policies = [v.value or "" for v in view.variables if v.name == "NCCL_CTA_POLICY"]
    is_zero = bool(policies) and ("ZERO" in policies[-1].upper().split("|") or policies[-1] == "2")
    if not is_zero and program.value("x") != "2":
        return
    what = f"NCCL_CTA_POLICY={policies[-1]}" if is_zero else "-x 2"
    if program.collective and program.collective not in _ZERO_CTA:
        yield warning(
            "zero-cta",
            f"{what} has no effect on {program.collective}: NCCL has zero-CTA forms of"
            f" {', '.join(_ZERO_CTA)}",
            "leave it out",
        )
    elif (program.value("R") or "0") in ("0", "1"):
        yield warning(
            "zero-cta",
            f"{what} has no effect without symmetric memory, which -R 2 registers",
            "add -R 2",
            (SetArgument("R", "2"),),
        )


SENDS = ("alltoall", "alltoallv", "sendrecv", "scatter", "gather", "hypercube")


@of_program
def algorithm_of_sends(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find NCCL_ALGO for a test of sends and receives, which have no algorithm."""
    values = [v.value for v in view.variables if v.name == "NCCL_ALGO" and v.value]
    if values and program.collective in SENDS:
        yield note(
            "algorithm-of-sends",
            f"NCCL_ALGO={values[-1]} has no effect on {program.collective}: NCCL runs it as sends"
            " and receives, which have no algorithm",
            "leave it out, or measure a collective that has one",
        )
    most = [v.value or "" for v in view.variables if v.name == "NCCL_MAX_NCHANNELS"][-1:]
    limit = int(most[0]) if most and most[0].isdecimal() else 0
    if program.collective in SENDS and limit & (limit - 1):
        yield note(
            "channels-of-sends",
            f"NCCL_MAX_NCHANNELS={limit} is for rings and trees: {program.collective} takes the"
            f" next power of two of it, {1 << limit.bit_length()} channels at most",
            "limit sends and receives by NCCL_MAX_P2P_NCHANNELS, a power of two",
        )


@of_program
def unchecked(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find `-c 0`, which checks no result. Then a fast but wrong result is not noticed."""
    if program.value("c") == "0":
        yield note(
            "check-off",
            "-c 0 checks no result: wrong answers can be fast (nccl#2408)",
            "checking is outside the timing",
        )


@of_program
def twice(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find an option with two values, of which nccl-tests takes the last."""
    for flag in dict.fromkeys(argument.flag for argument in program.arguments):
        given = list(dict.fromkeys(a.value for a in program.arguments if a.flag == flag))
        if len(given) > 1:
            yield note(
                "argument-twice",
                f"-{flag} is given as {' and '.join(given)}: {program.value(flag)} counts",
            )


@of_program
def json_name(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find -J with a name that does not end in `.json`: nccl-tests silently ignores such a -J."""
    value = program.value("J")
    if value is not None and not value.endswith(".json") and not is_open(value):
        yield warning(
            "json-name",
            f"-J {value} is ignored in silence: the name must end in .json",
            f"write -J {value}.json",
            (SetArgument("J", f"{value}.json"),),
        )
