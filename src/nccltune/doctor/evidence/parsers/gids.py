# SPDX-License-Identifier: Apache-2.0
"""Parse `show_gids` of MLNX_OFED (mlnx-tools): the GIDs of RoCE ports."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_GID = r"(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}"
_ROW = re.compile(
    rf"^(?P<hca>[\w.-]{{1,64}})\s+(?P<port>\d{{1,3}})\s+(?P<index>\d{{1,5}})\s+(?P<gid>{_GID})"
    r"(?:\s+\d{1,3}(?:\.\d{1,3}){3})?(?:\s+(?P<type>v1|v2))?(?:\s+(?P<netdev>[\w.@-]+))?\s*$"
)
_TYPES = {"v1": "RoCE v1", "v2": "RoCE v2"}


class Gid(NamedTuple):
    """A GID that is not empty. `type` is the kernel's name: RoCE v1, RoCE v2."""

    hca: str
    port: int
    number: int
    gid: str
    type: str | None
    line: int

    @property
    def is_ipv4(self) -> bool:
        """Whether the GID is an IPv4 address mapped into IPv6."""
        return self.gid.startswith("0000:0000:0000:0000:0000:ffff:")

    @property
    def is_link_local(self) -> bool:
        """Whether the GID is valid only on its own link: fe80::/10."""
        return int(self.gid[:4], 16) & 0xFFC0 == 0xFE80


class Gids(NamedTuple):
    """GIDs of one output. `unread` counts unknown lines."""

    gids: tuple[Gid, ...]
    unread: int


def is_gid(text: str) -> bool:
    """Return whether `text` is eight groups of four hex digits that are not all zero."""
    return re.fullmatch(_GID, text) is not None and text.strip("0:") != ""


def parse_show_gids(text: str) -> Gids:
    """Parse the output of `show_gids`."""
    gids, unread = [], 0
    for number, line in lines_of(text):
        match = _ROW.match(line)
        if match is not None:
            if is_gid(match["gid"]):
                gids.append(
                    Gid(
                        match["hca"],
                        int(match["port"]),
                        int(match["index"]),
                        match["gid"].lower(),
                        _TYPES.get(match["type"] or ""),
                        number,
                    )
                )
        elif not line.startswith(("DEV", "---", "n_gids_found")):
            unread += 1
    return Gids(tuple(gids), unread)
