# SPDX-License-Identifier: Apache-2.0
"""Settings without secrets: which `NCCL_*` values may be kept, and in which form."""

import hashlib
import re
from collections.abc import Iterable

# Settings that name hosts or addresses rather than behaviour.
_IDENTITY = frozenset({"NCCL_COMM_ID", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_RAS_ADDR"})
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|PRIVATE|API_?KEY|AUTH", re.IGNORECASE)
"""Names of settings that no value is kept of."""
_SECRET_VALUE = re.compile(r"://|-----BEGIN|[A-Za-z0-9+/_=.-]{32,}", re.ASCII)
_PLAIN_NAME = re.compile(r"NCCL_[A-Z0-9_]{1,80}")
_MAX_VALUE = 120


def keep_setting(name: str, value: str) -> str | None:
    """The form in which a setting may be stored, or None where it must not be.

    Only `NCCL_*`; nothing that names a host, nothing whose name or value looks like a secret; of
    a path only the file's name.
    """
    if not _PLAIN_NAME.fullmatch(name) or name in _IDENTITY or SECRET_NAME.search(name):
        return None
    if len(value) > _MAX_VALUE or not value.isprintable():
        return None
    plain = value.rpartition("/")[2] if value.startswith(("/", "./", "../", "~")) else value
    return None if _SECRET_VALUE.search(plain) else plain


def kept_settings(environment: Iterable[object]) -> dict[str, str]:
    """The settings among `NAME=value` entries that may be stored."""
    kept = {}
    for entry in environment:
        if isinstance(entry, str) and entry.startswith("NCCL_"):
            name, _, value = entry.partition("=")
            plain = keep_setting(name, value)
            if plain is not None:
                kept[name] = plain
    return kept


def host_hash(host: str) -> str:
    """A short stand-in for a host name (first 16 hex digits of its SHA-256)."""
    return hashlib.sha256(host.encode()).hexdigest()[:16]
