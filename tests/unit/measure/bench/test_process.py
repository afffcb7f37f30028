# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.measure.bench import process as bench_process
from nccltune.measure.bench.conditions import restrictions
from nccltune.measure.bench.conversation import BenchPoint, Measure, PointKey, RoundRequest
from nccltune.measure.bench.process import LIBRARY, NVML, Bench, Launch, command_lines, visible_gpus
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, NccltuneError, PlatformError
from tests.unit.builders import choice
from tests.waiting import wait_until

STAND_IN = Path(__file__).parents[1] / "stand_in.py"


def bench(mode: str, folder: Path, launch: Launch = Launch(gpus=2)) -> Bench:  # noqa: B008
    return Bench(launch, program=[sys.executable, str(STAND_IN), mode, str(folder)])


def request() -> Measure:
    return Measure(id=0, collective=Collective.ALLREDUCE, bytes=[1024, 2048], choices=["default"])


def pids(folder: Path, number: int) -> list[int]:
    def written() -> list[int]:
        return [int(text) for path in folder.glob("*.pid") if (text := path.read_text())]

    wait_until(lambda: len(written()) >= number)
    return written()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_points_come_as_they_are(tmp_path: Path) -> None:
    with bench("well", tmp_path, Launch(gpus=2, one_process=True)) as running:
        assert running.hello.nccl.came_from == "torch"
        assert running.hello.gpus[1].host_hash is None
        points = [point for part in running.measure(request()) for point in part]
        assert [(point.bytes, point.time_us, point.ok) for point in points] == [
            (1024, 10.5, True),
            (2048, 10.5, True),
        ]
        assert len([p for part in running.measure(request()) for p in part]) == 2
    assert all(gone(pid) for pid in pids(tmp_path, 1))


def test_nothing_is_left_of_several_processes(tmp_path: Path) -> None:
    with bench("well", tmp_path, Launch(gpus=3)):
        alive = pids(tmp_path, 3)
        assert not any(gone(pid) for pid in alive)
    assert all(gone(pid) for pid in alive)


def test_nothing_is_left_when_the_caller_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with bench("well", tmp_path, Launch(gpus=3)):
            pids(tmp_path, 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert all(gone(pid) for pid in pids(tmp_path, 3))


def test_nothing_is_left_when_the_start_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nccltune.native.line_process._LAST_WORDS_S", 0.3)
    with pytest.raises(LaunchError, match="cannot listen"), bench("leaves-others", tmp_path):
        pass
    assert all(gone(pid) for pid in pids(tmp_path, 2))


def test_the_terminal_does_not_signal_the_bench(tmp_path: Path) -> None:
    with bench("well", tmp_path):
        assert all(os.getsid(pid) != os.getsid(0) for pid in pids(tmp_path, 2))


@pytest.mark.parametrize(
    ("mode", "kind", "text", "hint"),
    [
        ("no-gpu", PlatformError, "no libnccl.so.2 was found", "name one with --nccl"),
        ("bad", InputError, "/no/study: no such study", None),
    ],
)
def test_what_keeps_it_from_starting_is_reported(
    tmp_path: Path, mode: str, kind: type[NccltuneError], text: str, hint: str | None
) -> None:
    with pytest.raises(kind) as caught, bench(mode, tmp_path):
        pass
    assert (caught.value.message, caught.value.hint) == (text, hint)


def test_a_node_out_of_reach_is_reported_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no daemon on a node") as caught:
        bench("refused-node", tmp_path).__enter__()
    assert caught.value.hint == (
        "its first line: ssh: connect to host b port 22: Connection refused"
    )


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("timeout", "allreduce of 8 bytes is stuck: rank 1"),
        ("died", "rank 1 died"),
        ("crash", "the bench was killed by SIGSEGV"),
    ],
)
def test_what_was_measured_before_the_end_is_handed_on(
    tmp_path: Path, mode: str, text: str
) -> None:
    points: list[BenchPoint] = []

    def run() -> None:
        with bench(mode, tmp_path) as running:
            for part in running.measure(request()):
                points.extend(part)

    with pytest.raises(LaunchError) as caught:
        run()
    assert caught.value.message == text
    assert [point.bytes for point in points if point.ok] == [1024, 2048]
    assert [point.error.rank for point in points if point.error] == (
        [1] if mode == "timeout" else []
    )
    assert all(gone(pid) for pid in pids(tmp_path, 2))


def test_a_bench_that_gives_no_answer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nccltune.measure.bench.process._BEYOND_TIMEOUT_S", 0.2)
    short = request()
    short.timeout_s = 0.1
    with bench("stuck", tmp_path) as running:
        started = pids(tmp_path, 2)
        with pytest.raises(LaunchError, match="no answer within"):
            list(running.measure(short))
    assert all(gone(pid) for pid in started)


@pytest.mark.parametrize("mode", ["strange", "refused"])
def test_a_conversation_gone_wrong_is_our_bug(tmp_path: Path, mode: str) -> None:
    with pytest.raises(NccltuneError) as caught, bench(mode, tmp_path) as running:
        list(running.measure(request()))
    assert caught.value.exit_code == 70


def test_commands() -> None:
    program = ["bench"]
    four = command_lines(program, Launch(gpus=4, emulate_nodes=2, nccl=Path("/n.so")), 77)
    assert [line[-2:] for line in four] == [[f"--rank={rank}", "--size=4"] for rank in range(4)]
    assert all(
        {"--nccl=/n.so", "--emulate-nodes=2", "--rendezvous=127.0.0.1:77"} <= set(line)
        for line in four
    )
    (one,) = command_lines(program, Launch(gpus=4, one_process=True), 77)
    assert one == ["bench", "--launcher=none", "--gpus-per-process=4"]


