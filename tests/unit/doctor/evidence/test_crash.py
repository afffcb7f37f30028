# SPDX-License-Identifier: Apache-2.0
"""The frame of a crash in backtraces as Open MPI, UCX and gdb print them."""

import pytest

from nccltune.doctor.evidence.parsers.crash import crash_frames

MPI = """[n1:00956] *** Process received signal ***
[n1:00956] Signal: Segmentation fault (11)
[n1:00956] [ 0] /usr/lib/libc.so.6(+0x45330)[0x7d1d0c3eb330]
[n1:00956] [ 1] /opt/nccl/lib/libnccl.so.2(ncclTuningInit+0xbe)[0x7d1d0c8f372c]
[n1:00956] [ 2] ./all_reduce_perf(main+0x1)[0x55d1]
"""
UCX = """[n1:900  :0:950] Caught signal 11 (Segmentation fault: address not mapped)
==== backtrace (tid:    950) ====
 0 0x0000000000045330 __sigaction()  ???:0
 1 0x000000000009c1e4 ncclTransportP2pSetup()  ???:0
"""
GDB = """Program received signal SIGSEGV, Segmentation fault.
#0  0x00007ffff7a1c0a5 in raise () from /lib64/libc.so.6
#1  0x00007fffe8a1c0a5 in ncclSocketConnect (sock=0x7f) from /usr/lib/libnccl.so.2
"""


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [(MPI, 4, "libnccl.so.2(ncclTuningInit+0xbe)"), (UCX, 4, "ncclTransportP2pSetup()"),
     (GDB, 3, "ncclSocketConnect")],
)  # fmt: skip
def test_the_first_frame_outside_the_c_library(text: str, line: int, said: str) -> None:
    (found,) = crash_frames(text)
    assert (found.kind, found.line) == ("died", line)
    assert said in found.text


@pytest.mark.parametrize(
    "text",
    [MPI.replace("Segmentation fault", "Terminated"), UCX[: UCX.index(" 1 0x")], MPI[:90]],
)
def test_no_crash_and_no_frame(text: str) -> None:
    assert crash_frames(text) == ()
