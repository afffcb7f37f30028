# SPDX-License-Identifier: Apache-2.0
"""The deb and the rpm: what is in them, that it is installed, and that it opens from C."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.packaging.conftest import ROOT
from tests.programs import completed

LIBRARIES = [
    "libnccl-net-nccltune.so",
    "libnccl-profiler-nccltune.so",
    "libnccl-tuner-nccltune.so",
    "libnccltune-sendrecv.so",
    "nccltune-net/libnccl-net.so",
    "nccltune-sendrecv/libnccl.so.2",
]
DEB_FOLDER = f"/usr/lib/{platform.machine()}-linux-gnu/nccltune"
RPM_FOLDER = "/usr/lib64/nccltune"
BESIDE = ["/etc/nccltune/profile.conf", "/etc/profile.d/nccltune.sh"]


def needs(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} here")
    return path


def output(*words: object) -> str:
    done = completed([str(word) for word in words], check=True)
    return done.stdout


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("dpkg-deb")
    needs("rpmbuild")
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run(
        [ROOT / "packaging" / "packages.sh", folder, wheel.resolve()],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def deb(packages: Path) -> Path:
    return next(packages.glob("*.deb"))


@pytest.fixture(scope="module")
def rpm(packages: Path) -> Path:
    return next(packages.glob("*.rpm"))


@pytest.fixture(scope="module")
def opener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in C that opens libraries."""
    program = tmp_path_factory.mktemp("c") / "open_all"
    source = Path(__file__).with_name("open_all.c")
    subprocess.run([needs("cc"), source, "-o", program, "-ldl"], check=True)
    return program


def opened(opener: Path, folder: Path) -> list[str]:
    paths = [str(folder / name) for name in LIBRARIES]
    return [str(Path(line).relative_to(folder)) for line in output(opener, *paths).splitlines()]


def files_of(tree: Path) -> set[str]:
    return {f"/{path.relative_to(tree)}" for path in tree.rglob("*") if path.is_file()}


def test_the_deb_holds_the_plugins_and_the_snippet(deb: Path, opener: Path, tmp_path: Path) -> None:
    output(needs("dpkg-deb"), "-x", deb, tmp_path)
    assert files_of(tmp_path) == {
        *(f"{DEB_FOLDER}/{name}" for name in LIBRARIES),
        *BESIDE,
        "/usr/share/doc/nccltune-plugins/copyright",
    }
    assert opened(opener, tmp_path / DEB_FOLDER[1:]) == LIBRARIES


def test_the_rpm_holds_the_plugins_and_the_snippet(rpm: Path, opener: Path, tmp_path: Path) -> None:
    listed = {line for line in output(needs("rpm"), "-qpl", rpm).splitlines() if "." in line}
    assert listed == {*(f"{RPM_FOLDER}/{name}" for name in LIBRARIES), *BESIDE}
    archive = subprocess.run([needs("rpm2cpio"), rpm], capture_output=True, check=True).stdout
    # Without that option an absolute name would be written to, and not into this folder.
    unpack = [needs("cpio"), "-id", "--quiet", "--no-absolute-filenames"]
    subprocess.run(unpack, input=archive, cwd=tmp_path, check=True)
    assert opened(opener, tmp_path / RPM_FOLDER[1:]) == LIBRARIES


def test_the_rpm_is_installed_and_removed_by_rpm(rpm: Path, opener: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("rpm changes its root as root alone")
    program = [needs("rpm"), "--root", tmp_path, "--dbpath", "/var/lib/rpm"]
    # No C library is in that root, as a package.
    output(*program, "-i", "--nodeps", rpm)
    assert opened(opener, tmp_path / RPM_FOLDER[1:]) == LIBRARIES
    assert output(*program, "-q", "nccltune-plugins").startswith("nccltune-plugins-")
    output(*program, "-V", "--nodeps", "nccltune-plugins")
    output(*program, "-e", "nccltune-plugins")
    assert not (tmp_path / RPM_FOLDER[1:]).exists()


def test_the_rpm_keeps_what_an_administrator_wrote(rpm: Path) -> None:
    assert output(needs("rpm"), "-qpc", rpm).split() == BESIDE


def test_the_deb_is_installed_and_removed_by_dpkg(
    deb: Path, debian: Path, opener: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    output("tar", "--extract", "--file", debian, "--directory", root)
    shutil.copy(deb, root / "nccltune.deb")
    shutil.copy(opener, root / "open_all")
    inside = ["chroot", root]
    output(*inside, "dpkg", "-i", "/nccltune.deb")
    assert output(*inside, "dpkg-query", "-W", "-f", "${db:Status-Status}", "nccltune-plugins") == (
        "installed"
    )
    paths = [f"{DEB_FOLDER}/{name}" for name in LIBRARIES]
    assert output(*inside, "/open_all", *paths).splitlines() == paths
    # As installed it sets nothing.
    source = ". /etc/profile.d/nccltune.sh; env"
    shown = output(*inside, "env", "-i", "sh", "-uec", source).splitlines()
    assert [line for line in shown if not line.startswith(("PWD=", "_=", "SHLVL=", "PATH="))] == []
    output(*inside, "dpkg", "--purge", "nccltune-plugins")
    assert not (root / DEB_FOLDER[1:]).exists()
    assert not (root / "etc" / "nccltune").exists()
