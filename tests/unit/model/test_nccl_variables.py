# SPDX-License-Identifier: Apache-2.0
"""The table of NCCL's variables, and the names that are near one of it."""

import pytest

from nccltune.model.nccl_variables import is_foreign, nearest_variable, table


def test_the_table_is_whole() -> None:
    kinds = {"switch", "number", "bytes", "word", "words", "level", "algorithms", "protocols",
             "policy", "policies", "text"}  # fmt: skip
    variables = table()
    assert len(variables) > 250
    assert {variable.kind for variable in variables.values()} == kinds
    for variable in variables.values():
        assert variable.name.startswith("NCCL_")
        assert not variable.instead or variable.instead in variables
        if variable.kind == "number":
            for limits in variable.values:
                low, _, high = limits.partition("..")
                assert int(low) < int(high)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_VERSION", "NCCL_HOME", "NCCL_ROOT_DIR", "NCCL_INCLUDE_DIR", "NCCL_LIB_DIR",
        "NCCL_TESTS_DEVICE", "NCCL_TESTS_SPLIT", "NCCL_TESTS_MIN_BW", "NCCL_FASTRAK_IFNAME",
        "NCCL_FASTRAK_NUM_FLOWS", "NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
        "NCCL_TUNER_CONFIG_PATH", "NCCL_PLUGIN_P2P", "NCCL_UCX_TLS", "NCCL_IBEXT_DISABLE",
        "NCCL_SHARP_DISABLE", "NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_TIMEOUT",
        "NCCL_INSPECTOR_ENABLE", "TORCH_NCCL_ENABLE_TIMING", "OFI_NCCL_PROTOCOL",
        "RCCL_MSCCL_ENABLE", "NCCLTUNE_CONFIG", "UCC_TLS", "LD_LIBRARY_PATH", "PATH", "CC", "N",
        "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CUDA_HOME", "LIBRARY_PATH",
    ],
)  # fmt: skip
def test_names_of_others_are_left_alone(name: str) -> None:
    assert is_foreign(name) or nearest_variable(name) is None


def test_known_names_have_no_nearer_one() -> None:
    assert [name for name in table() if nearest_variable(name) is not None] == []


@pytest.mark.parametrize("name", [name for name in table() if not table()[name].last])
def test_a_letter_too_many_is_found(name: str) -> None:
    wrong = name + "X"
    if not is_foreign(wrong):
        assert nearest_variable(wrong) is not None
