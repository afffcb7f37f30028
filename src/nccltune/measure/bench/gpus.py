# SPDX-License-Identifier: Apache-2.0
"""Facts from the GPU driver: the number of GPUs, how they are linked, and the driver's version."""

import contextlib
import ctypes
import os
from pathlib import Path

from nccltune.formats.importing.hardware import hardware_hash
from nccltune.model.errors import InputError, PlatformError
from nccltune.native.child import run_tool

LIBRARY = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
DRIVER_VERSION = Path("/sys/module/nvidia/version")
_TOOL_LIMIT_S = 20.0


def visible_gpus(hint: str) -> int:
    """Return the number of GPUs that CUDA sees. Raises PlatformError, with `hint`, without one.

    CUDA takes half a second to start, so NVML is asked where it must agree.
    """
    if "CUDA_VISIBLE_DEVICES" not in os.environ and (count := _whole_gpus()):
        return count
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


def _whole_gpus() -> int | None:
    """Return the number of GPUs by NVML; None where CUDA sees another (MIG) or it fails."""
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint(0)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        for index in range(count.value):
            device, now, later = ctypes.c_void_p(), ctypes.c_uint(0), ctypes.c_uint(0)
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
                return None
            # This call fails on GPUs without MIG, so a failure means that the GPU is not split.
            asked = nvml.nvmlDeviceGetMigMode(device, ctypes.byref(now), ctypes.byref(later))
            if asked == 0 and now.value != 0:
                return None
        return count.value
    finally:
        nvml.nvmlShutdown()


def driver_version() -> str | None:
    """Return the version of NVIDIA's kernel driver, such as `580.159.04`; None if unknown."""
    try:
        return DRIVER_VERSION.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def topology_hash() -> str | None:
    """Return the hash of this machine's GPUs, NICs and links by nvidia-smi; None if unknown."""
    shown = run_tool(["nvidia-smi", "topo", "-m"], _TOOL_LIMIT_S)
    with contextlib.suppress(InputError):
        return hardware_hash(shown.out) if shown is not None and shown.status == 0 else None
    return None
