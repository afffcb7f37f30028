# SPDX-License-Identifier: Apache-2.0
"""Settings of the send/recv library (`docs/reference/sendrecv.md`), and the values to compare."""

from collections.abc import Iterator, Mapping

from nccltune.measure.engine.settings import Settings
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
_DEFAULT_BUFFER = 64 << 20
_CHUNKS = (16 << 20, 64 << 20, 128 << 20)
_STEPS = (2, 4, 8)
_CHANNELS = (1, 4)
"""Values to try with the policy `vccl`, besides one slot and two channels."""

COPY_ENGINE = Settings.of({ON: 1, FROM: LEAST_FROM})
"""Copy engines carry every size of the comparison."""


def policies() -> list[Settings]:
    """Return the policy `vccl` with its defaults, then with one setting varied at a time."""
    return [_policy({}), *(_policy(values) for values in _varied())]


def _varied() -> Iterator[dict[str, int]]:
    for chunk in _CHUNKS:
        # With `vccl` a chunk is at most a slot of the buffer. So a large chunk needs a large
        # buffer.
        more = {BUFFER: chunk} if chunk > _DEFAULT_BUFFER else {}
        yield {CHUNK: chunk, **more}
    for steps in _STEPS:
        yield {STEPS: steps}
    for channels in _CHANNELS:
        yield {CHANNELS: channels}


def _policy(values: Mapping[str, int]) -> Settings:
    return Settings.of({**COPY_ENGINE.recorded, POLICY: "vccl", **values})


def label(settings: Settings) -> str:
    """Return a label for display: `native`, `copy engine`, or for example `vccl chunk=16MiB`."""
    if not settings.recorded:
        return "native"
    if settings == COPY_ENGINE:
        return "copy engine"
    values = settings.recorded
    words = [
        f"{name.removeprefix(f'{ON}_').lower()}={_value(name, values[name])}"
        for name in (CHUNK, STEPS, CHANNELS, BUFFER)
        if name in values
    ]
    return " ".join([str(values.get(POLICY, "copy engine")), *words])


def _value(name: str, value: int | str) -> str:
    if name in (BUFFER, CHUNK) and isinstance(value, int):
        return format_bytes(value).replace(" ", "")
    return str(value)


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
