# SPDX-License-Identifier: Apache-2.0
"""Find sizes that the command names but nccl-tests will not measure."""

import functools
import re
from collections.abc import Callable, Iterator

from nccltune.launch.program import Program, Sizes, is_named_number, parse_size
from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import LaunchFinding, SetArgument, error, warning
from nccltune.launch_lint.rules.shape import Rule, named_number, of_program
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.sizes import format_bytes

_SHOWN = 6
"""Maximum number of sizes that a message lists."""


def of_sizes(rule: Callable[[Program, Sizes], Iterator[LaunchFinding]]) -> Rule:
    """Return a rule that finds nothing if the sizes of the program are unknown."""

    @of_program
    @functools.wraps(rule)
    def checked(_: View, program: Program) -> Iterator[LaunchFinding]:
        if program.sizes is not None:
            yield from rule(program, program.sizes)

    return checked


@of_program
def unreadable(_: View, program: Program) -> Iterator[LaunchFinding]:
    """Find sizes that nccl-tests refuses with `invalid size specified`."""
    for flag in "bei":
        value = program.value(flag)
        if value is None or is_open(value) or re.fullmatch(r"-{1,2}[A-Za-z_]+", value):
            continue
        if is_named_number(value) or (value.isupper() and value.isalpha()):
            yield named_number(f"-{flag}", value)
        elif parse_size(value) is None:
            right = _readable(value)
            yield error(
                "size-unreadable",
                f"-{flag} {value} is not a size: nccl-tests takes bytes, or K, M or G of them",
                f"write -{flag} {right}" if right is not None else "write it as 64K or 8G",
                (SetArgument(flag, right),) if right is not None else (),
            )


def _readable(value: str) -> str | None:
    """Return a size with a unit that nccl-tests does not know (B, T) in bytes or G, or None."""
    match = re.fullmatch(r"([0-9]{1,18})\s*([bBtT])([iI]?[bB])?", value)
    if match is None:
        return None
    return match[1] if match[2] in "bB" else f"{int(match[1]) << 10}G"


@of_sizes
def backwards(program: Program, sizes: Sizes) -> Iterator[LaunchFinding]:
    """Find -b above -e: no size is measured."""
    if sizes.first <= sizes.last:
        return
    first = program.value("b") or "32M"
    last = program.value("e") or "32M"
    default = " (32M is the default)" if None in map(program.value, "be") else ""
    yield error(
        "sizes-backwards",
        f"-b {first} is larger than -e {last}{default}: no size is measured",
        f"write -b {last} -e {first}" if not default else f"write -b {first} -e {first}",
        (SetArgument("b", last), SetArgument("e", first))
        if not default
        else (SetArgument("b", first), SetArgument("e", first))
        if program.value("e") is None
        else (SetArgument("b", last),),
    )


@of_sizes
def end_not_reached(program: Program, sizes: Sizes) -> Iterator[LaunchFinding]:
    """Find `-b 1G -e 10G -f 2`, which measures 1, 2, 4 and 8 GiB."""
    if sizes.end is None or sizes.end == sizes.last:
        return
    if program.value("e") is None or _no_factor(program) or _skips(program, sizes):
        return
    if sizes.factor == 1 and format_bytes(sizes.end) == format_bytes(sizes.last):
        return
    how = f"-f {sizes.factor}" if sizes.factor > 1 else f"steps of {format_bytes(sizes.step)}"
    yield warning(
        "end-not-reached",
        f"-e {program.value('e')} with {how} from {format_bytes(sizes.first)} measures"
        f" {_listed(sizes)}; {format_bytes(sizes.last)} is never reached",
        f"write -e {short(sizes.end)}",
        (SetArgument("e", short(sizes.end)),),
    )


