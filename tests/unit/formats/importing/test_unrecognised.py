# SPDX-License-Identifier: Apache-2.0
"""Tests of what is said of files without known measurements."""

import pytest

from nccltune.formats.importing.unrecognised import describe

SUMMARY = "file,test,N,avg_bus_bw_GBs,peak_busbw_GBs\nn10.log,all_gather_perf,10,46.79,48.71\n"
DRAWN = "| GPUs | algo | busbw |\n| ---: | :--- | ---: |\n| 4 | Ring | 363.3GBps |\n"
DECISIONS = "nodes,ranks,message_size,collective,algo,proto\n16,16,32,AllGather,Pat,Simple\n"
PANDAS = (
    "             collective  algo  proto\nnodes message_size\n"
    "16    32      AllGather   Pat  Simple\n16    64      AllGather   Pat  Simple\n"
)
RULES = "collective_type,min_bytes,max_bytes,algorithm\nallreduce,0,1024,-1\n"
CUT = (
    "# nThread 1 nGpus 1 minBytes 32 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20\n"
    + "".join(f"#   Rank  {n} Pid 4{n} on box device  {n} [0x00] NVIDIA A100\n" for n in range(2))
)
NESTED = '{"world_size": 4, "sweep": [{"bytes": 1024, "eager_us": 3.1, "graph_us": 1.2}]}'


@pytest.mark.parametrize(
    ("text", "message", "hint", "line"),
    [
        (SUMMARY, "no column is the size of a call", "made from (n10.log)", 1),
        ("prose\n\n" + DRAWN, "columns GPUs, algo, busbw: no column is the size", "give the", 3),
        (DECISIONS, "shows what was chosen, not how long", "give the outputs", 1),
        (PANDAS, "columns nodes, message_size, collective, algo, proto: no column", "", 1),
        (RULES, "is a tuner configuration", "nccltune lint {name}", 1),
        ("allreduce,[0,1048576],ring,ll128,-1,*,*\n", "NCCLX", "bytes of one rank", 1),
        (CUT, "header of nccl-tests (2 ranks on 1 host) and no row", "doctor {name}", 1),
        ("run it:\nmpirun -n 8 ./all_reduce_perf -b 8 -e 1G\n", "has a command", "lint", 2),
        ("#!/bin/sh\nsrun x/all_reduce_perf -b 8 -e 1G\n", "is a script", "give its output", 2),
        (NESTED, "keys bytes, eager_us, graph_us: which one is the time", "time_us", 1),
        ('{"a": 1}', "keys a: none has the size and the time", "known are", 1),
        ("We reach\na busbw of 390 GB/s now.", "states a bandwidth in words", "output", 2),
        ("hello\nworld", "nothing in it is known", "known are", None),
        ("a, b, and c\nd, e, and 5\n" * 3, "columns a, b, and c: no column", "known are", 1),
    ],
)  # fmt: skip
def test_a_file_without_measurements_is_described(
    text: str, message: str, hint: str, line: int | None
) -> None:
    found = describe(text)
    assert message in found.message
    assert hint in found.hint
    assert found.line == line


def test_prose_with_commas_is_no_table_below_the_first_lines() -> None:
    assert describe("\n\n\n\na, b, and c\nd, e, and 5\n").message == "nothing in it is known"
