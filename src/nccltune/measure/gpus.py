# SPDX-License-Identifier: Apache-2.0
"""What the driver says of this machine: how many GPUs, and its own version."""

import ctypes
from pathlib import Path

from nccltune.model.errors import PlatformError

LIBRARY = "libcuda.so.1"
DRIVER_VERSION = Path("/sys/module/nvidia/version")


def visible_gpus(hint: str) -> int:
    """The number of GPUs that CUDA sees (CUDA_VISIBLE_DEVICES counts).

    Raises PlatformError, with `hint` as the way out, where there is none or no driver.
    """
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        raise PlatformError(f"no GPU: {LIBRARY} could not be opened", hint=hint) from None
    number = ctypes.c_int(0)
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(number))
    if status != 0:
        raise PlatformError(f"no GPU: the CUDA driver answers with error {status}", hint=hint)
    if number.value == 0:
        raise PlatformError("no GPU: CUDA sees none", hint=hint)
    return number.value


def driver_version() -> str | None:
    """The version of the kernel driver (580.159.04), which is not CUDA's; None where unknown."""
    try:
        return DRIVER_VERSION.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
