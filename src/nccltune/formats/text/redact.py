# SPDX-License-Identifier: Apache-2.0
"""Remove secrets from settings: which `NCCL_*` values may be stored, and in which form."""

import hashlib
import re

# Settings whose value may name hosts or addresses. They are never stored.
_IDENTITY = frozenset({"NCCL_COMM_ID", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_RAS_ADDR"})
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|PRIVATE|API_?KEY|AUTH", re.IGNORECASE)
"""Names of settings whose value is never stored."""
_SECRET_VALUE = re.compile(r"://|-----BEGIN|[A-Za-z0-9+/_=.-]{32,}", re.ASCII)
_PLAIN_NAME = re.compile(r"[NR]CCL_[A-Z0-9_]{1,80}")
_MAX_VALUE = 120


def keep_setting(name: str, value: str) -> str | None:
    """Return the form in which a setting may be stored, or None if it must not be stored.

    Only `NCCL_*` and `RCCL_*` settings are stored. A setting that names a host, or whose name or
    value looks like a secret, is not stored. Nor is a value of more than 120 characters or with
    characters that are not printable. If the value is a path, only the file name is stored.
    """
    if not _PLAIN_NAME.fullmatch(name) or name in _IDENTITY or SECRET_NAME.search(name):
        return None
    if len(value) > _MAX_VALUE or not value.isprintable():
        return None
    plain = value.rpartition("/")[2] if value.startswith(("/", "./", "../", "~")) else value
    return None if _SECRET_VALUE.search(plain) else plain


def host_hash(host: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a host name, which identify the host."""
    return hashlib.sha256(host.encode()).hexdigest()[:16]
