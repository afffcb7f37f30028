# SPDX-License-Identifier: Apache-2.0
"""nccl-tests' JSON with its traps, whole and cut."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.text import json_stream
from nccltune.formats.text.json_stream import Item, JsonStream
from nccltune.formats.text.lines import CHUNK_BYTES
from nccltune.model.collective import Collective
from tests.unit.formats.json_maker import SIZES, made
from tests.unit.formats.maker import Point, points
from tests.unit.formats.reading_tools import files, json_file


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_versions_1_to_3(version: int, indent: int | None) -> None:
    read = json_file(json.dumps(made(version=version), indent=indent))
    assert read.report.kind is FileKind.NCCL_TESTS_JSON
    shown = points(*SIZES)
    assert read.times == [
        (point.size, place, time)
        for point in shown
        for place, time in ((False, point.out_us), (True, point.in_us))
    ]
    assert read.report.scales == {"1x4": 4}
    assert read.flags == set()
    sample = read.samples[0]
    assert (sample.root, sample.iterations, sample.wrong) == (None, 20, 0)
    assert sample.source.nccl_version == "2.29.3"
    assert sample.at == "2026-11-21T03:26:03"


@pytest.mark.parametrize("collective", list(Collective))
def test_the_collective_is_the_programs(collective: Collective) -> None:
    read = json_file(json.dumps(made(collective=collective)))
    assert read.report.collectives == {collective.value: 4}
    assert read.doubtful == set()


def test_devices_list_only_the_first_gpu_of_a_process() -> None:
    read = json_file(json.dumps(made(processes=4, each=2, hosts=("a", "b"))))
    assert read.report.scales == {"2x8": 4}
    assert read.report.gpu == "NVIDIA H200"


def test_the_environment_is_redacted() -> None:
    env = (
        "HF_TOKEN=hf_secret",
        "HOSTNAME=secret-host",
        "NCCL_IB_HCA=mlx5_0",
        "NCCL_COMM_ID=secret-host:77",
        "NCCL_ACCESS_TOKEN=secret",
        "NCCL_NET=0123456789abcdef0123456789abcdef0123",
        "NCCL_TOPO_FILE=/home/someone/topo.xml",
    )
    read = json_file(json.dumps(made(env=env, hosts=("secret-host",))))
    assert read.report.settings == {"NCCL_IB_HCA": "mlx5_0", "NCCL_TOPO_FILE": "topo.xml"}
    from msgspec.json import encode

    stored = encode(read.samples) + encode(read.report)
    assert b"secret" not in stored
    assert b"someone" not in stored


def test_the_environment_gives_the_choice() -> None:
    env = ("NCCL_ALGO=Tree", "NCCL_PROTO=LL128")
    assert json_file(json.dumps(made(env=env))).labels == {"tree/ll128"}
    assert json_file(json.dumps(made()), "ring_ll.json").labels == {"ring/ll"}
    half = json_file(json.dumps(made(env=env[:1])))
    assert half.labels == {"NCCL_ALGO=Tree"}


def test_a_log_beside_the_file_gives_what_ran(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text(json.dumps(made(env=("NCCL_ALGO=Tree",))))
    lines = [
        f"alpha:100:7 [0] NCCL INFO AllReduce: {size} Bytes -> Algo TREE proto LL"
        " channel{Lo..Hi}={0..3}"
        for size in SIZES
    ]
    (tmp_path / "nccl.alpha.100").write_text("\n".join(lines))
    read = next(item for item in files(tmp_path) if item.samples)
    assert read.labels == {"tree/ll"}
    assert len(read.samples) == 4


def test_nodes_by_host_id_are_not_counted_by_hosts() -> None:
    env = ("NCCL_HOSTID=a",)
    assert json_file(json.dumps(made(env=env))).report.scales == {"?x4": 4}
    assert json_file(json.dumps(made(env=env)), nodes=4).report.scales == {"4x4": 4}


def test_registered_buffers_and_cpu_times() -> None:
    assert json_file(json.dumps(made(args=("-R", "1")))).samples[0].registered
    assert not json_file(json.dumps(made(args=("-R", "0")))).samples[0].registered
    read = json_file(json.dumps(made(key="cpu_time")))
    assert "cpu_time" in read.flags
    assert [time for *_, time in read.times] == pytest.approx(
        [time for point in points(*SIZES) for time in (point.out_us, point.in_us)], rel=1e-4
    )


def test_one_sample_an_iteration_where_asked() -> None:
    data = json.dumps(made(iterations=(90.0, 20.0, 21.0, 22.0)))
    assert len(json_file(data).samples) == 4
    read = json_file(data, per_iteration=True)
    assert len(read.samples) == read.report.samples == 12
    first = read.samples[:3]
    assert [(s.repeat, s.time_us, s.iterations) for s in first] == [
        (0, 20.0, 1),
        (1, 21.0, 1),
        (2, 22.0, 1),
    ]
    without = json_file(json.dumps(made()), per_iteration=True)
    assert len(without.samples) == 4
    assert "note" in without.flags


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"out_of_place": {"time": "nan", "alg_bw": 1, "bus_bw": 1, "nwrong": 0}}, "time"),
        ({"out_of_place": {"time": -3.0, "alg_bw": 1, "bus_bw": 1, "nwrong": 0}}, "time"),
        ({"out_of_place": {"time": 0, "alg_bw": 1, "bus_bw": 1, "nwrong": 0}}, "time"),
        ({"out_of_place": {"time": 3.0, "nwrong": 0}}, "bandwidth"),
        ({"out_of_place": None, "in_place": None}, "without times"),
        ({"size": -4}, "size"),
        ({"size": None}, "size"),
        ({"type": "FLOAT!"}, "type"),
        ({"root": "x"}, "root"),
        ({"redop": "summ"}, "reduction"),
    ],
)
def test_results_that_cannot_be(change: dict[str, Any], reason: str) -> None:
    value = made()
    value["results"][0] |= change
    read = json_file(json.dumps(value, indent=1))
    assert len(read.samples) == 2
    assert read.report.unreadable == 1
    assert reason in read.reasons[0]
    assert read.report.first_unreadable[0].line > 20


def test_a_placement_that_was_not_measured() -> None:
    value = made()
    value["results"][0]["out_of_place"] = None
    read = json_file(json.dumps(value))
    assert len(read.samples) == 3
    assert read.report.unreadable == 0
    assert read.doubtful == {"average_mismatch"}


def test_wrong_results_and_failures() -> None:
    value = made((Point(4096, 20.0, 21.0, wrong=5),))
    value["out_of_bounds"] = {"count": 2, "okay": "false"}
    value["errors"] = ["ncclSystemError"]
    read = json_file(json.dumps(value))
    assert {"wrong_results", "out_of_bounds"} <= read.doubtful
    assert "failure" in read.flags


def test_runs_that_were_aborted() -> None:
    value = made()
    del value["end_time"]
    assert json_file(json.dumps(value)).doubtful == {"aborted"}
    del value["results"]
    closed = json_file(json.dumps(value))
    assert closed.samples == []
    assert "aborted" in closed.doubtful


@settings(max_examples=60, deadline=None)
@example(0.8866246340914209)  # right behind a result
@example(0.9806349921188922)  # and behind the last
@given(st.floats(0, 1))
def test_whole_results_of_a_cut_file_are_kept(share: float) -> None:
    data = json.dumps(made(points(*(1 << bits for bits in range(12, 22))), iterations=(1.0,) * 40))
    cut = int(share * (len(data) - 1))
    read = json_file(data[:cut])
    # A result with its closing brace is complete.
    end = data.index('"out_of_bounds"')
    whole = data[: min(cut, end)].count('"experiment_name": ""}')
    assert len(read.samples) == 2 * whole
    assert "aborted" in read.doubtful
    assert read.report.unreadable == 0


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(encoding: str) -> None:
    assert len(json_file(json.dumps(made()).encode(encoding)).samples) == 4


# --- the stream underneath ---------------------------------------------------------------------


def items(data: bytes) -> list[Item]:
    return list(JsonStream(io.BytesIO(data), frozenset({"results"})))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(max_size=5).filter(lambda key: key != "results"), values, max_size=4),
    st.lists(values, max_size=4),
    st.sampled_from([None, 1]),
)
def test_the_stream_returns_members_and_elements(
    members: dict[str, Any], results: list[Any], indent: int | None
) -> None:
    whole = {**members, "results": results}
    found = items(json.dumps(whole, indent=indent, ensure_ascii=False).encode())
    elements = [json.loads(item.raw or b"") for item in found if item.key == "results"]
    assert elements == results
    others = [item for item in found if item.key != "results"]
    assert [json.loads(item.raw or b"") for item in others] == list(members.values())


def test_large_files_in_bounded_memory() -> None:
    one = json.dumps(made(iterations=(1.25,) * 2000)["results"][0])
    head = '{"version":3,"args":["/x/all_reduce_perf"],"results":['
    count = 4 * CHUNK_BYTES // len(one)
    data = (head + ",".join([one] * count) + "]}").encode()
    stream = JsonStream(io.BytesIO(data), frozenset({"results"}))
    assert sum(item.key == "results" for item in stream) == count
    assert stream.complete


def test_a_member_that_is_too_large_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.formats.text.json_stream.MAX_ITEM_BYTES", 3 * CHUNK_BYTES)
    huge = "[" + ",".join(["1"] * (4 * CHUNK_BYTES)) + "]"
    data = json.dumps(made())[:-1] + f', "huge": {huge}, "last": 1' + "}"
    found = items(data.encode())
    assert [item.raw for item in found if item.key == "last"] == [b" 1"[1:]]
    endless = b'{"version":3,"huge":"' + b"x" * (5 * CHUNK_BYTES)
    assert [item.key for item in items(endless)] == ["version"]


@pytest.mark.parametrize("unit", [b"x", b'\\"', b"\\\\", b"ab\\n"])
@pytest.mark.parametrize("shift", range(3))
def test_a_string_over_many_chunks_is_read_whole(unit: bytes, shift: int) -> None:
    # Escapes may cross the end of a chunk.
    string = b"y" * shift + unit * (3_500_000 // len(unit))
    data = b'{"args": ["' + string + b'"], "config": {}, "results": [{"size": 1}]}'
    found = [(item.key, item.raw) for item in items(data)]
    assert found == [
        ("args", b'["' + string + b'"]'),
        ("config", b"{}"),
        ("results", b'{"size": 1}'),
    ]


class CountedPattern:
    """A pattern that counts the characters it is given to scan."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.pattern = pattern
        self.looked_at = 0

    def match(self, data: bytearray, at: int) -> re.Match[bytes] | None:
        self.looked_at += len(data) - at
        return self.pattern.match(data, at)

    def search(self, data: bytearray, at: int) -> re.Match[bytes] | None:
        self.looked_at += len(data) - at
        return self.pattern.search(data, at)


