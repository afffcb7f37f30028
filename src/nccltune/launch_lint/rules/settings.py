# SPDX-License-Identifier: Apache-2.0
"""Find settings of NCCL that contradict each other."""

import re
from collections.abc import Iterator

from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import Edit, LaunchFinding, note, warning
from nccltune.launch_lint.rules.arguments import SENDS
from nccltune.launch_lint.rules.variables import edits_of, no_algorithm
from nccltune.launch_lint.variables import fault
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.names import listed
from nccltune.model.nccl_releases import RELEASES
from nccltune.model.nccl_variables import table

_HAS_TUNER = re.compile(r"(?i)(?!(?:none|unused)$).+")


_OF_IB = listed("""
NCCL_IB_HCA NCCL_IB_GID_INDEX NCCL_IB_TC NCCL_IB_SL NCCL_IB_QPS_PER_CONNECTION NCCL_NET_GDR_LEVEL
""")
_PAIRS: tuple[tuple[str, str, str, str, str], ...] = (
    *[
        ("NCCL_IB_DISABLE", "1", name, ".+", f"NCCL's InfiniBand is off: {name} has no effect")
        for name in _OF_IB
    ],
    (
        *("NCCL_IB_DISABLE", "1", "NCCL_NET", "(?i)ib"),
        "NCCL_NET asks for InfiniBand, which NCCL_IB_DISABLE turns off",
    ),
    *[
        (
            *(name, ".+" if name in _OF_IB else "0", "NCCL_NET", "(?i)socket"),
            f"NCCL_NET=Socket leaves InfiniBand out, so that {name} has no effect",
        )
        for name in (*_OF_IB, "NCCL_IB_DISABLE")
    ],
    (
        *("NCCL_NVLS_ENABLE", "0", "NCCL_ALGO", "(?i)(?:.*[,;:])?nvls.*"),
        "NCCL_ALGO asks for NVLS, which NCCL_NVLS_ENABLE turns off",
    ),
    (
        *("NCCL_COLLNET_ENABLE", "0", "NCCL_ALGO", "(?i)(?:.*[,;:])?collnet.*"),
        "NCCL_ALGO asks for CollNet, which NCCL_COLLNET_ENABLE turns off",
    ),
    *[
        (
            # Of several words, the choice is left to NCCL or a plugin.
            *(name, r"\w+", "NCCL_TUNER_PLUGIN", _HAS_TUNER.pattern),
            f"from NCCL 2.22 on the tuner plugin chooses only among what {name} leaves",
        )
        for name in ("NCCL_ALGO", "NCCL_PROTO")
    ],
    (
        *("NCCL_P2P_DISABLE", "1", "NCCL_P2P_LEVEL", ".+"),
        "peer-to-peer is off, so that NCCL_P2P_LEVEL has no effect",
    ),
    (
        *("NCCL_P2P_DISABLE", "1", "NCCL_NVLS_ENABLE", "1"),
        "NVLS needs peer-to-peer, which NCCL_P2P_DISABLE turns off",
    ),
)
"""Two variables with patterns of their values, and why they contradict each other."""


def contradictions(view: View) -> Iterator[LaunchFinding]:
    """Find two settings that contradict each other, or one that makes another ineffective."""
    values = _values(view)
    # Google's settings for FasTrak name a protocol beside its tuner.
    is_asked = any(name.startswith("NCCL_FASTRAK_") for name in values)
    by_plugin = _HAS_TUNER.fullmatch(values.get("NCCL_NET_PLUGIN", "")) is not None
    for first, one, second, other, why in _PAIRS:
        if is_asked and second == "NCCL_TUNER_PLUGIN":
            continue
        if by_plugin and first == "NCCL_IB_DISABLE":
            continue  # It acts on NCCL's own InfiniBand alone.
        if re.fullmatch(one, values.get(first, "")) and re.fullmatch(other, values.get(second, "")):
            yield warning(
                "settings-contradict",
                f"{first}={values[first]} and {second}={values[second]}: {why}",
                f"leave out {first} or {second}",
                _drop(view, first),
            )
    for low, high in _LIMITS:
        least, most = whole_number(values.get(low, "")), whole_number(values.get(high, ""))
        if least is not None and most is not None and least > most:
            yield warning(
                "settings-contradict",
                f"{low}={least} is more than {high}={most}",
                f"leave out {low}",
                _drop(view, low),
            )


