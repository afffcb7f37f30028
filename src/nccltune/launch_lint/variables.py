# SPDX-License-Identifier: Apache-2.0
"""The variables that NCCL reads and the values that each takes, from `variables.csv`.

Names and value ranges are from the source and documentation of NCCL 2.3 to 2.30. Names of 2.31 and
2.32 are from the libraries 2.31.2 and 2.32.3, whose values are known where the library lists them
(`ncclParamDumpAll`). The columns are:

- `since`: first release that reads the variable, empty for 2.3 or older
- `last`: last release that reads the variable, empty if 2.32 still reads it
- `instead`: the variable that replaces it
"""

import csv
import difflib
import functools
import re
from importlib.resources import files
from typing import NamedTuple

from nccltune.launch.program import strtol
from nccltune.launch_lint.words import is_open, listed, whole_number

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
TESTS_PATH HOSTFILE ARGS OPTS ENV FLAGS SETTINGS EXTRA PARAMS VARS TEST_BINARY BIN
""")
)
"""Names (after `NCCL_`) of variables that older PyTorch, build systems or scripts read."""
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
_CLOSE = 0.86


class NcclVariable(NamedTuple):
    """One row of the table. `values` depends on `kind`: words, or a range `LOW..HIGH`."""

    name: str
    kind: str
    values: tuple[str, ...]
    since: str
    last: str
    instead: str


class VariableFault(NamedTuple):
    """A value that NCCL does not accept: the id of the finding, the reason, and a right value.

    `right` is None if no right value is known.
    """

    id: str
    reason: str
    right: str | None


@functools.cache
def table() -> dict[str, NcclVariable]:
    """Return all variables of NCCL, by name."""
    text = files("nccltune.launch_lint").joinpath("variables.csv").read_text(encoding="utf-8")
    return {
        row["name"]: NcclVariable(
            row["name"],
            row["kind"],
            tuple(row["values"].split()),
            row["since"],
            row["last"],
            row["instead"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def is_foreign(name: str) -> bool:
    """Return whether a name with NCCL's prefix is known as a variable of other software."""
    rest = name.removeprefix(PREFIX)
    return name.startswith(PREFIX) and (rest in _OTHER_NAMES or rest.startswith(_OTHERS))


def nearest_variable(name: str) -> str | None:
    """Return the variable that a misspelt name means, or None if no variable is similar.

    The name may have wrong letters, words in another order, or a missing word.

    >>> nearest_variable("NCCL_IFNAME_SOCKET")
    'NCCL_SOCKET_IFNAME'
    """
    if name in table() or not name:
        return None
    rest = _rest(name)
    if rest is None:
        return _nearest_other(name)
    if rest == "TIMEOUT":
        return None  # Who sets it means PyTorch's limit of a collective, not NCCL_IB_TIMEOUT.
    known = {variable.removeprefix(PREFIX): variable for variable in _current()}
    squeezed = {word.replace("_", ""): full for word, full in known.items()}
    if (same := squeezed.get(rest.replace("_", ""))) is not None:
        return same
    words = set(rest.split("_"))
    more = [
        full
        for word, full in known.items()
        if words <= (own := set(word.split("_"))) and len(own) <= len(words) + 1
    ]
    if more:
        return more[0] if len(more) == 1 else _SHORTENED.get(rest)
    close = difflib.get_close_matches(PREFIX + rest, known.values(), n=1, cutoff=_CLOSE)
    return close[0] if close else _SHORTENED.get(rest)


_OTHERS_KNOWN = listed("""
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS
LD_LIBRARY_PATH DYLD_LIBRARY_PATH LD_PRELOAD UCX_NET_DEVICES FI_PROVIDER FI_EFA_USE_DEVICE_RDMA
OMP_NUM_THREADS
""")
"""Variables of other software that launch commands often set. Misspellings are reported too."""


def _nearest_other(name: str) -> str | None:
    if name in _OTHERS_KNOWN:
        return None
    close = difflib.get_close_matches(name, _OTHERS_KNOWN, n=1, cutoff=0.9)
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


def fault(variable: NcclVariable, value: str) -> VariableFault | None:
    """Return what is wrong with a value, or None if NCCL accepts the value.

    A value with `$` or `{` is not checked, because a shell or a template replaces it.
    """
    if not value or is_open(value) or "{" in value:
        return None
    if variable.kind in ("switch", "number", "bytes"):
        return _number_fault(variable, value)
    found = _word_fault(variable, value)
    return VariableFault("variable-value", *found) if found is not None else None


def _word_fault(variable: NcclVariable, value: str) -> tuple[str, str | None] | None:
    if variable.kind in ("algorithms", "protocols"):
        return _list_fault(variable, value)
    words = variable.values
    if variable.kind == "level":
        if value in words or whole_number(value) is not None:
            return None
        right = _near(value, words)
        return f"NCCL takes {', '.join(words)} (upper case) and ignores other words", right
    if variable.kind == "word":
        if value.upper() in words:
            return None
        return f"NCCL takes {', '.join(words)}", _near(value, words)
    if variable.kind == "policy":
        if value.upper() in ("AUTO", "ALL") or re.fullmatch(r"MAX:[0-9]+", value.upper()):
            return None
        return "NCCL takes AUTO, ALL or MAX:N", None
    if variable.kind in ("words", "policies"):
        parts = value.removeprefix("^").split("," if variable.kind == "words" else "|")
        bad = [part for part in parts if part.upper() not in words]
        if not bad:
            return None
        nearer = [_near(part, words) if part in bad else part for part in parts]
        lead = "^" if value.startswith("^") else ""
        sign = "," if variable.kind == "words" else "|"
        right = lead + sign.join(str(part) for part in nearer) if all(nearer) else None
        return f"{bad[0]!r} is none of {', '.join(words)}", right
    return None


