# SPDX-License-Identifier: Apache-2.0
"""Tests of what is said of files without known measurements."""

from pathlib import Path

import pytest

from nccltune.formats.importing.detect import kind_of
from nccltune.formats.importing.inputs import find_inputs, read_inputs
from nccltune.formats.importing.posted_values import describe_averages
from nccltune.formats.importing.unrecognised import describe
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_report import FileKind
from nccltune.model.errors import InputError

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
HEADER = CUT.splitlines()[0] + "\n"
DEVICE = "#   Rank  {} Pid {} on {} device  {} [0x00] NVIDIA A100\n"
COPIES = HEADER * 2 + DEVICE.format(0, 7, "a", 0) + DEVICE.format(0, 9, "b", 0)
PAIRS = HEADER * 2 + "".join(
    DEVICE.format(rank, pid, "box", rank) for pid in (7, 9) for rank in (0, 1)
)
AGAIN = CUT + CUT.replace("Pid 4", "Pid 5")
HOSTS = CUT + CUT.replace("on box", "on bin")
TAGGED = "".join(f"[1,{at % 2}]<stdout>:{line}\n" for at, line in enumerate(COPIES.splitlines()))
AVERAGE = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 3.94145\n"
START = "mpirun -np 2 ./all_reduce_perf -b 8 -e 128M -g 2\n"
WAYS = "elements | nccl2 | ring\n-- | -- | --\n100 | 0.1 | 0.2\n200 | 0.2 | 0.3\n\nnccl2 won.\n"
ALIGNED = (
    "Tensor Shape    Tensor Size    ca_1stage    symm_mem_multimem    Best (Speedup)\n" + "-" * 80
    + "\n(32, 8192)      0.50 MB        0.013        0.023                ca_1stage (1.7x)\n"
    + "(64, 8192)      1.00 MB        0.021        0.025                ca_1stage (1.2x)\n"
)  # fmt: skip
OF_NODES = "busbw\nn01,n02  88\nn03,n04  49.5\nn04,n05  50 # far\nn02,n03  89\nn07,n08  49\n"
SHAPES = "Shape | raw | barrier\n-- | -- | --\n1x8192 | 25.8 | 33.9\n64x8192 | 26.1 | 35.3\nEnd\n"
LOGGED = "[0] NCCL INFO 805306368 Bytes -> Algo 1 proto 2 time 3970.683594\n" * 2
BARRED = "   bytes |  on   off  ratio |  on2\n---------+------+----\n" + "".join(
    f"  {size} |  3.{size}  4.5  1.1x |  7.1\n" for size in (8, 16, 32)
)
NESTED = '{"world_size": 4, "sweep": [{"bytes": 1024, "eager_us": 3.1, "graph_us": 1.2}]}'