_LIMITS = (
    ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
    ("NCCL_MIN_CTAS", "NCCL_MAX_NCHANNELS"),
    ("NCCL_MIN_NCHANNELS", "NCCL_MAX_CTAS"),
    ("NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"),
    ("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"),
)


def channels(view: View) -> Iterator[LaunchFinding]:
    """Find more channels than NCCL has, or than RCCL takes for fewer than 8 GPUs."""
    placement, most = view.prediction.placement, RELEASES[-1].most_channels
    words = (*view.site.around, *(word.text for word in view.command.words))
    few = placement is not None and 0 < placement.processes * placement.gpus_per_process < 8
    of_rccl = any(map(_ON_AMD.search, (*words, *_values(view))))
    for name, value in _values(view).items() if few or not of_rccl else ():
        is_read = not of_rccl or name == "NCCL_MIN_NCHANNELS"
        if is_read and _CHANNELS.fullmatch(name) and (whole_number(value) or 0) > most:
            said, fix = f"NCCL has {most} channels at most, 32 before 2.25 (RCCL: 128)", ""
            if of_rccl:
                said = "RCCL ignores more than 64 for fewer than 8 GPUs (rocm-systems#11253)"
                fix = f"write {name}=64, or leave it out"
            yield (warning if of_rccl else note)("channels-limit", f"{name}={value}: {said}", fix)


_CHANNELS = re.compile(r"NCCL_(?:MIN|MAX)_(?:P2P_)?(?:NCHANNELS|NRINGS)")
_ON_AMD = re.compile(r"(?i)\brocm|/dev/kfd|\brccl|^(?:HIP|HSA|ROCR)_")


def sockets(view: View) -> Iterator[LaunchFinding]:
    """Find more sockets than NCCL opens for a connection (64)."""
    values = _values(view)
    threads = whole_number(values.get("NCCL_SOCKET_NTHREADS", ""))
    each = whole_number(values.get("NCCL_NSOCKS_PERTHREAD", ""))
    if threads is not None and each is not None and threads * each > _MAX_SOCKETS:
        yield warning(
            "settings-contradict",
            f"NCCL_SOCKET_NTHREADS={threads} times NCCL_NSOCKS_PERTHREAD={each} is more than"
            f" {_MAX_SOCKETS} sockets of a connection",
            "make one of them smaller",
            _drop(view, "NCCL_NSOCKS_PERTHREAD"),
        )


_MAX_SOCKETS = 64


def weak(view: View) -> Iterator[LaunchFinding]:
    """Find a timeout below NCCL's own, and subsystems of a log that has none."""
    values = _values(view)
    timeout = whole_number(values.get("NCCL_IB_TIMEOUT", ""))
    if timeout is not None and 0 < timeout < _LEAST_TIMEOUT:
        yield warning(
            "timeout-short",
            f"NCCL_IB_TIMEOUT={timeout}: a NIC waits {4.096 * 2**timeout / 1000:.3g} ms for an"
            " answer before it sends again (4.096 us x 2^N); NCCL's default is 20, 18 before 2.23",
            "leave out NCCL_IB_TIMEOUT, or write 22",
            _drop(view, "NCCL_IB_TIMEOUT"),
        )
    level = values.get("NCCL_DEBUG", "").upper()
    # A level in place of a subsystem is found as a wrong value.
    subsystems = values.get("NCCL_DEBUG_SUBSYS", "WARN").upper()
    if subsystems not in ("WARN", "INFO", "TRACE") and level in ("WARN", "VERSION", "NONE"):
        yield note(
            "subsystems-unused",
            f"NCCL_DEBUG_SUBSYS chooses among lines of level INFO, which NCCL_DEBUG={level} leaves"
            " out",
            "write NCCL_DEBUG=INFO for these lines",
        )


_LEAST_TIMEOUT = 14
"""NCCL's default before 2.14, its lowest."""


