# SPDX-License-Identifier: Apache-2.0
"""`nccltune-bench` on this machine: start it, send requests, and leave no process behind."""

import contextlib
import ctypes
import itertools
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import msgspec

from nccltune.formats.importing.hardware import hardware_hash
from nccltune.launch.follow import Follower
from nccltune.launch.kubernetes.kubectl import EXEC_FAILED
from nccltune.measure.bench.conversation import (
    SCHEMA_VERSION,
    BenchPoint,
    Hello,
    Measure,
    Op,
    TableRequest,
    TableRow,
)
from nccltune.model.errors import InputError, LaunchError, NccltuneError, PlatformError
from nccltune.model.scale import count
from nccltune.native import bench_path
from nccltune.native.child import run_tool
from nccltune.native.line_process import LineProcess, NoAnswer, ProcessEnded, ending

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


if TYPE_CHECKING:
    from nccltune.measure.bench.with_launcher import WithLauncher

START_LIMIT_S = 150.0
"""Seconds until the first answer; the bench gives its processes 120 s to connect."""
END_LIMIT_S = 40.0
_CTAS_OF_A_GPU = 8
"""The number of channels (CTAs) that all ranks on one GPU share, if a node has several ranks."""
_BEYOND_TIMEOUT_S = 30.0
"""Seconds beyond the time limit of a point, which the bench itself enforces."""
NO_GPU_HINT = "try the whole loop on a recording: nccltune auto --replay h200x4-as-4-nodes"
ONE_GPU_HINT = (
    "several ranks can share it, as nodes: ‹ranks_per_gpu› 4 ‹mps› measures how NCCL's choices "
    "compare, not how fast a cluster is (docs/guides/one-gpu.md)"
)
_T = TypeVar("_T")


