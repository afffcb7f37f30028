# SPDX-License-Identifier: Apache-2.0
"""The variables that NCCL reads, from `nccl_variables.csv`.

Names and value ranges are from the source and documentation of NCCL 2.3 to 2.30. Names of 2.31 and
2.32 are from the libraries 2.31.2 and 2.32.3, whose values are known where the library lists them
(`ncclParamDumpAll`). The columns are:

- `since`: first release that reads the variable, empty for 2.3 or older
- `last`: last release that reads the variable, empty if 2.32 still reads it
- `instead`: the variable that replaces it
- `defaults`: NCCL's default and the release of each change, where it changed and is a number;
  `auto` is a number that NCCL computes (`NCCL_PARAM` in the source of 2.3.5 to 2.30.7)
"""

import csv
import difflib
import functools
import re
from importlib.resources import files
from typing import NamedTuple

from nccltune.model.names import listed

PREFIX = "NCCL_"
RELEASES = "2.3 to 2.32"
"""The releases of NCCL in the table."""
_OTHERS = listed("""
TESTS_ FASTRAK_ GPUVIZ_ SHARP_ IBEXT_ UCX_ INSPECTOR_ PROFILE_ PROFILER_ RCCL_ TCPX_
GPUDIRECTTCPX_ SPECTRUM_ NVRX_ RAIL_ GRPC_ FT_ GIN_ RMA_ SYM_ PLUGIN_ PARAM_
""")
"""Prefixes (after `NCCL_`) of variables that plugins, nccl-tests and NCCL's new features read."""
_OTHER_NAMES = frozenset(
    listed("""
VERSION HOME ROOT ROOT_DIR DIR LIB LIB_DIR LIBRARY LIBRARIES INCLUDE INCLUDE_DIR PATH
INSTALL_PATH BLOCKING_WAIT ASYNC_ERROR_HANDLING DESYNC_DEBUG AVOID_RECORD_STREAMS ENABLE_TIMING
TRACE_BUFFER_SIZE TUNER_CONFIG_PATH TUNER_CONFIG TEST TESTS TESTS_HOME TESTS_DIR
TESTS_PATH HOSTFILE ARGS OPTS ENV FLAGS SETTINGS EXTRA PARAMS VARS TEST_BINARY BIN COLLTRACE
""")
)
"""Names (after `NCCL_`) of variables that older PyTorch, build systems or scripts read."""
OFI_PREFIX = "OFI_NCCL_"
OFI_PARAMETERS = listed("""
USE_IPV6_TCP EXCLUDE_TCP_IF GDR_FLUSH_DISABLE NIC_DUP_CONNS CUDA_FLUSH_ENABLE MR_KEY_SIZE
MR_CACHE_DISABLE CQ_READ_COUNT CQ_SIZE PROTOCOL DISABLE_NATIVE_RDMA_CHECK DISABLE_DMABUF
DISABLE_GDR_REQUIRED_CHECK MIN_STRIPE_SIZE SCHED_MAX_SMALL_RR_SIZE EAGER_MAX_SIZE NET_LATENCY
RDMA_MIN_POSTED_EAGER_BUFFERS RDMA_MAX_POSTED_EAGER_BUFFERS RDMA_MIN_POSTED_CONTROL_BUFFERS
RDMA_MAX_POSTED_CONTROL_BUFFERS ABORT_ON_ERROR TUNER_TYPE TUNER_NUM_CHANNELS TUNER_NET_LATENCY
USE_LOW_LATENCY_TC FORCE_NUM_RAILS EARLY_COMPLETION PROGRESS_MODEL PLATFORM
""")
"""Names (after `OFI_NCCL_`) of the variables that aws-ofi-nccl 1.19 reads."""
_CLOSE, _CLOSE_STEM = 0.86, 0.75
_TURNED = {"ENABLE": "DISABLE", "DISABLE": "ENABLE"}
_NUMBER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)")


class NcclVariable(NamedTuple):
    """One row of the table. `values` depends on `kind`: words, or a range `LOW..HIGH`."""

    name: str
    kind: str
    values: tuple[str, ...]
    since: str
    last: str
    instead: str
    defaults: tuple[tuple[str, str], ...] = ()


