# SPDX-License-Identifier: Apache-2.0
"""`nccltune-bench` on this machine: start it, ask it, and leave nothing of it behind."""

import itertools
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import msgspec

from nccltune.launch.follow import Follower
from nccltune.launch.kubernetes.kubectl import EXEC_FAILED
from nccltune.measure.conversation import (
    SCHEMA_VERSION,
    Hello,
    Measure,
    Op,
    Point,
    Table,
    TableRow,
)
from nccltune.measure.gpus import visible_gpus
from nccltune.model.errors import InputError, LaunchError, NccltuneError, PlatformError
from nccltune.model.scale import count
from nccltune.native import bench_path
from nccltune.native.line_process import LineProcess, NoAnswer, ProcessEnded, ending

if TYPE_CHECKING:
    from nccltune.measure.under import Under

START_LIMIT_S = 150.0
"""The bench itself gives its processes 120 s to meet and to make the communicator."""
END_LIMIT_S = 40.0
_BEYOND_TIMEOUT_S = 30.0
"""Between two answers beyond a point's own time limit, which the bench watches itself."""
NO_GPU_HINT = "try the whole loop on a recording: nccltune auto --replay h200x4-as-4-nodes"
_T = TypeVar("_T")


class Launch(NamedTuple):
    """What to run on this machine: a replay of the study `replay`, or NCCL on `gpus` GPUs (None:
    all that are visible), one process each or one for all; `under` a site's launcher where it is
    to start them. `config` holds the rules that choice `tuned` means; without it the environment
    decides."""

    replay: Path | None = None
    nccl: Path | None = None
    gpus: int | None = None
    emulate_nodes: int | None = None
    one_process: bool = False
    config: Path | None = None
    under: "Under | None" = None


class Bench:
    """A running bench, to be used in a `with` statement; entering starts it and says hello.

    Whatever ends the `with`, no process is left; should this process be killed, the bench's
    processes end themselves. Errors: PlatformError where this machine cannot run it, LaunchError
    where it failed or died, InputError where it was given something unusable.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        program: Sequence[str] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`program` stands in for the installed bench; `meanwhile` is called while it starts,
        which takes seconds on GPUs; `settings` are variables to run it with beside its own."""
        self._launch = launch
        self._program = program
        self._meanwhile = meanwhile
        self._settings = settings or {}
        self._process: LineProcess | None = None
        self._ids = itertools.count(1)
        self._asked: deque[Measure] = deque()
        self._lines: deque[bytes] = deque()
        self._trouble: Op | None = None
        self._hello: Hello | None = None
        self._said = ""

    @property
    def said(self) -> str:
        """The last of what its processes wrote to standard error, once they have ended."""
        return self._said

    @property
    def hello(self) -> Hello:
        """Who answered."""
        assert self._hello is not None, "the bench is used outside of its with statement"
        return self._hello

    def __enter__(self) -> Self:
        program = list(self._program or [str(bench_path())])
        environment = {**os.environ, **self._settings, "NCCLTUNE_TOKEN": secrets.token_hex(16)}
        if self._launch.config is not None:
            # These rules are meant, whatever this shell says about others.
            environment |= {
                "NCCLTUNE_CONFIG": str(self._launch.config.absolute()),
                "NCCLTUNE_STRICT": "0",
                "NCCLTUNE_STALE": "warn",
            }
        others: list[list[str]] = []
        lines: list[bytes] = []
        if self._launch.under is None:
            first, *others = command_lines(program, self._launch, free_port())
        else:
            from nccltune.measure.under import command

            program += options_of(self._launch)
            first, lines = command(program, self._launch.under, free_port(), environment)
        self._process = LineProcess(first, environment, others=others, apart=True)
        try:
            for line in lines:
                self._process.send(line)
            self._send({"op": "hello", "schema_version": SCHEMA_VERSION})
            self._meanwhile()
            self._hello = self._await("hello", Hello, START_LIMIT_S)
        except BaseException:
            self._process.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        with process:
            if kind is None:
                process.send(b'{"op":"quit"}')
                process.finish(END_LIMIT_S)
                self._said = process.stderr

    def tables(self, request: Table) -> list[TableRow]:
        """NCCL's predictions; sizes it could not be asked at are left out."""
        request.id = next(self._ids)
        self._send(request)
        limit = _BEYOND_TIMEOUT_S * (1 + len(request.bytes))
        return [row for row in self._await("table", Op, limit).rows if row.costs]

    def ask(self, request: Measure) -> None:
        """Send a request; `answer` has what comes back. One asked ahead costs no time between."""
        request.id = next(self._ids)
        self._asked.append(request)
        self._send(request)

    def answer(self) -> tuple[list[Point], bool]:
        """The points of the oldest request that have come, and whether they were its last.

        A point that ends the bench is handed out before the error is raised.
        """
        if not self._lines:
            self._lines.extend(self._receive(self._asked[0].timeout_s + _BEYOND_TIMEOUT_S))
        points: list[Point] = []
        while self._lines:
            line = self._lines.popleft()
            op = _decode(line, Op)
            if op.op == "point":
                points.append(_decode(line, Point))
            elif op.op == "done":
                self._asked.popleft()
                return points, True
            else:
                self._unexpected(op)
        return points, False

    def measure(self, request: Measure) -> Iterator[list[Point]]:
        """Ask, and yield points as they come, all that are there at a time."""
        self.ask(request)
        done = False
        while not done:
            points, done = self.answer()
            if points:
                yield points

    def _receive(self, limit_s: float) -> list[bytes]:
        """The lines that have come, at least one."""
        assert self._process is not None, "the bench is used outside of its with statement"
        try:
            return self._process.receive_all(limit_s)
        except NoAnswer:
            raise LaunchError(
                f"the bench gave no answer within {limit_s:.0f} s and was killed",
                hint=_last_words(self._process.stderr) or "NCCL_DEBUG=INFO shows where it stands",
            ) from None
        except ProcessEnded as end:
            raise self._ended(end.status, end.stderr) from None

    def _await(self, op: str, kind: type[_T], limit_s: float) -> _T:
        for line in self._receive(limit_s):
            answer = _decode(line, Op)
            if answer.op == op:
                return _decode(line, kind)
            self._unexpected(answer)
        return self._await(op, kind, limit_s)

    def _unexpected(self, answer: Op) -> None:
        """An error: of a request, which is our bug, or the reason for the end that follows."""
        if answer.op == "error" and answer.kind != "request":
            self._trouble = answer
            return
        raise NccltuneError(f"the bench did not understand: {answer.text or answer.op}")

    def _ended(self, status: int, stderr: str) -> NccltuneError:
        text, hint = None, None
        if self._trouble is not None:
            text, hint = self._trouble.text, self._trouble.hint
        for line in stderr.splitlines():
            if line.startswith("error:"):
                text = text or line.removeprefix("error:").strip()
            elif line.startswith("hint:"):
                hint = hint or line.removeprefix("hint:").strip()
        text = text or _lost(stderr)
        # kubectl's exec ends so when its connection does.
        text = text or (
            f"the bench {ending(status)}" if status else "the bench was gone before its answer"
        )
        if status == 2:
            return InputError(text, hint=hint)
        if status == 3:
            return PlatformError(text, hint=hint or NO_GPU_HINT)
        return LaunchError(text, hint=hint or _last_words(stderr))

    def _send(self, request: object) -> None:
        assert self._process is not None, "the bench is used outside of its with statement"
        self._process.send(msgspec.json.encode(request))


