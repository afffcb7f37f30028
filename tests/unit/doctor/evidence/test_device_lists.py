# SPDX-License-Identifier: Apache-2.0
"""Lists of devices in settings, read as NCCL and Gloo read them, beside the devices shown."""

from pathlib import Path

import pytest

from nccltune.doctor.facts.settings import DEVICE_LISTS, DeviceList
from tests.unit.doctor.evidence.node import folder_facts, put

PORTS = "".join(
    f"{name} port 1 ==> {netdev} ({state})\n"
    for name, netdev, state in (
        ("mlx5_0", "eth10", "Up"),
        ("mlx5_1", "eth11", "Up"),
        ("mlx5_10", "eth12", "Up"),
        ("mlx5_2", "eth13", "Down"),
        ("bnxt_re0", "eth14", "Up"),
    )
)
ADDRESSES = "".join(
    f"{number}: {name}: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP\n"
    for number, name in enumerate(("lo", "eth1", "eth10", "docker0", "ibs1"), 1)
)


def device_list(folder: Path, setting: str, addresses: str = ADDRESSES) -> DeviceList | None:
    put(folder, "n1/environment.txt", f"{setting}\nPATH=/usr/bin\n")
    put(folder, "n1/ibdev2netdev.txt", PORTS)
    put(folder, "n1/ip-addr.txt", addresses)
    (facts,) = folder_facts(folder)
    found = facts.value(DEVICE_LISTS)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("value", "takes", "unmatched", "beyond"),
    [
        ("mlx5", ["mlx5_0", "mlx5_1", "mlx5_10"], [], []),
        ("mlx5_1", ["mlx5_1", "mlx5_10"], [], ["mlx5_10"]),
        ("mlx5_1,mlx5_10", ["mlx5_1", "mlx5_10"], [], []),
        ("=mlx5_1", ["mlx5_1"], [], []),
        ("=mlx5", [], ["mlx5"], []),
        ("mlx5_0:1,mlx5_1:1", ["mlx5_0", "mlx5_1", "mlx5_10"], [], ["mlx5_10"]),
        ("mlx5_0:2", [], [], []),
        ("^mlx5_1", ["mlx5_0", "bnxt_re0"], [], []),
        ("^=mlx5_1", ["mlx5_0", "mlx5_10", "bnxt_re0"], [], []),
        ("^mlx5_0,mlx5_1,bnxt", [], [], []),
        ("mlx5_2", [], ["mlx5_2"], []),
        ("mlx5_0,mlx5_7", ["mlx5_0"], ["mlx5_7"], []),
        ("mlx5_bond", [], ["mlx5_bond"], []),
        ("mlx5_0, mlx5_1", ["mlx5_0"], [" mlx5_1"], []),
        ("mlx5_1 NCCL_DEBUG=INFO python a.py", ["mlx5_1", "mlx5_10"], [], ["mlx5_10"]),
        ("^mlx5_0,^mlx5_1", ["mlx5_1", "mlx5_10", "bnxt_re0"], ["^mlx5_1"], []),
    ],
)
def test_rdma_devices(
    tmp_path: Path, value: str, takes: list[str], unmatched: list[str], beyond: list[str]
) -> None:
    found = device_list(tmp_path, f"NCCL_IB_HCA={value}")
    assert found is not None
    assert sorted(found.takes or []) == sorted(takes)
    assert found.unmatched == unmatched
    assert found.beyond == beyond


@pytest.mark.parametrize(
    ("setting", "takes"),
    [
        ("NCCL_SOCKET_IFNAME=eth1", ["eth1", "eth10"]),
        ("NCCL_SOCKET_IFNAME==eth1", ["eth1"]),
        ("NCCL_SOCKET_IFNAME=^lo,docker", ["eth1", "eth10", "ibs1"]),
        ("NCCL_SOCKET_IFNAME=^=eth1", ["docker0", "eth10", "ibs1", "lo"]),
        ("NCCL_SOCKET_IFNAME=ens5,enp", []),
        ("NCCL_OOB_NET_IFNAME=ib", ["ibs1"]),
        ("GLOO_SOCKET_IFNAME=eth1", ["eth1"]),
        ("GLOO_SOCKET_IFNAME=eth", []),
        ("GLOO_SOCKET_IFNAME=^lo", []),
    ],
)
def test_interfaces(tmp_path: Path, setting: str, takes: list[str]) -> None:
    found = device_list(tmp_path, setting)
    assert found is not None
    assert sorted(found.takes or []) == takes


