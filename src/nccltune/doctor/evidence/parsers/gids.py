# SPDX-License-Identifier: Apache-2.0
"""Parse the GIDs of RoCE ports: `show_gids` of MLNX_OFED (mlnx-tools), and `ibv_devinfo -v`."""

import ipaddress
import re

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.network import GidEntry

_GID = r"(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}"
_ROW = re.compile(
    rf"^(?P<hca>[\w.-]{{1,64}})\s+(?P<port>\d{{1,3}})\s+(?P<index>\d{{1,5}})\s+(?P<gid>{_GID})"
    r"(?:\s+\d{1,3}(?:\.\d{1,3}){3})?(?:\s+(?P<type>v1|v2))?(?:\s+(?P<netdev>[\w.@-]+))?\s*$"
)
_LISTED = re.compile(
    r"\s*(?:hca_id:\s*(?P<hca>[\w.-]{1,64})|port:\s*(?P<port>\d{1,3})"
    r"|GID\[ *(?P<index>\d{1,5})\]:\s*(?P<gid>[\da-fA-F:.]{2,45}), *(?P<type>RoCE v[12]))\s*$"
)
_UNNAMED = "NIC without a name"
_TYPES = {"v1": "RoCE v1", "v2": "RoCE v2"}


def is_gid(text: str) -> bool:
    """Return whether `text` is eight groups of four hex digits that are not all zero."""
    return re.fullmatch(_GID, text) is not None and text.strip("0:") != ""


def gid_entry(hca: str, port: int, index: int, gid: str, kind: str | None) -> GidEntry:
    """Return a GID. `kind` is the kernel's name of the GID's type: RoCE v1, RoCE v2."""
    # fe80::/10 is valid only on its own link.
    link_local = int(gid[:4], 16) & 0xFFC0 == 0xFE80
    return GidEntry(hca=hca, port=port, index=index, gid=gid, type=kind, link_local=link_local)


def parse_show_gids(text: str) -> Parsed[GidEntry]:
    """Parse the output of `show_gids`."""
    gids, unread = [], 0
    for _, line in lines_of(text):
        match = _ROW.match(line)
        if match is not None:
            if is_gid(match["gid"]):
                kind = _TYPES.get(match["type"] or "")
                place = match["hca"], int(match["port"]), int(match["index"])
                gids.append(gid_entry(*place, match["gid"].lower(), kind))
        elif not line.startswith(("DEV", "---", "n_gids_found")):
            unread += 1
    return Parsed(gids, unread)


def parse_devinfo_gids(text: str) -> Parsed[GidEntry]:
    """Parse the GIDs in the output of `ibv_devinfo -v`; its other lines are not counted."""
    gids: list[GidEntry] = []
    hca, port = _UNNAMED, 1
    for _, line in lines_of(text):
        match = _LISTED.match(line)
        if match is None:
            continue
        hca, port = match["hca"] or hca, int(match["port"] or port)
        try:
            gid = ipaddress.IPv6Address(match["gid"] or "::").exploded
        except ValueError:
            continue
        if is_gid(gid):
            gids.append(gid_entry(hca, port, int(match["index"]), gid, match["type"]))
    # A part of a list may lack the GIDs that can be routed.
    is_part = all(one.hca == _UNNAMED and one.link_local for one in gids)
    return Parsed([] if is_part else gids, 0)
