# SPDX-License-Identifier: Apache-2.0
"""Settings that restrict what NCCL can choose."""

from nccltune.measure.bench.conditions import restrictions


def test_settings_that_restrict_choices_are_explained() -> None:
    settings = {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "lo"}
    assert restrictions(settings) == [
        "NCCL_ALGO=Ring (only these algorithms can be chosen)",
        "NCCL_NVLS_ENABLE=0 (NVLink SHARP is off)",
    ]
    assert restrictions({"NCCL_NVLS_ENABLE": "1"}) == []