@pytest.mark.parametrize(
    ("text", "message", "hint", "line"),
    [
        ('[{"nodes": 2, "busbw": 390, "g": 8}, {"nodes": 4, "busbw": 386, "g": 8},'
         '{"nodes": 8, "busbw": 301, "g": 8}]', "from 386 (nodes 4) to 301", "", 1),
        ('[{"a": "n1", "b": "n2", "busbw": 48}, {"a": "n1", "b": "n3", "busbw": 21},'
         '{"a": "n2", "b": "n3", "busbw": 47}]', "lowest 21 (n1, n3)", "", 1),
        ('{"gpu": [], "busbw": {"2": 390, "4": 386, "8": 301}}', "from 386 (4) to", "", 1),
        ("| at | A | B |\n|-|-|-|\n| T2 | 3 us | 6 us |\n| T4 | 4 us | 9 us |\n| T8 | - | 9 us |\n",
         "'B' is 2.00 to 2.25 of 'A' in 2 of 3 rows", "", 1),
        (SUMMARY, "none is named the size of a call", "made from (n10.log)", 1),
        ("prose\n\n" + DRAWN, "columns GPUs, algo, busbw: none is named the size", "give the", 3),
        (DECISIONS, "shows what was chosen, not how long", "give the outputs", 1),
        (PANDAS, "columns nodes, message_size, collective, algo, proto: it shows", "", 1),
        (RULES, "is a tuner configuration", "nccltune lint {name}", 1),
        ("allreduce,[0,1048576],ring,ll128,-1,*,*\n", "NCCLX", "cannot read it", 1),
        (CUT, "header of nccl-tests (it lists 2 ranks on 1 host) and no row", "doctor {name}", 1),
        ("coll,size,algo,time\nallreduce,1,ring,9\n", "columns coll, size, algo", "name", 1),
        ("op,size,algo,bus\nallreduce,1024,ring,33.1\n", "columns op, size, algo", "", 1),
        ("op,size,algo,GBps\nreduce,1024,ring,33\n", "columns op, size, algo, GBps", "", 1),
        (COPIES, "rank 0 in several processes: each is a separate copy", "MPI=1", 4),
        (PAIRS, "rank 0 in several processes: each is a separate copy", "MPI=1", 5),
        (HOSTS, "rank 0 in several processes: each is a separate copy", "MPI=1", 5),
        (TAGGED, "rank 0 in several processes: each is a separate copy", "MPI=1", 4),
        (AGAIN, "(it lists 2 ranks on 1 host) and no row: the run hung", "doctor {name}", 1),
        (CUT + AVERAGE, "and no row: the text is cut, its last lines are there", "whole output", 1),
        (START + 2 * AVERAGE, "from one start: each is a separate copy", "make MPI=1", 5),
        (START * 2 + 2 * AVERAGE, "2 averages of nccl-tests (3.94145, 3.94145 GB/s)", "give", 4),
        ("for i in 1 2; do\n" + START + "done\n" + 2 * AVERAGE, "and no row: there", "give", 5),
        (" copy\t 64kB\t  GB/sec\t3.81\t3.92\t0.01\t3.8\t3.9\n" * 3, "nothing in it", "", None),
        (START + AVERAGE, "has 1 average of nccl-tests (3.94145 GB/s) and no row", "whole", 3),
        ("run it:\nmpirun -n 8 ./all_reduce_perf -b 8 -e 1G\n", "has a command", "lint", 2),
        ("#!/bin/sh\nsrun x/all_reduce_perf -b 8 -e 1G\n", "is a script", "give its output", 2),
        (NESTED, "keys bytes, eager_us, graph_us: which one is the time", "time_us", 1),
        (WAYS, "nccl2, ring: no name or unit says which", "and 'nccl2 (us)'", 1),
        (WAYS.replace("elements", "msg_size"), "no name or unit says", "'nccl2 (us)'", 1),
        ("TP=6\n\n" + ALIGNED, "multimem, Best (Speedup): no name or unit", "'ca_1stage (us)'", 3),
        ("GB200, us:\n\n\n" + SHAPES, "raw, barrier: none is named a size", "'NAME (us)'", 4),
        ('{"a": 1}', "keys a: none has the size and the time", "known are", 1),
        ("We reach\na busbw of 390 GB/s now.", "states a bandwidth in words", "output", 2),
        ("1. busbw: the first, and second\n2. algbw, third\n", "nothing in it is known", "", None),
        ("Its metric, busbw, is chosen for two\nreasons, and 1 more, it is\n", "nothing", "", None),
        ("# size count\n 8 2 float XXX.X XX.XX\n busbw: XX.XX\n", "has placeholders", "numbers", 2),
        ("A\n 8 1.5 0.1\n 16 1.6 0.1\n 32 1.7 0.1\n", "rows of 3 numbers", "line of names", 2),
        ('int f(void* data, size_t size,\n  void** mhandle, int 4);', "nothing in it", "", None),
        ("$ nvidia-smi nvlink --status\nLink 0: 26 GB/s 1 2 3\n", "nothing in it", "", None),
        ("hello\nworld", "nothing in it is known", "known are", None),
        ("a, b, and c\nd, e, and 5\n" * 3, "nothing in it is known", "known are", None),
        ("Get:1 http://a.b/u main size 13 kB\n" * 3, "nothing in it is known", "known are", None),
        ("8 GPUs, 4 ports, v 5\n9 GPUs, 3 ports, v 6\n", "nothing in it", "", None),
        (LOGGED, "2 lines of an NCCL log without host and process, no table: NCCL", "whole", 1),
        (LOGGED, "chose ring/simple for 768 MiB", "whole", 1),
        ("a 0.71 sec\nb 0.65 sec 1 Gb/s\nc 0.6 sec\n", "3 lines with times", "output of", 1),
        ("# Avg bus bandwidth    : 0 \n", "1 average of nccl-tests (0 GB/s) and no row: each run "
         "with 0 is a separate copy", "MPI=1", 1),
        (" 4194304    4826             0.00               965.20 \t\t   0.000241\n",
         "perftest", "all_reduce_perf", None),
        ("# Out of bounds values : 0 OK\n", "the last lines of nccl-tests and no row", "whole", 1),
        ("E2E Latency: 4.9 ms\nThroughput: 13,361 tokens/s\n", "nothing in it", "", None),
        ("NCCL's bandwidth of NVLink is 50 GB/s\n", "states a bandwidth", "'SIZE,BUSBW'", 1),
        ("a throughput of 12.5 GB/s\n", "states a bandwidth in words", "'SIZE,12.5'", 1),
        ("all_reduce_perf -b 8 -e 8G gives 31 GB/s\n", "states a bandwidth", "'SIZE,31'", 1),
        ("the avg busbw of NCCL is 15 GB/s\n", "states a bandwidth", "'SIZE,BUSBW', of the", 1),
        ("nccl-tests are fine\n[tuning] Best combine: SMs 24: 4 GB/s\n", "DeepEP", "", None),
        (OF_NODES, "3 at 49 to 50, 2 at 88 to 89; only in the lower ones", "FOLDER", 2),
        (OF_NODES, "of them: n04 in 2", "nccltune compare", 2),
        (OF_NODES.replace("8", "5"), "5 pairs of nodes, each with a value, all from", "", 2),
        ("layer1 attn1 0.25\nlayer2 attn2 0.26\nlayer3 attn3 0.5\n", "nothing in it", "", None),
        ("a1 b1 9 GB/s\na1 c1 8 GB/s\na1 d1 9 GB/s\n", "lists 3 pairs of nodes", "FOLDER", 1),
        ("`ib_write_bw`:\n\n" + WAYS.replace("elements", "size"), "names ib_write_bw", "us", 3),
        ("|A|4|\n|B|8|\n\n\n\n|Test|Bus BW|\n|--|--|\n|AllReduce|9 GB/s|\n", "Test, Bus BW", "", 6),
        ("a: 40.9 \u79d2\nb: 40.9 \u79d2\nc: 40 \u79d2\n", "3 lines with times", "", 1),
        (BARRED, "columns bytes, on, off, ratio, on2: no name or unit", "'on (us)'", 1),
    ],
)  # fmt: skip
def test_a_file_without_measurements_is_described(
    text: str, message: str, hint: str, line: int | None
) -> None:
    found = describe(text)
    assert message in found.message
    assert hint in found.hint
    assert found.line == line


