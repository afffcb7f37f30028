# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-imex-ctl -N` and `-H`: nodes of an IMEX domain, as text or (`-j`) as JSON."""

import json
import re
from typing import Any, NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_NODE = re.compile(
    r"^Node #\d+\s+[*-]?\s*(?P<node>[0-9A-Za-z_.:-]+)\s*[*]?\s+-\s+(?P<status>[A-Z_]+)"
    r"(?:\s+-\s+Version:\s*(?P<version>[\d.]+))?"
)
_DOMAIN = re.compile(r"^Domain State:\s*(?P<state>\w+)")


class ImexNode(NamedTuple):
    """A node. `status` is the tool's word (READY, UNAVAILABLE, ...)."""

    node: str
    status: str
    version: str | None
    line: int


class Imex(NamedTuple):
    """IMEX domain as seen from this node. `unread` counts unknown entries."""

    nodes: tuple[ImexNode, ...]
    state: str | None
    unread: int


def parse_imex(text: str) -> Imex:
    """Parse the text or the JSON format."""
    if text.lstrip()[:1] == "{":
        return _json(text)
    nodes, state, unread = [], None, 0
    for number, line in lines_of(text):
        match = _NODE.match(line.strip())
        if match is not None:
            nodes.append(ImexNode(match["node"], match["status"], match["version"], number))
            continue
        domain = _DOMAIN.match(line.strip())
        if domain is not None:
            state = domain["state"]
        else:
            unread += line.startswith("Node #")
    return Imex(tuple(nodes), state, unread)


def _json(text: str) -> Imex:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Imex((), None, 1)
    listed = document.get("nodes") if isinstance(document, dict) else None
    values: list[Any] = []
    if isinstance(listed, dict):
        values = list(listed.values())
    elif isinstance(listed, list):
        values = listed
    nodes, unread = [], 0
    for value in values:
        place = value.get("host") or value.get("ip") if isinstance(value, dict) else None
        status = value.get("status") if isinstance(value, dict) else None
        if not isinstance(place, str) or not isinstance(status, str):
            unread += 1
            continue
        version = value.get("version")
        nodes.append(
            ImexNode(place, status.upper(), version if isinstance(version, str) else None, 1)
        )
    state = document.get("status") if isinstance(document, dict) else None
    return Imex(tuple(nodes), state if isinstance(state, str) else None, unread)
