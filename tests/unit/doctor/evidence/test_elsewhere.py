# SPDX-License-Identifier: Apache-2.0
"""Files of another host are examined alone; files of this node are further evidence."""

import os
from pathlib import Path

import pytest

from nccltune.doctor.evidence import elsewhere
from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.facts import Facts
from tests.unit.doctor.evidence import texts

HERE = os.uname().nodename.partition(".")[0]
LOG = (
    "{0}:10:20 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
    "{0}:10:20 [0] NCCL INFO Using network IB\n"
)
DEVICE = "#  Rank  0 Group  0 Pid  7 on {} device  0 [0x01] NVIDIA H200\n"


def read(folder: Path, **files: str) -> Facts | None:
    paths = []
    for name, text in files.items():
        paths.append(folder / name.replace("_", "."))
        paths[-1].write_text(text)
    return read_elsewhere(paths)


@pytest.fixture(params=[True, False], ids=["gpu", "laptop"])
def driver(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether this node has an NVIDIA driver."""
    here = str(tmp_path) if request.param else str(tmp_path / "none")
    monkeypatch.setattr(elsewhere, "_NVIDIA", (here,))
    return bool(request.param)


@pytest.mark.usefixtures("driver")
def test_a_log_of_another_host(tmp_path: Path) -> None:
    found = read(tmp_path, run_log=LOG.format("other-7"))
    assert found is not None
    assert found.node == "other-7"
    assert "gpus" not in found
    found = read(tmp_path, run_log=LOG.format("a-1") + LOG.format("a-2"))
    assert found is not None
    assert found.node == "run.log"
    assert read(tmp_path, run_out=DEVICE.format("other-7") + "# nThread 1 nGpus 1\n") is not None


@pytest.mark.usefixtures("driver")
def test_a_log_of_this_host(tmp_path: Path) -> None:
    assert read(tmp_path, run_log=LOG.format("other-7") + LOG.format(HERE)) is None
    assert read(tmp_path, run_log=LOG.format(f"{HERE}.example.org")) is None


def test_outputs_without_a_host(tmp_path: Path, driver: bool) -> None:
    table = "# nThread 1 nGpus 1 minBytes 8\n# Out of bounds values : 0 OK\n"
    assert (read(tmp_path, run_out=table) is None) is driver
    kernel = "[    1.402311] AMD-Vi: Interrupt remapping enabled\n"
    assert (read(tmp_path, dmesg_txt=kernel) is None) is driver


@pytest.mark.usefixtures("driver")
def test_what_this_node_shows_itself_is_of_another(tmp_path: Path) -> None:
    found = read(tmp_path, topo_txt=texts.TOPO)
    assert found is not None
    assert found.node == "topo.txt"
    environment = read(tmp_path, env_txt="NCCL_IB_HCA=mlx5_0\nPATH=/bin\n")
    assert environment is not None
    assert environment.node == "env.txt"


@pytest.mark.usefixtures("driver")
def test_files_that_go_with_this_node(tmp_path: Path) -> None:
    job = "#!/bin/bash\n#SBATCH -N 2\nexport NCCL_DEBUG=WARN\nsrun -n 16 ./all_reduce_perf\n"
    assert read(tmp_path, job_sbatch=job) is None
    assert read(tmp_path, topo_xml='<system version="1">\n</system>\n') is None
    assert read(tmp_path, notes_txt="roses are red\n") is None
    assert read_elsewhere([]) is None
