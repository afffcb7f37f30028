# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

import nccltune
from nccltune.model.errors import PlatformError
from nccltune.native import host_path, tuner_path


@pytest.fixture
def two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two package folders, as an editable installation has them."""
    folders = [tmp_path / "sources", tmp_path / "site"]
    for folder in folders:
        (folder / "native").mkdir(parents=True)
    monkeypatch.setattr(nccltune, "__path__", [str(folder) for folder in folders])
    monkeypatch.delenv("NCCLTUNE_NATIVE_DIR", raising=False)
    return folders


def put(folder: Path, part: str) -> Path:
    path = folder / part
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_found_in_any_folder_of_the_package(two_folders: list[Path]) -> None:
    tuner = put(two_folders[1] / "native", "lib/libnccl-tuner-nccltune.so")
    host = put(two_folders[0] / "native", "bin/nccltune-host")
    assert tuner_path() == tuner
    assert host_path() == host


def test_the_environment_goes_first(
    two_folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(two_folders[0] / "native", "bin/nccltune-host")
    other = put(tmp_path / "other", "bin/nccltune-host")
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", str(tmp_path / "other"))
    assert host_path() == other
    with pytest.raises(PlatformError) as caught:
        tuner_path()
    assert str(tmp_path / "other") in str(caught.value)
    assert "NCCLTUNE_NATIVE_DIR" in (caught.value.hint or "")


def test_the_environment_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = put(tmp_path / "other", "bin/nccltune-host")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", "other")
    assert host_path() == host


def test_missing_parts_say_where_they_were_looked_for(two_folders: list[Path]) -> None:
    with pytest.raises(PlatformError, match="libnccl-tuner-nccltune.so") as caught:
        tuner_path()
    assert caught.value.exit_code == 3
    for folder in two_folders:
        assert str(folder) in str(caught.value)
    assert "pip install" in (caught.value.hint or "")