class Launch(NamedTuple):
    """What to run: a replay of the study `replay`, or NCCL on `gpus` GPUs (None: all visible).

    There is one process for each GPU, or one with `one_process`; with `ranks_per_gpu` above 1
    several share a GPU, and `gpus` and `emulate_nodes` must be given. `mps` are the variables of an
    MPS daemon. `config` has the rules of the choice `tuned`; None leaves that to the environment.
    """

    replay: Path | None = None
    nccl: Path | None = None
    gpus: int | None = None
    emulate_nodes: int | None = None
    one_process: bool = False
    ranks_per_gpu: int = 1
    mps: Mapping[str, str] | None = None
    config: Path | None = None
    with_launcher: "WithLauncher | None" = None

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables for ranks that share a GPU.

        Kernels of one node's ranks wait for each other, so all on a GPU must run at once: each rank
        gets few channels (CTAs).
        """
        found = dict(self.mps or {})
        ranks = (self.gpus or 0) * self.ranks_per_gpu
        if self.ranks_per_gpu > 1 and (self.emulate_nodes or 0) < ranks:
            found["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
            found["NCCL_MAX_CTAS"] = str(max(1, _CTAS_OF_A_GPU // self.ranks_per_gpu))
        return found

    @property
    def rule_variables(self) -> dict[str, str]:
        """Return the variables with which the rules of `config` apply, whatever this shell sets."""
        if self.config is None:
            return {}
        return {
            "NCCLTUNE_CONFIG": str(self.config.absolute()),
            "NCCLTUNE_CONFIG_HASH": "",
            "NCCLTUNE_STRICT": "0",
            "NCCLTUNE_STALE": "warn",
        }


class Bench:
    """A running bench. Entering starts it; leaving leaves no process, whatever ends it.

    If this process is killed, the bench ends itself. Raises PlatformError where this machine cannot
    run it, LaunchError where it failed or died, InputError for unusable input.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        program: Sequence[str] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`program` replaces the installed bench, with additional variables `settings`.

        `meanwhile` is called while the bench starts, which takes seconds on GPUs.
        """
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
        self._stderr_tail = ""

    @property
    def stderr_tail(self) -> str:
        """Return the end of the standard error, once the `with` has ended well."""
        return self._stderr_tail

    @property
    def hello(self) -> Hello:
        """Return the first answer of the bench."""
        assert self._hello is not None, "the bench is used outside of its with statement"
        return self._hello

    def __enter__(self) -> Self:
        program = list(self._program or [str(bench_path())])
        environment = {**self._launch.variables, **os.environ, **(self._launch.mps or {})}
        environment |= {**self._settings, "NCCLTUNE_TOKEN": secrets.token_hex(16)}
        environment |= self._launch.rule_variables
        others: list[list[str]] = []
        lines: list[bytes] = []
        if self._launch.with_launcher is None:
            first, *others = command_lines(program, self._launch, free_port())
        else:
            from nccltune.measure.bench.with_launcher import command

            program += options_of(self._launch)
            first, lines = command(program, self._launch.with_launcher, free_port(), environment)
        self._process = LineProcess(first, environment, others=others, apart=True)
        try:
            for line in lines:
                self._process.send(line)
            self._send({"op": "hello", "schema_version": SCHEMA_VERSION})
            self._meanwhile()
            self._hello = self._await("hello", Hello, START_LIMIT_S)
        except BaseException:
            self._process.__exit__()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        with process:
            if kind is None:
                process.send(b'{"op":"quit"}')
                process.finish(END_LIMIT_S)
                self._stderr_tail = process.stderr

    def tables(self, request: TableRequest) -> list[TableRow]:
        """Return NCCL's predictions, without sizes that have none and no error."""
        request.id = next(self._ids)
        self._send(request)
        limit = _BEYOND_TIMEOUT_S * (1 + len(request.bytes))
        return [row for row in self._await("table", Op, limit).rows if row.costs or row.error]

    def ask(self, request: Measure) -> None:
        """Send a request for `answer`; several may be sent before the first answer."""
        request.id = next(self._ids)
        self._asked.append(request)
        self._send(request)

    def answer(self) -> tuple[list[BenchPoint], bool]:
        """Return the points that arrived for the oldest request, and whether it is finished.

        After a failed point the bench may end: the next call then raises.
        """
        if not self._lines:
            self._lines.extend(self._receive(self._asked[0].timeout_s + _BEYOND_TIMEOUT_S))
        points: list[BenchPoint] = []
        while self._lines:
            line = self._lines.popleft()
            op = _decode(line, Op)
            if op.op == "point":
                points.append(_decode(line, BenchPoint))
            elif op.op == "done":
                self._asked.popleft()
                return points, True
            else:
                self._unexpected(op)
        return points, False

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        """Send a request, and yield its points as they arrive, all available ones at a time."""
        self.ask(request)
        done = False
        while not done:
            points, done = self.answer()
            if points:
                yield points

    def _receive(self, limit_s: float) -> list[bytes]:
        assert self._process is not None, "the bench is used outside of its with statement"
        try:
            return self._process.receive_all(limit_s)
        except NoAnswer:
            raise LaunchError(
                f"the bench gave no answer within {limit_s:.0f} s and was killed",
                hint=_explaining_line(self._process.stderr)
                or "NCCL_DEBUG=INFO shows its last step",
            ) from None
        except ProcessEnded as end:
            raise self._end_error(end.status, end.stderr) from None

    def _await(self, op: str, kind: type[_T], limit_s: float) -> _T:
        for line in self._receive(limit_s):
            answer = _decode(line, Op)
            if answer.op == op:
                return _decode(line, kind)
            self._unexpected(answer)
        return self._await(op, kind, limit_s)

    def _unexpected(self, answer: Op) -> None:
        """Keep an error other than "request", which states why the bench ends; else
        NccltuneError."""
        if answer.op == "error" and answer.kind != "request":
            self._trouble = answer
            return
        raise NccltuneError(f"the bench did not understand the request: {answer.text or answer.op}")

    def _end_error(self, status: int, stderr: str) -> NccltuneError:
        text, hint = None, None
        if self._trouble is not None:
            text, hint = self._trouble.text, self._trouble.hint
        for line in stderr.splitlines():
            if line.startswith("error:"):
                text = text or line.removeprefix("error:").strip()
            elif line.startswith("hint:"):
                hint = hint or line.removeprefix("hint:").strip()
        text = text or _lost(stderr)
        # Status 0 is an error here, too: kubectl exec exits with 0 when its connection is lost.
        text = text or (
            f"the bench {ending(status)}" if status else "the bench ended before its answer"
        )
        if status == 2:
            return InputError(text, hint=hint)
        if status == 3:
            return PlatformError(text, hint=hint or NO_GPU_HINT)
        return LaunchError(text, hint=hint or _explaining_line(stderr))

    def _send(self, request: object) -> None:
        assert self._process is not None, "the bench is used outside of its with statement"
        self._process.send(msgspec.json.encode(request))


def command_lines(program: Sequence[str], launch: Launch, port: int) -> list[list[str]]:
    """Return the command of every process, first the one that answers.

    Raises InputError for more emulated nodes than processes, PlatformError for fewer than two
    ranks.
    """
    # nccltune itself may run under a launcher. The launcher's variables do not describe these
    # processes, so the bench must ignore them.
    common = [*program, "--launcher=none", *options_of(launch)]
    gpus = launch.gpus or visible_gpus(NO_GPU_HINT)
    processes = 1 if launch.one_process else gpus * launch.ranks_per_gpu
    if launch.ranks_per_gpu > 1:
        common.append(f"--ranks-per-gpu={launch.ranks_per_gpu}")
    elif gpus == 1:
        raise PlatformError("one GPU alone has nothing to measure", hint=ONE_GPU_HINT)
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
    """Return the bench's option that names the NCCL library, if the launch names one."""
    return [f"--nccl={launch.nccl}"] if launch.nccl is not None else []


def free_port() -> int:
    """Return a port of this host that is free now."""
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
    """Return a launcher's message that it could not start or lost a node; None without one."""
    follower = Follower()
    follower.feed(stderr.encode())
    return follower.lost


def _explaining_line(stderr: str) -> str | None:
    """Return the line of standard error that explains the end.

    A launcher that lost a node says so before its guesses; otherwise it is the last line.
    """
    lines = [line for line in stderr.splitlines() if line.strip(" \t-=*")]
    lines = [line for line in lines if not line.startswith(EXEC_FAILED)]
    if not lines:
        return None
    return f"its first line: {lines[0]}" if _lost(stderr) else f"its last line: {lines[-1]}"