def test_more_nodes_than_processes_cannot_be() -> None:
    with pytest.raises(InputError, match="8 nodes cannot be emulated with 4 processes"):
        command_lines(["bench"], Launch(gpus=4, emulate_nodes=8), 1)
    with pytest.raises(InputError, match="1 process"):
        command_lines(["bench"], Launch(gpus=4, emulate_nodes=2, one_process=True), 1)


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_process, "LIBRARY", "libnccltune-no-such-driver.so.1")
    with pytest.raises(PlatformError, match="no GPU: libnccltune-no") as caught:
        command_lines(["bench"], Launch(), 1)
    assert "--replay" in (caught.value.hint or "")


def test_ranks_that_share_a_gpu_get_what_nccl_needs_for_it() -> None:
    assert Launch(gpus=4).variables == {}
    apart = Launch(gpus=2, ranks_per_gpu=2, emulate_nodes=4)
    assert apart.variables == {}
    commands = command_lines(["bench"], apart, 77)
    assert len(commands) == 4
    assert all({"--ranks-per-gpu=2", "--emulate-nodes=4"} <= set(words) for words in commands)
    together = Launch(
        gpus=2, ranks_per_gpu=2, emulate_nodes=2, mps={"CUDA_MPS_PIPE_DIRECTORY": "p"}
    )
    assert together.variables == {
        "CUDA_MPS_PIPE_DIRECTORY": "p",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": "4",
    }
    with pytest.raises(PlatformError, match="one GPU alone") as error:
        command_lines(["bench"], Launch(gpus=1), 77)
    assert "‹ranks_per_gpu›" in (error.value.hint or "")


ASK = RoundRequest(
    Collective.ALLREDUCE, (1024, 4096, 9216), (DEFAULT, choice("tree/ll")), 3, check=True
)


def test_the_default_is_timed_twice() -> None:
    keys = list(ASK.points())
    assert len(keys) == 9
    assert PointKey(Collective.ALLREDUCE, 4096, DEFAULT, 3, 1) in keys
    assert PointKey(Collective.ALLREDUCE, 4096, choice("tree/ll"), 3, 1) not in keys


@given(st.sets(st.sampled_from(list(ASK.points()))))
def test_what_is_known_is_not_asked_for_and_all_else_is(known: set[PointKey]) -> None:
    parts = ASK.without(known)
    asked = [key for part in parts for key in part.points()]
    assert len(asked) == len(set(asked))
    assert set(asked) == set(ASK.points()) - known
    assert all(part.check and part.round == 3 for part in parts)


def test_nothing_missing_is_no_ask() -> None:
    assert ASK.without(set(ASK.points())) == []
    assert ASK.without(set()) == [ASK]


def test_settings_that_restrict_choices_are_explained() -> None:
    settings = {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "lo"}
    assert restrictions(settings) == [
        "NCCL_ALGO=Ring (only these algorithms can be chosen)",
        "NCCL_NVLS_ENABLE=0 (NVLink SHARP is off)",
    ]
    assert restrictions({"NCCL_NVLS_ENABLE": "1"}) == []


def cuda(count: int, status: int = 0) -> SimpleNamespace:
    def get_count(number: object) -> int:
        _write(number, count)
        return 0

    return SimpleNamespace(cuInit=lambda _: status, cuDeviceGetCount=get_count)


def nvml(count: int, *, mig: int = 0, status: int = 0) -> SimpleNamespace:
    def get_count(number: object) -> int:
        _write(number, count)
        return 0

    def mode(_: object, now: object, later: object) -> int:
        _write(now, mig)
        _write(later, mig)
        return 0

    return SimpleNamespace(
        nvmlInit_v2=lambda: status,
        nvmlShutdown=lambda: 0,
        nvmlDeviceGetCount_v2=get_count,
        nvmlDeviceGetHandleByIndex_v2=lambda *_: 0,
        nvmlDeviceGetMigMode=mode,
    )


def _write(pointer: object, value: int) -> None:
    pointer._obj.value = value  # type: ignore[attr-defined]


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, object]], None]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(found: Mapping[str, object]) -> None:
        def load(name: str) -> object:
            if name not in found:
                raise OSError(name)
            return found[name]

        monkeypatch.setattr(ctypes, "CDLL", load)

    return install


Install = Callable[[Mapping[str, object]], None]


@pytest.mark.parametrize(
    ("found", "visible", "count"),
    [
        ({NVML: nvml(4), LIBRARY: cuda(9)}, None, 4),
        ({LIBRARY: cuda(3)}, None, 3),
        ({NVML: nvml(0), LIBRARY: cuda(3)}, None, 3),
        ({NVML: nvml(4, status=9), LIBRARY: cuda(3)}, None, 3),
        ({NVML: nvml(4, mig=1), LIBRARY: cuda(1)}, None, 1),
        ({NVML: nvml(4), LIBRARY: cuda(2)}, "0,1", 2),
    ],
    ids=["whole GPUs", "no NVML", "NVML sees none", "NVML fails", "instances", "left visible"],
)
def test_nvml_counts_whole_gpus_and_cuda_what_nvml_cannot(
    libraries: Install,
    monkeypatch: pytest.MonkeyPatch,
    found: dict[str, object],
    visible: str | None,
    count: int,
) -> None:
    libraries(found)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus("hint") == count


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({}, "libcuda.so.1 could not be opened"),
        ({LIBRARY: cuda(0)}, "CUDA sees none"),
        ({LIBRARY: cuda(4, status=100)}, "error 100"),
    ],
)
def test_no_gpu_is_reported(libraries: Install, found: dict[str, object], text: str) -> None:
    libraries(found)
    with pytest.raises(PlatformError, match=text) as caught:
        visible_gpus("the way out")
    assert caught.value.hint == "the way out"