@of_sizes
def missing_factor(program: Program, sizes: Sizes) -> Iterator[LaunchFinding]:
    """Find a missing -f that leads to over 1000 sizes, or to none between 8 B and 1 MiB."""
    if not _skips(program, sizes) and (sizes.factor > 1 or sizes.number <= 1000):
        return
    if program.value("i") is None and not _no_factor(program):
        between = f", none between {format_bytes(sizes.first)} and {format_bytes(sizes.step)}"
        yield warning(
            "many-steps",
            f"without -f sizes go in steps of 1 MiB: {sizes.number} of them"
            + (between if sizes.first < sizes.step else ""),
            "write -f 2",
            (SetArgument("f", "2"),),
        )


def _skips(program: Program, sizes: Sizes) -> bool:
    """Return whether -f is missing and the default step leaves out the sizes below it."""
    is_default = sizes.factor == 1 and program.value("f") is None and program.value("i") is None
    return is_default and sizes.first < sizes.step <= sizes.last


@of_program
def size_below_8(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find sizes below 8 bytes. nccl-tests rounds them down to whole elements, to 0.

    Of collectives whose data is a share of each rank, to 16 bytes of every rank.
    """
    sizes, is_shared = program.sizes, program.collective not in _UNSHARED
    element = _ELEMENTS.get(program.value("d") or "float", 8)
    if sizes is None or sizes.first >= (8 if is_shared else element):
        return
    placement = view.prediction.placement
    least = 16 * placement.ranks if is_shared and placement is not None else 8
    least = 1 << (least - 1).bit_length()
    yield warning(
        "size-below-8",
        f"-b {program.value('b')} is below {format_bytes(least)}: rows of size 0",
        f"write -b {short(least)}",
        (SetArgument("b", short(least)),),
    )


_ELEMENTS = {
    **dict.fromkeys(("int8", "uint8", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float"), 4),
}
"""Bytes of an element of each type; other types, and `all`, have up to 8."""
_UNSHARED = ("all_reduce", "broadcast", "reduce", "sendrecv")
"""Collectives whose sizes are those of one rank (nccl-tests `*GetCollByteCount`)."""


@of_program
def beyond_memory(view: View, program: Program) -> Iterator[LaunchFinding]:
    """Find -e beyond the GPU's memory: nccl-tests lowers the largest size.

    nccl-tests needs 3 buffers of the largest size (2 with -c 0) and leaves 1 GiB of memory free.
    """
    sizes, memory = program.sizes, view.site.gpu_memory
    if sizes is None or memory is None:
        return
    buffers = 2 if program.value("c") == "0" else 3
    limit = max(0, memory - (1 << 30)) // buffers
    if sizes.last <= limit:
        return
    fits = max((size for size in _some(sizes) if size <= limit), default=sizes.first)
    yield warning(
        "beyond-memory",
        f"-e {program.value('e') or '32M'} needs {buffers} buffers of {format_bytes(sizes.last)};"
        f" a GPU of {format_bytes(memory)} takes {format_bytes(limit)}: larger sizes are left out",
        f"write -e {short(fits)}",
        (SetArgument("e", short(fits)),),
    )


def _no_factor(program: Program) -> bool:
    """Return whether the value of -f is wrong. Rules in `arguments.py` report such a value."""
    value = program.value("f")
    if value is None:
        return False
    number = whole_number(value)
    return number is None or (number <= 1 and program.value("i") is None)


def _some(sizes: Sizes) -> Iterator[int]:
    for number, size in enumerate(sizes.each()):
        if number > 1 << 16:
            return
        yield size


def _listed(sizes: Sizes) -> str:
    shown = []
    for size in sizes.each():
        shown.append(format_bytes(size))
        if len(shown) > _SHOWN:
            break
    if len(shown) > _SHOWN:
        assert sizes.end is not None
        return f"{', '.join(shown[:2])}, ... {format_bytes(sizes.end)}"
    return ", ".join(shown)


def short(size: int) -> str:
    """Return a size as nccl-tests takes it: `8G`, `64K`, or plain bytes."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)
