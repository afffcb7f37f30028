# SPDX-License-Identifier: Apache-2.0
"""`show_gids` of MLNX_OFED (mlnx-tools): the GIDs of RoCE ports."""

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
    """A GID that is not empty; `type` is that of the kernel: RoCE v1, RoCE v2."""

    hca: str
    port: int
    number: int
    gid: str
    type: str | None
    line: int

    @property
    def is_ipv4(self) -> bool:
        """An IPv4 address mapped into IPv6."""
        return self.gid.startswith("0000:0000:0000:0000:0000:ffff:")

    @property
    def is_link_local(self) -> bool:
        """Only good on its own link: fe80::/10."""
        return int(self.gid[:4], 16) & 0xFFC0 == 0xFE80


class Gids(NamedTuple):
    """The GIDs of an output."""

    gids: tuple[Gid, ...]
    unread: int


def is_gid(text: str) -> bool:
    """Eight groups of four hex digits, not all zero."""
    return re.fullmatch(_GID, text) is not None and text.strip("0:") != ""


def parse_show_gids(text: str) -> Gids:
    """Read `show_gids`."""
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