@pytest.mark.parametrize(
    "named", ["osu_xccl_allreduce", "osu_nccl_bcast", "ib_write_bw, iperf3", "iperf, sendrecv_perf"]
)
def test_only_the_one_program_of_a_text_is_named(named: str) -> None:
    message = describe(f"{named}:\n\n" + WAYS.replace("elements", "size")).message
    assert "columns size, nccl2, ring" in message
    assert "names" not in message.replace("names or unit", "")


def test_prose_with_commas_is_no_table_below_the_first_lines() -> None:
    assert describe("\n\n\n\na, b, and c\nd, e, and 5\n").message == "nothing in it is known"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("$ nccom-test allr -r 4\nsize(B) count(elems) type time(us) algbw(GB/s)\n", "nccom-test"),
        ("size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)\n 8 2 fp32 1\n", "Neuron"),
        ("data_size(Bytes):  aveg_time(us):  alg_bandwidth(GB/s):\n8192  50.2  0.16\n", "Ascend"),
        ("# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size  Avg Latency(us)\n4  9.1\n", "OSU"),
        (
            " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]\n 65536 5000\n",
            "perftest",
        ),
        ("  Count   Size    Time, us    Bandwidth, GB/s\n 1 2 3 4\n", "ucc_perftest"),
        ("  elements   min (us)   p50 (us)   p99 (us)   max (us)\n 1 2 3 4 5\n", "Gloo"),
        (
            "# size  count  time  algbw  busbw #wrong\n 1048576 262144 12.3 84.9 148.7 0\n",
            "MSCCL++",
        ),
        ("size(B)  count  type  redop  scope  latency(us)\n8 1 int64 sum b 2.14\n", "NVSHMEM"),
        ("#device_alltoall\nsize(B) count type scope latency(us) algbw(GB/s)\n", "NVSHMEM"),
        ("#reduction_on_stream\nsize(B) count type redop latency(us)\n8 2 int sum 7\n", "NVSHMEM"),
        ("nvbandwidth Version: v0.5\n", "nvbandwidth"),
        ("Comm. Op    Message Size    Count\nall_reduce\n   8.0 KB   4\n", "DeepSpeed"),
        ("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n D\\D 0 1\n", "p2pBandwidth"),
        ("P2P=Enabled Latency (P2P Writes) Matrix (us)\n GPU 0 1\n 0 1.6 2\n", "p2pBandwidth"),
    ],
)
def test_other_benchmarks_are_named(text: str, program: str) -> None:
    with pytest.raises(
        InputError, match="is output of .*: (?:no |copies|collectives|messages|one)"
    ) as caught:
        kind_of(text.encode())
    assert program in str(caught.value)
    assert "workload show" not in (caught.value.hint or "")  # which does not read it either


