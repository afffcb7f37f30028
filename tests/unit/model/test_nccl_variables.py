# SPDX-License-Identifier: Apache-2.0
"""The table of NCCL's variables, and the names that are near one of it."""

import pytest

from nccltune.model.nccl_variables import (
    default_words,
    is_foreign,
    nearest_variable,
    release_of,
    table,
    unread_words,
)


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


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("NCCL_IB_TIMEOUT", "2.13.4", None),
        ("NCCL_IB_TIMEOUT", "2.22.3", "NCCL's default is 18 since 2.14, 14 before"),
        ("NCCL_IB_TIMEOUT", "2.32.3", "NCCL's default is 20 since 2.23, 18 before"),
        ("NCCL_IB_GID_INDEX", "2.21.5", "NCCL's default is its own choice since 2.21, 0 before"),
        ("NCCL_BUFFSIZE", "2.32.3", None),
        ("NCCL_OF_NOBODY", "2.32.3", None),
    ],
)
def test_a_default_that_changed_has_its_release(name: str, version: str, words: str | None) -> None:
    assert default_words(name, version) == words


def test_defaults_are_in_the_order_of_releases() -> None:
    for variable in table().values():
        releases = [release_of(since) for since, _ in variable.defaults]
        assert releases == sorted(set(releases))
        assert len(releases) != 1


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("NCCL_CONF_FILE", "2.22.3", "NCCL reads it since 2.23"),
        ("NCCL_CONF_FILE", "2.23.4", None),
        ("NCCL_WORK_FIFO_DEPTH", "2.22.3", "NCCL reads it up to 2.21: NCCL_WORK_FIFO_BYTES"),
        ("NCCL_TOPO_SCATTER_START_NET", "2.32.3", "NCCL reads it up to 2.31"),
        ("NCCL_IFNAME_SOCKET", "2.28.9", "unknown to NCCL 2.3 to 2.32: NCCL_SOCKET_IFNAME was "
         "meant?"),
        ("NCCL_ROOT_DIR", "2.28.9", None),
    ],
)  # fmt: skip
def test_a_variable_that_a_release_does_not_read(
    name: str, version: str, words: str | None
) -> None:
    assert unread_words(name, version) == words
