# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import msgspec
import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.topology.flows.calibration import COSTS, WIRE, defaults, read_calibration
from nccltune.topology.flows.what_if import (
    WhatIfCase,
    WhatIfChange,
    answerable,
    combined_change,
    suggested_changes,
    verification_commands,
    what_if,
)
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.routes import FlowKind
from tests.unit.topology.samples import FOLDER, P4D, sample, skeleton

L40S_ID = 'device="0x26b9"'
TWO_NODES = WhatIfCase(topology=sample("switch-l40s"), nodes=2)


def test_a_setting_is_answered_with_a_command_that_proves_it():
    change = WhatIfChange("off", {"NCCL_NET_GDR_READ": "0"})
    now, (answer,) = what_if(TWO_NODES, [change])
    assert answer.expected.busbw_gb_per_s > now.busbw_gb_per_s
    assert answer.gain == pytest.approx(answer.expected.busbw_gb_per_s / now.busbw_gb_per_s)
    assert answer.expected.bottleneck.startswith("NET mlx5_0")
    assert answer.expected.host_memory_gb_per_s == pytest.approx(
        2 * answer.expected.busbw_gb_per_s, rel=0.02
    )
    assert answer.confirm == (
        "nccltune ab NCCL_NET_GDR_READ=0 --launcher NAME --nodes 2 --gpus 4"
        " -- all_reduce_perf -b 1G -e 4G -f 2",
    )


def test_other_collectives_have_other_programs():
    case = WhatIfCase(topology=sample("switch-l40s"), collective=Collective.ALLGATHER)
    (line,) = verification_commands(case, WhatIfChange("x", {"NCCL_P2P_LEVEL": "LOC"}), 4)
    assert line == "nccltune ab NCCL_P2P_LEVEL=LOC -- all_gather_perf -b 1G -e 4G -f 2 -g 4"


def test_hardware_is_measured_before_and_after():
    change = WhatIfChange("x", hardware=lambda topology: topology)
    before, after = verification_commands(TWO_NODES, change, 4)
    assert before.startswith("nccltune sweep -o studies/before")
    assert after.endswith("--launcher NAME --nodes 2 --gpus 4")
    _, more = verification_commands(TWO_NODES, WhatIfChange("x", nodes=16), 4)
    assert "--nodes 16" in more


def test_many_nodes_are_no_slower_than_their_nics():
    now, answers = what_if(
        WhatIfCase(topology=sample("dgx"), nodes=4),
        [WhatIfChange("n", nodes=n) for n in (16, 1024)],
    )
    for answer in answers:
        assert answer.expected.busbw_gb_per_s == pytest.approx(now.busbw_gb_per_s)


def test_changes_together():
    first = WhatIfChange("a", {"NCCL_NET_GDR_READ": "0"})
    second = WhatIfChange("b", {"NCCL_NET_GDR_READ": "1", "NCCL_ALGO": "Tree"}, nodes=4)
    both = combined_change([first, second])
    assert (both.settings, both.nodes) == ({"NCCL_NET_GDR_READ": "1", "NCCL_ALGO": "Tree"}, 4)
    assert both.hardware is None
    changes = [WhatIfChange("x", hardware=lambda t: t)]
    changes.append(combined_change(changes))
    assert changes[1].hardware is not None
    assert changes[1].hardware(TWO_NODES.topology) == TWO_NODES.topology


def test_what_is_worth_asking_depends_on_the_platform():
    def names(case: WhatIfCase) -> set[str]:
        return {name for one in suggested_changes(case, case.expected()) for name in one.settings}

    assert names(TWO_NODES) == {"NCCL_NET_GDR_READ", "NCCL_P2P_LEVEL", "NCCL_IB_HCA"}
    h200 = WhatIfCase(topology=sample("h200x4-dump"), settings={"NCCL_NVLS_ENABLE": "0"})
    assert names(h200) == set()
    off = WhatIfCase(topology=sample("switch-l40s"), nodes=2, settings={"NCCL_NET_GDR_READ": "0"})
    (read,) = [
        one for one in suggested_changes(off, off.expected()) if "NCCL_NET_GDR_READ" in one.settings
    ]
    assert read.settings["NCCL_NET_GDR_READ"] == "1"


@pytest.mark.parametrize(
    ("device", "has_p2p"),
    [
        *((number, False) for number in ("0x2684", "0x2704", "0x2808", "0x2b85", "0x2C05")),
        *((number, True) for number in ("0x2204", "0x2230", "0x26b1", "0x26b9", "0x27b8")),
        *((number, True) for number in ("0x2bb1", "0x2bb5", "0x2c34", "0x2330", "0x2901")),
    ],
)
def test_geforce_goes_through_host_memory(device: str, has_p2p: bool) -> None:
    text = (FOLDER / "switch-l40s.xml").read_text()
    topology = read_topology(text.replace(L40S_ID, f'device="{device}"').encode(), "x.xml")
    case = WhatIfCase(topology=topology)
    now = case.expected()
    assert (FlowKind.P2P_WRITE in now.flows_gb_per_s) == has_p2p
    assert any("unless it is patched" in words for words in now.notes) != has_p2p
    assert now.sure == has_p2p
    assert bool(suggested_changes(case, now)) == has_p2p
    level = msgspec.structs.replace(case, settings={"NCCL_P2P_LEVEL": "PXB"}).expected()
    assert (FlowKind.P2P_WRITE in level.flows_gb_per_s, level.sure) == (True, has_p2p)
    off = msgspec.structs.replace(case, settings={"NCCL_P2P_LEVEL": "LOC"})
    assert off.expected().sure
    assert bool(suggested_changes(off, off.expected())) == has_p2p


def test_gpus_that_a_file_does_not_describe_are_counted_and_recommend_nothing():
    case = WhatIfCase(topology=skeleton(**P4D), nodes=2)
    now, (answer,) = what_if(case, [WhatIfChange("x", {"NCCL_ALGO": "ring"})])
    assert now.ranks_per_node == 8
    assert not now.sure
    assert answer.confirm == ()
    sure = WhatIfCase(topology=sample("switch-l40s"), nodes=2)
    now, (answer,) = what_if(sure, [WhatIfChange("x", {"NCCL_NET_GDR_READ": "0"})])
    assert now.sure
    assert "NCCL_NET_GDR_READ=0" in answer.confirm[0]


def test_a_change_without_an_answer_is_left_out_with_its_reason():
    """The switch's uplink has no bandwidth, but the ring below the switch does not use it."""
    text = (FOLDER / "switch-l40s.xml").read_text().replace('link_width="16"', 'link_width="-1"', 1)
    case = WhatIfCase(topology=read_topology(text.encode(), "x.xml"), nodes=2)
    now = case.expected()
    assert now.busbw_gb_per_s == pytest.approx(TWO_NODES.expected().busbw_gb_per_s)
    changes, reasons = answerable(case, suggested_changes(case, now))
    assert "NCCL_P2P_LEVEL" not in {name for one in changes for name in one.settings}
    (reason,) = reasons
    assert "no P2P" in reason
    assert "NCCL books -1.5 GB/s" in reason


def test_every_default_has_a_source():
    found = defaults().values
    assert all(len(figure.source) > 10 for figure in found.values())
    assert all(0.5 <= figure.value <= 1 for name, figure in found.items() if name not in COSTS)
    assert defaults().relative_to == WIRE
    assert set(COSTS) <= set(found)


def test_every_kind_has_a_cost_on_every_link():
    for flow in FlowKind:
        for link in LinkKind:
            if flow is not FlowKind.READ_REQUEST:
                assert defaults().cost(flow, link) >= 1.0
    through = defaults().cost(FlowKind.P2P_WRITE, LinkKind.PCI, through_intel=True)
    assert through == pytest.approx(defaults().cost(FlowKind.P2P_WRITE, LinkKind.PCI) / 0.863)


def test_a_file_changes_only_what_it_names(tmp_path: Path):
    path = tmp_path / "calibration.json"
    path.write_text(
        '{"schema_version": 1, "name": "mine", "relative_to": "wire", "values":'
        ' {"network": {"value": 0.9, "source": "measured"}}}'
    )
    found = read_calibration(path)
    assert found["network"] == 0.9
    assert found.values["nvlink"] == defaults().values["nvlink"]
    assert found.name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not a calibration file"),
        (
            '{"name": "x", "values": {"network": {"value": 0, "source": ""}}}',
            "is not a calibration file",
        ),
        (
            '{"name": "x", "values": {"network": {"value": "1", "source": ""}}}',
            "is not a calibration file",
        ),
        (
            '{"name": "x", "relative_to": "wire", "values":'
            ' {"netwrok": {"value": 1, "source": ""}}}',
            "not a figure",
        ),
        (
            '{"name": "x", "values": {"network": {"value": 1, "source": ""}}}',
            "relative to the bandwidth that NCCL books",
        ),
        ('{"schema_version": 99, "name": "x", "values": {}}', "newer"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, words: str):
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_calibration(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(tmp_path / "none.json")