def test_another_benchmark_beside_nccl_tests_is_left_alone() -> None:
    text = "nvbandwidth Version: v0.5\n# nThread 1 nGpus 8 minBytes 8\n"
    assert kind_of(text.encode()) is FileKind.NCCL_TESTS_TEXT


INFO = "box:7:9 [0] NCCL INFO "
RAN = "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{INFO}Using network Socket\n", "no line of it names what ran"),
        (f"{INFO}{RAN}\n", "it names what ran"),
        (f"{CUT}{INFO}Using network Socket\n", "header of nccl-tests (it lists 2 ranks on 1 host)"),
        (f"{PAIRS}{INFO}Using network Socket\n", "is a separate copy"),
    ],
)
def test_a_log_without_a_table_is_described(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "run.log"
    file.write_text(text, encoding="utf-8")
    for reading in read_inputs(find_inputs([file]), ReadOptions(study="x")):
        # Only once read, the report is complete.
        assert [*reading.batches()] == []
        notes = [flag.sentence for flag in reading.report.flags]
        assert any(words in said for said in [reading.report.error or "", *notes])


AVERAGED = ((1, 57.06), (2, 7.05), (3, 7.07))
LISTED = {
    "bullets": "the busbw is:\n\n- v2.10.3-1: 57.06\n- v2.11.4-1: 7.05\n- v2.12.12-1: 7.07\n",
    "units": "* NCCL 2.10.3 = 57.06 GB/s\n* NCCL 2.11.4 = 7.05 GB/s\n* NCCL 2.12 = 7.07 GB/s\n",
    "numbers": "Bus bandwidth\n1. 2.10.3 -> 57.06\n2. 2.11.4 -> 7.05\n3. 2.12.12 -> 7.07\n",
    "hosts": "NCCL busbw (GB/s)\nnode01   57.06\nnode02   7.05\nnode03   7.07\n",
    "grep": "".join(f"n{k}.out:# Avg bus bandwidth  : {x}\n" for k, x in AVERAGED),
    "headed": "".join(f"=== n{k} ===\n# Avg bus bandwidth  : {x}\n" for k, x in AVERAGED),
    "bold": "algbw by version\n**v2.10.3**: 57.06\n**v2.11.4**: 7.05\n**v2.12.12**: 7.07\n",
}


@pytest.mark.parametrize("name", LISTED)
def test_a_list_of_values_is_summed_up(name: str) -> None:
    found = describe(LISTED[name])
    assert found.message.startswith("lists 3 values")
    assert "highest 57.06" in found.message
    assert "lowest 7.05" in found.message
    assert "8.09x apart" in found.message
    assert found.line == next(
        at for at, line in enumerate(LISTED[name].splitlines(), 1) if "57.06" in line
    )


AVERAGES = """With NCCL 2.19.4 `sendrecv_perf -b 512M -e 512M` gives on 8 nodes:
# Avg bus bandwidth    : 23.9
and NCCL 2.20.5:
# Avg bus bandwidth    : 18.0
"""
SECONDS = "allreduce with nccl version {}:\n" + "rank 0: {} s\nrank 1: {} s\n"


@pytest.mark.parametrize(
    ("text", "highest", "lowest"),
    [
        (AVERAGES, "23.9 GB/s (NCCL 2.19.4)", "18 GB/s (NCCL 2.20.5)"),
        (SECONDS.format("2.21.5", 39.8, 40) + SECONDS.format("2.18.3", 16.9, 17), "39.9", "16.95"),
        ("nccl 2.5.6 reaches 9.31GB/s, but nccl 2.7.8 only 6.05GB/s.", "9.31 GB/s", "6.05 GB/s"),
        ("NCCL busbw\n8 GPU max: 27GB/s\n4 GPU: 34GB/s\n", "34 GB/s (4 GPU)", "27 GB/s (8 GPU)"),
        ("nccl: from 24.2 GB/s with 2.19.4 to 18.3 GB/s with 2.20.5", "24.2 GB/s (2.19.4)", "18.3"),
        ("The NCCL busbw was 42 GB/s before and 87 GB/s after it", "87 GB/s (after)", "42 GB/s"),
        ("nccl: NCCL_ALGO=Ring 190 GB/s, NCCL_ALGO=Tree 150 GB/s", "190 GB/s (NCCL_ALGO", "150"),
        ("~21 GB/s (NCCL 2.7.8), now ~3.9 GB/s (NCCL 2.11.4)\nrate: 9 Gb/s", "21 GB/s", "3.9"),
        ("allreduce on 2 nodes with 1 GPU: 0.2 s. With 2 GPUs: 0.1 s", "0.2 s (1", "0.1"),
        ("An uplift of Alltoall from ~45 GB/s to ~55 GB/s", "55 GB/s (to)", "45 GB/s (from)"),
        ("allreduce with NCCL_IB_TC=1: 9 us, without: 12 us", "12 us (without)", "9 us (with "),
    ],
)  # fmt: skip
def test_values_in_sentences_are_summed_up(text: str, highest: str, lowest: str) -> None:
    message = describe(text).message
    assert f"highest {highest}" in message
    assert f"lowest {lowest}" in message


@pytest.mark.parametrize(
    "text",
    [
        "nccl 2.19.4 and 2.20.5 give 24 GB/s, with 2.21.5 it is 18 GB/s",
        "NCCL on 8 GPUs with NVLink of 900 GB/s, and on 4 GPUs 330 GB/s.",
        "NCCL 2.18.3: 17 s, NCCL 2.21.5: 40 s\nand later\nNCCL 2.18.3: 25 s\n",
        "NCCL on 2 nodes has 92 GB/s. On 4 nodes it should be 380 GB/s.",
        "How do 8 GPUs get 34 GB/s, as 4 GPUs 27 GB/s in NCCL?",
        "NCCL 2.27.3: 12 us, NCCL 2.28.3: 50 GB/s",
        "driver 2.5.6 has 9 GB/s, and driver 2.7.8 6 GB/s",
        "With NCCL 2.19.4 a step takes 23.9 s; with NCCL 2.20.5 25 s. busbw: later",
        "The bus bandwidth is open. NCCL 2.19.4 needs 24 ms, NCCL 2.20.5 180 ms.",
        "busbw: fine. NCCL 2.19.4 compiled in 310 s, NCCL 2.20.5 in 420 s.",
        "all_reduce: init of NCCL 2.19.4 takes 310 s, of NCCL 2.20.5 420 s.",
        "NCCL algbw is 200 GB/s with 8 GPUs, and busbw 375 GB/s with 16 GPUs.",
        "all_reduce of 1 GB took 20 ms on 8 GPUs and one of 4 GB took 80 ms on 16 GPUs",
        "The all_reduce hung for 30 s with 8 GPUs, and 600 s with 16 GPUs",
        "uptime beside NCCL:\n- n1: 400 s\n- n2: 12 s\n- n3: 11 s\n",
        "340GB/s with all_reduce, and 200GB/s with all_gather (busbw)",
        "busbw:\n- allreduce: 120 GB/s\n- allgather: 95 GB/s\n- broadcast: 38 GB/s\n",
        "|Test|busbw (GB/s)|\n|--|--|\n|AllReduce|480|\n|AllGather|380|\n|AlltoAll|40|\n",
    ],
)
def test_values_without_a_clear_condition_are_not_summed_up(text: str) -> None:
    message = describe(text).message
    assert "lists" not in message
    assert "separate copy" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("With NCCL 2.1.4 the busbw is 9 GB/s and latency bad, with 2.2.5 8 GB/s", "of busbw: h"),
        ("allreduce latency, busbw later: 9 us with NCCL 2.1.4, 8 us with 2.2.5", "of latency: h"),
        ("NCCL busbw: 12 GB/s for 16 nodes and 35 GB/s for 2 nodes.", "35 GB/s (2 nodes)"),
        ("On 2 nodes NCCL reaches 24 GB/s, the wire 50 GB/s", "states a bandwidth in words"),
        ("busbw:\n- allreduce: 120 GB/s\n- allgather: 95 GB/s", "states a bandwidth in words"),
        ("The busbw is fine. NCCL 2.19.4 compiled in 310 s", "nothing in it is known"),
        ("NCCL 2.20.5, and disks of 7 GB", "nothing in it is known"),
        (
            "| size | 2.26.2 | 2.27.5 |\n|--|--|--|\n|1M|35|22|\n|4M|90|80|\n",
            "no name or unit says",
        ),
    ],
)
def test_a_quantity_is_named_by_its_unit(text: str, words: str) -> None:
    assert words in describe(text).message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("|Rows|NCCL (us)|Ours (us)|\n|--|--|--|\n|1|8.4|4.2|\n|9|20|19|\n\nend\n", "0.50 to 0.95"),
        ("|Rows|A x (us)|A y (us)|B x (us)|B y (us)|\n|1|8|4|2|1|\n|9|8|8|4|3|\n", "'B y (us)' is"),
        ("|Test|Before|After|\n|--|--|--|\n|AllReduce|38|39|\n|AllGather|30|32|\n", "1.03 to 1.07"),
        ("|Shape|NCCL 2.28.9|NCCL 2.29.2|delta|\n|a1|10|12|+20%|\n|a2|20|20|0%|\n", "1.00 to 1.20"),
        ("|Node|busbw (GB/s)|temp|\n|n1|380|39|\n|n2|300|2|\n|n3|379|3|\n", "300 (n2), 1.27x"),
        ("|Test|Payload|Auto|Fallback|\n|TP2|64 MiB|10 us|11 us|\n|TP4|8 MiB|20 us|21 us|", "1.05"),
        (2 * "|Call|Time (us)|\n|--|--|\n|a|1|\n|b|2|\n|c|3|\n\ntext\n", "one in line 8: it"),
        ("|Nodes|GPUs|Pre|Post|\n|--|--|--|--|\n|2|16|10|11|\n|4|32|20|20|\n", "'Post' is 1.00"),
        ("|Nodes|busbw (GB/s)|\n|1|480|\n|2|380|\n|4|379|\n", "highest 480 (Nodes 1), lowest 379"),
    ],
)  # fmt: skip
def test_a_table_without_sizes_is_summed_up(text: str, words: str) -> None:
    assert words in describe(text).message