def test_a_part_of_the_interfaces_is_no_base(tmp_path: Path) -> None:
    part = "2: eth1: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP\n"
    assert device_list(tmp_path, "NCCL_SOCKET_IFNAME=eth9", part) is None


USING = "n:1:2 [0] NCCL INFO NET/"
HCA = "n:1:2 [0] NCCL INFO NCCL_IB_HCA set to"
IFNAME = "n:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to"
RDMA = f"{USING}IB : Using [0]mlx5_1:1/IB [1]mlx5_10:1/IB ; OOB eth1:10.0.0.1<0>\n"
SOCKETS = f"{USING}Socket : Using [0]bond0:10.0.0.1<0> [1]bond0.31:10.3.0.1<0>\n"


@pytest.mark.parametrize(
    ("log", "beyond"),
    [
        (f"{HCA} mlx5_1\n{RDMA}", ["mlx5_10"]),
        (f"{HCA} mlx5_1:1,mlx5_7\n{RDMA}", ["mlx5_10"]),
        (f"{IFNAME} bond0\n{SOCKETS}", ["bond0.31"]),
        (f"{HCA} mlx5_1,mlx5_10\n{RDMA}", None),
        (f"{HCA} mlx5\n{RDMA}", None),
        (f"{HCA} =mlx5_1\n{HCA} mlx5_1\n{RDMA}", None),  # Of which rank the devices are is open.
        (f"{IFNAME} bond\n{SOCKETS}", None),
        (f"{IFNAME} bond0,bond0.31\n{SOCKETS}", None),
        (f"{IFNAME} eth1\n{RDMA}", None),
        (f"{HCA} mlx5_1\n{SOCKETS}", None),
    ],
)
def test_a_log_shows_what_a_list_took(tmp_path: Path, log: str, beyond: list[str] | None) -> None:
    put(tmp_path, "n1/run.log", log)
    (facts,) = folder_facts(tmp_path)
    found = facts.value(DEVICE_LISTS) or []
    assert [one.beyond for one in found] == ([] if beyond is None else [beyond])
    assert all(one.unmatched == [] for one in found)


def test_nics_left_out_are_of_the_kind_that_is_taken(tmp_path: Path) -> None:
    ibstat = "".join(
        f"CA '{name}'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"
        f"\t\tPhysical state: LinkUp\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
        for name, rate, layer in (
            ("mlx5_0", 400, "InfiniBand"),
            ("mlx5_1", 400, "InfiniBand"),
            ("mlx5_2", 25, "Ethernet"),
        )
    )
    put(tmp_path, "n1/environment.txt", "NCCL_IB_HCA=mlx5_0\nPATH=/usr/bin\n")
    put(tmp_path, "n1/ibstat.txt", ibstat)
    (facts,) = folder_facts(tmp_path)
    (found,) = facts.value(DEVICE_LISTS) or []
    assert found.leaves_out == ["mlx5_1"]


@pytest.mark.parametrize("state", ["Up", "Down"])
@pytest.mark.parametrize("netdev", ["ibp1s0", "ens1"])
def test_nics_of_unknown_state_or_kind_are_not_left_out(
    tmp_path: Path, netdev: str, state: str
) -> None:
    ports = f"mlx5_0 port 1 ==> ibp0s0 (Up)\nmlx5_1 port 1 ==> {netdev} ({state})\n"
    put(tmp_path, "n1/environment.txt", "NCCL_IB_HCA=mlx5_0\nPATH=/usr/bin\n")
    put(tmp_path, "n1/ibdev2netdev.txt", ports)
    (facts,) = folder_facts(tmp_path)
    (found,) = facts.value(DEVICE_LISTS) or []
    assert (found.takes, found.leaves_out) == (["mlx5_0"], [])