def test_a_long_string_is_scanned_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("_SHALLOW", "_DEEP", "_STRING_PART")
    counted = {name: CountedPattern(getattr(json_stream, name)) for name in names}
    for name, pattern in counted.items():
        monkeypatch.setattr(json_stream, name, pattern)
    data = b'{"args": ["' + b"x" * (16 << 20) + b'"]}'
    assert [item.key for item in items(data)] == ["args"]
    assert sum(pattern.looked_at for pattern in counted.values()) < 4 * len(data)


@pytest.mark.parametrize(
    ("args", "env", "kind", "words"),
    [
        (("-z", "2"), (), "condition", "-z 2: wait after each call"),
        (("--unalign=1",), (), "condition", "-u 1: unaligned buffers"),
        (("-a3",), (), "condition", "the slowest rank"),
        ((), ("LD_PRELOAD=/opt/libmscclpp_nccl.so",), "library_preloaded", "libmscclpp_nccl.so"),
        ((), ("NCCL_TUNER_PLUGIN=/opt/libsite.so",), "tuner_loaded", "libsite.so"),
    ],
)
def test_what_arguments_and_environment_change(
    args: tuple[str, ...], env: tuple[str, ...], kind: str, words: str
) -> None:
    read = json_file(json.dumps(made(args=args, env=env)))
    assert read.doubtful == {kind}
    assert words in read.sentence(kind)


def test_a_device_kernel_gives_no_samples() -> None:
    read = json_file(json.dumps(made(args=("-R", "2", "--device_implementation", "1"))))
    assert read.samples == []
    assert read.report.unreadable == 0
    assert "device_kernel" in read.flags
    assert len(json_file(json.dumps(made(args=("-D", "0")))).samples) == 4
