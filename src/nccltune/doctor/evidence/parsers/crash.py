# SPDX-License-Identifier: Apache-2.0
"""Find the frame of a crash in the backtraces of Open MPI, UCX and gdb."""

import re

from nccltune.doctor.evidence.parsers.failures import LONGEST, FailureLine

_FRAME = re.compile(
    r"^.{0,120}?(?:\[ *\d{1,3}\] (?P<mpi>/[^\s(]{1,200})\((?P<name>[^)\n]{0,200})\)"
    r"|#?\d{1,3} +0x[0-9a-f]{6,16} (?:in )?(?P<call>\w{1,200}) ?\([^\n]{0,400})",
    re.M,
)
_CRASH = re.compile(r"Segmentation fault|Caught signal|SIGSEGV|Signal: Abort|Program received")
_NEAR = 1 << 16
"""Characters after the crash in which its backtrace begins."""
# Frames of the handler and of the C library: the crash is in what called them.
_BELOW = re.compile(
    r"/(?:libc|libpthread|libucs|ld-linux\S*|libasan|libstdc\+\+)[.-][^/]*$"
    r"|^(?:_*(?:sigaction|restore_rt|libc_\w+|GI_\w+)|killpg|g?signal|raise|abort|ucs_\w+"
    r"|pthread_kill\w*)$"
)


def crash_frames(text: str) -> tuple[FailureLine, ...]:
    """Return the first frame after the first crash that is not of the C library or a handler."""
    crash = _CRASH.search(text)
    at = crash.start() if crash is not None else len(text)
    for match in _FRAME.finditer(text, at, at + _NEAR):
        place = match["mpi"] or match["call"]
        if _BELOW.search(place) is None:
            line = text.count("\n", 0, match.start()) + 1
            said = f"first frame of the crash outside the C library: {match[0].strip()}"
            return (FailureLine("died", said[:LONGEST], line, 1),)
    return ()
