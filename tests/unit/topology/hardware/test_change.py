# SPDX-License-Identifier: Apache-2.0
import pytest

from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.change import add_switch, devices_of, move_nic, nets_of
from nccltune.topology.hardware.subset import chosen_nic_indexes, first_gpus, only_nics
from nccltune.topology.nccl_model.paths import PathKind, paths
from tests.unit.topology.samples import sample


def kind(topology: Topology, a: str, b: str) -> PathKind:
    return paths(link_graph([topology])).between(a, b).kind


def test_a_nic_moved_to_the_cpu_is_farther():
    here = sample("switch-l40s")
    assert kind(here, "GPU0", "NET mlx5_1") is PathKind.PIX
    there = move_nic(here, "mlx5_1", "CPU0")
    assert kind(there, "GPU0", "NET mlx5_1") is PathKind.PHB
    assert kind(move_nic(here, "0000:4b:00.0", "CPU1"), "GPU0", "NET mlx5_1") is PathKind.SYS
    assert kind(there, "GPU0", "NET mlx5_0") is PathKind.PIX
    assert len(list(devices_of(there))) == len(list(devices_of(here)))


def test_a_nic_moved_beside_a_gpu_or_to_a_switch_is_near():
    dgx = sample("dgx")
    assert kind(dgx, "GPU1", "NET mlx5_0") is not PathKind.PIX
    for place in ("GPU1", "0000:28:00.0"):
        assert kind(move_nic(dgx, "mlx5_0", place), "GPU1", "NET mlx5_0") is PathKind.PIX


def test_a_switch_added_takes_devices_with_it():
    here = sample("switch-l40s")
    there = add_switch(here, "CPU1", ["GPU2", "GPU3", "mlx5_1"])
    assert kind(there, "GPU2", "NET mlx5_1") is PathKind.PIX
    assert kind(there, "GPU0", "GPU2") is PathKind.SYS
    switch = next(one for one in devices_of(there) if one.bus_id == "new-switch")
    assert (switch.speed, switch.width) == ("16.0 GT/s PCIe", 16)
    again = add_switch(there, "CPU0", ["mlx5_0"])
    assert "new-switch-2" in {one.bus_id for one in devices_of(again)}


@pytest.mark.parametrize(
    ("nic", "place", "words"),
    [
        ("mlx5_9", "CPU0", "no device 'mlx5_9'"),
        ("GPU0", "CPU0", "is not a NIC"),
        ("mlx5_0", "CPU7", "not a place for a device"),
        ("mlx5_0", "GPU9", "no device 'GPU9'"),
        ("mlx5_0", "0000:4b:00.0", "not a place for a device"),
    ],
)
def test_unknown_devices_and_places_are_errors(nic: str, place: str, words: str):
    with pytest.raises(InputError, match=words):
        move_nic(sample("switch-l40s"), nic, place)
    if words.startswith("not a place"):
        with pytest.raises(InputError, match=words):
            add_switch(sample("switch-l40s"), place, [nic])


def test_a_switch_without_devices_is_an_error():
    with pytest.raises(InputError, match="needs devices below it"):
        add_switch(sample("switch-l40s"), "CPU0", [])


def test_the_first_gpus_stay():
    two = first_gpus(sample("dgx"), 2)
    assert [one.gpu.index for one in devices_of(two) if one.gpu is not None] == [0, 1]
    assert len(nets_of(two)) == 8
    assert first_gpus(sample("dgx"), 8) == sample("dgx")


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (None, ["mlx5_0", "mlx5_1", "mlx5_10", "eth0"]),
        ("mlx5_1", ["mlx5_1", "mlx5_10"]),
        ("=mlx5_1", ["mlx5_1"]),
        ("mlx5:1", ["mlx5_0", "mlx5_10"]),
        ("=mlx5_1:2,eth0", ["mlx5_1", "eth0"]),
        ("^mlx5_0,eth", ["mlx5_1", "mlx5_10"]),
        ("^=mlx5_1", ["mlx5_0", "mlx5_10", "eth0"]),
        ("mlx5_0, mlx5_1", ["mlx5_0"]),
        ("=mlx5_0 ", []),
        ("^mlx5_0,^mlx5_1", ["mlx5_1", "mlx5_10", "eth0"]),
        ("mlx5_0,=mlx5_1", ["mlx5_0"]),
        ("^", []),
        ("=", ["mlx5_0", "mlx5_1", "mlx5_10", "eth0"]),
        (",", ["mlx5_0", "mlx5_1", "mlx5_10", "eth0"]),
        ("mlx5_0,,mlx5_1:2", ["mlx5_0", "mlx5_1"]),
        ("mlx5_0:x", []),
        ("mlx5_0:1/IB", ["mlx5_0"]),
        (":1,eth0", ["eth0"]),
    ],
)
def test_which_nics_a_list_leaves(rule: str | None, left: list[str]):
    nics = [("mlx5_0", 1), ("mlx5_1", 2), ("mlx5_10", 1), ("eth0", 0)]
    assert [nics[place][0] for place in chosen_nic_indexes(nics, rule)] == left


def test_nics_left_out_are_gone_from_the_tree():
    one = only_nics(sample("switch-l40s"), "=mlx5_1")
    assert [net.name for net in nets_of(one)] == ["mlx5_1"]
    assert "0000:4a:00.0" not in {device.bus_id for device in devices_of(one)}
    assert only_nics(sample("nvlink-pairs"), "mlx5") == sample("nvlink-pairs")
