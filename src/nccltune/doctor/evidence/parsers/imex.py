# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-imex-ctl -N` and `-H`: nodes of an IMEX domain, as text or (`-j`) as JSON."""

import json
import re
from typing import Any

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.gpu import ImexMember

_NODE = re.compile(
    r"^Node #\d+\s+[*-]?\s*(?P<node>[0-9A-Za-z_.:-]+)\s*[*]?\s+-\s+(?P<status>[A-Z_]+)"
    r"(?:\s+-\s+Version:\s*(?P<version>[\d.]+))?"
)
_CHANNELS = "/dev/nvidia-caps-imex-channels"
LISTED = rf"^[^\n]{{0,80}}[$#] *(?:sudo )?ls [^\n]{{0,20}}{_CHANNELS}"
NOT_LISTED = rf"^ls: [^\n]{{0,40}}{_CHANNELS}"
_LIST = re.compile(rf"{LISTED}|{NOT_LISTED}/?\S* ?.*No such file")
_CHANNEL = re.compile(r"\bchannel\d{1,4}\b")


def imex_channels(text: str) -> list[str] | None:
    """Return the channels that `ls /dev/nvidia-caps-imex-channels` printed, None without one."""
    found: list[str] | None = None
    for _, line in lines_of(text):
        if _LIST.match(line):
            found = found or []
        if found is not None and not line.rstrip().endswith("channels"):
            found += _CHANNEL.findall(line)
    return found


def parse_imex(text: str) -> Parsed[ImexMember]:
    """Parse the text or the JSON format. `unread` counts unknown entries."""
    if text.lstrip()[:1] == "{":
        return _json(text)
    nodes, unread = [], 0
    for _, line in lines_of(text):
        match = _NODE.match(line.strip())
        if match is not None:
            node, status, version = match.group("node", "status", "version")
            nodes.append(ImexMember(node=node, status=status, version=version))
        else:
            unread += line.startswith("Node #")
    return Parsed(nodes, unread)


def _json(text: str) -> Parsed[ImexMember]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Parsed([], 1)
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
        if not isinstance(version, str):
            version = None
        nodes.append(ImexMember(node=place, status=status.upper(), version=version))
    return Parsed(nodes, unread)
