# SPDX-License-Identifier: Apache-2.0
"""The PCI tree of a machine, from a sysfs made for the test."""

from pathlib import Path

from nccltune.formats.topology.sysfs import read_sysfs
from nccltune.model.topology import Dialect, Pci
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.nccl_model.paths import PathKind, paths

GEN5 = {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
GEN4 = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}
GPU = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", **GEN5}
NIC = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", **GEN5}
BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("proc/cpuinfo", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\n\nx : y\n")
        (root / "sys/bus/pci/devices").mkdir(parents=True)

    def put(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def device(self, path: str, facts: dict[str, str], numa: int = 0) -> None:
        """Add a PCI device at `pci0000:00/...`."""
        where = f"sys/devices/{path}"
        for name, text in {**facts, "numa_node": str(numa)}.items():
            self.put(f"{where}/{name}", text)
        link = self.root / "sys/bus/pci/devices" / path.rpartition("/")[2]
        link.symlink_to(self.root / where)

    def net(self, kind: str, name: str, device: str, files: dict[str, str]) -> None:
        folder = self.root / "sys/class" / kind / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(self.root / "sys/devices" / device)
        for file, text in files.items():
            self.put(f"sys/class/{kind}/{name}/{file}", text)

    def node(self, number: int, mask: str) -> None:
        self.put(f"sys/devices/system/node/node{number}/cpumap", mask)


def one_switch(machine: Machine) -> None:
    """Add a GPU and a NIC below one switch, and a GPU on the other socket."""
    machine.node(0, "0000ffff")
    machine.node(1, "ffff0000")
    top = "pci0000:16/0000:16:01.0"
    machine.device(top, {**BRIDGE, **GEN5})
    machine.device(f"{top}/0000:17:00.0", {**BRIDGE, **GEN5})
    for port, device, facts in (
        ("0000:18:00.0", "0000:19:00.0", GPU),
        ("0000:18:01.0", "0000:1a:00.0", NIC),
        ("0000:18:02.0", "0000:1b:00.0", {**NIC, "class": "0x010802"}),
    ):
        machine.device(f"{top}/0000:17:00.0/{port}", {**BRIDGE, **GEN4})
        machine.device(f"{top}/0000:17:00.0/{port}/{device}", facts)
    machine.device("pci0000:80/0000:80:01.0", BRIDGE, numa=1)
    machine.device("pci0000:80/0000:80:01.0/0000:81:00.0", GPU, numa=1)
    nic = f"{top}/0000:17:00.0/0000:18:01.0/0000:1a:00.0"
    machine.net(
        "infiniband", "mlx5_0", nic,
        {"ports/1/rate": "400 Gb/sec (4X NDR)", "node_guid": "a088:c203:0012:3456"},
    )  # fmt: skip
    machine.net("net", "ib0", nic, {"speed": "400000"})


def gpus(devices: tuple[Pci, ...]) -> list[int]:
    found = []
    for device in devices:
        if device.gpu is not None:
            found.append(device.gpu.index or 0)
        found += gpus(device.children)
    return found


def test_a_machine(tmp_path: Path) -> None:
    one_switch(Machine(tmp_path))
    topology = read_sysfs(tmp_path)
    assert topology.dialect is Dialect.SYSFS
    assert topology.unread == ()
    assert [(cpu.numa, cpu.affinity) for cpu in topology.cpus] == [
        (0, "0000ffff"), (1, "ffff0000"),
    ]  # fmt: skip
    first = topology.cpus[0]
    assert (first.arch, first.vendor, first.family, first.model) == (
        "x86_64", "GenuineIntel", 6, 143,
    )  # fmt: skip
    # As in NCCL, the upstream port is the switch, and unused ports are left out.
    (switch,) = first.devices
    assert (switch.bus_id, switch.class_code) == ("0000:17:00.0", "0x060400")
    assert [device.bus_id for device in switch.children] == ["0000:19:00.0", "0000:1a:00.0"]
    gpu, nic = switch.children
    # The port is one generation older than the device.
    assert (gpu.speed, gpu.width) == ("16.0 GT/s PCIe", 16)
    assert [(net.name, net.mbit_per_s, net.port) for net in nic.nets] == [("mlx5_0", 400000, 1)]
    assert nic.nets[0].guid == "0xa088c20300123456"
    assert gpus(topology.cpus[1].devices) == [1]
    way = paths(link_graph([topology]))
    assert way.between("GPU0", "NET mlx5_0").kind is PathKind.PIX
    assert way.between("GPU0", "GPU1").kind is PathKind.SYS


def test_functions_of_a_card_are_ports_of_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for function in (0, 1):
        path = f"pci0000:00/0000:00:02.0/0000:01:00.{function}"
        machine.device(path, NIC, numa=-1)
        machine.net(
            "infiniband", f"mlx5_{9 + function}", path, {"ports/1/rate": "100 Gb/sec (4X EDR)"}
        )
    (device,) = read_sysfs(tmp_path).cpus[0].devices
    assert device.bus_id == "0000:01:00.0"
    assert [net.name for net in device.nets] == ["mlx5_9", "mlx5_10"]


def test_virtio_hangs_on_the_first_cpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.device("pci0000:00/0000:00:06.0", GPU, numa=-1)
    machine.put("sys/devices/pci0000:00/0000:00:03.0/virtio2/modalias", "virtio:d1")
    machine.net("net", "eth0", "pci0000:00/0000:00:03.0/virtio2", {"speed": "-1"})
    machine.put("sys/class/net/lo/speed", "")
    (cpu,) = read_sysfs(tmp_path).cpus
    assert cpu.numa == -1
    assert [(net.name, net.mbit_per_s) for net in cpu.nets] == [("eth0", -1)]
    assert [device.bus_id for device in cpu.devices] == ["0000:00:06.0"]


def test_devices_without_a_numa_node_are_put_on_the_only_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.node(0, "ff")
    machine.device("pci0000:00/0000:00:06.0", GPU, numa=-1)
    (cpu,) = read_sysfs(tmp_path).cpus
    assert (cpu.numa, len(cpu.devices)) == (0, 1)


def test_a_console_is_no_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.device("pci0000:00/0000:00:02.0", {"class": "0x030000", "vendor": "0x1a03"})
    assert read_sysfs(tmp_path).cpus[0].devices == ()


def test_a_machine_without_sysfs(tmp_path: Path) -> None:
    topology = read_sysfs(tmp_path)
    assert topology.cpus[0].devices == ()
    assert "no PCI device is seen" in topology.unread[0]


def test_architectures_by_cpuinfo(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put("proc/cpuinfo", "processor : 0\nCPU implementer : 0x41\n")
    assert read_sysfs(tmp_path).cpus[0].arch == "arm64"
    machine.put("proc/cpuinfo", "processor : 0\ncpu : POWER9\n")
    assert read_sysfs(tmp_path).cpus[0].arch == "ppc64"


def test_this_machine_reads() -> None:
    assert read_sysfs().cpus


def test_ports_that_are_down_are_left_out_and_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    path = "pci0000:00/0000:00:02.0/0000:01:00.0"
    machine.device(path, NIC)
    files = {
        "ports/1/rate": "10 Gb/sec (1X SDR)", "ports/1/state": "1: DOWN",
        "ports/2/rate": "200 Gb/sec (4X HDR)", "ports/2/state": "4: ACTIVE",
    }  # fmt: skip
    machine.net("infiniband", "mlx5_0", path, files)
    other = "pci0000:00/0000:00:03.0/0000:02:00.0"
    machine.device(other, {**NIC, "class": "0x020000"})
    machine.net("net", "eth1", other, {"operstate": "down"})
    topology = read_sysfs(tmp_path)
    (device,) = topology.cpus[0].devices
    assert [(net.port, net.mbit_per_s) for net in device.nets] == [(2, 200000)]
    assert topology.unread == (
        "mlx5_0 port 1 is 1: DOWN: NCCL skips it", "eth1 is down: NCCL skips it",
    )  # fmt: skip
