# SPDX-License-Identifier: Apache-2.0
"""The guide shows what is rendered, word for word."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import read_job
from nccltune.launch.render import render

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("flavor", "file", "hosts"),
    [
        (Flavor(Launcher.LOCAL), "1x8", []),
        (Flavor(Launcher.OPENMPI, (4, 1, 4)), "2x8-per-gpu", ["node1", "node2"]),
        (Flavor(Launcher.HYDRA), "2x8-per-gpu", ["node1", "node2"]),
        (Flavor(Launcher.SLURM), "2x8-per-gpu", []),
    ],
)
def test_the_guide_has_it(flavor: Flavor, file: str, hosts: list[str]) -> None:
    job = replace(read_job(ROOT / "examples" / "jobs" / f"{file}.toml"), hosts=hosts)
    guide = (ROOT / "docs" / "guides" / "launching.md").read_text()
    assert f"```\n{render(job, flavor).text}```\n" in guide