def tuner(view: View) -> Iterator[LaunchFinding]:
    """Find a tuner plugin: what is measured with it is not NCCL's default."""
    values = _values(view)
    if view.program is not None and _HAS_TUNER.fullmatch(values.get("NCCL_TUNER_PLUGIN", "")):
        plugin = f"NCCL_TUNER_PLUGIN={values['NCCL_TUNER_PLUGIN']}"
        yield note(
            "tuner-plugin", f"{plugin}: where it loads, it decides in place of NCCL's tuning"
        )


def graph(view: View) -> Iterator[LaunchFinding]:
    """Find NCCL_GRAPH_FILE, which is for the GPUs that it names."""
    if file := _values(view).get("NCCL_GRAPH_FILE"):
        said = "NCCL takes its rings and trees from it, and fails with other GPUs (nccl#1008)"
        yield note("graph-file", f"NCCL_GRAPH_FILE={file}: {said}", "leave it out, unless it fits")


def relative_paths(view: View) -> Iterator[LaunchFinding]:
    """Find `NCCL_TUNER_PLUGIN=./a.so` on several nodes: each process starts in a folder there."""
    placement = view.prediction.placement
    found = [
        f"{name}={value}"
        for name, value in _values(view).items()
        if _PATH.fullmatch(f"{name}={value}") and not is_open(value)
    ]
    if found and (placement is None or len(placement.nodes) > 1):
        is_one = len(found) == 1
        yield note(
            "relative-path",
            f"{' and '.join(found)}: relative path{'s' * (not is_one)}, from the folder in which a"
            " process starts on its node",
            f"write the whole path{'s' * (not is_one)}, to what all nodes have",
        )


_PATH = re.compile(
    r"(?:(?:NCCL_(?:NET|TUNER|PROFILER)_PLUGIN|LD_PRELOAD)=(?![/~])[^\s:]+/[^\s:]+"
    r"|NCCL_(?:TUNER_CONFIG|TOPO|GRAPH|CONF)_FILE=(?![/~]).+)"
)
_CHOICES = re.compile(r"NCCL_(?:ALGO|PROTO|NTHREADS|(?:MIN|MAX)_(?:NCHANNELS|CTAS|NRINGS))")


def forced(view: View) -> Iterator[LaunchFinding]:
    """Find a choice that is forced on a test: what it measures is not NCCL's default."""
    if view.program is None or not view.program.collective or any(no_algorithm(view)):
        return
    found = [
        f"{name}={value}"
        for name, value in _values(view).items()
        if value and _CHOICES.fullmatch(name) and fault(table()[name], value) is None
        if view.program.collective not in SENDS or "CHANNELS" in name or "CTAS" in name
    ]
    if found:
        yield note(
            "choice-forced",
            f"{', '.join(found)}: the result is that of this choice, not of NCCL's default",
        )


_NO_FILE = ("/dev/", "stdout", "stderr")


def debug_file(view: View) -> Iterator[LaunchFinding]:
    """Find a NCCL_DEBUG_FILE that several processes of a node open and overwrite."""
    value = _values(view).get("NCCL_DEBUG_FILE", "")
    placement = view.prediction.placement
    most = placement.most if placement else 1
    if most < 2 or "%p" in value or is_open(value):
        return
    if re.search(r"^(|std(out|err)|/dev/.*)$", value):
        return
    stem, dot, ending = value.rpartition(".")
    right = f"{stem}.%p.{ending}" if dot and "/" not in ending else f"{value}.%p"
    if field := re.search(r"%[^%h]", value):
        right = value.replace(field[0], "%p")
    named = [v for v in view.variables if v.name == "NCCL_DEBUG_FILE" and v.value == value]
    yield warning(
        "debug-file",
        f"NCCL_DEBUG_FILE={value}: the {most} processes of a node overwrite one file; %p is the"
        f" process, %h the host{f', {field[0]} nothing' if field else ''}",
        f"write NCCL_DEBUG_FILE={right}",
        edits_of(named[-1], "NCCL_DEBUG_FILE", right),
    )


def _values(view: View) -> dict[str, str]:
    return {v.name: v.value for v in view.variables if v.value is not None}


def _drop(view: View, name: str) -> tuple[Edit, ...]:
    given = [variable for variable in view.variables if variable.name == name]
    return tuple(edit for variable in given for edit in edits_of(variable, None))
