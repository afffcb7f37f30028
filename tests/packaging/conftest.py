# SPDX-License-Identifier: Apache-2.0
import zipfile
from pathlib import Path

import pytest

from nccltune import __version__

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = ("x86_64", "aarch64")


def wheel_path(architecture: str) -> Path:
    """The wheel of this version; skips the test where it was not built."""
    tag = f"py3-none-manylinux_2_28_{architecture}"
    path = ROOT / "dist" / f"nccltune-{__version__}-{tag}.whl"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in dist/ (make wheels)")
    return path


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The native folder of each wheel that was built, by architecture."""
    folders = {}
    for architecture in ARCHITECTURES:
        folder = tmp_path_factory.mktemp(architecture)
        for wheel in (ROOT / "dist").glob(f"nccltune-{__version__}-*_{architecture}.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    path = Path(archive.extract(member, folder))
                    if member.external_attr >> 16 & 0o111:
                        path.chmod(0o755)
        folders[architecture] = folder / "nccltune" / "native"
    return folders
