# SPDX-License-Identifier: Apache-2.0
"""The choices that NCCL_ALGO and NCCL_PROTO force."""

import pytest

from nccltune.model.collective import Collective
from nccltune.model.forced import forced


@pytest.mark.parametrize(
    ("algorithms", "protocols", "label"),
    [
        ("Tree", "LL", "tree/ll"),
        ("TREE", "ll128", "tree/ll128"),
        ("ring;allreduce:tree", "LL", "tree/ll"),
        ("ring;broadcast:tree", "LL", "ring/ll"),
        ("NVLS", None, "nvls/simple"),
        ("^ring,collnetdirect,collnetchain,nvls,nvlstree,pat", "^LL,LL128", "tree/simple"),
        ("NVLSTree", "Simple", "nvls_tree/simple"),
        ("Tree,Ring", "LL", None),
        ("Tree", None, None),
        (None, "LL", None),
        (None, None, None),
    ],
)
def test_forced_choices(algorithms: str | None, protocols: str | None, label: str | None) -> None:
    found = forced(algorithms, protocols, Collective.ALLREDUCE).choice
    assert (found.label if found else None) == label
