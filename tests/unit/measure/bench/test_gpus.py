# SPDX-License-Identifier: Apache-2.0
import ctypes
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest

from nccltune.measure.bench.process import LIBRARY, NVML, visible_gpus
from nccltune.model.errors import PlatformError


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


def test_nvml_counts_whole_gpus(libraries: Install) -> None:
    libraries({NVML: nvml(4), LIBRARY: cuda(9)})
    assert visible_gpus("hint") == 4


@pytest.mark.parametrize("broken", [{}, {NVML: nvml(0)}, {NVML: nvml(4, status=9)}])
def test_cuda_counts_where_nvml_cannot(libraries: Install, broken: dict[str, object]) -> None:
    libraries({**broken, LIBRARY: cuda(3)})
    assert visible_gpus("hint") == 3


def test_cuda_counts_instances(libraries: Install) -> None:
    libraries({NVML: nvml(4, mig=1), LIBRARY: cuda(1)})
    assert visible_gpus("hint") == 1


def test_cuda_counts_what_is_left_visible(
    libraries: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries({NVML: nvml(4), LIBRARY: cuda(2)})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert visible_gpus("hint") == 2


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
