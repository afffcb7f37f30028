# SPDX-License-Identifier: Apache-2.0
"""The facts of a platform that a configuration keeps."""

from pathlib import Path

import pytest

from nccltune.app.study import open_study, platform_with_hardware
from nccltune.app.tune import save_tuning, tune_study
from nccltune.formats.importing.hardware import hardware_hash
from nccltune.formats.tuner_config.csv_rules import MAX_LINE, read_rules, rows_text
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.tune.basis import rests_on
from tests.unit.builders import measure, sizes, study_of

XML = b"""<system version="1">
<cpu numaid="0" host_hash="0x1" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="1"
 modelid="1"><pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90" rank="0" gdr="1"/></pci></cpu></system>
"""
MATRIX = b"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-7\nGPU1\tNV18\t X \t0-7\n"


@pytest.mark.parametrize(
    ("platform", "facts"),
    [
        (Platform(name="x"), {}),
        (
            Platform(name="x", gpu="H", gpus=16, nodes=2, driver_version="580.1"),
            {"driver": "580.1", "gpu": "H", "gpus": "8"},
        ),
        (Platform(name="x", gpus=4, nodes=4, emulated_nodes=True), {"gpus": "4"}),
        (Platform(name="x", recorded_at="2026-11-27"), {"settings": "none"}),
        (
            Platform(name="x", settings={"NCCL_B": 'a "b"\n', "NCCL_A": "1"}),
            {"settings": "NCCL_A=1 NCCL_B=a 'b' "},
        ),
    ],
)
def test_only_what_is_known_is_stated(platform: Platform, facts: dict[str, str]) -> None:
    assert rests_on(platform) == facts


def test_many_settings_are_told_apart_by_their_hash() -> None:
    many = {f"NCCL_NUMBER_{n}": "x" * 20 for n in range(20)}
    text = rests_on(Platform(name="x", settings=many))["settings"]
    other = rests_on(Platform(name="x", settings=many | {"NCCL_NUMBER_3": "y"}))["settings"]
    assert text.startswith("20 variables, hash ")
    assert len(text) < 60
    assert text != other


def test_a_restart_does_not_change_the_hash_of_a_machine() -> None:
    assert hardware_hash(XML) == hardware_hash(XML.replace(b"0x1", b"0x2"))
    assert hardware_hash(XML) == hardware_hash(XML.replace(b"\n", b"\n  "))
    assert hardware_hash(XML) != hardware_hash(XML.replace(b'width="16"', b'width="8"'))
    wider = MATRIX.replace(b"CPU Affinity", b"CPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    assert hardware_hash(MATRIX).startswith("nvidia-smi ")
    assert hardware_hash(MATRIX) == hardware_hash(MATRIX.replace(b"\t X \t", b"\tX\t"))
    assert hardware_hash(MATRIX) == hardware_hash(wider)
    assert hardware_hash(MATRIX) != hardware_hash(MATRIX.replace(b"NV18", b"NV17"))
    with pytest.raises(InputError):
        hardware_hash(b"nvidia-smi: command not found")


def test_the_header_states_the_study_and_its_hardware(tmp_path: Path) -> None:
    settings = {f"NCCL_NUMBER_{n}": "x" * 20 for n in range(20)}
    platform = Platform(
        name="study",
        gpu="NVIDIA H200",
        gpus=4,
        nodes=1,
        nccl_version="2.28.9",
        driver_version="580.159.04",
        settings=settings,
    )
    times = {"default": 20.0, "tree/ll": 12.0}
    samples = measure(sizes(1 << 10, 1 << 16), times, noise=0.01)
    study = study_of(tmp_path / "study", samples, platform)
    (study.path / "topology.xml").write_bytes(XML)
    save_tuning(study, tune_study(open_study(study.path)))
    read = read_rules(study.config_path, strict=True)
    rests = rests_on(platform_with_hardware(study))
    assert set(rests) == {"nccl", "driver", "gpu", "gpus", "topology", "settings"}
    assert rests.items() <= read.header.items()
    assert read.header["rows"] == rows_text([item.rule for item in read.rules])
    lines = study.config_path.read_text().splitlines()
    assert max(map(len, lines)) <= MAX_LINE
