# SPDX-License-Identifier: Apache-2.0
"""How many GPUs this machine shows, by the driver's own count."""

import ctypes

from nccltune.model.errors import PlatformError

LIBRARY = "libcuda.so.1"


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
