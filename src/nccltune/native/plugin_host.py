# SPDX-License-Identifier: Apache-2.0
"""Ask a tuner plugin for its decisions. The plugin runs in a process of its own."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

from nccltune.model.choice import Algorithm, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, NccltuneError, PlatformError
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.native.line_process import LineProcess, NoAnswer, ProcessEnded, ending
from nccltune.native.locate import host_path
from nccltune.native.records import HostInit, PluginDecision

Costs = Mapping[tuple[Algorithm, Protocol], float]
"""NCCL's predicted times in us. NCCL cannot run a combination that is missing."""
Feature = Literal["nvls", "collnet", "ll128"]
TIMEOUT_S = 10.0
_T = TypeVar("_T")


class PluginHost:
    """A tuner plugin, loaded as `nccl_version` loads it for a communicator of `scale`.

    Use it in a `with` statement. Entering starts the host program, loads the plugin and calls its
    init; leaving calls its finalize. The plugin gets the environment variables of this process,
    changed by `environment`, for example NCCL_TUNER_CONFIG_FILE. A value of None unsets a variable.
    `without` names features that the platform lacks; it has an effect only on calls of `decide`
    without `costs`. A call that takes longer than `timeout_s` seconds ends the process.

    Entering raises PlatformError if the host is not installed or the plugin cannot be loaded, and
    InputError for an NCCL version or a scale at which NCCL asks no tuner. Entering, leaving and
    `decide` raise LaunchError if the plugin fails in init, crashes, hangs or ends the process, and
    NccltuneError if the host's answer cannot be decoded.

    >>> from nccltune.native import tuner_path
    >>> with PluginHost(tuner_path(), nccl_version="2.28.9", scale=Scale(4, 32)) as host:
    ...     host.decide(Collective.ALLREDUCE, 1 << 20).label
    'default'
    """

    def __init__(
        self,
        tuner: Path | str,
        *,
        nccl_version: str,
        scale: Scale,
        channels: int | None = None,
        without: Iterable[Feature] = (),
        environment: Mapping[str, str | None] | None = None,
        timeout_s: float = TIMEOUT_S,
        program: Path | None = None,
    ) -> None:
        self._tuner = Path(tuner).absolute()
        self._timeout_s = timeout_s
        self._program = program
        self._environment = _changed_environment(environment or {})
        self._arguments = [f"--tuner={self._tuner}", f"--nccl={nccl_version}"]
        options = {
            "nodes": scale.nodes,
            "ranks": scale.ranks,
            "channels": channels,
            "without": ",".join(without) or None,
        }
        self._arguments += [f"--{key}={value}" for key, value in options.items() if value]
        self._process: LineProcess | None = None
        self._init: HostInit | None = None

    @property
    def init(self) -> HostInit:
        """Return the result of loading the plugin and calling its init."""
        assert self._init is not None, "the host is used outside of its with statement"
        return self._init

    def __enter__(self) -> Self:
        self._process = LineProcess(
            [str(self._program or host_path()), *self._arguments], self._environment
        )
        try:
            answer = self._receive("loading it")
            self._init = _decode(answer, HostInit)
            if self._init.error is not None:
                self._raise_start_failure(self._init)
        except BaseException:
            self._process.__exit__()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        with process:
            if kind is not None:
                return
            status = process.finish(self._timeout_s)
            if status is None:
                raise self._hung("finalize")
            if status != 0:
                raise self._death_error(status, process.stderr, "finalize")

    def decide(
        self,
        collective: Collective,
        size: int,
        *,
        pipe_ops: int = 1,
        registered: bool = False,
        costs: Costs | None = None,
        chunk_bytes: int | None = None,
        log: bool = False,
    ) -> PluginDecision:
        """Return the plugin's decision on one call of `size` bytes, counted as NCCL's tuner counts.

        `costs` are NCCL's predicted times in us. Without them, every algorithm with a protocol that
        NCCL has for this collective and scale gets the same nominal cost, and the choice of NCCL
        itself is unknown. `chunk_bytes` is the chunk size that NCCL would use without a tuner; None
        is NCCL's largest chunk. Only NCCL 2.30 and later asks a tuner for a chunk size. With `log`
        the result has all log lines of the plugin, otherwise only its warnings.

        Raises InputError for a call that NCCL does not make, LaunchError if the plugin crashes,
        hangs or ends the process, and NccltuneError if the answer cannot be decoded.
        """
        assert self._process is not None, "the host is used outside of its with statement"
        request: dict[str, Any] = {
            "op": "decide",
            "collective": collective.value,
            "bytes": size,
            "pipe_ops": pipe_ops,
            "registered": registered,
            "log": log,
        }
        if chunk_bytes is not None:
            request["chunk_bytes"] = chunk_bytes
        if costs is not None:
            request["costs"] = {
                f"{algorithm.value}/{protocol.value}": cost
                for (algorithm, protocol), cost in costs.items()
            }
        self._process.send(msgspec.json.encode(request))
        doing = f"{collective.value} of {format_bytes(size)}"
        answer = self._receive(doing)
        problem = msgspec.json.decode(answer).get("error") or {}
        if problem.get("kind") == "request":
            raise InputError(str(problem.get("text")), where=doing)
        return _decode(answer, PluginDecision)

    def _receive(self, doing: str) -> bytes:
        assert self._process is not None
        try:
            return self._process.receive(self._timeout_s)
        except NoAnswer:
            raise self._hung(doing) from None
        except ProcessEnded as end:
            raise self._death_error(end.status, end.stderr, doing) from None

    def _hung(self, doing: str) -> LaunchError:
        return LaunchError(
            f"the plugin gave no answer within {self._timeout_s:g} s ({doing})",
            where=str(self._tuner),
            hint="NCCL would wait for it without end; the process was killed",
        )

    def _death_error(self, status: int, stderr: str, doing: str) -> NccltuneError:
        last = stderr.splitlines()[-1] if stderr else ""
        if status == 2 and doing == "loading it":
            return InputError(stderr.splitlines()[0].removeprefix("error: ") if stderr else "usage")
        how = ending(status)
        blame = "the plugin crashed: its process" if status < 0 else "the plugin's process"
        return LaunchError(
            f"{blame} {how} ({doing})",
            where=str(self._tuner),
            hint=f"its last words: {last}" if last else "it would take NCCL's process down, too",
        )

    def _raise_start_failure(self, init: HostInit) -> None:
        assert init.error is not None
        where = str(self._tuner)
        if init.error.kind == "init":
            warnings = [line.text for line in init.log if line.level == "WARN"]
            hint = f"the plugin's warning: {warnings[-1]}" if warnings else None
            raise LaunchError(init.error.text, where=where, hint=hint)
        exported = ", ".join(f"v{version}" for version in init.exported)
        hint = f"it exports tuner interface {exported}" if exported else None
        if init.error.kind == "load":
            hint = "the file must be a shared object of this machine's architecture, and what it "
            hint += "links must be found"
        raise PlatformError(init.error.text, where=where, hint=hint)


def _decode(answer: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise NccltuneError(f"the plugin host's answer cannot be decoded: {error}") from error


def _changed_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    environment = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment
