# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice, the collective and the scale in a file's name."""

import pytest

from nccltune.formats.reading.collective_names import collective_of_name
from nccltune.formats.reading.file_names import named_choice, scale_of_name
from nccltune.model.choice import choice_label


@pytest.mark.parametrize(
    ("name", "nodes", "ranks"),
    [
        ("job-n-00256-N-0064.csv", 64, 256),
        ("nccl_N2_G8_a_b.log", 2, None),
        ("allreduce_tcp_16gpu.csv", None, 16),
        ("2nodes_16gpus.txt", 2, 16),
        ("runs/nodes-4/out.log", None, None),
        ("node3.log", None, None),
        ("nccl-2.20.3-n1.5.log", None, None),
        ("n2-n4.log", None, None),
        ("run-nodes0.log", None, None),
    ],
)
def test_the_scale_in_a_name(name: str, nodes: int | None, ranks: int | None) -> None:
    assert scale_of_name(name) == (nodes, ranks)


@pytest.mark.parametrize("name", ["NVLS=0", "nvls=1", "tree: off", "NVLS_ENABLE=0", "LL128=0"])
def test_a_setting_that_is_named_after_a_choice_is_none(name: str) -> None:
    found = named_choice(name)
    assert found is not None
    assert not found.is_evidence
    assert not found.likely


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nt_Tree-LL128.txt", "tree/ll128"),
        ("tree_ll128", "tree/ll128"),
        ("ring-simple", "ring/simple"),
        ("allreduce_ring_ll.out", "ring/ll"),
        ("NVLSTree-Simple.log", "nvls_tree/simple"),
        ("nvls_tree_simple.log", "nvls_tree/simple"),
        ("nvls-simple", "nvls/simple"),
        ("CollnetDirect_Simple", "collnet_direct/simple"),
        ("collnet_chain-simple", "collnet_chain/simple"),
        ("pat_simple.txt", "pat/simple"),
        ("default.txt", "default"),
        ("nt_default_2.txt", "default"),
        ("tree_ll/out.txt", "tree/ll"),
        ("tree_ll/ring_ll.txt", "ring/ll"),
        ("defaults.txt", None),
        ("fattree_ll.txt", None),
        ("tree_llx.txt", None),
        ("tree_ll_ring_ll.txt", None),
        ("out.txt", None),
        ("allreduce_h200x4_tree_ll_r1.txt", "tree/ll"),
        ("2026-11-23_16n_ring_simple_8G.log", "ring/simple"),
        ("algo-tree_proto-ll.txt", "tree/ll"),
        ("RingSimple.txt", "ring/simple"),
        ("Tree/LL128.txt", "tree/ll128"),
        ("tuned.txt", "tuned"),
    ],
)
def test_file_names(name: str, label: str | None) -> None:
    named = named_choice(name)
    found = named.choice if named is not None else None
    assert (choice_label(found) if found is not None else None) == label


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("all_reduce_perf.txt", "allreduce"),
        ("AllGather.log", "allgather"),
        ("reduce-scatter_8.txt", "reducescatter"),
        ("alltoallv.txt", "alltoallv"),
        ("alltoall.txt", "alltoall"),
        ("bcast.txt", "broadcast"),
        ("sendrecv", "sendrecv"),
        ("reduce.txt", "reduce"),
        ("scatter.txt", "scatter"),
        ("out.txt", None),
    ],
)
def test_collectives_of_names(name: str, collective: str | None) -> None:
    assert collective_of_name(name) == collective
