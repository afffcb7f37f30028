# SPDX-License-Identifier: Apache-2.0
"""Outputs of DCGM that people paste."""

from pathlib import Path

from nccltune.doctor.facts.gpu import GPUS
from nccltune.doctor.facts.results import FAILURES
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import pasted_facts

DCGM = """\
+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U D _ _
    gpuId 1:
        D D D D _ _
Key: Up=U, Down=D, Disabled=X, Not Supported=_
"""


def test_links_of_dcgm(tmp_path: Path) -> None:
    gpus = pasted_facts(tmp_path, "a.txt", DCGM).value(GPUS) or []
    assert [(one.index, one.nvlinks_active, one.nvlinks) for one in gpus] == [(0, 3, 4), (1, 0, 4)]


INACTIVE = """\
GPU 2: NVIDIA B200 (UUID: GPU-x)
NVML: Unable to retrieve NVLink information as all links are inActive
"""


def test_links_that_are_all_inactive(tmp_path: Path) -> None:
    alone = pasted_facts(tmp_path / "a", "a.txt", INACTIVE).value(GPUS) or []
    assert [(one.nvlinks_active, one.nvlinks) for one in alone] == [(0, 1)]
    beside = pasted_facts(tmp_path / "b", "a.txt", texts.NVLINK + INACTIVE).value(GPUS) or []
    assert [(one.nvlinks_active, one.nvlinks) for one in beside] == [(2, 2), (1, 2), (0, 2)]


DIAG = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Fail - All                                     |
| Warning                   | GPU 0's NvLink link 0 is currently down   |
|                           | Run a fie  |
|                           | ld diagnostic on the GPU.                      |
| Memory                    | Pass - All                                     |
| Warning                   | of a test that passed                          |
| pcie                      | Fail                                           |
|                           | GPU0: Fail                                     |
"""


def test_diagnostics_of_dcgm(tmp_path: Path) -> None:
    found = pasted_facts(tmp_path / "a", "a.txt", DIAG).value(FAILURES) or []
    assert [(one.kind, one.text) for one in found] == [
        ("health", "PCIe: Fail - All GPU 0's NvLink link 0 is currently down Run a field "
         "diagnostic on the GPU."),
        ("health", "pcie: Fail GPU0: Fail"),
    ]  # fmt: skip
    passed = pasted_facts(tmp_path / "b", "a.txt", DIAG.replace("Fail", "Pass"))
    assert passed.value(FAILURES) == []
