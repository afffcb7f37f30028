# SPDX-License-Identifier: Apache-2.0
"""Settings of the send/recv library (`docs/reference/sendrecv.md`), and what carries messages."""

from collections.abc import Mapping
from enum import StrEnum

from nccltune.model.errors import InputError
from nccltune.model.sizes import format_bytes

ON = "NCCLTUNE_SENDRECV"
FROM = "NCCLTUNE_SENDRECV_FROM"
POLICY = "NCCLTUNE_SENDRECV_POLICY"
BUFFER = "NCCLTUNE_SENDRECV_BUFFER"
STEPS = "NCCLTUNE_SENDRECV_STEPS"
CHANNELS = "NCCLTUNE_SENDRECV_CHANNELS"
CHUNK = "NCCLTUNE_SENDRECV_CHUNK"
MEANING = {
    ON: "sends and receives by the GPUs' copy engines (0: never)",
    FROM: "bytes of the smallest message that a copy engine carries",
    POLICY: "how copy engines carry a message (vccl: a send may wait for its receive)",
    BUFFER: "bytes of the receiver's buffer for each channel of each peer",
    STEPS: "slots of a channel's buffer",
    CHANNELS: "parts of a message that are copied in parallel",
    CHUNK: "bytes that are copied at once",
}
DEFAULT_FROM = 2 << 20
LEAST_FROM = 4 << 10
MOST_FROM = 1 << 30
"""The default, smallest and largest value of `FROM`, in bytes."""
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
ENOUGH_CONNECTIONS = "32"
"""Its value for the library, if it is not set. The library does not set it."""
TOO_FEW_CONNECTIONS = frozenset(map(str, range(2, 16)))
"""Values with which NCCL carries everything (`native/sendrecv/cuda/connections.cc`)."""


class Carrier(StrEnum):
    """What carries the messages of a process, at every size: NCCL alone, or copy engines."""

    NATIVE = "native"
    COPY_ENGINE = "copy engine"

    @property
    def settings(self) -> dict[str, int | str]:
        """Return the settings of such a process."""
        return {} if self is Carrier.NATIVE else {ON: 1, FROM: LEAST_FROM}

    @classmethod
    def of(cls, settings: Mapping[str, int | str]) -> "Carrier | None":
        """Return the carrier with these recorded settings; None for others."""
        return next((item for item in cls if item.settings == settings), None)


def check_sizes(low: int, high: int) -> None:
    """Raise InputError for sizes that are no legal threshold, or are without the default."""
    bounds = f"{format_bytes(LEAST_FROM)} to {format_bytes(MOST_FROM)}"
    if low < LEAST_FROM or high > MOST_FROM:
        raise InputError(f"sizes must be from {bounds}, like the threshold", where="‹sizes›")
    if not low <= DEFAULT_FROM <= high:
        raise InputError(
            f"must have the default threshold, {format_bytes(DEFAULT_FROM)}, among them",
            where="‹sizes›",
            hint="leave out ‹sizes›, or write 256K-64M",
        )


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise InputError if the environment varies the comparison or makes it wrong."""
    for name in (POLICY, BUFFER, STEPS, CHANNELS, CHUNK):
        if name in environment:
            raise InputError(
                f"{name}={environment[name]} is set, and the comparison varies it",
                where="environment",
                hint=f"unset {name}",
            )
    for name, value, why in (
        (CONNECTIONS, "1", "the library then waits by kernels"),
        *((CONNECTIONS, few, "NCCL then carries everything") for few in TOO_FEW_CONNECTIONS),
        ("NCCL_COMM_BLOCKING", "0", "calls return before the timed work begins"),
    ):
        if environment.get(name) == value:
            raise InputError(
                f"{name}={value} is set: {why}, so the measured threshold would be wrong",
                where="environment",
                hint=f"unset {name}",
            )