@pytest.mark.parametrize(
    "text",
    [
        "|Node|busbw (GB/s)|time (s)|\n|n1|380|39|\n|n2|300|32|\n|n3|379|32|\n",
        "|Test|Before|After|\n|a|900 us|950 us|\n|b|990 us|1.1 ms|\n",
        "|Test|AvgBusBW (GB/s)|PeakBusBW (GB/s)|\n|a|90|95|\n|b|99|101|\n",
        "|Rows|algbw_gbps|busbw_gbps|\n|1|8|4|\n|9|20|10|\n",
        "|Rows|NCCL (us)|Ours (us)|\n|1|8.4|n/a|\n|9|20|19|\n",
        "|Rows|min (us)|speedup (us)|\n|1|8.4|4.2|\n|9|20|19|\n",
        '[{"batch": 1, "latency_ms": 10.1}, {"batch": 8, "latency_ms": 14},'
        ' {"batch": 9, "latency_ms": 20}]',
    ],
)
def test_a_table_of_other_columns_is_not_summed_up(text: str) -> None:
    message = describe(text).message
    assert " apart" not in message
    assert " of '" not in message


def test_long_blanks_end() -> None:
    # Patterns with quadratic time in them would run into the timeout of the suite.
    assert kind_of(b"# size count" + b" " * 1_000_000) is FileKind.UNKNOWN
    assert describe(" " * 2000 + "\n- x" + " " * 2000 + "y").message == "nothing in it is known"
    assert describe(("a1" + " " * 2000 + "!\n") * 2000).message == "nothing in it is known"


