# SPDX-License-Identifier: Apache-2.0
"""Start a bench that uses the send/recv library, and read the library's message counts."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.experiments.copies.processes import BenchProcess, Starter
from nccltune.measure.experiments.copies.settings import (
    CONNECTIONS,
    ENOUGH_CONNECTIONS,
    ON,
    Carrier,
)
from nccltune.model.errors import InputError, LaunchError

BY_COPY_ENGINE = "copy engine"
"""Prefix of the carrier names that the library uses for messages by copy engine."""
_WARNING = re.compile(r"nccltune sendrecv WARN (.+)")
_COUNT = re.compile(r"nccltune sendrecv: process \d+: (.+): (\d+) messages, \d+ bytes")


class RunningBench:
    """A `BenchProcess` on the GPUs of this machine."""

    recorded_s = None
    carried: Mapping[str, int] | None = None

    def __init__(self, bench: Bench) -> None:
        self.hello = bench.hello
        self.measure = bench.measure


def on_gpus(
    launch: Launch,
    library: Path,
    *,
    program: Sequence[str] | None = None,
) -> Starter:
    """Return a starter of `nccltune-bench`, with `library` preloaded but for NCCL alone.

    The first process must be with NCCL alone: it reports the path of NCCL. Raises InputError for a
    missing library. The starter raises the errors of `Bench`, and LaunchError if copy engines carry
    no message or a setting is refused.
    """
    if not library.is_file():
        raise InputError(
            "no such library",
            where=str(library),
            hint="‹library› names libnccltune-sendrecv.so; left out, it is the installed one",
        )
    library = library.absolute()
    nccl: str | None = str(launch.nccl) if launch.nccl is not None else None

    @contextlib.contextmanager
    def start(carrier: Carrier, process: int) -> Iterator[BenchProcess]:  # noqa: ARG001
        nonlocal nccl
        if carrier is Carrier.NATIVE:
            # Turn the library off, in case the shell preloads it.
            with Bench(launch, program=program, settings={ON: "0"}) as bench:
                nccl = nccl or bench.hello.nccl.path
                yield RunningBench(bench)
            return
        with tempfile.TemporaryDirectory(prefix="nccltune-") as name:
            counts = Path(name) / "messages"
            # The bench opens NCCL by path and calls only functions of that file. So pass the
            # library's path as the path of NCCL. Also preload the library, as users do for programs
            # that are linked with NCCL.
            variables = preloaded(library, nccl, os.environ)
            variables |= {name: str(value) for name, value in carrier.settings.items()}
            variables["NCCLTUNE_SENDRECV_STATS"] = str(counts)
            ours = launch._replace(nccl=library)
            with Bench(ours, program=program, settings=variables) as bench:
                running = RunningBench(bench)
                yield running
            running.carried = _carried(counts, bench.stderr_tail, carrier)

    return start


def preloaded(library: Path, nccl: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that put `library` before NCCL at `nccl`, or where it finds one."""
    others = environment.get("LD_PRELOAD")
    variables = {"LD_PRELOAD": f"{library}:{others}" if others else str(library)}
    variables[CONNECTIONS] = environment.get(CONNECTIONS) or ENOUGH_CONNECTIONS
    if nccl is not None:
        variables["NCCLTUNE_SENDRECV_NCCL"] = nccl
    return variables


def _carried(counts: Path, stderr_tail: str, carrier: Carrier) -> dict[str, int]:
    """Return the messages by carrier from the file `counts`.

    Raises LaunchError if copy engines carried none or a setting was refused: the process then did
    not measure what the settings request.
    """
    warnings = list(dict.fromkeys(_WARNING.findall(stderr_tail)))
    for warning in warnings:
        if any(re.search(rf"\b{name}\b", warning) for name in carrier.settings):
            raise LaunchError(f"the library refused a setting: {warning}")
    if not counts.is_file():
        raise LaunchError("the library reported no messages: the bench did not load it")
    found = count_messages(counts.read_text(encoding="utf-8", errors="replace"))
    if not any(carrier.startswith(BY_COPY_ENGINE) for carrier in found):
        counted = [f"{carrier}: {messages}" for carrier, messages in found.items()]
        details = "; ".join([*counted, *warnings]) or "none at all"
        raise LaunchError(f"copy engines carried no message ({details})")
    return found


def count_messages(text: str) -> dict[str, int]:
    """Return the messages by carrier in a file of `NCCLTUNE_SENDRECV_STATS`, of all processes."""
    found: dict[str, int] = {}
    for carrier, messages in _COUNT.findall(text):
        found[carrier] = found.get(carrier, 0) + int(messages)
    return found