def release_of(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version: `2.28.9` is of release 2.28."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@functools.cache
def table() -> dict[str, NcclVariable]:
    """Return all variables of NCCL, by name."""
    text = files("nccltune.model").joinpath("nccl_variables.csv").read_text(encoding="utf-8")
    return {
        row["name"]: NcclVariable(
            row["name"],
            row["kind"],
            tuple(row["values"].split()),
            row["since"],
            row["last"],
            row["instead"],
            tuple(_change(word) for word in (row["defaults"] or "").split()),
        )
        for row in csv.DictReader(text.splitlines())
    }


def _change(word: str) -> tuple[str, str]:
    since, _, value = word.partition(":")
    return since, value


def unread_words(name: str, version: str) -> str | None:
    """Return why NCCL `version` takes no notice of a variable; None if it reads it.

    >>> unread_words("NCCL_CONF_FILE", "2.22.3")
    'NCCL reads it since 2.23'
    """
    known = table().get(name)
    if known is None:
        meant = None if is_foreign(name) else nearest_variable(name)
        return f"unknown to NCCL {RELEASES}: {meant} was meant?" if meant else None
    if known.since and release_of(version) < release_of(known.since):
        return f"NCCL reads it since {known.since}"
    if known.last and release_of(version) > release_of(known.last):
        return f"NCCL reads it up to {known.last}" + (f": {known.instead}" * bool(known.instead))
    return None


def _defaults(name: str, version: str) -> list[tuple[str, str]]:
    known = table().get(name)
    defaults = known.defaults if known else ()
    return [each for each in defaults if release_of(each[0]) <= release_of(version)]


def is_default(name: str, value: str, version: str) -> bool:
    """Return whether a value is what NCCL `version` takes by default, as far as it is known."""
    past = _defaults(name, version)
    return bool(past) and is_same(value, past[-1][1])


def default_words(name: str, version: str) -> str | None:
    """Return what NCCL `version` takes by default, and since when; None if it never changed.

    >>> default_words("NCCL_IB_TIMEOUT", "2.28.9")
    "NCCL's default is 20 since 2.23, 18 before"
    """
    past = _defaults(name, version)
    if len(past) < 2:
        return None
    (_, before), (since, value) = past[-2:]
    value = "its own choice" if value == "auto" else value
    return f"NCCL's default is {value} since {since}, {before} before"


def is_same(one: str, other: str) -> bool:
    """Return whether NCCL takes two values for the same: `0x16` is `22`, `Ring` is `ring`."""
    is_text = one.strip().lower() == other.strip().lower()
    return is_text or _number(one) == _number(other) is not None


def _number(text: str) -> int | None:
    """Return what C's `strtoll(text, NULL, 0)` reads; None for text that is no whole number."""
    match = _NUMBER.fullmatch(text.rstrip())
    if match is None:
        return None
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    try:
        return int(match[1] + digits, base)
    except ValueError:
        return None


def is_foreign(name: str) -> bool:
    """Return whether a name with NCCL's prefix is known as a variable of other software."""
    rest = name.removeprefix(PREFIX)
    return name.startswith(PREFIX) and (rest in _OTHER_NAMES or rest.startswith(_OTHERS))


# A list after ^ takes the place of NCCL's own (lo). Without =, mlx5_1 is mlx5_10, too.
_LISTS = {"HCA": "NCCL_IB_HCA=^=LIST", "IFNAME": "NCCL_SOCKET_IFNAME=^lo,LIST"}


def nearest_variable(name: str) -> str | None:
    """Return the variable that a misspelt name means, or None if no variable is similar.

    The name may have wrong letters, words in another order, a missing word, or no end. For a list
    of excluded devices (NCCL_EXCLUDE_IB_HCA) it is the variable with the form of its value, for a
    switch that NCCL has the other way round the one that the value 1 means (NCCL_NVLS_ENABLE=0).

    >>> nearest_variable("NCCL_IFNAME_SOCKET")
    'NCCL_SOCKET_IFNAME'
    """
    if name in table() or not name:
        return None
    rest = _rest(name)
    if rest is None:
        return _nearest_other(name)
    kept, times = re.subn("_(?:EXCLUDED?|EXCL|IGNORED?)(?=_|$)", "", name)
    if times and (last := kept.rpartition("_")[2].rstrip("S")) in _LISTS:
        return _LISTS[last]
    if rest.removeprefix("OFI_") in OFI_PARAMETERS and rest.startswith("OFI_"):
        return OFI_PREFIX + rest.removeprefix("OFI_")
    if rest == "TIMEOUT":
        return None  # Who sets it means PyTorch's limit of a collective, not NCCL_IB_TIMEOUT.
    known = {variable.removeprefix(PREFIX): variable for variable in _current()}
    switch = re.search("(?<![A-Z0-9])((?:EN|DIS)ABLE)D?(?![A-Z0-9])", rest)
    stem = rest.replace(switch[0], "").replace("__", "_").strip("_") if switch else ""
    if switch is not None:
        if (right := f"{stem}_{switch[1]}") in known:
            return known[right]
        if (right := f"{stem}_{_TURNED[switch[1]]}") in known:
            return f"{known[right]}=0"
    squeezed = {word.replace("_", ""): full for word, full in known.items()}
    if (same := squeezed.get(rest.replace("_", ""))) is not None:
        return same
    named = set(rest.split("_"))
    more = [
        full
        for word, full in known.items()
        if named <= (own := set(word.split("_"))) and len(own) <= len(named) + 1
    ]
    if more:
        return more[0] if len(more) == 1 else _SHORTENED.get(rest)
    begun = [full for word, full in known.items() if word.startswith(f"{rest}_")]
    if "_" in rest and len(begun) == 1:
        return begun[0]
    close = difflib.get_close_matches(PREFIX + rest, known.values(), n=1, cutoff=_CLOSE)
    if close and switch is not None:
        # The long word that both have is no sign: NCCL_RAS_DISABLE is not NCCL_RMA_DISABLE.
        other = close[0].removeprefix(PREFIX).replace(switch[1], "").strip("_")
        close = close if difflib.SequenceMatcher(None, stem, other).ratio() >= _CLOSE_STEM else []
    return close[0] if close else _SHORTENED.get(rest)


_OTHERS_KNOWN = listed("""
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS
LD_LIBRARY_PATH DYLD_LIBRARY_PATH LD_PRELOAD UCX_NET_DEVICES FI_PROVIDER FI_EFA_USE_DEVICE_RDMA
OMP_NUM_THREADS GLOO_SOCKET_IFNAME
NCCLTUNE_CONFIG NCCLTUNE_CONFIG_HASH NCCLTUNE_NATIVE_DIR NCCLTUNE_STALE NCCLTUNE_STRICT
NCCLTUNE_TOKEN NCCLTUNE_RECORD NCCLTUNE_RECORD_EVERY NCCLTUNE_RECORD_NEXT NCCLTUNE_RECORD_TIMES
NCCLTUNE_NET_DEVICES NCCLTUNE_NET_DOWN_TIMEOUT NCCLTUNE_NET_EAGER NCCLTUNE_NET_FLOWS
NCCLTUNE_NET_NOFILE NCCLTUNE_NET_PATH_TIMEOUT NCCLTUNE_NET_PORTS NCCLTUNE_NET_THREADS
NCCLTUNE_NET_TIMEOUT NCCLTUNE_NET_ZEROCOPY
NCCLTUNE_SENDRECV NCCLTUNE_SENDRECV_BUFFER NCCLTUNE_SENDRECV_CHANNELS NCCLTUNE_SENDRECV_CHUNK
NCCLTUNE_SENDRECV_EAGER NCCLTUNE_SENDRECV_FROM NCCLTUNE_SENDRECV_GRAPHS NCCLTUNE_SENDRECV_HARDWARE
NCCLTUNE_SENDRECV_METRICS NCCLTUNE_SENDRECV_NCCL NCCLTUNE_SENDRECV_OFF_FILE
NCCLTUNE_SENDRECV_POLICY NCCLTUNE_SENDRECV_SIGNAL NCCLTUNE_SENDRECV_STATS NCCLTUNE_SENDRECV_STEPS
NCCLTUNE_SENDRECV_WAITS NCCLTUNE_SENDRECV_WAIT_LIMIT
""")
"""Variables of other software, and of nccltune, that launch commands often set.

Misspelt ones are reported, too.
"""


def _nearest_other(name: str) -> str | None:
    if name in _OTHERS_KNOWN:
        return None
    squeezed = {one.replace("_", ""): one for one in _OTHERS_KNOWN}
    if (same := squeezed.get(name.replace("_", ""))) is not None:
        return same
    # Other names: another first letter (OLD_LIBRARY_PATH), and one word more
    # (CUDA_DEVICE_MAX_COPY_CONNECTIONS).
    words = name.count("_")
    known = [one for one in _OTHERS_KNOWN if one[0] == name[0] and one.count("_") >= words]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
    return close[0] if close else None


def _rest(name: str) -> str | None:
    """Return a name without the prefix `NCCL_`, which may be misspelt, or None for other names."""
    upper = name.upper().replace("-", "_")
    if upper.startswith(PREFIX):
        return upper.removeprefix(PREFIX)
    first, sign, rest = upper.partition("_")
    known = {variable.removeprefix(PREFIX) for variable in _current()}
    if sign and rest in known and sorted(set(first)) in (["C", "L", "N"], ["C", "N"], ["C", "L"]):
        return rest
    return None


_SHORTENED = {
    "IFNAME": "NCCL_SOCKET_IFNAME",
    "INTERFACE": "NCCL_SOCKET_IFNAME",
    "HCA": "NCCL_IB_HCA",
    "NVLS": "NCCL_NVLS_ENABLE",
    "LOG_LEVEL": "NCCL_DEBUG",
    "ALGORITHM": "NCCL_ALGO",
    "PROTOCOL": "NCCL_PROTO",
    "CHANNELS": "NCCL_MIN_NCHANNELS",
    "NCHANNELS": "NCCL_MIN_NCHANNELS",
}
"""Short names that people write, which fit several variables or resemble none."""


def _current() -> list[str]:
    return [name for name, variable in table().items() if not variable.last]
