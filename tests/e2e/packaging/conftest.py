# SPDX-License-Identifier: Apache-2.0
"""What is packed: a wheel of this version, and a Debian to install it in."""

import os
import platform
import shutil
from pathlib import Path

import pytest

import nccltune
from tests.programs import completed

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def wheel() -> Path:
    """This version's wheel for this machine: NCCLTUNE_WHEEL, or one in dist."""
    named = os.environ.get("NCCLTUNE_WHEEL")
    pattern = f"nccltune-{nccltune.__version__}-*_{platform.machine()}.whl"
    found = [Path(named)] if named else sorted((ROOT / "dist").glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} in dist: make wheels")
    return found[0]


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smallest Debian with certificates, as a tar file."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no mmdebstrap: apt-get install mmdebstrap")
    if os.geteuid() != 0:
        pytest.skip("roots and chroots are made by root")
    tar = tmp_path_factory.mktemp("debian") / "bookworm.tar"
    made = completed(
        ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "bookworm", tar]
    )
    if made.returncode != 0:
        pytest.skip(f"no packages of Debian here: {made.stderr.strip().splitlines()[-1]}")
    return tar
