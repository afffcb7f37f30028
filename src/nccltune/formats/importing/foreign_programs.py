# SPDX-License-Identifier: Apache-2.0
"""Name benchmarks whose output looks like that of nccl-tests, and which do not measure NCCL."""

import re
from typing import NamedTuple

_PRINTED = (
    r"NCCL (?:INFO|WARN|version)|# (?:nThread|Collective test)"
    r"|size\s+count\s+type\s+(?:redop|root|time)|OSU [NR]CCL"
)
_OF_NCCL = re.compile(rf"{_PRINTED}|[nr]ccl-tests|\w_perf\b", re.IGNORECASE)
_OUTPUT_OF_NCCL = re.compile(_PRINTED, re.IGNORECASE)
_NEEDED = "give the output of nccl-tests (all_reduce_perf) on these machines"


class ForeignProgram(NamedTuple):
    """A benchmark: its name, what it measures, its mark in its output, and what to give instead.

    `{name}` in the hint stands for the name of the file.
    """

    name: str
    measures: str
    mark: re.Pattern[str]
    hint: str


_NO_NCCL = "nccltune measures NCCL and RCCL only"

_ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("nccom-test (AWS Neuron)", "collectives of Neuron, not of NCCL",
     r"\bnccom-test\b|\btime:(?:avg|p50)\(us\)|size\(B\)\s+count\(elems\)", _NO_NCCL),
    ("hccl_test (Huawei Ascend)", "collectives of HCCL, not of NCCL",
     r"\baveg_time\(us\)|\bHcclAllReduce\b", _NO_NCCL),
    ("the OSU micro-benchmarks", "messages of MPI, not of NCCL",
     r"# OSU .{0,40}(?:Latency|Bandwidth) Test", _NEEDED),
    ("a benchmark of MPI or oneCCL", "no collectives of NCCL",
     r"#\s?bytes\s+#\s?repetitions\s+t_|Intel\(R\) MPI Benchmarks", _NEEDED),
    ("perftest (ib_write_bw and others)", "one connection of InfiniBand or RoCE, no collective",
     r"#bytes\s+#iterations\s+(?:BW|t_)|RDMA_Write (?:BW|Post List)"
     r"|^ *\d+ +\d+ +\d+\.\d\d +\d+\.\d\d\s+\d+\.\d{6}\s*$", _NEEDED),
    ("ucc_perftest", "collectives of UCC, not of NCCL",
     r"\bucc_perftest\b|Count\s+Size\s+Time, us\s+Bandwidth, GB/s", _NEEDED),
    ("the benchmark of Gloo", "collectives of Gloo, not of NCCL",
     r"elements\s+min \(us\)\s+p50 \(us\)\s+p99 \(us\)", _NEEDED),
    ("the perftest of NVSHMEM", "collectives of NVSHMEM, not of NCCL",
     r"\b(?:scope|redop)\s+latency\(us\)|^#\w+_on_(?:stream|device)\b", _NEEDED),
    ("the tests of DeepEP", "no collective of NCCL, but dispatch and combine by kernels of its own",
     r"\[tuning\] (?:Best \w+|SMs \d)|\bDispatch (?:\+ combine )?bandwidth: \d",
     f"to see whether the network is slow, too, {_NEEDED}"),
    ("the tests of MSCCL++", "collectives of MSCCL++, not of NCCL",
     r"#\s+size\s+count\s+time\s+algbw\s+busbw\s|\bmscclpp-test", _NEEDED),
    ("the communication log of DeepSpeed", "collectives of a training run, timed by DeepSpeed",
     r"\bComm\. Op\s+Message Size\b",
     f"{_NEEDED}; what a job sends is read from a trace or NCCL's log of it, not from this file"),
    ("nvbandwidth", "copies between GPUs, no collective",
     r"\bnvbandwidth Version|\bmemcpy (?:CE|SM) [CG]PU\(row\)", _NEEDED),
    ("CUDA's p2pBandwidthLatencyTest", "copies between GPUs, no collective",
     r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test"
     r"|P2P=(?:En|Dis)abled (?:Bandwidth|Latency).{0,40} Matrix",
     "look at it: nccltune doctor {name}; for collectives give the output of nccl-tests"),
)  # fmt: skip
FOREIGN_PROGRAMS = tuple(
    ForeignProgram(name, measures, re.compile(mark, re.MULTILINE), hint)
    for name, measures, mark, hint in _ROWS
)


def foreign_program(text: str, *, words: bool = True) -> ForeignProgram | None:
    """Return the benchmark that wrote `text`; None if it is none of them, or NCCL is in it, too.

    Without `words` only what NCCL or its tests print counts, no sentence that names them.
    """
    if (_OF_NCCL if words else _OUTPUT_OF_NCCL).search(text) is not None:
        return None
    return next((each for each in FOREIGN_PROGRAMS if each.mark.search(text)), None)
