# SPDX-License-Identifier: Apache-2.0
"""A bench with the library before its NCCL, and what the library says of its messages."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nccltune.measure.bench import Bench, Launch
from nccltune.measure.conversation import Hello, Measure, Point
from nccltune.measure.p2p.runs import Kept
from nccltune.measure.p2p.session import Process, Starter
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.sendrecv.settings import ON
from nccltune.model.errors import InputError, LaunchError

SENDRECV = Kept("sendrecv", "comparison of NCCL with copy engines", "--sendrecv")
UNDER_LOAD = Kept(
    "sendrecv-load", "comparison of NCCL with copy engines under load", "--sendrecv --load"
)
BESIDE_TRAFFIC = Kept(
    "sendrecv-fairness", "comparison of chunks beside traffic", "--sendrecv --fairness"
)
CONNECTIONS = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
"""Streams that share a connection wait for each other, and with traffic in one of them ranks could
wait in a circle; the library asks for as many where it is loaded with the program."""
BY_COPY_ENGINE = "copy engine"
"""How the library's words for a message of a copy engine begin."""
_WARNING = re.compile(r"nccltune sendrecv WARN (.+)")
_COUNT = re.compile(r"nccltune sendrecv: process \d+: (.+): (\d+) messages, \d+ bytes")


class _Running:
    """A bench of this machine."""

    recorded_s = None
    carried: Mapping[str, int] | None = None

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @property
    def hello(self) -> Hello:
        return self._bench.hello

    def effective(self) -> None:
        """NCCL's own settings are what they are, with the library and without."""

    def measure(self, request: Measure) -> Iterator[list[Point]]:
        return self._bench.measure(request)


def on_gpus(
    launch: Launch,
    library: Path,
    *,
    program: Sequence[str] | None = None,
    more: Mapping[str, str] | None = None,
) -> Starter:
    """A starter of `nccltune-bench` as `launch` says, with `library` before its NCCL unless the
    settings are the default; `program` stands in for the bench, `more` are variables for all. What
    NCCL it is the first process tells, which is to be a default. Raises InputError for a library
    that is not there."""
    if not library.is_file():
        raise InputError(
            "no such library",
            where=str(library),
            hint="--sendrecv-library names libnccltune-sendrecv.so; left out, it is the installed "
            "one",
        )
    library = library.absolute()
    nccl: str | None = str(launch.nccl) if launch.nccl is not None else None
    always = dict(more or {})

    @contextlib.contextmanager
    def start(settings: Settings, process: int) -> Iterator[Process]:  # noqa: ARG001
        nonlocal nccl
        if settings == DEFAULT:
            # A shell that has the library in all its programs is still to measure NCCL alone.
            with Bench(launch, program=program, settings={**always, ON: "0"}) as bench:
                nccl = nccl or bench.hello.nccl.path
                yield _Running(bench)
            return
        with tempfile.TemporaryDirectory(prefix="nccltune-") as name:
            counts = Path(name) / "messages"
            # The bench opens NCCL by its path and asks that object alone: the library is that
            # path, and preloaded besides, as programs have it that are linked with NCCL.
            variables = {**always, **preloaded(library, nccl, os.environ), **settings.environment}
            variables["NCCLTUNE_SENDRECV_STATS"] = str(counts)
            ours = launch._replace(nccl=library)
            with Bench(ours, program=program, settings=variables) as bench:
                running = _Running(bench)
                yield running
            running.carried = _carried(counts, bench.said, settings)

    return start


def preloaded(library: Path, nccl: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that put `library` before `nccl` (a path; None: found by the library)."""
    others = environment.get("LD_PRELOAD")
    variables = {"LD_PRELOAD": f"{library}:{others}" if others else str(library)}
    if nccl is not None:
        variables["NCCLTUNE_SENDRECV_NCCL"] = nccl
    return variables


def _carried(counts: Path, said: str, settings: Settings) -> dict[str, int]:
    """Messages by who carried them. Raises LaunchError where copy engines carried none or a setting
    was refused: something else would be compared than what is said."""
    warnings = list(dict.fromkeys(_WARNING.findall(said)))
    for warning in warnings:
        if any(re.search(rf"\b{name}\b", warning) for name in settings.environment):
            raise LaunchError(f"the library refused a setting: {warning}")
    if not counts.is_file():
        raise LaunchError("the library said nothing of its messages: it was not in the bench")
    found = count_messages(counts.read_text(encoding="utf-8", errors="replace"))
    if not any(way.startswith(BY_COPY_ENGINE) for way in found):
        ways = [f"{way}: {messages}" for way, messages in found.items()]
        raise LaunchError(
            f"copy engines carried no message ({'; '.join([*ways, *warnings]) or 'none at all'})"
        )
    return found


def count_messages(text: str) -> dict[str, int]:
    """Messages by who carried them, summed over the processes of `NCCLTUNE_SENDRECV_STATS`."""
    found: dict[str, int] = {}
    for way, messages in _COUNT.findall(text):
        found[way] = found.get(way, 0) + int(messages)
    return found
