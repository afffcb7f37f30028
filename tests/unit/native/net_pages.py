# SPDX-License-Identifier: Apache-2.0
"""Pages of statistics as the network plugin writes them (`native/net/stats_page.h`)."""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

NAME = "nccltune-net-stats"


def page(
    *,
    layout: int = 1,
    pid: int | None = None,
    role: int = 0,
    flows: int = 2,
    bulk_bytes: int = 3 << 20,
    sequence: int = 2,
    head: int = 448,
    stride: int = 256,
) -> bytes:
    """A page of a connection that has sent 40 messages of 44 it was given; `head` and `stride` are
    larger in one of a later release."""
    first = struct.pack(
        "=8s8Q",
        b"ncclstat",
        layout,
        head + flows * stride,
        head,
        stride,
        flows,
        os.getpid() if pid is None else pid,
        role,
        10**9,
    ).ljust(128, b"\0")
    first += b"0.1.0".ljust(32, b"\0") + b"eth0".ljust(64, b"\0")
    first += b"10.0.0.2:5000".ljust(96, b"\0")
    counters = (44, 40, 5 << 20, 10, 33, 2, 3, 5, 6, 7, 8, 4096, 1, 2)
    data = (first + struct.pack("=14Q", *counters)).ljust(head, b"\xee")
    for number in range(flows):
        words = (bulk_bytes if number else 1 << 20, 30, 11, 12, 13, 14, 15, 16, 17_000, 18, 19, 20)
        flow = struct.pack(
            "=2Q64s64s12Q",
            sequence,
            1,
            f"10.0.0.1:{4000 + number}".encode(),
            b"10.0.0.2:5000",
            *words,
        )
        data += flow.ljust(stride, b"\xee")
    return data


@contextmanager
def shown(data: bytes, name: str = NAME) -> Iterator[int]:
    """This process has the page, as one with the plugin would."""
    fd = os.memfd_create(name)
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)