def test_the_largest_step_of_a_list_is_named() -> None:
    text = (
        "latency by version:\n- 2.1: 10 us\n- 2.2: 30 us\n- 2.3: 31 us\n- 2.4: 9 us\n- 2.5: 40 us\n"
    )
    message = describe(text).message
    assert "highest 40 us (2.5), lowest 9 us (2.4)" in message
    assert "largest step" not in message
    message = describe(text.replace("9 us", "20 us")).message
    assert "the largest step is 3.00x, from 10 us (2.1) to 30 us (2.2)" in message


@pytest.mark.parametrize(
    "text",
    [
        "bandwidth is low with:\n- nodes: 2\n- GPUs: 8\n- NICs: 4\n",
        "versions:\n- driver 535: 1\n- CUDA 12: 2\n- OFED 5: 3\n",
        "busbw:\n- v2.10: 57\n- v2.11: 7\n",
        "times:\n- a: 3 us\n- b: 4 ms\n- c: 5 us\n",
    ],
)
def test_other_lists_are_no_values(text: str) -> None:
    assert "lists" not in describe(text).message


def test_a_folder_of_averages(tmp_path: Path) -> None:
    files = [tmp_path / f"n{at}.log" for at in range(4)]
    for file, value in zip(files, ("370.5", "371", "214.5", "369.5"), strict=True):
        file.write_text(AVERAGE.replace("3.94145", value))
    found = describe_averages(files)
    assert found is not None
    assert "lowest 214.5 GB/s (n2.log)" in found.message
    assert "median is 370 GB/s" in found.message
    files[0].write_text(AVERAGE * 2)
    assert describe_averages(files) is None
