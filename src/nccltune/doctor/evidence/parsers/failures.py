# SPDX-License-Identifier: Apache-2.0
"""Find lines that state a failure of NCCL, CUDA, the driver, PyTorch or launchers.

NCCL lines of level INFO are ignored: NCCL tries operations that may fail and continues without
them. A connection that was tried a third as often as NCCL tries is no such operation.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.kernel_log import without_kernel_lines
from nccltune.doctor.evidence.parsers.nccl_warnings import WARNING, message_kind, warning_kind

MOST = 400
LONGEST = 300
# Words that appear only in lines that state a failure, by kind of failure. Sources: nccl 2.18-2.32
# (src/misc/socket.cc, include/checks.h) and nccl-tests 2.0-2.17 (src/common.h); CUDA's runtime
# error strings and nvidia-smi 450-580; PyTorch 1.13-2.9 (ProcessGroupNCCL.cpp); Open MPI 4-5 and
# PRRTE (help-*.txt), Slurm 20-25; Linux' strerror and Kubernetes' event reasons.
_WORDS: dict[str, tuple[str, ...]] = {
    "no_gpu": (
        "No devices were found",
        "NVIDIA-SMI has failed",
        "couldn't communicate with the NVIDIA driver",
        "Failed to initialize NVML",
        "Driver/library version mismatch",
        "nvidia-smi: command not found",
        "nvidia-smi: not found",
        "nvidia-smi: No such file",
        "no CUDA-capable device is detected",
        "cudaErrorNoDevice",
        "CUDA_ERROR_NO_DEVICE",
        "Found no NVIDIA driver",
        *("No CUDA GPUs are available", "no GPUs found!"),
        "libcuda.so.1: cannot open",
        "libcuda.so: cannot open",
        "libnvidia-ml.so.1: cannot open",
        "driver is a stub library",
        "could not select device driver",
        "nvidia-container-cli: initialization error",
        "failed call to cuInit",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "has unsupported driver",
    ),
    "no_rdma": (
        "sys files not found (/sys/class/infiniband",
        "No IB devices found",
        "Failed to get IB devices list",
        "No RDMA devices found",
        *("no devices in device pool", "no Rdma Devices were found"),
        *("missing RDMA device spec for device", "Unable to find the Infiniband/RoCE device"),
    ),
    "no_smi": ("nvidia-smi: is not installed",),
    "gdr_off": ("GPU Direct RDMA Disabled for HCA",),
    "gpu_lost": (
        "GPU is lost",
        "fallen off the bus",
        "Unable to determine the device handle",
    ),
    "gpu_busy": (
        "busy or unavailable",
        "cudaErrorDevicesUnavailable",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "GPU requires reset",
    ),
    "driver_old": (
        "driver version is insufficient",
        "cudaErrorInsufficientDriver",
        "NVIDIA driver on your system is too old",
        "forward compatibility was attempted",
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED",
        "unsatisfied condition: cuda",
        "unsupported toolchain",
        *("not supported in the installed CUDA driver", "cudaErrorCallRequiresNewerDriver"),
    ),
    "no_kernel": (
        "no kernel image is available",
        *("invalid device function", "cudaErrorInvalidDeviceFunction", "hipErrorNoBinaryForGpu"),
        "is not compatible with the current PyTorch installation",
    ),
    "fabric": (
        "system not yet initialized",
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "cudaErrorSystemNotReady",
    ),
    "fabric_manager": (
        "fabric manager NVIDIA GPU driver interface version",
        "NV_WARN_NOTHING_TO_DO",
        "fabric manager config file item",
        *("nvidia-fabricmanager.service failed", "nvidia-fabricmanager.service: Failed"),
        *("nvidia-fabricmanager.service: Main process exited", "Failed to start NVIDIA fabric"),
        *("available GPUs or NVSwitches", "not all local fabric manager instances"),
    ),
    "rccl_needs": ("[FATAL ERROR]: HSA_", "Please set HSA_"),
    "health": (
        *("nhc:  Health check failed", ": Health check failed:  ", "Node Health Check failed"),
        *("Node Health Checks failed", "Found XID errors", "NHC: "),
        *("DCGM_FR_", "IsNotHealthy"),
    ),
    "nvls": ("in the multicast team request",),
    "efa_fork": (
        "the libfabric EFA provider is operating in",
        "EFA provider does not support fork",
    ),
    "peer_access": ("peer access is not supported", "cudaErrorPeerAccessUnsupported"),
    "device": ("invalid device ordinal", "cudaErrorInvalidDevice", "both on CUDA device"),
    "gpu_fault": (
        "uncorrectable ECC error",
        "cudaErrorECCUncorrectable",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "unspecified launch failure",
        *("illegal memory access", "illegal instruction was encountered"),
        "uncorrectable NVLink error",
        "cudaErrorNvlinkUncorrectable",
        *("CUDA_ERROR_CONTAINED", "cudaErrorContained", "Invalid access of peer GPU memory"),
        "cudaErrorHardwareStackError",
        "misaligned address",
        "Memory access fault by GPU",
    ),
    # What the kernel says, in a line without its mark: of modprobe, a monitor, or a person.
    "kernel": (
        *("could not insert 'nvidia_peermem'", "could not insert 'nv_peer_mem'"),
        *("nvidia_peermem: Unknown symbol", "nv_peer_mem: Unknown symbol"),
        *("Xid", "XID", " xid ", "NVSwitch fatal error", "NVSwitch non-fatal error"),
    ),
    "gpu_memory": (
        "CUDA out of memory",
        "CUDA error: out of memory",
        "Cuda failure 'out of memory'",
        "Cuda failure 2 'out of memory'",
        "cudaErrorMemoryAllocation",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "OutOfMemoryError",
        *("HIP out of memory", "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    ),
    "shm": (
        "No space left on device",
        "insufficient shared memory",
        "Error while creating shared memory segment",
        "unable to open shared memory object",
        "Bus error",
    ),
    "rdma_abi": ("does not support the kernel ABI of",),
    "rdma_gpu_memory": (
        *("ERRNO: Bad address", "allocate MR with error=14", "registration failed: Bad address"),
    ),
    "calls_differ": ("Detected mismatch between collectives on ranks",),
    "ras_report": (
        *("Communicator ranks have different", "launched up to operation"),
        *("has not launched any operations", "Missing communicator data from", "considered dead"),
    ),
    "cuda_runtime": (
        *(f"undefined symbol: {of}" for of in ("cuda", "cublas", "cusparse", "cudnn", "cupti")),
        "undefined symbol: __nvJitLink",
        *(f"libcudart.so.{version}: cannot open" for version in ("10.2", "11.0", "12", "13")),
        "version `libcud",
    ),
    "nccl_symbol": (
        *("undefined symbol: nccl", "undefined symbol: pnccl", "libnccl.so.2: cannot open"),
        *("Unable to load NCCL library", "compiled without NCCL", "have NCCL built in"),
    ),
    "gloo": ("Gloo connectFullMesh failed", "third_party/gloo", "gloo::EnforceNot"),
    "sharp": (
        "ERROR sharp_",
        "ERROR Failed to lock SAT tree",
        "ERROR collect_ports_data",
        "must bind to port with master SM",
    ),
    "ofi": (
        *("provider efa output empty list", "provider cxi output empty list"),
        "fi_getinfo: -61 (No data available)",
    ),
    "tcpx": ("Number of GPUs detected in the PCI",),
    "tcpx_settings": ("(shim) mismatch recommended",),
    "ofi_failed": (
        "OFI poll failed",
        "MPIDI_OFI_handle_cq_error",
        "OFI is failing to make progress",
        "Cassini Event Queue overflow",
    ),
    "gid_type": ("ncclIbRoceGetVersionNum",),
    "torch_check": ("INTERNAL ASSERT FAILED",),
    "torch_usage": (
        *("device-side assert triggered", "No backend type associated with device type"),
        *("finished reduction in the prior iteration", "Tensors must be CUDA and dense"),
        "process group has not been initialized",
    ),
    "torch_store": (
        *("NCCL communicator and ret", "Timeout waiting for key", "ms, keys: /"),
        *("DistStoreError", "clients joined", "RuntimeError: Socket Timeout"),
    ),
    "watchdog": (
        "Watchdog caught collective operation timeout",
        "before timing out",
        "NCCL operations have failed or timed out",
        "Timeout at NCCL ",
        "watchdog got stuck",
        "Timed out waiting",
        *("failed to pass monitoredBarrier", "reached monitoredBarrier, but"),
        "RendezvousTimeoutError",
    ),
    "nccl": (
        "unhandled cuda error",
        "unhandled system error",
        "ncclUnhandledCudaError",
        "ncclSystemError",
        "ncclInternalError",
        "ncclInvalidArgument",
        "ncclInvalidUsage",
        "ncclRemoteError",
        "NCCL failure",
        "fails NCCL call",
        "NCCL error",
        "NCCL Error",
        "Test CUDA failure",
        "Test failure",
        "CUDA failure",
        "CUDA error",
        "Cuda failure",
        *("HIP error", "HIP failure"),
        "remote process exited or there was a network error",
        "DistBackendError",
        *("NCCL operation nccl", "Last NCCL warning", "issue to the NCCL developers"),
    ),
    "wrong": ("Out of bounds values", "exceeded the maximum threshold"),
    "launcher": (
        "not enough slots available",
        "no allocated resources",
        "requested more processes than",
        "ORTE was unable",
        "ORTE has lost communication",
        "ORTE daemon has unexpectedly failed",
        "PRTE has lost communication",
        "PRTE daemon has unexpectedly failed",
        "mpirun was unable",
        "prterun was unable",
        "mpiexec was unable",
        "mpirun noticed that process",
        "prterun noticed that process",
        "mpiexec noticed that process",
        "Primary job  terminated",
        "exited on signal",
        *("MPI_ABORT was invoked", "error occurred in MPI_", "abort before MPI_INIT"),
        "MPI_Init failed",
        "MPI_INIT failed",
        "srun: error:",
        "slurmstepd: error:",
        "sbatch: error:",
        "salloc: error:",
        "DUE TO TIME LIMIT",
        "DUE TO NODE FAIL",
        "DUE TO PREEMPTION",
        "BAD TERMINATION OF ONE OF YOUR APPLICATION",
        "error waiting for event",
        *("Host key verification failed", "kex_exchange_identification"),
        "Permission denied (publickey",
        "Could not resolve hostname",
        "ssh: connect to host",
        "error while loading shared libraries",
        "cannot open shared object file",
        "command not found",
        "ChildFailedError",
        "SignalException",
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "FailedScheduling",
        "Insufficient nvidia.com/gpu",
        "BackoffLimitExceeded",
    ),
    "rdma_memory": ("set max locked memory",),
    "limit": ("Cannot allocate memory", "Too many open files", "Resource temporarily unavailable"),
    "ucx": (
        *("UCX  ERROR", "UCX ERROR", " hw_synd ", "UCC  ERROR", "UCC ERROR"),
        *(f" TL_{name} ERROR" for name in ("SHM", "UCP", "CUDA", "NCCL", "SHARP", "SELF")),
    ),
    "died": (
        "Segmentation fault",
        "SIGSEGV",
        "SIGBUS",
        "Out of memory: Killed process",
        "out-of-memory handler",
        "oom-kill",
        "oom_kill",
        "OOM Killed",
        "OOMKilled",
        "core dumped",
        "terminate called after throwing",
        "*** Process received signal ***",
        "stack smashing detected",
        "Fatal Python error",
        *("DataLoader worker (pid", "DataLoader worker exited unexpectedly"),
        *("return code = -", "exitcode: -", "exitcode  : ", "(SIGKILL)"),
        *("watchdog thread terminated with exception", "failed (exitcode: "),
        *("ActorDiedError", "A worker died or was killed", "worker died unexpectedly"),
    ),
    "peer_gone": (
        *("Connection reset by peer", "Connection closed by remote peer", "Broken pipe"),
        *("exception dump flag from", "TCPStore server has shut down", "recvValue failed"),
    ),
    "port_taken": ("Address already in use", "EADDRINUSE"),
    "no_interface": ("no socket interface found", "No socket interface found"),
    "network": (
        "client socket has timed out",
        "Connection refused",
        "Connection timed out",
        "No route to host",
        "Network is unreachable",
        "Transport endpoint is not connected",
        "Temporary failure in name resolution",
        "Name or service not known",
    ),
}
_KIND = {word: kind for kind, words in _WORDS.items() for word in words}
_RANKS = {kind: number for number, kind in enumerate(_WORDS)}
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
# Lines that only mention a failure: comments, echoed code, log calls.
_QUOTED = re.compile(r"^\s*(?://|echo |if |elif |except |raise |print\(|logger\.)")
_THROWN = re.compile(
    r"terminate called after throwing an instance of 'c10::DistBackendError'"
    r"(?=[^\n]*\n(?:[^\n]{0,400}\n){0,32}?[^\n]{0,40}(?P<what>what\(\):))"
)
"""An exception of PyTorch, and the next words of one: those of other ranks may stand between."""
_INFO = "NCCL INFO"
_TRIED = re.compile(r"returned [^,]{1,200}, retrying \((\d{1,9})/(\d{1,9})\)")
_WARN = "NCCL WARN"
# NCCL's last warning without the words NCCL WARN: PyTorch prints it in the line after "Last error",
# XLA in quotes.
_LAST_ERROR = re.compile(
    r"^.*\bLast error:[ \t]*\n(?P<line>[^\n]+)"
    r"|^(?P<xla>(?>[^\n]*Last NCCL warning\(error\)[^\n']{0,200}')(?P<quoted>[^\n]+)'[^\n']*$)",
    re.M,
)
# A warning of NCCL 2.1 to 2.3, which have no NCCL before WARN.
_OLD_WARN = re.compile(r"^.{1,200}\] [\w/]{1,60}\.(?:h|cc|cu):\d{1,6} WARN (?P<message>.+)", re.M)
# Lines that contain a word of _WORDS but state success, or that a library is not there that the
# program can do without: drivers of other NICs, parts of Open MPI, TensorRT, NCCL's plugins.
_ALSO_FINE = re.compile(
    r"(?i:\b(?:no|not|without|never|any) (?:\w+ ){0,4}s?xid)"
    r"|(?i:\bxid.{0,12}\bno(?:ne|t (?:seen|found)))|"
    r"Out of bounds values\s*:\s*\d+ OK|exitcode\s*: 0\b|couldn't load driver '|\(ignored\)\s*$"
    r"|^\s*(?:sudo: unable to resolve|curl: \(|wget: |fatal: unable to access)"
    r"|lib(?:nvinfer|[nr]ccl-?(?:net|tuner|profiler|env))\S*\.so\S*: cannot open shared object"
)
# A person tells what was: words that no tool prints, or two that tools seldom print. What a program
# printed, with a time, a level or a place in its code, may stand in the same line.
_TELLS = re.compile(
    r"\b(?:I|he|she|our|my|admins?|said|says|told|yesterday"
    r"|(?:last|this) (?:week|month|year|night)|ago|rebooted|colleagues?)\b"
)
_OFTEN_TELLS = re.compile(
    r"\b(?:[Ww]e|[Tt]hey|was|were|had|did|saw|seen|never|happen(?:s|ed)?|once|since|replaced|fixed"
    r"|again|but|here|because|just|only|about)\b"
)
_BY_PROGRAM = re.compile(
    r"^\s*[\[<$>|]|\d\d:\d\d:\d\d|\bNVRM: |\w(?:Error|Exception)\b|\bERROR\b|\berror: |\bWARN"
    r"|\.(?:py|cc|cpp|cu|c|h):\d|\b(?:line|rank|pid|PID) \d|^\S+: |`|\bfailed: "
)
# Words of NCCL's and its plugins' messages. Programs that contain NCCL's network code (UCCL), the
# plugin's own tests and libfabric print them without NCCL WARN.
_BARE = (
    "NET/IB",
    "NET/OFI",
    *(" ibv_", "ibv_create_", "ibv_alloc_", "ibv_reg_", " mlx5dv_"),
    "Got completion ",
    "<warn>",
    "| Fail",
    *("reverse path from remNode", "does not loop back", "Message truncated"),
    *("Could not find a path for pattern", "No transport found for rank", "NVLink SHARP (NVLS)"),
    "prov_errno",
    "got completion with error:",
)
_BYTES = tuple(word.encode() for word in (*_KIND, *_BARE))
_QUIET = re.compile(r"\b(?:INFO|TRACE|DEBUG|UCX)\b")


class FailureLine(NamedTuple):
    """A line that states a failure.

    `line` is the number of the first such line in the text. `times` is the number of lines that are
    equal to `text` except for numbers.
    """

    kind: str
    text: str
    line: int
    times: int


def mentions_failure(data: bytes) -> bool:
    """Return whether a text contains one of the words in _WORDS or _BARE, also in prose."""
    return any(word in data for word in _BYTES)


def states_failure(data: bytes) -> bool:
    """Return whether a text contains one of the words in _WORDS or _BARE, outside of prose."""
    words = [word for word in _BYTES if word in data]
    if not words or len(data) > _MOST_PROSE:
        return bool(words)
    lines = (line for line in data.splitlines() if any(word in line for word in words))
    return not all(_is_prose(line.decode(errors="replace")) for line in lines)


_MOST_PROSE = 1 << 16
"""Bytes of a text up to which it may be prose alone."""


def _is_prose(line: str) -> bool:
    """Return whether a person tells of a failure: `The admin said he saw Xid 79 last week`."""
    if _BY_PROGRAM.search(line):
        return False
    return _TELLS.search(line) is not None or len(set(_OFTEN_TELLS.findall(line))) > 1


def parse_failures(text: str) -> tuple[FailureLine, ...]:
    """Return the first MOST different lines that state a failure. Lines that differ only in numbers
    are counted together. Lines of the kernel are left to the kernel's log."""
    text = without_kernel_lines(text)
    if _INFO in text:
        text = "\n".join("" if _is_quiet(line) else line for line in text.split("\n"))
    at: dict[int, str] = {}
    for word, kind in _KIND.items():
        for start in _starts(text, word):
            # If a line matches several words, use the kind that is listed first in _WORDS. The
            # kinds are ordered from causes to effects.
            if start not in at or _RANKS[kind] < _RANKS[at[start]]:
                at[start] = kind
    at.update(_warnings(text))
    for match in _THROWN.finditer(text):
        # What the exception says is a line of its own, of its own kind.
        if text.rfind("\n", 0, match.start("what")) + 1 in at:
            at.pop(text.rfind("\n", 0, match.start()) + 1, None)
    found: dict[tuple[str, str], FailureLine] = {}
    number, before = 1, 0
    for start in sorted(at):
        number += text.count("\n", before, start)
        before = start
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)][: 4 * LONGEST].strip()
        if _QUOTED.match(line) or _ALSO_FINE.search(line) or _is_prose(line):
            continue
        key = at[start], _NUMBERS.sub("#", line)
        known = found.get(key)
        if known is not None:
            found[key] = known._replace(times=known.times + 1)
        elif len(found) < MOST:
            found[key] = FailureLine(at[start], line[:LONGEST], number, 1)
    return tuple(found.values())


