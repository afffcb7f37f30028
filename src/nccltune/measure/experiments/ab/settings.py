# SPDX-License-Identifier: Apache-2.0
"""Proposed changes of settings: read them from words, apply them to an environment, print them.

A value of None means that the setting is unset.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from nccltune.model.errors import InputError

SettingChanges = Mapping[str, str | None]
LIBRARY = "libnccl.so.2"
"""Stands among settings for the path of the NCCL to load, instead of the one it finds."""
PRELOAD = "LD_PRELOAD"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.S)
UNTESTED = {
    "NCCL_DEBUG": "nccltune sets it to see in NCCL's log whether the setting was read",
    "NCCL_DEBUG_SUBSYS": "nccltune sets it to see in NCCL's log whether the setting was read",
    "NCCL_DEBUG_FILE": "nccltune sets it to see in NCCL's log whether the setting was read",
    "NCCL_HOSTID": "it changes what counts as a node: measure that as a separate platform",
    "NCCL_COMM_ID": "it names a host and does not change the speed",
}


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words into the leading NAME=VALUE words and the program with its arguments."""
    at = 0
    while at < len(words) and _WORD.fullmatch(words[at]) and "/" not in words[at].partition("=")[0]:
        at += 1
    return list(words[:at]), list(words[at:])


def read_settings(
    words: Iterable[str], unset: Iterable[str], environment: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the changes that NAME=VALUE words and names to unset describe.

    Raises InputError for an invalid setting, for a setting that cannot be tested, and if the
    environment already has all the values.

    >>> read_settings(["NCCL_NET_GDR_READ=0"], ["NCCL_ALGO"], {"NCCL_ALGO": "ring"})
    {'NCCL_NET_GDR_READ': '0', 'NCCL_ALGO': None}
    """
    found: dict[str, str | None] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            raise InputError(f"{word!r} is no NAME=VALUE", hint="NCCL_NET_GDR_READ=0")
        _add(found, match["name"], match["value"])
    for name in unset:
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is no name of a setting", where="‹unset›")
        if name not in environment:
            raise InputError(f"{name} is not set here and cannot be unset", where="‹unset›")
        _add(found, name, None)
    if not found:
        raise InputError(
            "no setting to test", hint="nccltune ab NCCL_NET_GDR_READ=0 -- all_reduce_perf ..."
        )
    if all(environment.get(name) == value for name, value in found.items()):
        raise InputError(
            f"{label(found)} is already in effect in this shell: there is nothing to compare",
            hint=f"‹unset› {next(iter(found))} tries it without",
        )
    return found


def _add(found: dict[str, str | None], name: str, value: str | None) -> None:
    if name in found:
        raise InputError(f"{name} is given twice")
    if name in UNTESTED:
        raise InputError(f"{name} cannot be tested: {UNTESTED[name]}")
    if name.upper().startswith("NCCL_") and name != name.upper():
        raise InputError(
            f"{name}: NCCL's settings are upper case", hint=f"did you mean {name.upper()}?"
        )
    if value is not None and not value.isprintable():
        raise InputError(f"{name}: its value has characters that are not printable")
    found[name] = value


def label(settings: SettingChanges) -> str:
    """Return a label such as `NCCL_A=1 NCCL_B=2` or `without NCCL_C`; `default` for no settings."""
    words = [f"{name}={value}" for name, value in settings.items() if value is not None]
    words += [f"without {name}" for name, value in settings.items() if value is None]
    return " ".join(words) or "default"


def applied(environment: Mapping[str, str], settings: SettingChanges) -> dict[str, str]:
    """Return a copy of the environment with the settings applied, `LIBRARY` before any NCCL."""
    found = {name: value for name, value in environment.items() if name not in settings}
    found |= {name: value for name, value in settings.items() if value is not None}
    library = found.pop(LIBRARY, None)
    if library is not None:
        # What is preloaded already may interpose on NCCL, so it stays in front.
        found[PRELOAD] = ":".join(filter(None, (found.get(PRELOAD), library)))
    return found