def _number_fault(variable: NcclVariable, value: str) -> VariableFault | None:
    match = _NUMBER.match(value.strip())
    if match is None or match[0] != value.strip():
        read = strtol(match[0]) if match is not None and not _octal(match[0]) else 0
        unit, right = "", None
        if variable.kind == "switch" or variable.values == ("0..2",):
            right = _switch(value)
        elif variable.kind == "bytes":
            unit, right = " of bytes without a unit", _bytes(value)
        return VariableFault(
            "setting-not-a-number", f"NCCL reads a number{unit}: {value!r} is {read}", right
        )
    if _octal(match[0]):
        return None
    number = strtol(match[0])
    if variable.kind == "switch" and number not in (-2, -1, 0, 1):
        return VariableFault("variable-value", "NCCL takes 0 or 1", "1")
    for limits in variable.values:
        low, _, high = limits.partition("..")
        if not int(low) <= number <= int(high):
            near = low if number < int(low) else high
            # -1 and -2 are NCCL's own defaults and mean "not set".
            if number in (-2, -1):
                return None
            return VariableFault("variable-value", f"NCCL takes {low} to {high}", near)
    return None


def _octal(text: str) -> bool:
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits.startswith("0") and digits[1] not in "xX"


def _switch(value: str) -> str | None:
    word = value.strip().lower().strip("'\"")
    if word in ("1", "true", "on", "yes", "enable", "enabled", "t", "y"):
        return "1"
    if word in ("0", "false", "off", "no", "disable", "disabled", "f", "n"):
        return "0"
    return None


def _bytes(value: str) -> str | None:
    match = re.fullmatch(r"([0-9]{1,18})\s*([kKmMgG])i?[bB]?", value.strip())
    if match is None:
        return None
    return str(int(match[1]) << {"k": 10, "m": 20, "g": 30}[match[2].lower()])


def _near(word: str, words: tuple[str, ...]) -> str | None:
    plain = word.strip().upper().strip("'\"")
    if plain in words:
        return plain
    if plain in ("ERROR", "ERR", "WARNING"):
        plain = "WARN"
    elif plain in ("DEBUG", "VERBOSE", "1", "TRUE", "ON"):
        plain = "INFO"
    if plain in words:
        return plain
    close = difflib.get_close_matches(plain, words, n=1, cutoff=0.6)
    return close[0] if close else None


_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}


def _list_fault(variable: NcclVariable, value: str) -> tuple[str, str | None] | None:
    """Return what is wrong with a list of algorithms or protocols, as `fault` does.

    NCCL 2.24 and newer refuse to start for an unknown word; older ones ignore it.
    """
    what = "an algorithm" if variable.kind == "algorithms" else "a protocol"
    known = {word.lower(): word for word in variable.values}
    parts = [part for part in re.split(r"[+|/:;,\s]+", value) if part]
    is_list = bool(parts) and all(part.lower() in known for part in parts)
    if is_list and re.search(r"[+|/:;\s]", value):
        return f"{value!r} is not a list: its words are separated by ','", ",".join(parts)
    entries = []
    reason = None
    for number, entry in enumerate(value.split(";")):
        head, sign, listed = entry.rpartition(":")
        if sign and head.lower() not in _COLLECTIVES:
            close = difflib.get_close_matches(head.lower().replace("_", ""), _COLLECTIVES, n=1)
            reason = f"{head!r} is no collective that NCCL has choices for"
            if not close:
                return reason, None
            head = close[0]
        if not sign and number:
            return "every entry but the first begins with a collective and ':'", None
        lead = "^" if listed.startswith("^") else ""
        parts = []
        for part in listed.removeprefix("^").split(","):
            if part.lower() in known:
                parts.append(part)
                continue
            reason = f"{part!r} is not {what}: {', '.join(variable.values)}"
            close = difflib.get_close_matches(
                part.strip().strip("'\"^").lower(), known, n=1, cutoff=0.5
            )
            if not close:
                return reason, None
            parts.append(known[close[0]])
        entries.append(head + sign + lead + ",".join(parts))
    return (reason, ";".join(entries)) if reason is not None else None


def enabled(variable: NcclVariable, value: str, collective: str) -> frozenset[str]:
    """Return the algorithms or protocols (lower case) that a value allows for a collective.

    `collective` is a name such as `all_reduce`.
    """
    everything = frozenset(word.lower() for word in variable.values)
    left = everything
    for entry in value.lower().split(";"):
        head, sign, listed = entry.rpartition(":")
        if sign and _COLLECTIVES.get(head) != collective:
            continue
        named = frozenset(listed.removeprefix("^").split(","))
        left = everything - named if listed.startswith("^") else everything & named
    return left
