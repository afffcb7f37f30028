# SPDX-License-Identifier: Apache-2.0
"""Check the values of NCCL's variables as NCCL reads them."""

import re
from typing import NamedTuple

from nccltune.launch.program import strtol
from nccltune.launch_lint.words import is_open, nearest, whole_number
from nccltune.model.nccl_variables import PREFIX, NcclVariable

_OFF = "_DISABLE"
"""End of the names whose 1 switches something off. Their default is 0."""
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")


class VariableFault(NamedTuple):
    """A value that NCCL does not accept: the id of the finding, the reason, and a right value.

    `right` is None if no right value is known. `caution` is what follows the
    advice. `is_clear` is whether one repair is right whatever was meant,
    `is_taken` whether a job runs with the value, as with another one.
    """

    id: str
    reason: str
    right: str | None
    caution: str = ""
    is_clear: bool = True
    is_taken: bool = False


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
        out = [part[1:] for part in parts if part.startswith("^")]
        if variable.kind == "words" and out and {part.upper() for part in out} <= set(words):
            kept = [part for part in parts if not part.startswith("^")]
            is_rest = value.startswith("^") or any(part.upper() == "ALL" for part in kept)
            right = "^" + ",".join([*(kept if value.startswith("^") else ()), *out])
            why = f"NCCL reads ^ at the start of the whole list only, so that '^{out[0]}' is none"
            return why, right if is_rest else ",".join(kept) or None
        nearer = [_near(part, words) if part in bad else part for part in parts]
        lead = "^" if value.startswith("^") else ""
        sign = "," if variable.kind == "words" else "|"
        kept = list(dict.fromkeys(filter(None, nearer)))
        return f"{bad[0]!r} is none of {', '.join(words)}", lead + sign.join(kept) or None
    return None


def _number_fault(variable: NcclVariable, value: str) -> VariableFault | None:
    match = _NUMBER.match(value.strip())
    if match is None or match[0] != value.strip():
        read = strtol(match[0]) if match is not None and not _octal(match[0]) else 0
        unit, right = "", None
        if variable.name.endswith(_OFF) and read == 0:
            # The job runs with it on: what was meant would switch it off.
            what = variable.name.removeprefix(PREFIX).removesuffix(_OFF)
            return VariableFault(
                "setting-not-a-number",
                f"NCCL reads a number: {value!r} is 0, so that it has no effect now",
                None,
                f"; {variable.name}=1 would switch {what} off",
            )
        if variable.kind == "switch" or variable.values == ("0..2",):
            right = switch(value)
        elif variable.kind == "bytes":
            unit, right = " of bytes without a unit", _bytes(value)
        return VariableFault(
            "setting-not-a-number", f"NCCL reads a number{unit}: {value!r} is {read}", right
        )
    if _octal(match[0]):
        return None
    number = strtol(match[0])
    if variable.kind == "switch" and number not in (-2, -1, 0, 1):
        # Some of NCCL's code takes other numbers as 1, and some as 0.
        if variable.name.endswith(_OFF):
            either = f", or write {variable.name}=1 to switch it off"
            return VariableFault("variable-value", "NCCL takes 0 or 1", None, either, False, True)
        return VariableFault("variable-value", "NCCL takes 0 or 1", "1", is_taken=True)
    for limits in variable.values:
        low, _, high = limits.partition("..")
        if not int(low) <= number <= int(high):
            near = low if number < int(low) else high
            # The longest wait is one of hours.
            near = "22" if variable.name == "NCCL_IB_TIMEOUT" and near == high else near
            # -1 and -2 are NCCL's own defaults and mean "not set".
            if number in (-2, -1):
                return None
            if variable.name == "NCCL_IB_RETRY_CNT":
                bits = f"InfiniBand has 3 bits for it, so that a NIC retries {number & 7} times"
                return VariableFault("variable-value", bits, near, is_taken=True)
            return VariableFault("variable-value", f"NCCL takes {low} to {high}", near)
    return None


def _octal(text: str) -> bool:
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits.startswith("0") and digits[1] not in "xX"


def switch(value: str) -> str | None:
    """Return 1 or 0 for a truth value in words, or None."""
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


_MEANT = {"IB": "NET", "IPV4": "AF_INET", "IPV6": "AF_INET6"}


def _near(word: str, words: tuple[str, ...]) -> str | None:
    plain = word.strip().upper().strip("'\"")
    if plain in words:
        return plain
    if plain in ("ERROR", "ERR", "WARNING"):
        plain = "WARN"
    elif plain in ("DEBUG", "VERBOSE", "1", "TRUE", "ON"):
        plain = "INFO"
    elif _MEANT.get(plain) in words:
        return _MEANT[plain]
    elif plain.startswith(("NO", "OFF", "DISABLE", "FALSE", "0")):
        return "NONE" if "NONE" in words else None
    return nearest(plain, words)


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
            reason = f"{head!r} is no collective that NCCL has choices for"
            if (near := nearest(head.lower().replace("_", ""), _COLLECTIVES)) is None:
                return reason, None
            head = near
        if not sign and number:
            return "every entry but the first begins with a collective and ':'", None
        lead = "^" if listed.startswith("^") else ""
        parts = []
        for part in listed.removeprefix("^").split(","):
            if part.lower() in (*known, "msccl"):  # The last is of Microsoft's fork.
                parts.append(part)
                continue
            reason = f"{part!r} is not {what}: {', '.join(variable.values)}"
            if (near := nearest(part.strip().strip("'\"^").lower(), known, 0.5)) is None:
                return reason, None
            parts.append(known[near])
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
