# SPDX-License-Identifier: Apache-2.0
"""Have the tuner plugin run out of memory in a process with another C++ runtime.

    NCCLTUNE_CONFIG=CONFIG python foreign_runtime.py TUNER

CONFIG is larger than the memory that is left. The plugin catches its own exception and leaves the
decisions to NCCL. Prints what it logs and returns.
"""

import ctypes
import resource
import sys
from pathlib import Path

LOG = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int,
    ctypes.c_ulong,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
)
INIT = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.c_size_t,
    LOG,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


class TunerV5(ctypes.Structure):
    """The beginning of ncclTuner_v5_t."""

    _fields_ = (("name", ctypes.c_char_p), ("init", INIT))


@LOG
def log(level: int, flags: int, file: bytes, line: int, text: bytes, words: bytes) -> None:
    # The plugin logs its words as the one argument of "%s".
    assert text == b"%s"
    print(words.decode(), flush=True)


def main(tuner: str) -> None:
    ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    plugin = TunerV5.in_dll(ctypes.CDLL(tuner), "ncclTunerPlugin_v5")
    context = ctypes.c_void_p()
    constants = ctypes.create_string_buffer(4096)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + (4 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    result = plugin.init(ctypes.byref(context), 1, 8, 2, log, None, constants)
    print("result", result, "context", context.value)


if __name__ == "__main__":
    main(sys.argv[1])
