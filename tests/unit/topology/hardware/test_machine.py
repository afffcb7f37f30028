# SPDX-License-Identifier: Apache-2.0
"""The data that nvidia-smi adds to sysfs."""

from nccltune.formats.topology.nvidia_smi_matrix import read_matrix
from nccltune.model.topology import Cpu, Dialect, Gpu, Pci, Topology
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.machine import capabilities, this_machine, with_smi
from nccltune.topology.nccl_model.paths import PathKind, paths

MACHINE = Topology(
    source="/sys",
    dialect=Dialect.SYSFS,
    cpus=(
        Cpu(
            numa=0,
            devices=tuple(
                Pci(bus_id=bus_id, class_code="0x030200", gpu=Gpu(index=index))
                for index, bus_id in enumerate(("0000:17:00.0", "0000:31:00.0"))
            ),
        ),
    ),
)
ROWS = "0, 00000000:17:00.0, 8.6\n1, 00000000:31:00.0, 8.6\nnonsense\n"
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV4\t0-7\nGPU1\tNV4\tX\t0-7\n"


def test_rows() -> None:
    assert capabilities(ROWS) == {"0000:17:00.0": (0, 86), "0000:31:00.0": (1, 86)}
    assert capabilities("0, 00010001:17:00.0, 10.0\n") == {"0001:17:00.0": (0, 100)}


def test_nvlinks_and_capabilities_at_real_bus_ids() -> None:
    topology = with_smi(MACHINE, read_matrix(MATRIX.encode(), "smi"), capabilities(ROWS))
    path = paths(link_graph([topology])).between("GPU0", "GPU1")
    assert (path.kind, path.gb_per_s) == (PathKind.NVL, 48.0)
    assert topology.cpus[0].devices[1].bus_id == "0000:31:00.0"


def test_another_number_of_gpus() -> None:
    matrix = read_matrix(b"\tGPU0\tCPU Affinity\nGPU0\tX\t0-7\n", "smi")
    topology = with_smi(MACHINE, matrix, {})
    assert topology.unread == (
        "nvidia-smi lists 1 GPU, sysfs 2: NVLinks are left out",
    )  # fmt: skip


def test_this_machine_answers() -> None:
    assert this_machine().cpus