def _is_quiet(line: str) -> bool:
    """Return whether a line is of level INFO, and no connection that was tried very often."""
    tried = _TRIED.search(line) if _INFO in line else None
    return _INFO in line and (tried is None or 3 * int(tried[1]) < int(tried[2]))


def _warnings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and the kind of each warning of NCCL. What failed decides, not a word in the
    line: a queue pair that timed out is no connection that did."""
    for word in _BARE:
        for start in _starts(text, word):
            line = text[start : start + 2000].partition("\n")[0]
            kind = message_kind(line)
            # UCX's errors have a rule of their own, but for this cause.
            if kind != WARNING and (kind == "rdma_memory" or not _QUIET.search(line)):
                yield start, kind
    for start in _starts(text, _WARN):
        end = text.find("\n", start)
        yield start, warning_kind(text[start : end if end >= 0 else len(text)][:2000]) or WARNING
    for match in _LAST_ERROR.finditer(text):
        kind = message_kind((match["line"] or match["quoted"])[:2000])
        # The line of XLA states the failure itself.
        if kind != WARNING and (match["line"] or kind != "effect"):
            yield match.start("line" if match["line"] else "xla"), kind
    for match in _OLD_WARN.finditer(text) if " WARN " in text else ():
        kind = message_kind(match["message"][:2000])
        if kind != WARNING:
            yield match.start(), kind


# Two cells of a table of `dcgmi diag` or `dcgmi health`.
_CELLS = re.compile(r"^\|(?P<name>[^|\n]{8,40})\| (?P<cell>[^|\n]{8,90})\|[ \t]*$", re.M)
_DETAIL = re.compile(r"Warning\b|Error\b|Info\b|$")


def failed_diagnostics(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each test of `dcgmi diag` or `dcgmi health` that failed, with what
    the table says of it."""
    found: list[FailureLine] = []
    failed = False
    for match in _CELLS.finditer(text) if "| Fail" in text else ():
        name, cell = match["name"].strip(" ->"), match["cell"]
        # A full cell ends with two spaces, and its last word goes on in the next one.
        cell = cell[:-2] if cell.endswith("  ") and cell[-3] != " " else f"{cell.rstrip()} "
        if failed and _DETAIL.match(name):
            found[-1] = found[-1]._replace(text=f"{found[-1].text}{cell}"[:LONGEST])
            continue
        failed = cell.startswith("Fail")
        if failed:
            line = text.count("\n", 0, match.start()) + 1
            found.append(FailureLine("health", f"{name}: {cell}", line, 1))
    return tuple(one._replace(text=one.text.strip()) for one in found)


def _starts(text: str, word: str) -> Iterator[int]:
    """Yield the offsets of the lines that contain `word`."""
    at = text.find(word)
    while at >= 0:
        yield text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        if end < 0:
            return
        at = text.find(word, end)
