# SPDX-License-Identifier: Apache-2.0
"""Find in which way a run of nccl-tests measured something else than plain calls of NCCL.

A *condition* is such a difference in words. Runs with different conditions are never compared as
repeats of each other. Sources: the header, the arguments of the program, the command line.
"""

import re
from collections.abc import Sequence

_LONG = {
    "agg_iters": "m",
    "average": "a",
    "blocking": "z",
    "cta_policy": "x",
    "device_implementation": "D",
    "local_register": "R",
    "unalign": "u",
    "warmup_iters": "w",
}
_OPTION = re.compile(r"-(?P<name>[A-Za-z])(?P<value>\d{1,9})?|--(?P<long>[a-z_]+)(?:=(?P<is>\S*))?")
BLOCKING = {
    1: "-z 1: wait and barrier after each call",
    2: "-z 2: wait after each call",
    3: "-z 3: wait and barrier after each set of calls",
}
_BLOCKING_LINES = (
    (re.compile(r"barrier after each outer iteration"), 3),
    (re.compile(r"no barrier"), 2),
    (re.compile(r"barrier"), 1),
)
_AVERAGES = {0: "of rank 0", 2: "of the fastest rank", 3: "of the slowest rank"}
_POLICIES = {1: "efficiency", 2: "zero"}
# Libraries that implement no call of NCCL, or are another build of NCCL itself.
_NO_REPLACEMENT = re.compile(
    r"lib(?:[nr]ccl|[nr]ccl-net[\w-]*|[alt]san|ubsan|jemalloc|tcmalloc\w*|mimalloc|hugetlbfs|numa|"
    r"stdc\+\+|gcc_s|cuda|cudart|nvidia-ml|mpi\w*|pmix?|uc[mpst]|fabric|darshan|dl|pthread|m|c)"
    r"\.(?:so|a)[\d.]*"
)


def numbers_of(arguments: Sequence[str]) -> dict[str, int]:
    """Return the options with a whole number, by their letter: `-D 3`, `-D3`, `--unalign=1`."""
    found: dict[str, int] = {}
    for word, after in zip(arguments, [*arguments[1:], ""], strict=False):
        match = _OPTION.fullmatch(word)
        if match is None:
            continue
        name = match["name"] or _LONG.get(match["long"] or "", "")
        value = match["value"] or match["is"] or after
        if name and value.isdecimal():
            found[name] = int(value[:9])
    return found


def blocking_of(line: str) -> int:
    """Return the value of -z that a header line states; 0 for another line."""
    if not line.startswith("# Blocking Enabled"):
        return 0
    return next((value for pattern, value in _BLOCKING_LINES if pattern.search(line)), 1)


def replacements(preloaded: Sequence[str]) -> tuple[str, ...]:
    """Return the preloaded files that may implement calls of NCCL."""
    return tuple(name for name in preloaded if _NO_REPLACEMENT.fullmatch(name) is None)


def conditions_of(
    options: dict[str, int], blocking: int, unaligned: int, aggregated: int
) -> tuple[str, ...]:
    """Return the conditions that header and options state; empty for plain calls."""
    found = [BLOCKING[blocking]] if blocking in BLOCKING else []
    if unaligned:
        found.append(f"-u {unaligned}: unaligned buffers")
    if aggregated > 1:
        found.append(f"-m {aggregated}: {aggregated} calls in a group")
    if (average := options.get("a")) in _AVERAGES:
        found.append(f"-a {average}: the time {_AVERAGES[average]}")
    if (policy := options.get("x")) in _POLICIES:
        found.append(f"-x {policy}: CTA policy {_POLICIES[policy]}")
    return tuple(found)
