# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from nccltune.measure.bench.process import Launch
from nccltune.measure.experiments.copies.processes import count_messages, on_gpus, preloaded
from nccltune.measure.experiments.copies.settings import check_environment
from nccltune.model.errors import InputError

LIBRARY = Path("/opt/lib/libnccltune-sendrecv.so")


def test_messages_are_summed_over_processes() -> None:
    text = (
        "nccltune sendrecv: process 1: copy engine, pushed: 14 messages, 20841021 bytes\n"
        "nccltune sendrecv: process 2: copy engine, pushed: 6 messages, 20841021 bytes\n"
        "nccltune sendrecv: process 2: NCCL: small: 7 messages, 1 bytes\n"
        "something else\n"
    )
    assert count_messages(text) == {"copy engine, pushed": 20, "NCCL: small": 7}
    assert count_messages("") == {}


def test_what_is_preloaded_already_stays_behind() -> None:
    assert preloaded(LIBRARY, None, {}) == {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    both = preloaded(LIBRARY, "/x/libnccl.so.2", {"LD_PRELOAD": "/lib/libjemalloc.so"})
    assert both == {
        "LD_PRELOAD": f"{LIBRARY}:/lib/libjemalloc.so",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "NCCLTUNE_SENDRECV_NCCL": "/x/libnccl.so.2",
    }
    assert preloaded(LIBRARY, None, {"CUDA_DEVICE_MAX_CONNECTIONS": "16"}) == {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MAX_CONNECTIONS": "16",
    }


def test_a_missing_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such library") as error:
        on_gpus(Launch(), tmp_path / "none.so")
    assert error.value.hint is not None
    assert "‹library›" in error.value.hint


def test_variables_of_compared_settings_are_errors() -> None:
    check_environment({"NCCLTUNE_SENDRECV_EAGER": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    check_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "16"})
    with pytest.raises(InputError, match="MAX_CONNECTIONS=2 is set: NCCL then carries everything"):
        check_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "2"})
    with pytest.raises(InputError, match="CHUNK=1M is set"):
        check_environment({"NCCLTUNE_SENDRECV_CHUNK": "1M"})
