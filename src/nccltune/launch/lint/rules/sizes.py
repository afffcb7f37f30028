# SPDX-License-Identifier: Apache-2.0
"""Sizes that will not be measured as the command says."""

from collections.abc import Iterator

from nccltune.launch.lint.command import View
from nccltune.launch.lint.finding import Finding, SetArgument, Severity
from nccltune.launch.program import Program, Sizes
from nccltune.model.sizes import format_bytes

_SHOWN = 6


def unreadable(view: View) -> Iterator[Finding]:
    """nccl-tests ends with `invalid size specified`."""
    for flag in "be":
        value = view.program.value(flag) if view.program is not None else None
        if value is None or "$" in value or view.program is None:
            continue
        if view.program.size(flag) is None:
            yield Finding(
                Severity.ERROR,
                "size-unreadable",
                f"-{flag} {value} is not a size",
                "write bytes with K, M or G, such as 64K or 8G",
            )


def backwards(view: View) -> Iterator[Finding]:
    """No size lies between."""
    program, sizes = _both(view)
    if program is None or sizes is None or sizes.first <= sizes.last:
        return
    first = program.value("b") or "32M"
    last = program.value("e") or "32M"
    unsaid = (
        " (32M is the default)" if program.value("b") is None or program.value("e") is None else ""
    )
    yield Finding(
        Severity.ERROR,
        "sizes-backwards",
        f"-b {first} is larger than -e {last}{unsaid}: no size is measured",
        f"write -b {last} -e {first}" if not unsaid else f"write -b {first} -e {first}",
        (SetArgument("b", last), SetArgument("e", first))
        if not unsaid
        else (SetArgument("b", first), SetArgument("e", first))
        if program.value("e") is None
        else (SetArgument("b", last),),
    )


def end_not_reached(view: View) -> Iterator[Finding]:
    """`-b 1G -e 10G -f 2` measures 1, 2, 4 and 8 GiB."""
    program, sizes = _both(view)
    if program is None or sizes is None or sizes.end is None or sizes.end == sizes.last:
        return
    if program.value("e") is None or _no_factor(program):
        return
    how = f"-f {sizes.factor}" if sizes.factor > 1 else f"steps of {format_bytes(sizes.step)}"
    yield Finding(
        Severity.WARNING,
        "end-not-reached",
        f"-e {program.value('e')} with {how} from {format_bytes(sizes.first)} measures"
        f" {_listed(sizes)}; {format_bytes(sizes.last)} is never reached",
        f"write -e {short(sizes.end)}",
        (SetArgument("e", short(sizes.end)),),
    )


def many_steps(view: View) -> Iterator[Finding]:
    """Without a factor the step is 1 MiB."""
    program, sizes = _both(view)
    if program is None or sizes is None or sizes.factor > 1 or program.value("i") is not None:
        return
    if sizes.number > 1000 and not _no_factor(program):
        yield Finding(
            Severity.WARNING,
            "many-steps",
            f"without -f sizes go in steps of 1 MiB: {sizes.number} of them",
            "write -f 2",
            (SetArgument("f", "2"),),
        )


def too_small(view: View) -> Iterator[Finding]:
    """Counts are cut to whole elements on each rank: small sizes become 0."""
    program, sizes = _both(view)
    if program is None or sizes is None or sizes.first >= 8:
        return
    yield Finding(
        Severity.WARNING,
        "size-below-8",
        f"-b {program.value('b')} is below 8 bytes: rows of size 0, several times",
        "write -b 8",
        (SetArgument("b", "8"),),
    )


def beyond_memory(view: View) -> Iterator[Finding]:
    """nccl-tests cuts -e to what fits: 3 buffers with checks, 2 without, 1 GiB left free."""
    program, sizes = _both(view)
    memory = view.site.gpu_memory
    if program is None or sizes is None or memory is None:
        return
    buffers = 2 if program.value("c") == "0" else 3
    limit = max(0, memory - (1 << 30)) // buffers
    if sizes.last <= limit:
        return
    fits = max((size for size in _some(sizes) if size <= limit), default=sizes.first)
    yield Finding(
        Severity.WARNING,
        "beyond-memory",
        f"-e {program.value('e') or '32M'} needs {buffers} buffers of {format_bytes(sizes.last)};"
        f" a GPU of {format_bytes(memory)} takes {format_bytes(limit)}: larger sizes are left out",
        f"write -e {short(fits)}",
        (SetArgument("e", short(fits)),),
    )


def _no_factor(program: Program) -> bool:
    """Whether the factor is none, of which another rule speaks."""
    value = program.value("f")
    return value is not None and not value.isdigit()


def _some(sizes: Sizes) -> Iterator[int]:
    for number, size in enumerate(sizes.each()):
        if number > 1 << 16:
            return
        yield size


def _both(view: View) -> tuple[Program | None, Sizes | None]:
    return view.program, view.program.sizes if view.program is not None else None


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
    """As nccl-tests takes it: `8G`, `64K`, or plain bytes."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


RULES = (unreadable, backwards, end_not_reached, many_steps, too_small, beyond_memory)
