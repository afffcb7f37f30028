# SPDX-License-Identifier: Apache-2.0
"""The network plugin between two hosts: NICs of unequal speed, NICs that fail, addresses, ports."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.namespaces import Host, Hosts, PacketTap, two_hosts
from tests.waiting import wait_until

MERGED = {"NCCL_NET_FORCE_MERGE": "eth0,eth1", "NCCLTUNE_NET_FLOWS": "4"}
ESTABLISHED = "01"
LISTENING = "0A"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with two_hosts(tmp_path) as hosts:
        yield hosts


def sockets(host: Host, state: str) -> list[tuple[str, int, str, int]]:
    """The IPv4 sockets in that state: local address and port, remote address and port."""
    found = []
    for line in host.run("cat /proc/net/tcp").stdout.splitlines()[1:]:
        _, local, remote, its_state, *_ = line.split()
        if its_state != state:
            continue
        ends = [(end[:8], int(end[9:], 16)) for end in (local, remote)]
        text = [".".join(str(byte) for byte in reversed(bytes.fromhex(end))) for end, _ in ends]
        found.append((text[0], ends[0][1], text[1], ends[1][1]))
    return found


def nics(host: Host, tmp_path: Path, **environment: str) -> list[str]:
    """The NICs that the plugin logs as found, each with its address."""
    rank = host.start(tmp_path / "nobody", "idle --fork --seconds 0 --log", **environment)
    _, log = rank.communicate(timeout=120)
    line = re.search(r"\d+ NICs?: (.*)", log)
    return [" ".join(nic.split()[:2]) for nic in line[1].split(", ")] if line else []


def test_each_of_two_nics_carries_by_its_speed(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    hosts.cable("eth1", 2)
    hosts.first.slow_down("eth0", 30)
    hosts.first.slow_down("eth1", 240)
    before = [hosts.first.sent(nic) for nic in ("eth0", "eth1")]
    hosts.run(
        "transfer --virtual-device 0,1 --direction forward --sizes 512K --messages 40", **MERGED
    ).expect_messages(40)
    slow, fast = (
        hosts.first.sent(nic) - sent for nic, sent in zip(("eth0", "eth1"), before, strict=True)
    )
    assert slow + fast >= 20 << 20
    # Eight to one is ideal. What is certain of it: both carry, and the fast one much more.
    assert fast > 2 * slow
    assert slow > 256 << 10


def test_flows_of_one_nic_that_the_kernel_shapes_apart(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    for words in (
        "qdisc add dev eth0 root handle 1: htb default 1",
        "class add dev eth0 parent 1: classid 1:1 htb rate 240mbit quantum 60000",
        "class add dev eth0 parent 1: classid 1:2 htb rate 10mbit quantum 1500",
    ):
        made = hosts.first.run(f"tc {words}")
        if made.returncode != 0:
            pytest.skip(f"this kernel has no htb: {made.stderr.strip()}")
    ranks = hosts.start(
        "transfer --direction forward --sizes 512K --messages 80", NCCLTUNE_NET_FLOWS="4"
    )
    # Four bulk flows and the express flow, which these messages do not take: of two at least one.
    wait_until(lambda: len(sockets(hosts.first, ESTABLISHED)) >= 5)
    for _, port, _, _ in sockets(hosts.first, ESTABLISHED)[:2]:
        match = f"u32 match ip sport {port} 0xffff flowid 1:2"
        made = hosts.first.run(f"tc filter add dev eth0 parent 1: protocol ip {match}")
        if made.returncode != 0:
            pytest.skip(f"this kernel cannot distinguish flows: {made.stderr.strip()}")
    hosts.end(ranks).expect_messages(80)
    told = hosts.first.run("tc -s class show dev eth0").stdout
    sent = dict(re.findall(r"class htb (1:\d) .*?Sent (\d+) bytes", told, re.DOTALL))
    assert int(sent["1:1"]) + int(sent["1:2"]) >= 40 << 20
    # Equal parts would have been one to three, and one to one at most.
    assert int(sent["1:1"]) > 5 * int(sent["1:2"]) > 0


@pytest.mark.parametrize("nic", ["eth0", "eth1"])
def test_a_nic_that_fails_for_a_while_costs_no_message(hosts: Hosts, nic: str) -> None:
    for number, name in enumerate(("eth0", "eth1")):
        hosts.cable(name, number)
        for host in (hosts.first, hosts.second):
            host.slow_down(name, 150)
    start = hosts.first.sent(nic)
    ranks = hosts.start("transfer --virtual-device 0,1 --sizes 0-512K --messages 150", **MERGED)
    wait_until(lambda: hosts.first.sent(nic) - start > 1 << 20)
    hosts.first.ip(f"link set {nic} down")
    time.sleep(0.5)
    hosts.first.ip(f"link set {nic} up")
    hosts.end(ranks).expect_messages(150, 150)


def outage(hosts: Hosts, **environment: str) -> list[subprocess.Popen[str]]:
    """Start ranks whose only link goes down, and wait until their kernels have no flow left."""
    hosts.cable("eth0", 0)
    for host in (hosts.first, hosts.second):
        host.slow_down("eth0", 150)
    start = hosts.first.sent("eth0")
    ranks = hosts.start(
        "transfer --sizes 0-512K --messages 150 --log", NCCLTUNE_NET_PATH_TIMEOUT="1", **environment
    )
    wait_until(lambda: hosts.first.sent("eth0") - start > 1 << 20)
    hosts.first.ip("link set eth0 down")
    for host in (hosts.first, hosts.second):
        wait_until(lambda host=host: not sockets(host, ESTABLISHED))
    return ranks


def test_an_outage_that_ends_every_flow_costs_no_message(hosts: Hosts) -> None:
    ranks = outage(hosts)
    hosts.first.ip("link set eth0 up")
    ended = hosts.end(ranks)
    ended.expect_messages(150, 150)
    closed = re.findall(r"closed: sent to .*", "".join(ended.errors))
    assert len(closed) == 2
    for line in closed:
        deaths = re.search(r"flow deaths (\d+), reconnect attempts (\d+)", line)
        assert deaths, line
        assert 0 < int(deaths[1]) <= int(deaths[2])


def test_an_outage_ends_a_connection_at_the_limit_that_is_set(hosts: Hosts) -> None:
    ended = hosts.end(outage(hosts, NCCLTUNE_NET_DOWN_TIMEOUT="1"))
    assert ended.statuses == [1, 1]
    # The other rank may learn of the end from the first one.
    reason = r"failed with \d+ bytes outstanding: no flow for 1 s: "
    assert any(re.search(reason, error) for error in ended.errors), ended.errors


def test_hosts_whose_packets_differ_in_length(hosts: Hosts) -> None:
    hosts.cable("eth0", 1, mtu=9000)
    hosts.second.ip("link set eth0 mtu 1400")
    hosts.run("transfer --sizes 0-1M --messages 60").expect_messages(60, 60)


def test_packets_that_are_lost_in_a_full_queue(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    # Room for three packets: whatever a sender adds to them is dropped.
    for host in (hosts.first, hosts.second):
        lossy = "tc qdisc add dev eth0 root tbf rate 200mbit burst 5kb limit 10kb"
        assert host.run(lossy).returncode == 0
    hosts.run("transfer --sizes 0-256K --messages 60").expect_messages(60, 60)
    told = hosts.first.run("tc -s qdisc show dev eth0").stdout
    dropped = re.search(r"dropped (\d+)", told)
    assert dropped
    assert int(dropped[1]) > 0


def test_packets_that_are_lost_on_the_way(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    if shutil.which("iptables") is None:
        pytest.skip("iptables was not found (Debian: iptables)")
    # By count: of so few packets (64 KiB each) chance alone might take none.
    rule = "iptables -A INPUT -i eth0 -m statistic --mode nth --every 40 --packet 0 -j DROP"
    made = hosts.second.run(rule)
    if made.returncode != 0:
        pytest.skip(f"this kernel drops no packets by count: {made.stderr.strip()}")
    hosts.run("transfer --sizes 0-256K --messages 60").expect_messages(60, 60)
    told = hosts.second.run("iptables -nvxL INPUT").stdout
    dropped = re.search(r"^ *(\d+) +\d+ +DROP", told, re.MULTILINE)
    assert dropped
    assert int(dropped[1]) > 0


def test_a_long_way_on_which_packets_are_lost(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    for host in (hosts.first, hosts.second):
        made = host.run("tc qdisc add dev eth0 root netem delay 5ms 1ms loss 0.5%")
        if made.returncode != 0:
            pytest.skip(f"this kernel has no netem: {made.stderr.strip()}")
    hosts.run("transfer --sizes 0-256K --messages 60").expect_messages(60, 60)


@pytest.mark.parametrize("addresses", ["global", "link-local"])
def test_hosts_that_know_ipv6_alone(hosts: Hosts, tmp_path: Path, addresses: str) -> None:
    hosts.cable("eth0", 1, addresses="6")
    if addresses == "link-local":
        for host in (hosts.first, hosts.second):
            host.ip(f"addr del fd77:1::{host.rank + 1}/64 dev eth0")
    prefix = "fd77:1::1" if addresses == "global" else "fe80::"
    assert nics(hosts.first, tmp_path)[0].startswith(f"eth0 {prefix}")
    hosts.run("transfer --sizes 0-512K --messages 40").expect_messages(40, 40)


def test_several_nics_with_ipv6_as_one(hosts: Hosts) -> None:
    for number, name in enumerate(("eth0", "eth1")):
        hosts.cable(name, number, addresses="6")
    before = [hosts.first.sent(nic) for nic in ("eth0", "eth1")]
    hosts.run(
        "transfer --virtual-device 0,1 --direction forward --sizes 512K --messages 40", **MERGED
    ).expect_messages(40)
    for nic, sent in zip(("eth0", "eth1"), before, strict=True):
        assert hosts.first.sent(nic) - sent > 1 << 20


def test_which_nics_are_taken(hosts: Hosts, tmp_path: Path) -> None:
    for number, name in enumerate(("eth0", "eth1", "ens0")):
        hosts.cable(name, number)
    expected = {
        "eth": ["eth0", "eth1"],
        "=eth1": ["eth1"],
        "=eth": [],
        "^eth": ["lo", "ens0"],
        "^=eth0": ["lo", "eth1", "ens0"],
        "eth1,ens": ["eth1", "ens0"],
        "wlan": [],
        "": ["eth0", "eth1", "ens0"],
    }
    for value, names in expected.items():
        found = nics(hosts.first, tmp_path, NCCL_SOCKET_IFNAME=value)
        assert sorted(nic.split()[0] for nic in found) == sorted(names), value
    families = {"AF_INET": "eth0 10.77.0.1", "AF_INET6": "eth0 fd77::1"}
    for family, address in families.items():
        assert nics(hosts.first, tmp_path, NCCL_SOCKET_FAMILY=family)[0] == address


def test_the_connector_comes_from_its_own_nic(hosts: Hosts) -> None:
    # One subnet: the kernel by itself would take the first NIC's address.
    hosts.cable("eth0", 1)
    hosts.cable("eth1", 2)
    hosts.first.ip("addr flush dev eth1")
    hosts.first.ip("addr add 10.77.1.3/24 dev eth1")
    hosts.second.ip("link add eth9 type bridge")
    for nic in ("eth0", "eth1"):
        hosts.second.ip(f"addr flush dev {nic}")
        hosts.second.ip(f"link set {nic} master eth9")
    hosts.second.ip("addr add 10.77.1.2/24 dev eth9")
    hosts.second.ip("link set eth9 up")
    hosts.second.await_link("eth9")
    ranks = [
        host.start(hosts.folder / "meet", f"idle --seconds 1 --device {device}", **environment)
        for host, device, environment in (
            (hosts.first, 1, {"NCCL_SOCKET_IFNAME": "=eth0,eth1", "NCCL_SOCKET_FAMILY": "AF_INET"}),
            (hosts.second, 0, {"NCCL_SOCKET_IFNAME": "=eth9", "NCCL_SOCKET_FAMILY": "AF_INET"}),
        )
    ]
    wait_until(lambda: len(sockets(hosts.second, ESTABLISHED)) >= 4)
    assert {remote for _, _, remote, _ in sockets(hosts.second, ESTABLISHED)} == {"10.77.1.3"}
    hosts.end(ranks).expect_messages(0)


def test_ports_come_from_the_range(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    ports = {"NCCLTUNE_NET_PORTS": "50000-50003"}
    ranks = hosts.start("idle --seconds 1 --connections 4 --direction forward", **ports)
    wait_until(lambda: len(sockets(hosts.second, LISTENING)) >= 4)
    assert {port for _, port, _, _ in sockets(hosts.second, LISTENING)} == set(range(50000, 50004))
    assert not sockets(hosts.first, LISTENING)
    hosts.end(ranks).expect_messages(0)


def test_a_range_that_is_exhausted_is_named(hosts: Hosts) -> None:
    hosts.cable("eth0", 1)
    ended = hosts.run(
        "idle --seconds 1 --connections 5 --direction forward --log",
        NCCLTUNE_NET_PORTS="50000-50003",
    )
    assert ended.statuses == [1, 1]
    assert "listen returned system error" in ended.errors[0]
    assert re.search(r"cannot listen on eth0: .*NCCLTUNE_NET_PORTS=50000-50003", ended.errors[1])


@pytest.mark.parametrize("addresses", ["4", "6"])
def test_packets_carry_the_traffic_class(hosts: Hosts, addresses: str) -> None:
    hosts.cable("eth0", 1, addresses=addresses)
    # Expedited forwarding.
    with PacketTap(hosts.second.name, "eth0") as tap:
        hosts.run("transfer --sizes 64K --messages 5 --traffic-class 184").expect_messages(5, 5)
        with_data = [packet for packet in tap.packets() if packet.payload]
    assert {packet.outgoing for packet in with_data} == {True, False}
    assert {packet.traffic_class for packet in with_data} == {184}
