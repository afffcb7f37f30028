# SPDX-License-Identifier: Apache-2.0
"""What people post: logs and pasted outputs, with the findings that are right and those that are
not."""

import tomllib
from pathlib import Path

import pytest

from nccltune.doctor.evidence.collect import facts_of
from nccltune.doctor.evidence.folder import read_folder
from nccltune.doctor.examine import examine
from nccltune.doctor.result import RuleResult, RuleVerdict
from nccltune.doctor.rulebase import rule_base

FIELD = Path(__file__).parents[2] / "data" / "field" / "doctor.toml"
RIGHT = [
    ("log-07-gdr-off-in-a-pasted-log", "gdr-disabled", "[receive] via NET/IB/0"),
    ("log-07-gdr-off-in-a-pasted-log", "gdr-disabled", "Disabled for HCA 1 'mlx5_1'"),
    ("log-08-init-never-completes", "init-incomplete", "ranks 1, 3, 5, 7 (inf-a, inf-b)"),
    ("log-09-ras-socket-in-use", "ras-socket", ""),
    ("log-10-nvls-invalid-argument", "nvls-setup", "transport/nvls.cc:598"),
    ("log-11-ordinal-from-peer-import", "peer-import", "invalid device ordinal"),
    ("log-12-new-gpu-old-nccl", "shared-memory-exceeded", "82240 exceeds"),
    ("log-13-nvlink-across-nodes", "mnnvl-unused", "NCCL_CUMEM_ENABLE is 0"),
    ("node-07-iommu-faults-and-hang/box7", "iommu-faults", "0000:41:00.0: AMD-Vi: Event logged"),
    ("node-07-iommu-faults-and-hang/box8", "iommu-faults", "device [17:00.0]"),
    ("node-07-iommu-faults-and-hang/box8", "iommu-faults", "Default domain type: Translated"),
    ("node-08-completion-status/n1", "rdma-protection", "status=4"),
    ("node-08-completion-status/n2", "rdma-flushed", "status=5"),
    ("node-08-completion-status/n3", "rdma-protection", "status=10"),
    ("node-08-completion-status/n4", "rdma-protection", "error 4"),
    ("node-10-modify-qp-timed-out", "rdma-no-path", "110 Connection timed out"),
    ("node-13-imex-in-a-log/n1", "imex-log", "cliqueSize 8"),
    ("node-13-imex-in-a-log/n2", "imex-log", "invalid device ordinal"),
    ("node-13-imex-in-a-log/n3", "imex-log", "invalid resource handle"),
    ("node-14-efa-not-in-the-container", "ofi-no-provider", "No data available"),
    ("node-16-misspelt-variable", "setting-misspelt", "NCCL_IB_HCAA=mlx5_0 (environment)"),
    ("node-16-misspelt-variable", "setting-misspelt", "NCCL has NCCL_P2P_DISABLE"),
    ("node-16-misspelt-variable", "setting-misspelt", "serve.sh:2"),
    ("node-18-evidence-as-people-paste-it", "acs-lines", "ReqRedir+ CmpltRedir+"),
    ("node-18-evidence-as-people-paste-it", "p2p-slower", "2.11 GB/s with P2P, 21.5 without"),
    ("node-18-evidence-as-people-paste-it", "port-down", "mlx5_1 port 1: DOWN"),
    ("node-19-blackwell-with-an-old-nccl/n1", "nccl-too-old", "2.21.5; GPUs: NVIDIA GB200"),
    ("node-19-blackwell-with-an-old-nccl/n2", "nccl-too-old", "NVIDIA GeForce RTX 5090"),
    ("node-19-blackwell-with-an-old-nccl/n2", "shared-memory-exceeded", "82240 exceeds"),
    ("node-22-registering-memory-enomem", "rdma-memory", "ibv_reg_mr_iova2"),
]
WRONG = [
    ("node-11-exclude-lists", "override-environment"),
    ("log-09-ras-socket-in-use", "connection-failed"),
    ("log-10-nvls-invalid-argument", "nccl-failed"),
    ("log-11-ordinal-from-peer-import", "gpu-ordinal"),
    ("node-10-modify-qp-timed-out", "connection-failed"),
    ("node-13-imex-in-a-log/n2", "gpu-ordinal"),
    ("node-22-registering-memory-enomem", "process-died"),
]


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of all cases."""
    folder = tmp_path_factory.mktemp("field")
    for name, text in tomllib.loads(FIELD.read_text(encoding="utf-8")).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def findings(folder: Path) -> dict[str, RuleResult]:
    """Return the findings in a folder of a case, by the rule's id."""
    nodes = {facts.node: facts for facts in map(facts_of, read_folder(folder))}
    judged = examine(nodes, rule_base(), folder.name).rules
    return {one.rule: one for one in judged if one.verdict is RuleVerdict.FINDING}


@pytest.mark.parametrize(("case", "rule", "says"), RIGHT)
def test_what_is_right_is_found(field: Path, case: str, rule: str, says: str) -> None:
    found = findings(field / case)
    assert rule in found
    assert any(says in item.text for item in found[rule].evidence), found[rule].evidence


@pytest.mark.parametrize(("case", "rule"), WRONG)
def test_what_is_wrong_is_not(field: Path, case: str, rule: str) -> None:
    assert rule not in findings(field / case)