def command_lines(program: Sequence[str], launch: Launch, port: int) -> list[list[str]]:
    """The command of every process, the one that speaks first.

    Raises InputError for what cannot be combined, PlatformError where there is no GPU.
    """
    # Variables of a launcher around this process are not about these ones.
    common = [*program, "--launcher=none", *options_of(launch)]
    if launch.replay is not None:
        return [common]
    gpus = launch.gpus or visible_gpus(NO_GPU_HINT)
    processes = 1 if launch.one_process else gpus
    if launch.emulate_nodes:
        if launch.emulate_nodes > processes:
            raise InputError(
                f"{launch.emulate_nodes} nodes cannot be emulated with "
                f"{count(processes, 'process')}",
                hint="a process is on one node: at least one process, and GPU, a node",
            )
        common.append(f"--emulate-nodes={launch.emulate_nodes}")
    if processes == 1:
        return [[*common, f"--gpus-per-process={gpus}"]]
    common.append(f"--rendezvous=127.0.0.1:{port}")
    return [[*common, f"--rank={rank}", f"--size={processes}"] for rank in range(processes)]


def options_of(launch: Launch) -> list[str]:
    """The bench's options for what to measure."""
    if launch.replay is not None:
        return [f"--replay={launch.replay}"]
    return [f"--nccl={launch.nccl}"] if launch.nccl is not None else []


def free_port() -> int:
    """A port of this host that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _decode(line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise NccltuneError(f"the bench gave an answer that cannot be read: {error}") from error


def _lost(stderr: str) -> str | None:
    """The sentence for a launcher that did not start the bench on a node, or lost it there."""
    follower = Follower()
    follower.feed(stderr.encode())
    return follower.lost


def _last_words(stderr: str) -> str | None:
    """What a launcher says after the reason of a lost node is guesses; what kubectl says in the
    end is the status, which is known."""
    lines = [line for line in stderr.splitlines() if line.strip(" \t-=*")]
    lines = [line for line in lines if not line.startswith(EXEC_FAILED)]
    if not lines:
        return None
    return f"it began with: {lines[0]}" if _lost(stderr) else f"its last words: {lines[-1]}"
